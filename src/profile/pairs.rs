//! A CSV of pairwise rates: a row per pair (`from,to[,rail],bandwidth_gb_per_second[,latency_us]`), or a square table with
//! host names in the first row and column.

use super::findings::{Findings, Origin, Pair};
use super::pairs_header::{Columns, Dialect, columns, rate_unit};
use super::source::{self, FASTEST, Input, Lines};
use crate::error::AppError;
use cluster_profiles::{BytesPerSecond, Seconds};
use std::collections::BTreeMap;

/// Most rates that are kept: 4096 hosts with 8 rails each, thinned beyond.
const MOST_PAIRS: usize = 1 << 24;

/// Imports a file.
///
/// # Errors
/// The header lacks a column or its unit, or a row has a cell that is no number.
pub fn import(input: &Input, found: &mut Findings) -> Result<(), AppError> {
    let mut lines = input.lines()?;
    let mut date = None;
    let header = loop {
        match lines.next_line()? {
            None => return Err(input.whole("empty", expected())),
            Some(line) if line.trim().is_empty() || line.starts_with('#') => {
                date = date.or(source::date(line))
            }
            Some(line) => break line.to_owned(),
        }
    };
    let dialect = Dialect::of(&header);
    let names = dialect.cells(&header);
    let first = lines.number();
    let before = found.pairs.len();
    match columns(&names).map_err(|message| input.hinted(first, message, Some(expected())))? {
        Some(columns) => list(&mut lines, dialect, &columns, found)?,
        None => square(input, &mut lines, dialect, &dialect.cells(&header), found)?,
    }
    if found.pairs.len() == before {
        return Err(input.whole("no rows below the header", expected()));
    }
    let origin = Origin {
        tool: "pairwise CSV".to_owned(),
        file: input.name(),
        lines: Some((first, lines.number())),
        date,
    };
    let mut hosts: Vec<String> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for name in found.pairs[before..].iter().flat_map(|pair| [&pair.from, &pair.to]) {
        if seen.insert(name.clone()) {
            hosts.push(name.clone());
        }
    }
    sort_naturally(&mut hosts);
    complete(input, &hosts, found, before)?;
    hosts.iter().for_each(|host| found.host(host, 0, None, &origin));
    found.pair_origins.push(origin);
    Ok(())
}

fn expected() -> String {
    "expected columns from, to, rail (optional), bandwidth_gb_per_second or bandwidth (Gb/s), latency_us (optional); or a \
     square table of rates in GB/s with the names of the hosts in its first row and column, its corner naming the unit"
        .to_owned()
}

/// `node-2` before `node-10`.
fn sort_naturally(names: &mut [String]) {
    let key = |name: &String| {
        let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let (stem, number) = name.split_at(name.len() - digits);
        (stem.to_owned(), number.parse::<u64>().unwrap_or(0), name.clone())
    };
    names.sort_by_key(key);
}

/// Refuses what no link between hosts has.
fn believable(rate: f64, cell: &str) -> Result<(), String> {
    if (0.0..=FASTEST).contains(&rate) {
        return Ok(());
    }
    let what = if rate < 0.0 { "below 0".to_owned() } else { format!("{:.0} TB/s", rate / 1e12) };
    Err(format!(
        "{cell} is no rate between hosts ({what}, at most {:.0} TB/s): is the column in MB/s or Mbit/s? Its name says the unit, \
         such as bandwidth_mb_per_second",
        FASTEST / 1e12
    ))
}

/// Refuses pairs that say nothing about a host, and notes how many are missing.
fn complete(input: &Input, hosts: &[String], found: &mut Findings, first: usize) -> Result<(), AppError> {
    let pairs = &found.pairs[first..];
    if pairs.iter().all(|pair| pair.bandwidth.get() <= 0.0) {
        return Err(input.whole(
            format!("all {} rates are 0: nothing was measured, or every link is dead", pairs.len()),
            "check that the hosts reach each other and that the column is the bandwidth, then measure again",
        ));
    }
    let index: BTreeMap<&str, usize> = hosts.iter().enumerate().map(|(i, name)| (name.as_str(), i)).collect();
    let mut ways: Vec<(usize, usize)> = pairs
        .iter()
        .filter_map(|pair| Some((*index.get(pair.from.as_str())?, *index.get(pair.to.as_str())?)))
        .filter(|(from, to)| from != to)
        .collect();
    ways.sort_unstable();
    ways.dedup();
    let mut seen = vec![[false; 2]; hosts.len()];
    for (from, to) in &ways {
        seen[*from][0] = true;
        seen[*to][1] = true;
    }
    let named = |absent: &dyn Fn(&[bool; 2]) -> bool| -> Vec<&str> {
        (0..hosts.len()).filter(|i| absent(&seen[*i])).map(|i| hosts[i].as_str()).collect()
    };
    let alone = named(&|s| !s[0] && !s[1]);
    if !alone.is_empty() {
        return Err(input.whole(
            format!("no pair with {}", few(&alone)),
            "measure these hosts against the others, or leave them out",
        ));
    }
    let both = ways.iter().any(|(from, to)| ways.binary_search(&(*to, *from)).is_ok());
    let all = if both { hosts.len() * (hosts.len() - 1) } else { hosts.len() * (hosts.len() - 1) / 2 };
    if ways.len() < all {
        let mute = named(&|s| both && !s[0]);
        let mute = if mute.is_empty() { String::new() } else { format!("; never a sender: {}", few(&mute)) };
        let missing = all - ways.len();
        found.note(format!(
            "{}: {missing} of {all} pairs are missing: the file may be cut{mute}; nothing is known of these links",
            input.name()
        ));
    }
    Ok(())
}

/// The first names, and how many more.
fn few(names: &[&str]) -> String {
    let shown = names.len().min(8);
    let more = if names.len() > shown { format!(" and {} more", names.len() - shown) } else { String::new() };
    format!("{}{more}", names[..shown].join(", "))
}

fn list(
    lines: &mut Lines,
    dialect: Dialect,
    columns: &Columns,
    found: &mut Findings,
) -> Result<(), AppError> {
    while let Some(line) = lines.next_line()? {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let cells = dialect.cells(line);
        lines.refuse_cut()?;
        if cells.len() != columns.width {
            let (have, want) = (cells.len(), columns.width);
            return Err(
                lines.fault(format!("{have} cells where the header has {want}: cut, or a decimal comma?"))
            );
        }
        let value = |at: usize| dialect.number(&cells[at]);
        let rate = value(columns.rate.0).map_err(|m| lines.fault(m))? * columns.rate.1;
        believable(rate, &cells[columns.rate.0]).map_err(|m| lines.fault(m))?;
        let latency = match columns.latency.filter(|(at, _)| !cells[*at].is_empty()) {
            Some((at, scale)) => Some(Seconds(value(at).map_err(|m| lines.fault(m))? * scale)),
            None => None,
        };
        let digits = |text: &str| text.trim_start_matches(|c: char| !c.is_ascii_digit()).to_owned();
        let rail = match columns.rail.map(|at| digits(&cells[at])) {
            Some(text) if text.is_empty() => None,
            Some(text) => Some(
                text.parse::<u32>()
                    .ok()
                    .filter(|rail| *rail < 1024)
                    .ok_or_else(|| lines.fault(format!("rail `{text}` is no number below 1024")))?,
            ),
            None => None,
        };
        let (from, to) = (cells[columns.from].clone(), cells[columns.to].clone());
        if from.is_empty() || to.is_empty() {
            return Err(lines.fault("a host has no name"));
        }
        if found.pairs.len() < MOST_PAIRS {
            found.pairs.push(Pair { from, to, rail, bandwidth: BytesPerSecond(rate), latency });
        } else {
            found.note("of more than sixteen million pairs the rest was left out");
        }
    }
    Ok(())
}

fn square(
    input: &Input,
    lines: &mut Lines,
    dialect: Dialect,
    header: &[String],
    found: &mut Findings,
) -> Result<(), AppError> {
    let corner = header.first().map(String::as_str).unwrap_or_default();
    let unit = rate_unit(corner).map_err(|reason| {
        let message =
            format!("neither columns `from` and `to`, nor a unit in the corner of a table: {reason}");
        input.hinted(lines.number(), message, Some(expected()))
    })?;
    let hosts = &header[1..];
    let mut rows = 0;
    while let Some(line) = lines.next_line()? {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let cells = dialect.cells(line);
        lines.refuse_cut()?;
        if cells.len() != header.len() || cells[0] != hosts[rows.min(hosts.len() - 1)] {
            return Err(lines.fault(format!(
                "row `{}` with {} cells: rows must be the hosts of the header in its order, with {} cells",
                cells[0],
                cells.len(),
                header.len()
            )));
        }
        for (to, cell) in
            hosts.iter().zip(&cells[1..]).enumerate().filter(|(to, _)| *to != rows).map(|(_, p)| p)
        {
            let rate = dialect.number(cell).map_err(|m| lines.fault(m))? * unit;
            believable(rate, cell).map_err(|m| lines.fault(m))?;
            found.pairs.push(Pair {
                from: cells[0].clone(),
                to: to.clone(),
                rail: None,
                bandwidth: BytesPerSecond(rate),
                latency: None,
            });
        }
        rows += 1;
    }
    if rows != hosts.len() {
        return Err(
            input.whole(format!("{rows} rows for {} columns: the table is cut", hosts.len()), expected())
        );
    }
    Ok(())
}
