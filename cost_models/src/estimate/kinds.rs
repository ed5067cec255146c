//! What the ranks on every kind of GPU do where their micro batches differ.

use super::{EstimateError, RankMemory};
use crate::memory::kind_peaks;
use crate::run::TrainingRun;
use crate::shares::{KindShare, slowest_group};
use crate::sites::{Sites, limit_on};
use crate::step::kind_stages;
use cluster_profiles::{Bytes, Seconds};
use serde::{Deserialize, Serialize};

/// The ranks on one kind of GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KindEstimate {
    /// Kind, number of ranks, micro batch.
    #[serde(flatten)]
    pub share: KindShare,
    /// Part of the sharded parameters, gradients and optimizer state that each of these ranks holds.
    pub state_share: f64,
    /// Seconds of its microbatches in a step and of what stays exposed after them; less than others take means waiting.
    pub busy_seconds: Seconds,
    /// Memory of a rank.
    pub memory: RankMemory,
}

/// The ranks of a run by kind; nothing where all have equal shares.
pub(super) fn kinds(run: &TrainingRun, sites: Option<&Sites>) -> Result<Vec<KindEstimate>, EstimateError> {
    if run.parallel.shares.is_empty() {
        return Ok(Vec::new());
    }
    let reserve = &run.runtime.memory.reserve;
    let even = 1.0 / f64::from(run.parallel.dp_shard * run.parallel.cp);
    let stages = kind_stages(run, sites)?;
    let parts = run.parallel.shares.iter().zip(stages).zip(kind_peaks(run)?);
    let of_kind =
        |((share, stages), peak): ((&KindShare, crate::step::KindStages), crate::memory::RankPeak)| {
            let state_share = even * run.parallel.relative_state(share.state);
            let (share, memory) = (share.clone(), peak.report(reserve));
            KindEstimate { share, state_share, busy_seconds: stages.seconds, memory }
        };
    Ok(parts.map(of_kind).collect())
}

impl KindEstimate {
    /// What its GPUs have, and the most they may hold under a limit for the largest.
    #[must_use]
    pub fn room(&self, run: &TrainingRun, limit: Bytes) -> [Bytes; 2] {
        slowest_group(run.cluster, &self.share.gpu).map_or([Bytes::ZERO; 2], |group| {
            [run.cluster.groups[group].gpu.memory, limit_on(run.cluster, run.runtime, limit, group)]
        })
    }
}
