//! OSU micro-benchmarks: collectives (`osu_allreduce` and its siblings), `osu_bw` and `osu_latency`.
//!
//! The collectives print the size of one rank's message: a gathered tensor is that times the ranks. How many ranks
//! there were is not printed.

use super::Hints;
use super::findings::{Findings, Group, LinkFact, LinkPlace, Origin};
use super::source::{self, Input, positive};
use crate::error::AppError;
use cluster_profiles::{BytesPerSecond, Collective, Seconds};

/// What a test's title says.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Test {
    /// Times of a collective; the printed size counts this many times per rank.
    Collective(Collective, bool),
    /// Rate between two ranks.
    Bandwidth,
    /// Time between two ranks.
    Latency,
    Other,
}

fn test(title: &str) -> Test {
    let title = title.to_lowercase();
    let has = |word: &str| title.contains(word);
    if has("bi-directional") || has("multi") || has("one-sided") || has("put") || has("get_") {
        Test::Other
    } else if has("allreduce") {
        Test::Collective(Collective::AllReduce, false)
    } else if has("allgather") {
        Test::Collective(Collective::AllGather, true)
    } else if has("reduce_scatter") || has("reduce scatter") {
        Test::Collective(Collective::ReduceScatter, false)
    } else if has("all-to-all") || has("alltoall") {
        Test::Collective(Collective::AllToAll, true)
    } else if has("bandwidth test") {
        Test::Bandwidth
    } else if has("latency test")
        && !["bcast", "broadcast", "gather", "scatter", "reduce", "barrier"].iter().any(|w| has(w))
    {
        Test::Latency
    } else {
        Test::Other
    }
}

/// Imports a file.
///
/// # Errors
/// It is no OSU output, a row is cut, or the number of ranks is not given.
pub fn import(input: &Input, hints: &Hints, found: &mut Findings) -> Result<(), AppError> {
    let mut lines = input.lines()?;
    let (mut now, mut titled, mut columns, mut rows, mut date) = (Test::Other, false, 0, 0_u64, None);
    let mut best: (f64, f64) = (0.0, f64::INFINITY);
    while let Some(line) = lines.next_line()? {
        let line = line.trim().to_owned();
        date = date.or_else(|| source::date(&line));
        if let Some(title) = line.strip_prefix('#') {
            if title.contains("OSU") {
                (now, titled) = (test(title), true);
            } else if title.trim_start().starts_with("Size") {
                columns = title.matches(')').count().max(1) + 1;
                check_units(title).map_err(|message| lines.fault(message))?;
            }
            continue;
        }
        if !titled || columns == 0 || !line.starts_with(|c: char| c.is_ascii_digit()) {
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.len() < columns.min(2) {
            return Err(lines.fault("a size without a value: the log is cut"));
        }
        lines.refuse_cut()?;
        let size = source::number(words[0]).map_err(|m| lines.fault(m))?;
        let value = positive(words[1], 1e12).map_err(|m| lines.fault(m))?;
        rows += 1;
        match now {
            Test::Collective(op, per_rank) => {
                let ranks = hints.ranks.ok_or_else(|| {
                    let hint = "say it: --ranks 16 --per-node 8".to_owned();
                    input.hinted(lines.number(), "OSU does not print how many ranks there were", Some(hint))
                })?;
                let whole = if per_rank { size * f64::from(ranks) } else { size };
                source::believable(whole * op.wire_factor(ranks) / (value * 1e-6))
                    .map_err(|m| lines.fault(m))?;
                let origin = Origin {
                    tool: "osu".to_owned(),
                    file: input.name(),
                    lines: Some((lines.number(), lines.number())),
                    date: date.clone(),
                };
                let group = Group { op, ranks, per_host: hints.per_node };
                if whole >= 1.0 {
                    found.time(group, &origin, whole as u64, value * 1e-6);
                }
            }
            Test::Bandwidth => {
                source::believable(value * 1e6).map_err(|m| lines.fault(m))?;
                best.0 = best.0.max(value * 1e6);
            }
            Test::Latency => best.1 = best.1.min(value * 1e-6),
            Test::Other => {}
        }
    }
    if !titled || rows == 0 {
        let message = if titled {
            "no rows below the title: the log is cut"
        } else {
            "no OSU output: there is no title `# OSU ...`"
        };
        return Err(input.whole(message, super::other_tool(input, "osu")));
    }
    let origin =
        Origin { tool: "osu".to_owned(), file: input.name(), lines: Some((1, lines.number())), date };
    take_link(best, hints, &origin, found);
    if now == Test::Other {
        found.note(format!("{}: a test that plans have no use for", input.name()));
    }
    Ok(())
}

/// OSU's MB/s are 1e6 bytes; nothing else is expected.
fn check_units(header: &str) -> Result<(), String> {
    let mut units = header.split('(').skip(1).filter_map(|rest| rest.split_once(')')).map(|(unit, _)| unit);
    let strange = units.find(|unit| !matches!(*unit, "us" | "MB/s" | "usec" | "Messages/s"));
    strange.map_or(Ok(()), |unit| Err(format!("({unit}) is no unit of OSU, which prints (us) and (MB/s)")))
}

fn take_link((rate, latency): (f64, f64), hints: &Hints, origin: &Origin, found: &mut Findings) {
    if rate <= 0.0 && !latency.is_finite() {
        return;
    }
    let place = if hints.per_node == Some(1) { LinkPlace::Inter } else { LinkPlace::Intra };
    if hints.per_node.is_none() {
        found.note(format!(
            "{}: the two ranks are taken to share a node; --per-node 1 says otherwise",
            origin.file
        ));
    }
    let fact = LinkFact {
        kind: None,
        bandwidth: (rate > 0.0).then_some(BytesPerSecond(rate)),
        latency: latency.is_finite().then_some(Seconds(latency)),
        per_nic: place == LinkPlace::Inter,
        nominal: false,
        origin: origin.clone(),
    };
    found.link_facts.push((place, fact));
}
