//! Links, nodes and switches of a profile as topologies and link measurements show them.

use super::assemble::joined;
use super::curves::CONTRADICTION;
use super::findings::{Findings, LinkFact, LinkPlace, Origin};
use cluster_profiles::fit::median;
use cluster_profiles::{BytesPerSecond, Cluster, Link, Seconds};

/// Size of nodes and domains, where a topology shows it.
pub(super) fn take_shape(cluster: &mut Cluster, found: &mut Findings) {
    for (gpus, origin) in found.node_gpus.clone() {
        let node = &mut cluster.groups[0].node;
        if node.gpus != gpus && gpus > 0 {
            found
                .contradictions
                .push(format!("{origin}: {gpus} GPUs a node, the base has {}: {gpus} it is", node.gpus));
            node.domain = (node.domain / node.gpus.max(1)).max(1) * gpus;
            node.gpus = gpus;
        }
    }
    if let Some((domain, _)) = &found.domain {
        let node = &mut cluster.groups[0].node;
        if node.gpus.is_multiple_of(*domain) {
            node.domain = *domain;
        }
    }
    if let Some((ratio, _)) = &found.oversubscription
        && !cluster.leaves.is_empty()
    {
        cluster.oversubscription = ratio.clamp(1.0, 1024.0);
    }
}

/// NVLinks of a GPU and the rate of one in bytes per second per direction, by the GPU's name (NVIDIA's datasheets).
fn nvlinks(gpu: &str) -> Option<(u32, f64)> {
    let kinds: [(&[&str], (u32, f64)); 4] = [
        (&["V100"], (6, 25e9)),
        (&["A100", "A800"], (12, 25e9)),
        (&["H100", "H200", "H800", "H20", "GH200"], (18, 25e9)),
        (&["B200", "B300", "GB200", "GB300"], (18, 50e9)),
    ];
    let model = gpu.split('-').next().unwrap_or_default().to_uppercase();
    kinds.into_iter().find(|(names, _)| names.contains(&model.as_str())).map(|(_, links)| links)
}

/// The link inside the domain as a topology shows it: its kind is known, its rate is nominal and never measured.
pub(super) fn take_fabric(cluster: &mut Cluster, found: &mut Findings) {
    let Some(fabric) = found.fabric.clone() else { return };
    let mut changed = false;
    for group in &mut cluster.groups {
        let (host, link) = (group.node.host.clone(), &mut group.node.intra);
        let before = link.bandwidth.get();
        let kind = if fabric.pair > 0 { "nvlink" } else { "pcie" };
        if link.kind == kind && (link.source.starts_with("measured: ") || kind == "pcie") {
            continue;
        }
        let (rate, text) = match nvlinks(&group.gpu.name) {
            _ if kind == "pcie" => {
                let known = if host.kind == "pcie" { host.bandwidth.get() } else { 32e9 };
                (known, "no NVLink; PCIe at the rate to the host".to_owned())
            }
            Some((most, rate)) => {
                // Links to all neighbours together cannot be more than the GPU has: then a switch shares them.
                let links = if fabric.all <= most { fabric.all } else { fabric.pair };
                (f64::from(links) * rate, format!("{links} NVLinks of {:.0} GB/s a GPU", rate / 1e9))
            }
            None => (before, format!("{} NVLinks to a neighbour; rate of the base", fabric.pair)),
        };
        link.kind = kind.to_owned();
        link.bandwidth = BytesPerSecond(rate);
        link.source = format!("assumed, not measured: {text} ({}); latency as before", fabric.origin);
        changed |= (rate / before - 1.0).abs() > 0.25;
    }
    if changed {
        let all = cluster.collectives.len();
        cluster.collectives.retain(|curve| curve.per_domain < curve.ranks);
        if cluster.collectives.len() < all {
            found.note("collective curves of the base inside the domain belong to another link: left out");
        }
    }
}

/// Rates and latencies of the tiers: measured ones, the middle of all files; nominal ones only where nothing was measured.
pub(super) fn take_links(cluster: &mut Cluster, found: &mut Findings) {
    if let Some((nics, _)) = found.nics.last() {
        cluster.groups.iter_mut().for_each(|group| group.node.nics = (*nics).max(1));
    }
    for (place, name) in LinkPlace::ALL {
        let of_place = found.link_facts.iter().filter(|(other, _)| *other == place);
        let facts: Vec<LinkFact> = of_place.map(|(_, fact)| fact.clone()).collect();
        if facts.is_empty() {
            continue;
        }
        files_apart(name, &facts, found);
        for group in &mut cluster.groups {
            let nics_per_gpu = f64::from(group.node.nics) / f64::from(group.node.gpus.max(1));
            let link = match place {
                LinkPlace::Intra => &mut group.node.intra,
                LinkPlace::Inter => &mut group.node.inter,
                LinkPlace::Host => &mut group.node.host,
            };
            take_link(link, name, &facts, nics_per_gpu, found);
        }
    }
}

/// Whether the rate of a link was measured, not its latency alone.
fn rate_is_measured(link: &Link) -> bool {
    link.source.starts_with("measured: ") && !link.source.contains("bandwidth as before")
}

/// A link as `facts`, which are all of one tool, show it.
pub(super) fn take_link(
    link: &mut Link,
    name: &str,
    facts: &[LinkFact],
    nics_per_gpu: f64,
    found: &mut Findings,
) {
    if let Some(kind) = facts.iter().rev().find_map(|fact| fact.kind.as_ref()) {
        link.kind.clone_from(kind);
    }
    let origins: Vec<Origin> = facts.iter().map(|fact| fact.origin.clone()).collect();
    let (origins, nominal) = (joined(&origins), facts.iter().all(|fact| fact.nominal));
    if nominal && rate_is_measured(link) {
        found.note(format!("{name}: what was measured before stands above the nominal rate of {origins}"));
        return;
    }
    let share = |fact: &LinkFact| if fact.per_nic { nics_per_gpu } else { 1.0 };
    let rates: Vec<f64> = facts.iter().filter_map(|fact| Some(fact.bandwidth?.get() * share(fact))).collect();
    let latencies: Vec<f64> = facts.iter().filter_map(|fact| Some(fact.latency?.get())).collect();
    let (rate, latency) = (median(&rates), median(&latencies));
    if let Some(rate) = rate.filter(|rate| rate_is_measured(link) && apart(*rate, link.bandwidth.get())) {
        found.contradict(format!(
            "{name}: {:.1} GB/s a GPU ({origins}) where the base has {:.1} ({}); the new one is used",
            rate / 1e9,
            link.bandwidth.get() / 1e9,
            link.source
        ));
    }
    let part = match (rate, latency) {
        (Some(_), None) => "; latency as before",
        (None, Some(_)) if rate_is_measured(link) => "; bandwidth measured before",
        (None, Some(_)) => "; bandwidth as before",
        (None, None) => "; bandwidth as before, latency too",
        _ => "",
    };
    link.bandwidth = rate.map_or(link.bandwidth, BytesPerSecond);
    link.latency = latency.map_or(link.latency, Seconds);
    let basis = if nominal { "assumed, not measured: nominal, " } else { "measured: " };
    link.source = format!("{basis}{origins}{part}");
}

/// Whether two rates of one thing contradict.
fn apart(a: f64, b: f64) -> bool {
    a.max(b) > a.min(b) * CONTRADICTION
}

/// Files that measured the same link and disagree: the slowest and the fastest.
fn files_apart(name: &str, facts: &[LinkFact], found: &mut Findings) {
    let rates = facts.iter().filter_map(|fact| Some((fact.bandwidth?.get(), fact.per_nic, &fact.origin)));
    let rates: Vec<_> = rates.collect();
    let (Some(slow), Some(fast)) =
        (rates.iter().min_by(|a, b| a.0.total_cmp(&b.0)), rates.iter().max_by(|a, b| a.0.total_cmp(&b.0)))
    else {
        return;
    };
    if slow.2.file != fast.2.file && slow.1 == fast.1 && apart(slow.0, fast.0) {
        found.contradict(format!(
            "{name}: {:.1} GB/s ({}) and {:.1} GB/s ({}); the median is used",
            slow.0 / 1e9,
            slow.2,
            fast.0 / 1e9,
            fast.2
        ));
    }
}

/// Leaf switches and domains, restricted to hosts that the cluster has.
pub(super) fn take_sets(cluster: &mut Cluster, found: &mut Findings) {
    let hosts = cluster.host_names();
    let mut unknown = Vec::new();
    for (sets, target) in [(&found.leaves, &mut cluster.leaves), (&found.domains, &mut cluster.domains)] {
        if sets.is_empty() {
            target.retain(|set| set.hosts.iter().all(|host| hosts.contains(host)));
            continue;
        }
        let mut kept = sets.clone();
        for set in &mut kept {
            unknown.extend(set.hosts.iter().filter(|host| !hosts.contains(host)).cloned());
            set.hosts.retain(|host| hosts.contains(host));
        }
        kept.retain(|set| !set.hosts.is_empty());
        *target = kept;
    }
    cluster.links.retain(|link| found.hosts.is_empty() || link.between.iter().all(|end| hosts.contains(end)));
    if !unknown.is_empty() {
        found.note(format!("{} hosts of the switches were in no measurement", unknown.len()));
    }
}
