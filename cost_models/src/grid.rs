//! Where a global rank stands on every axis.
//!
//! The ranks of a pipeline stage are numbered alike in every order ([`crate::order`]): tp varies fastest, then cp, then
//! data parallel (shards inside replicas). The experts' grid runs over the same ranks as etp, ep, expert data parallel.

use crate::order::GridSizes;
use crate::parallel::ParallelConfig;
use serde::{Deserialize, Serialize};

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

/// Numbers the ranks of a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankGrid {
    block: u64,
    pp: u64,
    stage: u64,
}

impl RankGrid {
    /// The grid of a layout.
    #[must_use]
    pub fn of(parallel: &ParallelConfig) -> Self {
        let pp = u64::from(parallel.pp.max(1));
        let stage = (parallel.world_size() / pp).max(1);
        Self { block: parallel.rank_order.block(&GridSizes::of(parallel)).clamp(1, stage), pp, stage }
    }

    /// Ranks of a pipeline stage.
    #[must_use]
    pub const fn stage_ranks(&self) -> u64 {
        self.stage
    }

    /// Ranks with consecutive numbers: a stage, or a part of it.
    #[must_use]
    pub const fn block(&self) -> u64 {
        self.block
    }

    /// The global rank of a pipeline rank's `index`-th rank.
    #[must_use]
    pub const fn rank(&self, pipeline_rank: u64, index: u64) -> u64 {
        index % self.block + self.block * (pipeline_rank + self.pp * (index / self.block))
    }

    /// The pipeline rank of a global rank, and which of its ranks it is.
    #[must_use]
    pub const fn place(&self, rank: u64) -> (u64, u64) {
        let blocks = rank / self.block;
        (blocks % self.pp, rank % self.block + self.block * (blocks / self.pp))
    }
}

/// The coordinates of global rank `rank`.
#[must_use]
pub fn coordinates(parallel: &ParallelConfig, rank: u64) -> Coordinates {
    let (tp, cp) = (u64::from(parallel.tp), u64::from(parallel.cp));
    let (pipeline_rank, index) = RankGrid::of(parallel).place(rank);
    let experts = u64::from(parallel.ep.max(1));
    Coordinates {
        tp: (index % tp) as u32,
        pp: pipeline_rank as u32,
        cp: (index / tp % cp) as u32,
        dp: (index / (tp * cp)) as u32,
        ep: (index / u64::from(parallel.etp.max(1)) % experts) as u32,
    }
}
