//! Everything an estimate depends on, in one place.

use crate::model::ModelSpec;
use crate::parallel::ParallelConfig;
use crate::runtime::Runtime;
use crate::stages::StageMap;
use crate::workload::Workload;
use cluster_profiles::Cluster;

/// A training run: what is trained, on what, by which engine, split how.
#[derive(Debug, Clone, Copy)]
pub struct TrainingRun<'a> {
    /// The model.
    pub model: &'a ModelSpec,
    /// The cluster, with exactly the GPUs the layout uses.
    pub cluster: &'a Cluster,
    /// One optimizer step.
    pub workload: &'a Workload,
    /// The engine.
    pub runtime: &'a Runtime,
    /// The degrees.
    pub parallel: &'a ParallelConfig,
    /// Layers of every stage.
    pub stages: &'a StageMap,
}

impl TrainingRun<'_> {
    /// Tokens of one microbatch on one rank: `s b / cp`.
    #[must_use]
    pub fn tokens_per_rank(&self) -> f64 {
        self.workload.seq_len as f64 * self.parallel.micro_batch_size as f64 / f64::from(self.parallel.cp)
    }

    /// Ranks that share a token's residual stream: tp with sequence parallelism, else 1.
    #[must_use]
    pub fn sequence_shards(&self) -> f64 {
        if self.parallel.sequence_parallel { f64::from(self.parallel.tp) } else { 1.0 }
    }
}
