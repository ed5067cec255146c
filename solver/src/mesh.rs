//! The parts of a layout in the order they are chosen: degrees and microbatches, schedule and recompute, sharding.

use cost_models::schedule::Schedule;
use cost_models::{ParallelConfig, RankOrder, Recompute};

/// The degrees of a layout that decide what a layer costs, and the microbatches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mesh {
    /// Tensor parallelism.
    pub tp: u32,
    /// Context parallelism.
    pub cp: u32,
    /// Pipeline parallelism.
    pub pp: u32,
    /// Data parallelism.
    pub dp: u32,
    /// Expert parallelism.
    pub ep: u32,
    /// Tensor parallelism inside an expert.
    pub etp: u32,
    /// Whether the TP ranks split the sequence between matrix products.
    pub sequence_parallel: bool,
    /// Sequences of a microbatch.
    pub micro_batch_size: u64,
    /// Microbatches of a step.
    pub num_microbatches: u64,
}

/// How the state of a layout is sharded over data-parallel ranks, and where these stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sharding {
    /// ZeRO stage.
    pub zero_stage: u8,
    /// Replicas of the sharded state.
    pub dp_replicate: u32,
    /// The order ranks are numbered in.
    pub rank_order: RankOrder,
}

/// What runs on a mesh: the schedule and what is recomputed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pipeline {
    /// The schedule.
    pub schedule: Schedule,
    /// Chunks per rank.
    pub vpp: u32,
    /// What is recomputed.
    pub recompute: Recompute,
    /// Whether every stage recomputes no more than it must, and `recompute` is only the most it may.
    pub per_stage: bool,
}

impl Mesh {
    /// Writes the mesh into a layout; the state is sharded over all data-parallel ranks, numbered in the default order.
    pub fn write(&self, parallel: &mut ParallelConfig) {
        parallel.tp = self.tp;
        parallel.cp = self.cp;
        parallel.pp = self.pp;
        parallel.ep = self.ep;
        parallel.etp = self.etp;
        parallel.dp_replicate = 1;
        parallel.dp_shard = self.dp;
        parallel.rank_order = RankOrder::default();
        parallel.sequence_parallel = self.sequence_parallel;
        parallel.micro_batch_size = self.micro_batch_size;
        parallel.num_microbatches = self.num_microbatches;
    }

    /// The layout with this sharding, no recompute and no chunks.
    #[must_use]
    pub fn sharded(&self, sharding: Sharding) -> ParallelConfig {
        let mut parallel = ParallelConfig::default();
        self.write(&mut parallel);
        sharding.write(self, &mut parallel);
        parallel
    }

    /// The layout that runs this.
    #[must_use]
    pub fn with(&self, pipeline: &Pipeline, sharding: Sharding) -> ParallelConfig {
        let mut parallel = self.sharded(sharding);
        set_schedule(&mut parallel, &pipeline.schedule.to_string());
        pipeline.write(&mut parallel);
        parallel
    }
}

impl Pipeline {
    /// Writes all but the schedule's name.
    pub(crate) fn write(&self, parallel: &mut ParallelConfig) {
        parallel.recompute = self.recompute;
        parallel.vpp = self.vpp;
    }
}

impl Sharding {
    /// No sharding, in the default order.
    pub(crate) const NONE: Self = Self { zero_stage: 0, dp_replicate: 1, rank_order: RankOrder::DpInside };

    pub(crate) fn write(self, mesh: &Mesh, parallel: &mut ParallelConfig) {
        parallel.zero_stage = self.zero_stage;
        parallel.dp_replicate = self.dp_replicate;
        parallel.dp_shard = mesh.dp / self.dp_replicate.max(1);
        parallel.rank_order = self.rank_order;
    }
}

/// Writes a schedule's name, reusing the string.
pub(crate) fn set_schedule(parallel: &mut ParallelConfig, name: &str) {
    if parallel.schedule != name {
        parallel.schedule.clear();
        parallel.schedule.push_str(name);
    }
}
