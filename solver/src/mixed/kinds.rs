//! The kinds of a mixed cluster, and rows of their hosts.

use crate::placement::even_twin;
use cluster_profiles::Cluster;
use cost_models::comm::Way;
use cost_models::sites::{Network, speed};

/// One kind of nodes as a cluster of its own.
pub struct Kind {
    /// Its nodes alone, with the best links any of them has.
    pub cluster: Cluster,
    /// GPUs.
    pub gpus: u64,
    /// Sustained 16-bit rate of a GPU, by which the slowest of several is known.
    pub speed: f64,
    /// Its hosts, by their index in the cluster. A kind that is equal to one before it has left them to that one.
    pub hosts: Vec<usize>,
}

/// GPUs of one kind in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    /// Index of the kind.
    pub kind: usize,
    /// How many.
    pub gpus: u64,
}

impl Kind {
    /// GPUs of a host.
    pub fn host_gpus(&self) -> u64 {
        u64::from(self.cluster.main().node.gpus)
    }
}

/// The kinds of a cluster. Where single ways are stated or measured, some may be better than the nodes' own links.
pub fn kinds(network: &Network) -> Vec<Kind> {
    let cluster = network.cluster();
    let own_ways = network.topology().has_own_ways();
    let best = own_ways.then(|| network.best());
    let mut first = 0;
    let mut kinds: Vec<Kind> = Vec::with_capacity(cluster.groups.len());
    for group in &cluster.groups {
        let mut own = even_twin(cluster, None);
        own.groups = vec![group.clone()];
        own.domains = Vec::new();
        if let Some(Way { bandwidth, latency }) = best {
            let link = &mut own.groups[0].node.inter;
            link.bandwidth = link.bandwidth.max(bandwidth);
            link.latency = link.latency.min(latency);
        }
        let mut kind = Kind { cluster: own, gpus: 0, speed: speed(&group.gpu), hosts: Vec::new() };
        let hosts = first..first + group.nodes as usize;
        first = hosts.end;
        let equal = |known: &&mut Kind| {
            let main = known.cluster.main();
            !own_ways && cluster.domains.is_empty() && main.gpu == group.gpu && main.node == group.node
        };
        let gpus = hosts.len() as u64 * kind.host_gpus();
        let owner = kinds.iter_mut().find(equal).unwrap_or(&mut kind);
        owner.hosts.extend(hosts);
        owner.gpus += gpus;
        kinds.push(kind);
    }
    kinds
}

/// The hosts of a row of GPUs, by their index in the cluster. None if kinds do not come in whole hosts, or run out of them.
pub fn hosts_of(kinds: &[Kind], runs: &[Run]) -> Option<Vec<usize>> {
    let mut joined: Vec<Run> = Vec::new();
    for run in runs {
        match joined.last_mut().filter(|last| last.kind == run.kind) {
            Some(last) => last.gpus += run.gpus,
            None => joined.push(*run),
        }
    }
    let mut next = vec![0; kinds.len()];
    let mut hosts = Vec::new();
    for Run { kind, gpus } in joined {
        let each = kinds[kind].host_gpus();
        let end = next[kind] + (gpus / each) as usize;
        let own = kinds[kind].hosts.get(next[kind]..end).filter(|_| gpus.is_multiple_of(each))?;
        hosts.extend_from_slice(own);
        next[kind] = end;
    }
    Some(hosts)
}
