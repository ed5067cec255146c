//! A CSV of pairwise rates: a row per pair (`from,to[,rail],bandwidth_gb_per_second[,latency_us]`), or a square table with
//! host names in the first row and column. And what such pairs say about the network.

use super::assemble::joined;
use super::findings::{Findings, Origin, Pair};
use super::source::{self, Input, Lines, number};
use crate::error::AppError;
use cluster_profiles::anomalies::{Anomaly, Culprit, PairRate, survey as survey_rates};
use cluster_profiles::fit::median;
use cluster_profiles::{BytesPerSecond, Cluster, HostSet, LinkOverride, Seconds};
use std::collections::BTreeMap;

/// Most rates that are kept: 4096 hosts with 8 rails each, thinned beyond.
const MOST_PAIRS: usize = 1 << 24;
/// Fastest rate between two hosts that is believed, in bytes per second.
const FASTEST: f64 = 4e12;
/// Names of units in headers, with their scale in bytes per second.
const RATES: [(&str, f64); 14] = [
    ("gibps", 1_073_741_824.0),
    ("gib/s", 1_073_741_824.0),
    ("gib_per_second", 1_073_741_824.0),
    ("mib/s", 1_048_576.0),
    ("mib_per_second", 1_048_576.0),
    ("gbit/s", 0.125e9),
    ("gbit", 0.125e9),
    ("gbps", 0.125e9),
    ("gb/s", 1e9),
    ("gb_per_second", 1e9),
    ("gbytes", 1e9),
    ("mb/s", 1e6),
    ("mb_per_second", 1e6),
    ("bytes_per_second", 1.0),
];
/// The same of latencies, in seconds.
const TIMES: [(&str, f64); 5] = [("us", 1e-6), ("usec", 1e-6), ("ms", 1e-3), ("ns", 1e-9), ("seconds", 1.0)];

/// How a file separates its cells, and its decimals.
#[derive(Debug, Clone, Copy)]
struct Dialect {
    separator: char,
    decimal_comma: bool,
}

impl Dialect {
    fn of(header: &str) -> Self {
        let count = |c: char| header.matches(c).count();
        let separator = [';', '\t', ','].into_iter().max_by_key(|c| (count(*c), *c == ',')).unwrap_or(',');
        Self { separator, decimal_comma: separator != ',' }
    }

    fn cells(self, line: &str) -> Vec<String> {
        line.split(self.separator).map(|cell| cell.trim().trim_matches('"').to_owned()).collect()
    }

    fn number(self, cell: &str) -> Result<f64, String> {
        if self.decimal_comma && cell.matches(',').count() == 1 && !cell.contains('.') {
            return number(&cell.replace(',', "."));
        }
        number(cell)
    }
}

/// What the columns of a list of pairs are.
struct Columns {
    from: usize,
    to: usize,
    rail: Option<usize>,
    rate: (usize, f64),
    latency: Option<(usize, f64)>,
    width: usize,
}

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
    let names: Vec<String> = dialect.cells(&header).iter().map(|c| c.to_lowercase()).collect();
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

fn scale(name: &str, units: &[(&str, f64)]) -> Option<f64> {
    units.iter().find(|(unit, _)| name.contains(unit)).map(|(_, scale)| *scale)
}

/// The columns of a list; none where the header is that of a square table.
fn columns(names: &[String]) -> Result<Option<Columns>, String> {
    let find = |wanted: &[&str]| names.iter().position(|name| wanted.contains(&name.as_str()));
    let (from, to) = (
        find(&["from", "src", "source", "sender", "host_a", "from_host", "client"]),
        find(&["to", "dst", "destination", "receiver", "host_b", "to_host", "server"]),
    );
    let (Some(from), Some(to)) = (from, to) else { return Ok(None) };
    let rate = names.iter().position(|name| {
        ["bandwidth", "bw", "busbw", "algbw", "rate"].iter().any(|stem| name.starts_with(stem))
    });
    let rate = rate.ok_or("no column of bandwidths")?;
    let unit = scale(&names[rate], &RATES)
        .ok_or_else(|| format!("`{}` has no unit: GB/s, Gb/s or MiB/s?", names[rate]))?;
    let latency = match names.iter().position(|name| name.starts_with("lat")) {
        Some(at) => {
            Some((at, scale(&names[at], &TIMES).ok_or_else(|| format!("`{}` has no unit", names[at]))?))
        }
        None => None,
    };
    let rail = find(&["rail", "nic", "interface", "hca"]);
    Ok(Some(Columns { from, to, rail, rate: (rate, unit), latency, width: names.len() }))
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
    let corner = header.first().map(|cell| cell.to_lowercase()).unwrap_or_default();
    let unit = scale(&corner, &RATES).ok_or_else(|| {
        let message =
            format!("neither columns `from` and `to`, nor a unit in the corner of a table (`{corner}`)");
        input.hinted(lines.number(), message, Some(expected()))
    })?;
    let hosts = &header[1..];
    let mut rows = 0;
    while let Some(line) = lines.next_line()? {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let cells = dialect.cells(line);
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

/// Reads islands, slow and dead links off the pairs, writes them into the profile and says them in words.
pub fn survey(cluster: &mut Cluster, found: &mut Findings) -> Vec<String> {
    if found.pairs.is_empty() {
        return Vec::new();
    }
    let names = cluster.host_names();
    let index: BTreeMap<&str, usize> = names.iter().enumerate().map(|(i, name)| (name.as_str(), i)).collect();
    let rates: Vec<PairRate> = found
        .pairs
        .iter()
        .filter_map(|pair| {
            let (from, to) = (*index.get(pair.from.as_str())?, *index.get(pair.to.as_str())?);
            Some(PairRate { from, to, rail: pair.rail, rate: pair.bandwidth.get() / 1e9 })
        })
        .collect();
    let leaves = known_leaves(cluster, &names);
    let result = survey_rates(names.len(), &rates, leaves.as_deref());
    let source = joined(&found.pair_origins);
    if leaves.is_none() && !result.islands.is_empty() {
        let count = result.islands.iter().max().map_or(0, |last| last + 1);
        let set = |island: usize| HostSet {
            name: format!("island-{island}"),
            hosts: (0..names.len())
                .filter(|i| result.islands[*i] == island)
                .map(|i| names[i].clone())
                .collect(),
        };
        cluster.leaves = (0..count).map(set).collect();
        cluster.nodes_per_leaf = None;
    } else if leaves.is_none() {
        found.note("which hosts share a leaf switch does not show in the pairs: all are equally far");
    }
    if let Some(across) = result.across.filter(|across| *across > 0.0 && result.usual > across * 1.07) {
        cluster.oversubscription = (result.usual / across).clamp(1.0, 1024.0);
    }
    take_usual_rate(cluster, found, &rates, result.usual, &source);
    let leaf_names = leaf_names(cluster, &names);
    let words =
        Words { names: &names, leaves: &leaf_names, leaf: &leaf_of(cluster, &names), source: &source };
    let overrides = result.anomalies.iter().flat_map(|anomaly| words.overrides(anomaly));
    cluster.links.extend(overrides.collect::<Vec<_>>());
    result.anomalies.iter().map(|anomaly| words.sentence(anomaly)).collect()
}

/// The rate between hosts, per GPU.
fn take_usual_rate(cluster: &mut Cluster, found: &Findings, rates: &[PairRate], usual: f64, source: &str) {
    let rails = rates.iter().filter_map(|r| r.rail).max().map_or(1, |last| last + 1);
    let latencies: Vec<f64> = found.pairs.iter().filter_map(|pair| Some(pair.latency?.get())).collect();
    let single = rates.iter().any(|r| r.rail.is_some());
    for node in cluster.groups.iter_mut().map(|group| &mut group.node) {
        if single {
            node.nics = rails;
        }
        let per_gpu = if single { usual * f64::from(rails) / f64::from(node.gpus) } else { usual };
        if per_gpu > 1e-3 {
            node.inter.bandwidth = BytesPerSecond((per_gpu * 1e9).clamp(1e6, 1e15));
            node.inter.source = format!("measured: {source}");
        }
        if let Some(latency) = median(&latencies) {
            node.inter.latency = Seconds(latency.clamp(0.0, 1.0));
        }
    }
}

/// Number of the leaf switch of every host, where all are known.
fn known_leaves(cluster: &Cluster, names: &[String]) -> Option<Vec<usize>> {
    if cluster.leaves.len() < 2 {
        let per = cluster.nodes_per_leaf? as usize;
        return (names.len() > per).then(|| (0..names.len()).map(|i| i / per.max(1)).collect());
    }
    let leaf = |name: &String| cluster.leaves.iter().position(|set| set.hosts.contains(name));
    names.iter().map(leaf).collect()
}

fn leaf_names(cluster: &Cluster, names: &[String]) -> Vec<String> {
    if cluster.leaves.is_empty() {
        let per = cluster.nodes_per_leaf.map_or(names.len(), |n| n as usize).max(1);
        return (0..names.len().div_ceil(per)).map(|i| format!("leaf{i}")).collect();
    }
    cluster.leaves.iter().map(|set| set.name.clone()).collect()
}

/// Number of the leaf switch of every host as the profile now has it; those that no switch names share one more.
fn leaf_of(cluster: &Cluster, names: &[String]) -> Vec<usize> {
    let of = |(i, name): (usize, &String)| match (cluster.leaves.is_empty(), cluster.nodes_per_leaf) {
        (false, _) => {
            cluster.leaves.iter().position(|s| s.hosts.contains(name)).unwrap_or(cluster.leaves.len())
        }
        (true, Some(per)) => i / per.max(1) as usize,
        (true, None) => 0,
    };
    names.iter().enumerate().map(of).collect()
}

struct Words<'w> {
    names: &'w [String],
    leaves: &'w [String],
    leaf: &'w [usize],
    source: &'w str,
}

impl Words<'_> {
    fn leaf(&self, leaf: usize) -> String {
        self.leaves.get(leaf).cloned().unwrap_or_else(|| "leaf-other".to_owned())
    }

    fn sentence(&self, anomaly: &Anomaly) -> String {
        let who = match anomaly.culprit {
            Culprit::Uplink(leaf) => format!("uplinks of {}", self.leaf(leaf)),
            Culprit::Switch(leaf) => format!("switch {}", self.leaf(leaf)),
            Culprit::Host(host) => format!("{}, all interfaces", self.names[host]),
            Culprit::Interface(host, rail) => format!("{} NIC {rail}", self.names[host]),
            Culprit::Link(a, b, Some(rail)) => format!("{} to {}, NIC {rail}", self.names[a], self.names[b]),
            Culprit::Link(a, b, None) => format!("{} to {}", self.names[a], self.names[b]),
        };
        let (low, high) = anomaly.peers;
        let peers = if (high - low) < 0.5 { format!("{high:.0}") } else { format!("{low:.0}-{high:.0}") };
        if anomaly.is_dead() {
            return format!("{who}: dead, where its peers have {peers} GB/s");
        }
        format!("{who}: {:.0} GB/s where its peers have {peers}", anomaly.rate)
    }

    /// What the profile says of it.
    fn overrides(&self, anomaly: &Anomaly) -> Vec<LinkOverride> {
        let broken = anomaly.is_dead();
        let bandwidth = (!broken).then_some(BytesPerSecond(anomaly.rate * 1e9));
        let link = |a: &str, b: &str, rail: Option<u32>| LinkOverride {
            between: [a.to_owned(), b.to_owned()],
            rail,
            bandwidth,
            latency: None,
            broken,
            source: format!("measured: {}", self.source),
        };
        let host_leaf = |host: usize| self.leaf(self.leaf[host]);
        match anomaly.culprit {
            Culprit::Uplink(leaf) => vec![link(&self.leaf(leaf), "spine", None)],
            Culprit::Switch(leaf) => {
                let hosts = (0..self.names.len()).filter(|h| self.leaf[*h] == leaf);
                hosts.map(|host| link(&self.names[host], &self.leaf(leaf), None)).collect()
            }
            Culprit::Host(host) => vec![link(&self.names[host], &host_leaf(host), None)],
            Culprit::Interface(host, rail) => vec![link(&self.names[host], &host_leaf(host), Some(rail))],
            Culprit::Link(a, b, _) => vec![link(&self.names[a], &self.names[b], None)],
        }
    }
}
