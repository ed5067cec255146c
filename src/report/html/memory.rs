//! Memory by term and pipeline rank, and of hosts that hold a part of it, against the capacity.

use super::bars::{Bar, Mark, stacked};
use super::parts::table;
use crate::host_memory::{HostMemory, fullest};
use crate::report::number::gib;
use cluster_profiles::Bytes;
use cost_models::RankMemory;
use maud::{Markup, html};

/// Bars that are drawn; more ranks are drawn by groups of neighbours, each as its fullest rank.
const MOST_BARS: usize = 24;
/// Colours of what hosts hold: those that the optimizer and activations have on GPUs.
const STATE: usize = 2;
const ACTIVATIONS: usize = 3;
/// Rows of the table.
const MOST_ROWS: usize = 256;

/// The part of a page, with the title, the capacity and the limit of every kind of GPU. Where ranks take different shares, a bar
/// is a rank on one of these kinds.
pub fn section(
    memory: &[RankMemory],
    shares: &[(String, RankMemory)],
    kinds: &[(String, Bytes, Bytes)],
) -> Markup {
    let names: Vec<String> =
        RankMemory::default().terms().iter().map(|(name, _)| (*name).to_owned()).collect();
    let size = if shares.is_empty() { memory.len().div_ceil(MOST_BARS).max(1) } else { 1 };
    let bars: Vec<Bar> = match shares {
        [] => memory.chunks(size).filter_map(bar).collect(),
        shares => shares.iter().map(|(kind, memory)| bar_of(format!("on {kind}"), memory)).collect(),
    };
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
    let mut header = vec![if shares.is_empty() { "pipeline rank" } else { "rank on" }, "peak GiB"];
    header.extend(names.iter().map(String::as_str));
    let rows: Vec<Vec<String>> = match shares {
        [] => memory.iter().take(MOST_ROWS).map(|rank| row(rank.rank.to_string(), rank)).collect(),
        shares => shares.iter().map(|(kind, memory)| row(kind.clone(), memory)).collect(),
    };
    html! {
        h2 { (if shares.is_empty() { "Memory of pipeline ranks, GiB" } else { "Memory of a rank by kind of GPU, GiB" }) }
        @if size > 1 { p.soft { "Each bar stands for " (size) " neighbouring ranks and shows the fullest." } }
        (stacked(&names, &bars, &marks, |amount| format!("{amount:.1} GiB")))
        details {
            summary { "In numbers" }
            (table(&header, &[], &rows))
            @if memory.len() > MOST_ROWS { p.soft { "The first " (MOST_ROWS) " of " (memory.len()) " ranks." } }
        }
    }
}

/// What hosts hold of activations and state that left the GPUs; nothing where none did. Neighbours alike are one bar.
pub fn hosts(names: &[String], hosts: &[HostMemory]) -> Markup {
    let terms = ["parameters", "gradients", "state", "activations"].map(str::to_owned);
    let name = |at: usize| names.get(at).map_or("", String::as_str);
    let mut runs: Vec<(usize, &[HostMemory])> = Vec::new();
    for run in hosts.chunk_by(|a, b| a == b) {
        let first = runs.last().map_or(0, |(first, last)| first + last.len());
        runs.push((first, run));
    }
    let label = |(first, run): &(usize, &[HostMemory])| match run.len() {
        1 => name(*first).to_owned(),
        alike => format!("{} to {}", name(*first), name(first + alike - 1)),
    };
    let bars = runs.iter().take(MOST_BARS).map(|run| {
        let host = run.1[0];
        let parts = vec![(STATE, host.state.as_gib()), (ACTIVATIONS, host.activations.as_gib())];
        Bar { label: label(run), parts, total: gib(host.total()) }
    });
    let bars: Vec<Bar> = bars.collect();
    let rows = runs.iter().take(MOST_ROWS).map(|run| {
        let HostMemory { state, activations, capacity } = run.1[0];
        let capacity = capacity.map_or_else(|| "not known".to_owned(), gib);
        vec![
            label(run),
            run.1.len().to_string(),
            gib(state + activations),
            gib(state),
            gib(activations),
            capacity,
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let header = ["host", "hosts alike", "in use GiB", "state", "activations", "memory of a host"];
    html! {
        @if let Some(fullest) = fullest(hosts) {
            h2 { "Memory of hosts, GiB" }
            p.soft { "What leaves the GPUs of a host: activations between forward and backward, and state." }
            @if fullest.is_over() { p.bad { "A host has less memory than this plan keeps there." } }
            (stacked(&terms, &bars, &marks_of(hosts), |amount| format!("{amount:.1} GiB")))
            @if runs.len() > MOST_BARS { p.soft { "The first " (MOST_BARS) " of " (runs.len()) " different groups of hosts." } }
            details { summary { "In numbers" } (table(&header, &[], &rows)) }
        }
    }
}

/// Every memory that a host has, once.
fn marks_of(hosts: &[HostMemory]) -> Vec<Mark> {
    let mut capacities: Vec<Bytes> = hosts.iter().filter_map(|host| host.capacity).collect();
    capacities.sort_by(|a, b| b.get().total_cmp(&a.get()));
    capacities.dedup();
    let mark =
        |at: Bytes| Mark { at: at.as_gib(), name: format!("memory of a host {} GiB", gib(at)), soft: false };
    capacities.into_iter().map(mark).collect()
}

fn bar(ranks: &[RankMemory]) -> Option<Bar> {
    let fullest = ranks.iter().max_by(|a, b| a.peak_bytes.get().total_cmp(&b.peak_bytes.get()))?;
    let (first, last) = (ranks.first()?.rank, ranks.last()?.rank);
    let label = if first == last { format!("rank {first}") } else { format!("ranks {first}-{last}") };
    Some(bar_of(label, fullest))
}

fn bar_of(label: String, memory: &RankMemory) -> Bar {
    let terms = memory.terms().into_iter().enumerate();
    let parts = terms.map(|(colour, (_, bytes))| (colour, bytes.as_gib())).collect();
    Bar { label, parts, total: gib(memory.peak_bytes) }
}

fn row(name: String, memory: &RankMemory) -> Vec<String> {
    let terms = memory.terms().into_iter().map(|(_, bytes)| gib(bytes));
    [name, gib(memory.peak_bytes)].into_iter().chain(terms).collect()
}
