//! The kinds of a mixed cluster, one after the other in every order.

use crate::placement::even_twin;
use cluster_profiles::Cluster;
use cost_models::ParallelConfig;
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
    /// Index of its first host in the cluster.
    first: usize,
}

/// The kinds of a cluster. Where single ways are stated or measured, some may be better than the nodes' own links.
pub fn kinds(network: &Network) -> Vec<Kind> {
    let cluster = network.cluster();
    let best = network.topology().has_own_ways().then(|| network.best());
    let mut first = 0;
    let mut kinds = Vec::with_capacity(cluster.groups.len());
    for group in &cluster.groups {
        let mut own = even_twin(cluster, None);
        own.groups = vec![group.clone()];
        own.domains = Vec::new();
        if let Some(Way { bandwidth, latency }) = best {
            let link = &mut own.groups[0].node.inter;
            link.bandwidth = link.bandwidth.max(bandwidth);
            link.latency = link.latency.min(latency);
        }
        let gpus = u64::from(group.nodes) * u64::from(group.node.gpus);
        kinds.push(Kind { cluster: own, gpus, speed: speed(&group.gpu), first });
        first += group.nodes as usize;
    }
    kinds
}

/// A row of the cluster's hosts.
pub struct Row {
    /// Its hosts, by their index in the cluster.
    pub hosts: Vec<usize>,
    /// Kind and number of GPUs, in order.
    runs: Vec<(usize, u64)>,
}

impl Row {
    /// Kinds one after the other; the same kind may come again. None if a kind has no such number of whole hosts left.
    pub fn new(kinds: &[Kind], runs: &[(usize, u64)]) -> Option<Self> {
        let mut next: Vec<usize> = kinds.iter().map(|kind| kind.first).collect();
        let mut hosts = Vec::new();
        for &(index, gpus) in runs {
            let kind = &kinds[index];
            let each = u64::from(kind.cluster.main().node.gpus);
            let end = next[index] + (gpus / each) as usize;
            if !gpus.is_multiple_of(each) || end > kind.first + kind.cluster.main().nodes as usize {
                return None;
            }
            hosts.extend(next[index]..end);
            next[index] = end;
        }
        Some(Self { hosts, runs: runs.to_vec() })
    }

    /// The kinds in the ranks of every stage, each kind once.
    pub fn kinds_of_stages(&self, parallel: &ParallelConfig) -> Vec<Vec<usize>> {
        self.kinds_of(parallel.pp, parallel.world_size())
    }

    /// The kinds in the ranks of each of so many stages.
    pub fn kinds_of(&self, stages: u32, world: u64) -> Vec<Vec<usize>> {
        let size = world / u64::from(stages.max(1));
        let stage = |rank: u64| {
            let (from, to) = (rank * size, (rank + 1) * size);
            let mut first = 0;
            let mut kinds = Vec::new();
            for &(kind, gpus) in &self.runs {
                if first < to && first + gpus > from && !kinds.contains(&kind) {
                    kinds.push(kind);
                }
                first += gpus;
            }
            kinds
        };
        (0..u64::from(stages)).map(stage).collect()
    }
}

/// Every order of the kinds, each with all its GPUs.
pub fn orders(kinds: &[Kind]) -> Vec<Vec<(usize, u64)>> {
    let mut orders: Vec<Vec<usize>> = vec![Vec::new()];
    for _ in kinds {
        orders = orders
            .into_iter()
            .flat_map(|order| {
                let free: Vec<usize> = (0..kinds.len()).filter(|kind| !order.contains(kind)).collect();
                free.into_iter().map(move |kind| [order.clone(), vec![kind]].concat())
            })
            .collect();
        orders.truncate(MOST_ORDERS);
    }
    orders.into_iter().map(|order| order.into_iter().map(|kind| (kind, kinds[kind].gpus)).collect()).collect()
}

/// Orders of kinds that are looked at.
const MOST_ORDERS: usize = 24;
