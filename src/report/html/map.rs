//! Which rank sits where, and which links its groups use.

use super::parts::{COLOURS, colour_of, legend, table};
use crate::plan::{Plan, RankPlacement};
use crate::report::number::grouped;
use cluster_profiles::Cluster;
use cost_models::grid::Coordinates;
use maud::{Markup, html};
use std::collections::{BTreeMap, BTreeSet};

/// Hosts that are drawn one by one; of more, neighbours alike are drawn as one.
const MOST_HOSTS: usize = 32;
/// Boxes that are drawn at all.
const MOST_BOXES: usize = 128;
/// GPUs that are drawn in a box.
const MOST_GPUS: usize = 16;

/// Neighbouring hosts of one kind whose GPUs have the same pipeline ranks.
struct Run<'a> {
    first: usize,
    last: usize,
    kind: &'a str,
    ranks: Vec<&'a RankPlacement>,
}

/// The part of a page.
pub fn section(plan: &Plan) -> Markup {
    let hosts = by_host(plan);
    let runs = runs(&hosts, &kinds(plan));
    let shown = &runs[..runs.len().min(MOST_BOXES)];
    let names = &plan.placement.hosts;
    let pp = plan.parallel.pp as usize;
    html! {
        h2 { "Ranks on nodes and links" }
        p {
            (grouped(plan.placement.ranks.len() as u64)) " ranks on " (grouped(names.len() as u64)) (if names.len() == 1 { " node" } else { " nodes" }) "; the axes vary in the order "
            (plan.placement.rank_order) ", the first fastest. A box is a node, a cell a GPU with its global rank, coloured by pipeline rank."
        }
        (legend((0..pp.min(COLOURS)).map(|rank| (rank, PIPELINE[rank]))))
        @if pp > COLOURS { p.soft { "Colours repeat after " (COLOURS) " pipeline ranks." } }
        div.nodes { @for run in shown { (node(run, names)) } }
        @if runs.len() > MOST_BOXES { p.soft { "The first " (MOST_BOXES) " of " (runs.len()) " different groups of nodes." } }
        h3 { "What the groups of an axis cross" }
        (links(plan))
    }
}

const PIPELINE: [&str; COLOURS] = ["pipeline rank 0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"];

fn by_host(plan: &Plan) -> Vec<Vec<&RankPlacement>> {
    let mut hosts: Vec<Vec<&RankPlacement>> = vec![Vec::new(); plan.placement.hosts.len()];
    for rank in &plan.placement.ranks {
        if let Some(host) = hosts.get_mut(rank.host as usize) {
            host.push(rank);
        }
    }
    hosts
}

/// The title of the GPUs of every host, in the order of the placement; empty where all hosts have the same.
fn kinds(plan: &Plan) -> Vec<&str> {
    let groups = &plan.inputs.cluster.groups;
    if groups.iter().all(|group| group.gpu.title == groups[0].gpu.title) {
        return vec![""; plan.placement.hosts.len()];
    }
    let titles =
        groups.iter().flat_map(|group| std::iter::repeat_n(group.gpu.title.as_str(), group.nodes as usize));
    let names = plan.inputs.cluster.host_names();
    let by_name: BTreeMap<&str, &str> = names.iter().map(String::as_str).zip(titles).collect();
    plan.placement.hosts.iter().map(|host| by_name.get(host.as_str()).copied().unwrap_or_default()).collect()
}

fn runs<'a>(hosts: &[Vec<&'a RankPlacement>], kinds: &[&'a str]) -> Vec<Run<'a>> {
    let stages = |ranks: &[&RankPlacement]| ranks.iter().map(|rank| rank.coordinates.pp).collect::<Vec<_>>();
    let mut runs: Vec<Run> = Vec::new();
    for (at, (ranks, kind)) in hosts.iter().zip(kinds).enumerate() {
        match runs.last_mut() {
            Some(run)
                if hosts.len() > MOST_HOSTS && run.kind == *kind && stages(&run.ranks) == stages(ranks) =>
            {
                run.last = at;
            }
            _ => runs.push(Run { first: at, last: at, kind, ranks: ranks.clone() }),
        }
    }
    runs
}

fn node(run: &Run, names: &[String]) -> Markup {
    let name = |at: usize| names.get(at).map_or("", String::as_str);
    let several = run.last > run.first;
    html! {
        div.node {
            b {
                (name(run.first))
                @if several { " to " (name(run.last)) " (" (run.last - run.first + 1) " alike)" }
                @if !run.kind.is_empty() { ", " (run.kind) }
            }
            div.gpus {
                @for rank in run.ranks.iter().take(MOST_GPUS) {
                    span style=(format!("background:{}", colour_of(rank.coordinates.pp as usize))) data-tip=(describe(rank)) { (rank.rank) }
                }
                @if run.ranks.len() > MOST_GPUS { "and " (run.ranks.len() - MOST_GPUS) " more" }
            }
        }
    }
}

fn describe(rank: &RankPlacement) -> String {
    let Coordinates { tp, cp, dp, pp, ep, .. } = rank.coordinates;
    format!("rank {}: GPU {}, tp {tp} cp {cp} dp {dp} pp {pp} ep {ep}", rank.rank, rank.gpu)
}

/// The position of a rank on an axis.
type Axis = fn(&Coordinates) -> u64;

/// For every axis: how its groups lie, and over which link they talk.
fn links(plan: &Plan) -> Markup {
    let cluster = &plan.inputs.cluster;
    let axes: [(&str, Axis); 4] = [
        ("tp", |at| u64::from(at.tp)),
        ("cp", |at| u64::from(at.cp)),
        ("dp", |at| u64::from(at.dp)),
        ("pp", |at| u64::from(at.pp)),
    ];
    let rows = axes.iter().enumerate().filter_map(|(own, (name, _))| {
        let first = plan.placement.ranks.first()?;
        let same = |rank: &&RankPlacement| {
            axes.iter()
                .enumerate()
                .all(|(other, (_, of))| other == own || of(&rank.coordinates) == of(&first.coordinates))
        };
        let group: Vec<&RankPlacement> = plan.placement.ranks.iter().filter(same).collect();
        (group.len() > 1).then(|| row(name, &group, cluster))
    });
    let rows: Vec<Vec<String>> = rows.chain(expert_row(plan)).collect();
    html! {
        @if rows.is_empty() { p { "One GPU: nothing is sent." } }
        @else { (table(&["axis", "ranks of a group", "nodes", "link", "GB/s per GPU and direction"], &[3], &rows)) }
    }
}

/// The experts' grid lies over the ranks of a stage on its own: etp fastest, then ep.
fn expert_row(plan: &Plan) -> Option<Vec<String>> {
    let parallel = &plan.parallel;
    let (ep, etp) = (u64::from(parallel.ep), u64::from(parallel.etp.max(1)));
    let stage = plan.placement.ranks.iter().filter(|rank| rank.coordinates.pp == 0);
    let group: Vec<&RankPlacement> = stage.take((ep * etp) as usize).step_by(etp as usize).collect();
    (ep > 1).then(|| row("ep", &group, &plan.inputs.cluster))
}

fn row(name: &str, group: &[&RankPlacement], cluster: &Cluster) -> Vec<String> {
    let node = &cluster.main().node;
    let per_domain = u64::from((node.domain / node.gpus.max(1)).max(1));
    let hosts: BTreeSet<u32> = group.iter().map(|rank| rank.host).collect();
    let domains: BTreeSet<u64> = hosts.iter().map(|host| u64::from(*host) / per_domain).collect();
    let link = if domains.len() == 1 { &node.intra } else { &node.inter };
    vec![
        name.to_owned(),
        group.len().to_string(),
        hosts.len().to_string(),
        link.kind.clone(),
        format!("{:.0}", link.bandwidth.get() / 1e9),
    ]
}
