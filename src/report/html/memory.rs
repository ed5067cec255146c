//! Memory by term and pipeline rank, against the capacity.

use super::bars::{Bar, Mark, stacked};
use super::parts::table;
use crate::report::number::gib;
use cluster_profiles::Bytes;
use cost_models::RankMemory;
use maud::{Markup, html};

/// Bars that are drawn; more ranks are drawn by groups of neighbours, each as its fullest rank.
const MOST_BARS: usize = 24;
/// Rows of the table.
const MOST_ROWS: usize = 256;

/// The part of a page, with the title, the capacity and the limit of every kind of GPU.
pub fn section(memory: &[RankMemory], kinds: &[(String, Bytes, Bytes)]) -> Markup {
    let names: Vec<String> =
        RankMemory::default().terms().iter().map(|(name, _)| (*name).to_owned()).collect();
    let size = memory.len().div_ceil(MOST_BARS).max(1);
    let bars: Vec<Bar> = memory.chunks(size).filter_map(bar).collect();
    let marks: Vec<Mark> = kinds
        .iter()
        .flat_map(|(kind, capacity, limit)| {
            let of = if kinds.len() > 1 { format!(" of {kind}") } else { String::new() };
            let mark = |what: &str, at: Bytes, soft| Mark {
                at: at.as_gib(),
                name: format!("{what}{of} {} GiB", gib(at)),
                soft,
            };
            [mark("capacity", *capacity, false), mark("limit", *limit, true)]
        })
        .collect();
    let mut header = vec!["pipeline rank", "peak GiB"];
    header.extend(names.iter().map(String::as_str));
    let rows: Vec<Vec<String>> = memory.iter().take(MOST_ROWS).map(row).collect();
    html! {
        h2 { "Memory of every pipeline rank, GiB" }
        @if size > 1 { p.soft { "Each bar stands for " (size) " neighbouring ranks and shows the fullest." } }
        (stacked(&names, &bars, &marks, |amount| format!("{amount:.1} GiB")))
        details {
            summary { "In numbers" }
            (table(&header, &[], &rows))
            @if memory.len() > MOST_ROWS { p.soft { "The first " (MOST_ROWS) " of " (memory.len()) " ranks." } }
        }
    }
}

fn bar(ranks: &[RankMemory]) -> Option<Bar> {
    let fullest = ranks.iter().max_by(|a, b| a.peak_bytes.get().total_cmp(&b.peak_bytes.get()))?;
    let (first, last) = (ranks.first()?.rank, ranks.last()?.rank);
    let parts =
        fullest.terms().iter().enumerate().map(|(colour, (_, bytes))| (colour, bytes.as_gib())).collect();
    Some(Bar {
        label: if first == last { format!("rank {first}") } else { format!("ranks {first}-{last}") },
        parts,
        total: gib(fullest.peak_bytes),
    })
}

fn row(rank: &RankMemory) -> Vec<String> {
    let terms = rank.terms().into_iter().map(|(_, bytes)| gib(bytes));
    [rank.rank.to_string(), gib(rank.peak_bytes)].into_iter().chain(terms).collect()
}
