//! `ibnetdiscover`: switches, their ports, the hosts behind them; and the `ibdiagnet2.net_dump` of ibdiagnet.
//!
//! Hosts that hang on the same switches form a leaf; with rails there is one switch per interface. A link slower than
//! its peers is a finding.

use super::findings::{Findings, LinkFact, LinkPlace, Origin};
use super::source::{self, Input};
use crate::error::AppError;
use cluster_profiles::{BytesPerSecond, HostSet, LinkOverride};
use std::collections::{BTreeMap, BTreeSet};

/// Gigabits per second of a lane, by the name of its speed.
const SPEEDS: [(&str, f64); 9] = [
    ("FDR10", 10.0),
    ("SDR", 2.0),
    ("DDR", 4.0),
    ("QDR", 8.0),
    ("FDR", 13.64),
    ("EDR", 25.0),
    ("HDR", 50.0),
    ("NDR", 100.0),
    ("XDR", 200.0),
];

/// A cable, as one of its ends has it.
#[derive(Debug, Clone)]
struct Cable {
    switch: String,
    peer: String,
    description: String,
    /// Bytes per second.
    rate: f64,
}

#[derive(Debug, Default)]
struct Fabric {
    /// Names of switches by identity.
    switches: BTreeMap<String, String>,
    cables: Vec<Cable>,
    blocks: BTreeSet<String>,
    tool: &'static str,
    date: Option<String>,
}

/// Imports a file.
///
/// # Errors
/// It is neither format, a link has no known speed, or linked nodes are missing.
pub fn import(input: &Input, found: &mut Findings) -> Result<(), AppError> {
    let mut lines = input.lines()?;
    let mut fabric = Fabric { tool: "ibnetdiscover", ..Fabric::default() };
    let mut here = None;
    while let Some(line) = lines.next_line()? {
        let line = line.trim().to_owned();
        if fabric.date.is_none() {
            fabric.date =
                source::date(&line).or_else(|| line.split_once("generated on ").map(|(_, d)| d.to_owned()));
        }
        if let Some(dump) = dump_switch(&line) {
            fabric.tool = "ibdiagnet";
            fabric.switches.insert(dump.clone(), dump.clone());
            here = Some(dump);
        } else if fabric.tool == "ibdiagnet" {
            if let Some(switch) = &here
                && let Some(cable) = dump_port(&line, switch).map_err(|m| lines.fault(m))?
            {
                fabric.cables.push(cable);
            }
        } else if line.starts_with("Switch") || line.starts_with("Ca") || line.starts_with("Rt") {
            here = block(&line, &mut fabric)
                .ok_or_else(|| lines.fault("a node without its \"name\": the file is cut"))?;
        } else if line.starts_with('[')
            && let Some(switch) = &here
        {
            fabric.cables.push(port(&line, switch).map_err(|m| lines.fault(m))?);
        }
    }
    let last = lines.number();
    if fabric.switches.is_empty() || fabric.cables.is_empty() {
        let message = "neither ibnetdiscover's output nor ibdiagnet's net_dump: no switch with ports";
        return Err(input.whole(message, super::other_tool(input, "ibnetdiscover")));
    }
    complete(input, &fabric, last)?;
    let origin = Origin {
        tool: fabric.tool.to_owned(),
        file: input.name(),
        lines: Some((1, last)),
        date: fabric.date.clone(),
    };
    tell(&fabric, &origin, found);
    Ok(())
}

/// `Switch 41 "S-b8ce" # "MF0;leaf1:MQM8700/U1" ...`: identity of a switch, whose ports follow; none for other nodes.
fn block(line: &str, fabric: &mut Fabric) -> Option<Option<String>> {
    let mut quoted = line.split('"');
    let identity = quoted.nth(1)?.to_owned();
    fabric.blocks.insert(identity.clone());
    if !line.starts_with("Switch") {
        return Some(None);
    }
    let name = quoted.nth(1).map_or_else(|| identity.clone(), switch_name);
    fabric.switches.insert(identity.clone(), name);
    Some(Some(identity))
}

/// `MF0;leaf1:MQM8700/U1` as `leaf1`.
fn switch_name(description: &str) -> String {
    let name = description.rsplit_once(';').map_or(description, |(_, name)| name);
    name.split(':').next().unwrap_or(name).split_whitespace().next().unwrap_or(name).to_owned()
}

/// `[1] "H-0c42"[1](0c42) # "node-17 mlx5_3" lid 42 4xHDR`.
fn port(line: &str, switch: &str) -> Result<Cable, String> {
    let mut quoted = line.split('"');
    let peer = quoted.nth(1).ok_or("a port without its peer: the file is cut")?.to_owned();
    let description = quoted.nth(1).unwrap_or_default().to_owned();
    let tail = quoted.next_back().unwrap_or_default();
    let rate = tail.split_whitespace().next_back().and_then(link_rate);
    let rate = rate
        .ok_or_else(|| format!("a link without its width and speed (`{}`): the file is cut", tail.trim()))?;
    Ok(Cable { switch: switch.to_owned(), peer, description, rate })
}

/// `4xHDR` in bytes per second.
fn link_rate(text: &str) -> Option<f64> {
    let (width, speed) = text.split_once('x')?;
    let lanes: f64 = width.parse().ok().filter(|lanes| (1.0..=12.0).contains(lanes))?;
    let gigabits = SPEEDS.iter().find(|(name, _)| *name == speed).map(|(_, rate)| *rate)?;
    Some(lanes * gigabits * 0.125e9)
}

/// `"leaf1", Mellanox, 0xb8ce..., LID 3`: the head of a switch in a net_dump.
fn dump_switch(line: &str) -> Option<String> {
    (line.starts_with('"') && line.contains("LID") && line.contains(','))
        .then(|| line.split('"').nth(1).map(switch_name))?
}

/// A row of a net_dump: port, state, MTU, width, speed ..., neighbour's description last, between colons.
fn dump_port(line: &str, switch: &str) -> Result<Option<Cable>, String> {
    let cells: Vec<&str> = line.split(':').map(str::trim).collect();
    let numbered =
        cells.first().is_some_and(|c| !c.is_empty() && c.bytes().all(|b| b.is_ascii_digit() || b == b'/'));
    if !numbered || !cells.contains(&"ACT") {
        return Ok(None);
    }
    let width = cells.iter().find(|c| c.ends_with('x') && c.len() <= 3).map(|c| c.trim_end_matches('x'));
    let lane = cells.iter().find_map(|c| match *c {
        "2.5" => Some("SDR"),
        "5" => Some("DDR"),
        "10" => Some("QDR"),
        "14" => Some("FDR"),
        "25" => Some("EDR"),
        "50" => Some("HDR"),
        "100" => Some("NDR"),
        "200" => Some("XDR"),
        _ => None,
    });
    let rate = width.zip(lane).and_then(|(width, lane)| link_rate(&format!("{width}x{lane}")));
    let rate = rate.ok_or("a port without width and speed: the file is cut")?;
    let description = cells.last().map_or(String::new(), |c| c.trim_matches('"').to_owned());
    Ok(Some(Cable { switch: switch.to_owned(), peer: description.clone(), description, rate }))
}

/// Every node that a cable ends at has a block of its own.
fn complete(input: &Input, fabric: &Fabric, last: u64) -> Result<(), AppError> {
    if fabric.tool != "ibnetdiscover" {
        return Ok(());
    }
    let missing = fabric
        .cables
        .iter()
        .map(|c| &c.peer)
        .filter(|p| !fabric.blocks.contains(*p))
        .collect::<BTreeSet<_>>();
    match missing.first() {
        Some(first) => {
            let count = missing.len();
            Err(input.fault(
                last,
                format!("{count} linked nodes, such as {first}, have no block of their own: the file is cut"),
            ))
        }
        None => Ok(()),
    }
}

fn is_host(fabric: &Fabric, cable: &Cable) -> bool {
    let node = !fabric.switches.contains_key(&cable.peer)
        && !fabric.switches.contains_key(&switch_name(&cable.peer));
    node && !cable.description.contains("Aggregation Node") && !cable.description.is_empty()
}

fn host_name(cable: &Cable) -> String {
    cable.description.split_whitespace().next().unwrap_or_default().to_owned()
}

fn tell(fabric: &Fabric, origin: &Origin, found: &mut Findings) {
    let cables: Vec<&Cable> = fabric.cables.iter().filter(|c| is_host(fabric, c)).collect();
    // Interfaces of a host in the order of their descriptions: the rails.
    let mut hosts: BTreeMap<String, Vec<&Cable>> = BTreeMap::new();
    cables.iter().for_each(|cable| hosts.entry(host_name(cable)).or_default().push(cable));
    hosts
        .values_mut()
        .for_each(|own| own.sort_by_key(|cable| (cable.description.clone(), cable.switch.clone())));
    hosts.keys().for_each(|host| found.host(host, 0, None, origin));
    let usual_count = usual(hosts.values().map(|own| own.len() as u64));
    found.nics.push((usual_count as u32, origin.clone()));
    for (host, own) in hosts.iter().filter(|(_, own)| own.len() as u64 != usual_count) {
        found.contradictions.push(format!("{host} has {} links, others {usual_count} ({origin})", own.len()));
    }
    let leaves = leaves(fabric, &hosts, found);
    let usual_rate = usual(cables.iter().map(|cable| cable.rate as u64)) as f64;
    let fact = LinkFact {
        kind: Some("infiniband".to_owned()),
        bandwidth: Some(BytesPerSecond(usual_rate)),
        latency: None,
        per_nic: true,
        nominal: true,
        origin: origin.clone(),
    };
    found.link_facts.push((LinkPlace::Inter, fact));
    slow_cables(&hosts, &leaves, usual_rate, origin, found);
    uplinks(fabric, origin, found);
}

/// The most frequent value.
fn usual(values: impl Iterator<Item = u64>) -> u64 {
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    values.for_each(|value| *counts.entry(value).or_default() += 1);
    counts.into_iter().max_by_key(|(value, count)| (*count, *value)).map_or(0, |(value, _)| value)
}

/// Hosts by the switches they hang on; name of the leaf of every host.
fn leaves(
    fabric: &Fabric,
    hosts: &BTreeMap<String, Vec<&Cable>>,
    found: &mut Findings,
) -> BTreeMap<String, String> {
    let mut sets: BTreeMap<BTreeSet<&str>, Vec<String>> = BTreeMap::new();
    for (host, own) in hosts {
        let switches: BTreeSet<&str> =
            own.iter().map(|c| fabric.switches.get(&c.switch).unwrap_or(&c.switch).as_str()).collect();
        // A host whose cable is missing hangs with those that share its remaining switches.
        let like = sets.keys().find(|set| switches.is_subset(set)).cloned();
        sets.entry(like.unwrap_or(switches)).or_default().push(host.clone());
    }
    let mut names = BTreeMap::new();
    for (switches, members) in sets {
        let name = switches.first().map_or_else(|| "leaf".to_owned(), |first| (*first).to_owned());
        members.iter().for_each(|host| drop(names.insert(host.clone(), name.clone())));
        found.leaves.push(HostSet { name, hosts: members });
    }
    names
}

fn slow_cables(
    hosts: &BTreeMap<String, Vec<&Cable>>,
    leaves: &BTreeMap<String, String>,
    usual: f64,
    origin: &Origin,
    found: &mut Findings,
) {
    for (host, own) in hosts {
        for (rail, cable) in own.iter().enumerate().filter(|(_, cable)| cable.rate < usual * 0.99) {
            let (rate, peers) = (cable.rate / 0.125e9, usual / 0.125e9);
            found
                .anomalies
                .push(format!("{host} NIC {rail}: link at {rate:.0} Gb/s where its peers have {peers:.0}"));
            found.links.push(LinkOverride {
                between: [host.clone(), leaves.get(host).cloned().unwrap_or_default()],
                rail: Some(rail as u32),
                bandwidth: Some(BytesPerSecond(cable.rate)),
                latency: None,
                broken: false,
                source: format!("measured: {origin}"),
            });
        }
    }
}

/// Downlinks over uplinks of the switches that have hosts.
fn uplinks(fabric: &Fabric, origin: &Origin, found: &mut Findings) {
    let mut sums: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for cable in &fabric.cables {
        let sum = sums.entry(&cable.switch).or_default();
        if is_host(fabric, cable) {
            sum.0 += cable.rate
        } else if fabric.switches.contains_key(&cable.peer) {
            sum.1 += cable.rate
        }
    }
    let ratios = sums.values().filter(|(down, up)| *down > 0.0 && *up > 0.0).map(|(down, up)| down / up);
    if let Some(worst) = ratios.reduce(f64::max).filter(|ratio| *ratio > 1.01) {
        found.oversubscription = Some((worst, origin.clone()));
    }
}
