//! Where a global rank stands on every axis.
//!
//! All supported engines number ranks alike: tp varies fastest, then cp, then data parallel (shards inside replicas),
//! then pp. The experts' grid runs over the same ranks of a pipeline stage as etp, ep, expert data parallel
//! (Megatron-LM `megatron/core/parallel_state.py`, order `tp-cp-ep-dp-pp`).

use crate::parallel::ParallelConfig;
use serde::{Deserialize, Serialize};

/// The order ranks are numbered in, innermost axis first.
pub const RANK_ORDER: &str = "tp-cp-ep-dp-pp";

/// Position of a rank on every axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coordinates {
    /// Tensor-parallel rank.
    pub tp: u32,
    /// Pipeline rank.
    pub pp: u32,
    /// Context-parallel rank.
    pub cp: u32,
    /// Data-parallel rank.
    pub dp: u32,
    /// Expert-parallel rank.
    pub ep: u32,
}

/// The coordinates of global rank `rank`.
#[must_use]
pub fn coordinates(parallel: &ParallelConfig, rank: u64) -> Coordinates {
    let (tp, cp, dp) = (u64::from(parallel.tp), u64::from(parallel.cp), u64::from(parallel.dp()));
    let stage = tp * cp * dp;
    let inside = rank % stage;
    let experts = u64::from(parallel.ep.max(1));
    Coordinates {
        tp: (inside % tp) as u32,
        pp: (rank / stage) as u32,
        cp: (inside / tp % cp) as u32,
        dp: (inside / (tp * cp)) as u32,
        ep: (inside / u64::from(parallel.etp.max(1)) % experts) as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// World 64 with TP2 CP2 PP4 EP8 ETP1: `initialize_model_parallel` puts rank 5 into TP {4,5}, PP {5,21,37,53} and
    /// EP {0..7}.
    #[test]
    fn rank_five_of_a_megatron_grid() {
        let parallel =
            ParallelConfig { tp: 2, cp: 2, pp: 4, ep: 8, etp: 1, dp_shard: 4, ..ParallelConfig::default() };
        assert_eq!(parallel.world_size(), 64);
        let five = coordinates(&parallel, 5);
        assert_eq!((five.tp, five.cp, five.dp, five.pp, five.ep), (1, 0, 1, 0, 5));
        let peers = |same: fn(Coordinates) -> [u32; 3]| -> Vec<u64> {
            (0..64).filter(|&r| same(coordinates(&parallel, r)) == same(five)).collect()
        };
        assert_eq!(peers(|c| [c.cp, c.dp, c.pp]), vec![4, 5]);
        assert_eq!(peers(|c| [c.tp, c.cp, c.dp]), vec![5, 21, 37, 53]);
    }
}
