//! What rates between hosts say about the network: islands, slow and dead links, written into the profile and said in words.

use super::assemble::joined;
use super::findings::Findings;
use cluster_profiles::anomalies::{Anomaly, Culprit, PairRate, survey as survey_rates};
use cluster_profiles::fit::median;
use cluster_profiles::{BytesPerSecond, Cluster, HostSet, LinkOverride, Seconds};
use std::collections::BTreeMap;

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
