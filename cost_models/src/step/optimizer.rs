//! The optimizer step.

use super::host_optimizer::host_update;
use super::stages::StageCosts;
use crate::compute::stream;
use crate::layer_cost::RankParameters;
use crate::parallel::ParallelConfig;
use crate::run::TrainingRun;
use crate::workload::Optimizer;
use cluster_profiles::{Bytes, NodeGroup, Seconds};

/// Time of the optimizer on the rank with the most parameters: reading and writing the state of the parameters it
/// owns, and the passes over the gradients it holds (norm, zeroing). What is offloaded is updated on the host
/// ([`super::host_optimizer`]). With shares by kind of GPU all wait for the kind that is slowest at it.
#[must_use]
pub fn optimizer_time(run: &TrainingRun, stages: &StageCosts) -> Seconds {
    (0..stages.ranks.max(1)).map(|rank| on_rank(run, stages, rank)).fold(Seconds::ZERO, Seconds::max)
}

/// Parameters that a rank updates, and those whose gradients it holds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct OwnedParameters {
    /// Updated by the rank.
    pub updated: f64,
    /// With gradients on the rank.
    pub resident: f64,
}

impl OwnedParameters {
    /// What a rank that computes with `parameters` owns of them under a layout.
    #[must_use]
    pub fn of(parallel: &ParallelConfig, parameters: RankParameters) -> Self {
        let dense_ranks = f64::from(parallel.dp_shard * parallel.cp);
        let expert_ranks = f64::from(parallel.expert_dp().max(1)) / f64::from(parallel.dp_replicate);
        let sharded = parameters.dense / dense_ranks + parameters.expert / expert_ranks.max(1.0);
        Self {
            updated: if parallel.zero_stage >= 1 { sharded } else { parameters.total() },
            resident: if parallel.zero_stage >= 2 { sharded } else { parameters.total() },
        }
    }
}

impl std::ops::AddAssign for OwnedParameters {
    fn add_assign(&mut self, other: Self) {
        self.updated += other.updated;
        self.resident += other.resident;
    }
}

fn on_rank(run: &TrainingRun, stages: &StageCosts, rank: usize) -> Seconds {
    let owned = stages.rank_owned(rank, run.parallel);
    if !run.parallel.shares.is_empty() {
        let kinds = run.cluster.groups.iter().map(|nodes| {
            let share = run.parallel.shares.iter().find(|share| share.gpu == nodes.gpu.name);
            let relative = share.map_or(1.0, |share| run.parallel.relative_state(share.state));
            let OwnedParameters { updated, resident } = owned;
            let own = OwnedParameters { updated: updated * relative, resident: resident * relative };
            on_nodes(run, own, nodes)
        });
        return kinds.fold(Seconds::ZERO, Seconds::max);
    }
    let nodes = stages.site(rank).map_or_else(|| run.cluster.main(), |site| &run.cluster.groups[site.group]);
    on_nodes(run, owned, nodes)
}

fn on_nodes(run: &TrainingRun, owned: OwnedParameters, nodes: &NodeGroup) -> Seconds {
    let shared = &run.runtime.shared;
    let OwnedParameters { updated: owned, resident } = owned;
    let offloaded = owned * run.runtime.memory.state.optimizer_offload.clamp(0.0, 1.0);
    let host = host_update(&nodes.node, offloaded);
    let updated = owned - offloaded;
    let measured = run.cluster.optimizers.iter().find(|o| o.name == run.workload.optimizer.name());
    if let Some(measured) = measured {
        return measured.time * (updated / measured.parameters.max(1.0)) + host;
    }
    let state = shared.optimizer_bytes - saved_bytes(run.workload.optimizer);
    stream(&nodes.gpu, Bytes(state * updated + shared.gradient_pass_bytes * resident)) + host
}

/// Traffic per parameter that an optimizer saves against Adam with 32-bit state: each byte of state is read and
/// written.
const fn saved_bytes(optimizer: Optimizer) -> f64 {
    match optimizer {
        Optimizer::Adamw => 0.0,
        Optimizer::AdamwBf16 | Optimizer::Sgd | Optimizer::Muon => 8.0,
    }
}
