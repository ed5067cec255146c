//! What text and JSON of nccl-tests share: the tests by name, and the ranks of the measured group.

use super::findings::{Findings, Group, Origin};
use cluster_profiles::Collective;
use std::collections::{BTreeMap, BTreeSet};

/// A test by its name, with the collective where plans have one.
pub(super) type Test = (&'static str, Option<Collective>);

/// Names of the tests, with the collective where plans have one.
pub(super) const TESTS: [(&str, Option<Collective>); 12] = [
    ("all_reduce", Some(Collective::AllReduce)),
    ("all_gather", Some(Collective::AllGather)),
    ("reduce_scatter", Some(Collective::ReduceScatter)),
    ("alltoallv", None),
    ("alltoall", Some(Collective::AllToAll)),
    ("all_to_all", Some(Collective::AllToAll)),
    ("sendrecv", Some(Collective::SendRecv)),
    ("broadcast", None),
    ("reduce", None),
    ("gather", None),
    ("scatter", None),
    ("hypercube", None),
];

/// The test named in `text` as `all_reduce_perf`.
pub(super) fn test_named(text: &str) -> Option<Test> {
    TESTS.into_iter().find(|(name, _)| {
        text.match_indices(name).any(|(at, _)| {
            let before = text[..at].chars().next_back();
            let own = !before.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
            own && text[at + name.len()..].starts_with("_perf")
        })
    })
}

/// The test a file is named after: `all_gather.log`, `run3-AllGather.txt`, `broadcast_perf.log`. None where it names several.
pub(super) fn test_of_file(name: &str) -> Option<Test> {
    if let Some(test) = test_named(name) {
        return Some(test);
    }
    let squeezed = name.to_lowercase().replace(['_', '-'], "");
    let stem = squeezed.split('.').next().unwrap_or_default();
    let plain = |name: &str| name.replace('_', "");
    if let Some(test) = TESTS.into_iter().find(|(name, _)| plain(name) == stem) {
        return Some(test);
    }
    let mut named = TESTS.into_iter().filter(|(name, op)| op.is_some() && squeezed.contains(&plain(name)));
    let first = named.next().filter(|_| !squeezed.contains("alltoallv"))?;
    named.all(|(_, op)| op == first.1).then_some(first)
}

/// Ranks of the first group, by host, in order.
#[derive(Debug, Default)]
pub(super) struct Ranks {
    seen: BTreeSet<u32>,
    hosts: Vec<(String, u32)>,
    all_hosts: BTreeMap<String, u32>,
    gpu: Option<String>,
}

impl Ranks {
    pub(super) fn add(&mut self, rank: u32, group: u32, host: &str, gpu: &str) {
        if !self.seen.insert(rank) {
            return;
        }
        *self.all_hosts.entry(host.to_owned()).or_default() += 1;
        if self.gpu.is_none() && !gpu.is_empty() {
            self.gpu = Some(gpu.to_owned());
        }
        if group != 0 {
            return;
        }
        match self.hosts.iter_mut().find(|(name, _)| name == host) {
            Some((_, count)) => *count += 1,
            None => self.hosts.push((host.to_owned(), 1)),
        }
    }

    pub(super) fn group(&self, op: Collective) -> Option<Group> {
        let ranks: u32 = self.hosts.iter().map(|(_, count)| count).sum();
        let per_host = self.hosts.iter().map(|(_, count)| *count).max()?;
        (ranks >= 1).then_some(Group { op, ranks, per_host: Some(per_host) })
    }

    pub(super) fn tell(&self, found: &mut Findings, origin: &Origin) {
        for (host, gpus) in &self.all_hosts {
            found.host(host, *gpus, self.gpu.as_deref(), origin);
        }
    }
}

/// `#  Rank  0 Group  0 Pid   6899 on node-1 device  0 [0000:04:00] NVIDIA H100 80GB HBM3`; older ones have no group.
pub(super) fn rank_line(line: &str) -> Option<(u32, u32, String, String)> {
    let rest = line.trim_start_matches('#').trim_start().strip_prefix("Rank")?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    let rank = words.first()?.parse().ok()?;
    let after = |name: &str| words.iter().position(|w| *w == name).and_then(|at| words.get(at + 1)).copied();
    let group = after("Group").and_then(|g| g.parse().ok()).unwrap_or(0);
    let host = after("on")?.to_owned();
    let gpu = rest.split_once(']').map_or("", |(_, name)| name.trim()).to_owned();
    Some((rank, group, host, gpu))
}
