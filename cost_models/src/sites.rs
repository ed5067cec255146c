//! What every pipeline rank runs on, where that makes a difference: GPUs of several kinds, or links that are not all alike.
//!
//! Ranks fill the hosts of a cluster in order, so that a pipeline rank is a row of hosts. All its GPUs wait for the
//! slowest of them, and every group of an axis for its slowest way; [`Sites`] holds both for each pipeline rank. An even
//! cluster needs none of it ([`Cluster::is_even`]).

mod limits;
mod network;
mod row;

pub use limits::{fits, limit_of_part, limit_on, rank_limits};
pub use network::Network;

use crate::comm::Way;
use crate::parallel::ParallelConfig;
use cluster_profiles::{BytesPerSecond, Cluster, Gpu, Seconds};

/// What one pipeline rank runs on.
#[derive(Debug, Clone, PartialEq)]
pub struct Site {
    /// Index of the group of nodes with the slowest GPUs.
    pub group: usize,
    /// Index of the group of nodes with the least memory.
    pub smallest: usize,
    /// GPUs of an NVLink domain that every group of ranks may count on.
    pub domain: u32,
    /// Rate inside a domain.
    pub intra: BytesPerSecond,
    /// The slowest way of every axis; none for an axis that stays in domains.
    pub ways: AxisWays,
}

/// The slowest way between domains that the groups of every axis use.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct AxisWays {
    /// Tensor parallelism.
    pub tp: Option<Way>,
    /// Context parallelism.
    pub cp: Option<Way>,
    /// Expert parallelism.
    pub ep: Option<Way>,
    /// Tensor parallelism inside an expert.
    pub etp: Option<Way>,
    /// Shards of dense state.
    pub dense: Option<Way>,
    /// Shards of expert state.
    pub expert: Option<Way>,
    /// Replicas of sharded state.
    pub replicate: Option<Way>,
}

/// The way from one pipeline rank to the next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HopWay {
    /// The slowest between GPUs of the same place; none if all share domains.
    pub way: Option<Way>,
}

/// The sites of all pipeline ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct Sites {
    /// One per pipeline rank.
    pub list: Vec<Site>,
    /// From every pipeline rank to the next, the last to the first.
    pub hops: Vec<HopWay>,
    /// Two hosts that have to reach each other and cannot.
    pub broken: Option<[String; 2]>,
}

fn worse(a: Way, b: Way) -> Way {
    Way { bandwidth: a.bandwidth.min(b.bandwidth), latency: a.latency.max(b.latency) }
}

/// Sustained 16-bit rate.
#[must_use]
pub fn speed(gpu: &Gpu) -> f64 {
    gpu.kernels.gemm_16bit.rate.get() * gpu.kernels.sustained_16bit
}

impl Sites {
    /// The sites of a layout on a cluster, whose hosts are in rank order; none if the cluster is even, or too large for a
    /// topology.
    #[must_use]
    pub fn of(cluster: &Cluster, parallel: &ParallelConfig) -> Option<Self> {
        if cluster.is_even() || cluster.groups.is_empty() || parallel.pp == 0 {
            return None;
        }
        let network = Network::new(cluster).ok()?;
        let hosts: Vec<Option<usize>> = (0..network.topology().hosts().len()).map(Some).collect();
        Some(network.sites(&hosts, parallel, network.best()))
    }

    /// The way of a message between the stages of two pipeline ranks, in either direction.
    #[must_use]
    pub fn hop(&self, from: usize, to: usize) -> HopWay {
        let count = self.hops.len().max(1);
        if from == to {
            return HopWay { way: None };
        }
        if (from + 1) % count == to {
            return self.hops[from];
        }
        if (to + 1) % count == from {
            return self.hops[to];
        }
        let all = self.hops.iter().filter_map(|hop| hop.way);
        HopWay { way: all.reduce(worse) }
    }
}

impl Default for Way {
    fn default() -> Self {
        Self { bandwidth: BytesPerSecond::ZERO, latency: Seconds::ZERO }
    }
}
