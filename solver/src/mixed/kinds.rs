//! The kinds of a mixed cluster, one after the other in every order.

use crate::placement::even_twin;
use crate::problem::Problem;
use cluster_profiles::{Bytes, Cluster};
use cost_models::ParallelConfig;
use cost_models::sites::{Network, limit_on};

/// One kind of nodes as a cluster of its own.
pub struct Kind {
    /// Its nodes alone, with the best links any of them has.
    pub cluster: Cluster,
    /// What its GPUs may hold.
    pub limit: Bytes,
    /// GPUs.
    pub gpus: u64,
}

/// The kinds of a cluster.
pub fn kinds(problem: &Problem) -> Vec<Kind> {
    let cluster = problem.cluster;
    let of_group = |index: usize| {
        let group = &cluster.groups[index];
        let mut own = even_twin(cluster, None);
        own.groups = vec![group.clone()];
        own.domains = Vec::new();
        Kind {
            cluster: own,
            limit: limit_on(cluster, problem.runtime, problem.limit(), index),
            gpus: u64::from(group.nodes) * u64::from(group.node.gpus),
        }
    };
    (0..cluster.groups.len()).map(of_group).collect()
}

/// A row of the cluster's hosts, and the network they make.
pub struct Row {
    /// The cluster with its hosts in this order.
    pub cluster: Cluster,
    /// Kind and number of GPUs, in order.
    runs: Vec<(usize, u64)>,
}

impl Row {
    /// Kinds one after the other; the same kind may come again.
    pub fn new(cluster: &Cluster, runs: &[(usize, u64)]) -> Option<Self> {
        let names = cluster.host_names();
        let mut starts: Vec<usize> = Vec::new();
        let mut first = 0;
        for group in &cluster.groups {
            starts.push(first);
            first += group.nodes as usize;
        }
        let mut hosts = Vec::with_capacity(names.len());
        for &(kind, gpus) in runs {
            let each = u64::from(cluster.groups[kind].node.gpus);
            if !gpus.is_multiple_of(each) {
                return None;
            }
            let count = (gpus / each) as usize;
            hosts.extend_from_slice(names.get(starts[kind]..starts[kind] + count)?);
            starts[kind] += count;
        }
        Some(Self { cluster: cluster.arranged(&hosts).ok()?, runs: runs.to_vec() })
    }

    /// The kinds in the ranks of every stage, each kind once.
    pub fn kinds_of_stages(&self, parallel: &ParallelConfig) -> Vec<Vec<usize>> {
        let size = parallel.world_size() / u64::from(parallel.pp.max(1));
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
        (0..u64::from(parallel.pp)).map(stage).collect()
    }

    /// The network of the row.
    pub fn network(&self) -> Option<Network<'_>> {
        Network::new(&self.cluster).ok()
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
