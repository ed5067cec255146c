//! Slurm's `topology.conf` (tree and block) and `topology.yaml`: which hosts share a switch or a block.

use super::findings::{Findings, Origin};
use super::hostlist::expand;
use super::source::Input;
use crate::error::AppError;
use cluster_profiles::HostSet;
use serde::Deserialize;

const TOOL: &str = "slurm";

/// Imports a file.
///
/// # Errors
/// A line is none of the format, or a host list is wrong.
pub fn import(input: &Input, found: &mut Findings) -> Result<(), AppError> {
    let yaml = input.name().ends_with(".yaml") || input.name().ends_with(".yml");
    let before = found.leaves.len() + found.domains.len();
    let last = if yaml { from_yaml(input, found)? } else { from_conf(input, found)? };
    if found.leaves.len() + found.domains.len() == before {
        let hint = super::other_tool(input, TOOL);
        return Err(input.whole("no switch or block with nodes: expected SwitchName=... Nodes=...", hint));
    }
    let origin = Origin { tool: TOOL.to_owned(), file: input.name(), lines: Some((1, last)), date: None };
    let hosts: Vec<String> =
        found.leaves.iter().chain(&found.domains).flat_map(|set| set.hosts.iter().cloned()).collect();
    hosts.iter().for_each(|host| found.host(host, 0, None, &origin));
    found.note("a topology of switches says nothing of rates: those are the base's");
    Ok(())
}

fn from_conf(input: &Input, found: &mut Findings) -> Result<u64, AppError> {
    let mut lines = input.lines()?;
    let mut open = String::new();
    while let Some(line) = lines.next_line()? {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(start) = line.strip_suffix('\\') {
            open.push_str(start);
            open.push(' ');
            continue;
        }
        let whole = std::mem::take(&mut open) + line;
        if whole.trim().is_empty() {
            continue;
        }
        conf_line(&whole, found).map_err(|message| lines.fault(message))?;
    }
    Ok(lines.number())
}

fn conf_line(line: &str, found: &mut Findings) -> Result<(), String> {
    let (mut switch, mut block, mut nodes, mut switches) = (None, None, None, None);
    for word in line.split_whitespace() {
        let (key, value) = word.split_once('=').ok_or_else(|| format!("`{word}` is no Key=Value"))?;
        match key.to_ascii_lowercase().as_str() {
            "switchname" => switch = Some(value),
            "blockname" => block = Some(value),
            "nodes" => nodes = Some(value),
            "switches" => switches = Some(value),
            "linkspeed" | "blocksizes" | "blocksize" => {}
            _ => return Err(format!("`{key}` is no parameter of topology.conf")),
        }
    }
    match (switch, block, nodes) {
        (Some(name), None, Some(nodes)) => add(&mut found.leaves, name, nodes),
        (None, Some(name), Some(nodes)) => add(&mut found.domains, name, nodes),
        (Some(name), None, None) if switches.is_none() => {
            Err(format!("switch {name} has neither nodes nor switches"))
        }
        _ => Ok(()),
    }
}

fn add(sets: &mut Vec<HostSet>, name: &str, nodes: &str) -> Result<(), String> {
    if sets.iter().any(|set| set.name == name) {
        return Err(format!("{name} is there twice"));
    }
    sets.push(HostSet { name: name.to_owned(), hosts: expand(nodes)? });
    Ok(())
}

#[derive(Deserialize)]
struct Topology {
    topology: String,
    #[serde(default)]
    cluster_default: bool,
    #[serde(default)]
    tree: Option<Tree>,
    #[serde(default)]
    block: Option<Blocks>,
}

#[derive(Deserialize)]
struct Tree {
    switches: Vec<Switch>,
}

#[derive(Deserialize)]
struct Switch {
    switch: String,
    #[serde(default)]
    nodes: Option<String>,
}

#[derive(Deserialize)]
struct Blocks {
    blocks: Vec<Block>,
}

#[derive(Deserialize)]
struct Block {
    block: String,
    #[serde(default)]
    nodes: Option<String>,
}

fn from_yaml(input: &Input, found: &mut Findings) -> Result<u64, AppError> {
    let text = input.text()?;
    let all: Vec<Topology> = serde_norway::from_str(&text).map_err(|error| {
        let line = error.location().map_or(1, |at| at.line() as u64);
        input.fault(line, format!("no topology.yaml of Slurm: {error}"))
    })?;
    let chosen = all.iter().find(|t| t.cluster_default).or_else(|| all.first());
    let Some(chosen) = chosen else { return Ok(0) };
    if all.len() > 1 {
        found.note(format!("{}: of {} topologies, {} is used", input.name(), all.len(), chosen.topology));
    }
    let wrong = |message: String| input.whole(message, "see topology.yaml(5)");
    for switch in chosen.tree.iter().flat_map(|tree| &tree.switches) {
        if let Some(nodes) = &switch.nodes {
            add(&mut found.leaves, &switch.switch, nodes).map_err(wrong)?;
        }
    }
    for block in chosen.block.iter().flat_map(|block| &block.blocks) {
        if let Some(nodes) = &block.nodes {
            add(&mut found.domains, &block.block, nodes).map_err(wrong)?;
        }
    }
    Ok(text.lines().count() as u64)
}
