//! What data parallelism leaves exposed: gathering parameters, reducing gradients.

use super::stages::StageCosts;
use crate::comm::{Collective, Fabric, Way};
use crate::layer_cost::{LayerContext, LayerCost, RankParameters};
use crate::order::RankGroup;
use crate::run::TrainingRun;
use crate::sites::Site;
use cluster_profiles::{Bytes, GroupShape, Seconds};

/// Share of the last backward (or the first forward) that reductions (gathers) can hide behind: the first bucket has
/// to fill before anything can start.
const HIDING_SHARE: f64 = 0.8;
/// Bytes of a gathered parameter.
const GATHER_BYTES: f64 = 2.0;

/// Whether parameters are sharded and gathered again for every microbatch. With a pipeline, engines keep a stage's
/// parameters gathered for the whole step.
#[must_use]
pub fn gathers_every_microbatch(run: &TrainingRun) -> bool {
    run.parallel.zero_stage >= 3 && (run.parallel.pp == 1 || whole_gradients(run))
}

/// Whether gradients are reduce-scattered for every microbatch (ZeRO-2 and 3).
fn scatters_every_microbatch(run: &TrainingRun) -> bool {
    run.parallel.zero_stage >= 2 && run.parallel.pp == 1 && !whole_gradients(run)
}

/// Whether every layer's gradients are reduced by themselves, after the last backward.
fn whole_gradients(run: &TrainingRun) -> bool {
    run.runtime.memory.state.whole_gradients
}

/// The groups over which one rank's parameters are sharded or replicated.
struct Groups {
    dense: Group,
    expert: Group,
    replicate: Group,
}

/// A group and the slowest way it uses, where ways differ.
#[derive(Clone, Copy)]
struct Group {
    shape: GroupShape,
    way: Option<Way>,
}

impl Groups {
    fn of(run: &TrainingRun, site: Option<&Site>) -> Self {
        let parallel = run.parallel;
        let domain = site.map_or_else(|| run.cluster.smallest_domain(), |site| site.domain);
        let ways = site.map(|site| site.ways).unwrap_or_default();
        let group =
            |group: RankGroup, way: Option<Way>| Group { shape: parallel.group_shape(group, domain), way };
        Self {
            dense: group(RankGroup::Shards, ways.dense),
            expert: group(RankGroup::ExpertShards, ways.expert),
            replicate: group(RankGroup::Replicas, ways.replicate),
        }
    }
}

/// Seconds that gathering and scattering one layer's parameters adds to its forward and to its backward, where that
/// happens for every microbatch.
#[must_use]
pub fn sharded_exposure(run: &TrainingRun, context: &LayerContext, cost: &LayerCost) -> (Seconds, Seconds) {
    let (gathers, scatters) = (gathers_every_microbatch(run), scatters_every_microbatch(run));
    if !gathers && !scatters {
        return (Seconds::ZERO, Seconds::ZERO);
    }
    let groups = Groups::of(run, context.site);
    let padding = run.parallel.largest_shard();
    let gather = if gathers {
        over_groups(&context.fabric, Collective::AllGather, &groups, cost.parameters, GATHER_BYTES * padding)
    } else {
        Seconds::ZERO
    };
    let scatter = if scatters {
        let reduction = run.runtime.reduction_dtype(run.workload).bytes();
        over_groups(&context.fabric, Collective::ReduceScatter, &groups, cost.parameters, reduction * padding)
    } else {
        Seconds::ZERO
    };
    let interference = run.runtime.shared.interference;
    let beside = |traffic: Seconds, compute: Seconds| {
        (traffic - compute).max(Seconds::ZERO) + traffic.min(compute) * interference
    };
    (beside(gather, cost.forward.total()), beside(gather + scatter, cost.backward().total()))
}

/// Seconds outside the microbatches in which one layer's gradients are reduced and its parameters gathered, where layers
/// are units of their own: nothing hides it.
#[must_use]
pub fn layer_sync(run: &TrainingRun, context: &LayerContext, parameters: RankParameters) -> Seconds {
    if !whole_gradients(run) {
        return Seconds::ZERO;
    }
    let groups = Groups::of(run, context.site);
    let bytes = run.runtime.reduction_dtype(run.workload).bytes();
    let over = |collective, bytes| over_groups(&context.fabric, collective, &groups, parameters, bytes);
    match run.parallel.zero_stage {
        0 => over(Collective::AllReduce, bytes),
        _ if gathers_every_microbatch(run) => over(Collective::ReduceScatter, bytes),
        _ => over(Collective::ReduceScatter, bytes) + over(Collective::AllGather, GATHER_BYTES),
    }
}

fn over_groups(
    fabric: &Fabric,
    collective: Collective,
    groups: &Groups,
    parameters: RankParameters,
    bytes: f64,
) -> Seconds {
    let time = |parameters: f64, group: Group| {
        fabric.over(group.way).time(collective, Bytes(bytes * parameters), group.shape)
    };
    time(parameters.dense, groups.dense) + time(parameters.expert, groups.expert)
}

/// Seconds that data parallelism adds to a step outside the microbatches, on the rank with the most of it.
#[must_use]
pub fn exposed(run: &TrainingRun, stages: &StageCosts) -> Seconds {
    let ranks = 0..stages.ranks.max(1);
    ranks.map(|rank| exposed_on(run, stages, rank)).fold(Seconds::ZERO, Seconds::max)
}

fn exposed_on(run: &TrainingRun, stages: &StageCosts, rank: usize) -> Seconds {
    if whole_gradients(run) {
        return stages.rank_sync(rank);
    }
    let site = stages.site(rank);
    let fabric = match site {
        Some(site) => Fabric::of_group(run.cluster, &run.cluster.groups[site.group], &run.runtime.shared)
            .with_intra(site.intra),
        None => Fabric::new(run.cluster, &run.runtime.shared),
    };
    let groups = Groups::of(run, site);
    let parameters = stages.rank_parameters(rank);
    let own = stages.rank_passes(rank);
    let backward = own.input_gradient.total() + own.weight_gradient.total();
    let step = Step { run, fabric: &fabric, groups: &groups };
    step.hidden(step.reduction(parameters), backward)
        + step.hidden(step.gather(parameters), own.forward.total())
        + step.broadcasts()
}

struct Step<'s, 'a> {
    run: &'s TrainingRun<'a>,
    fabric: &'s Fabric<'a>,
    groups: &'s Groups,
}

impl Step<'_, '_> {
    /// What stays exposed of traffic that hides behind `compute`. Overlap is never free: a share of the hidden time is
    /// paid by the computation.
    fn hidden(&self, traffic: Seconds, compute: Seconds) -> Seconds {
        let runtime = self.run.runtime;
        let overlap = if runtime.facts.overlap.dp == Some(false) {
            0.0
        } else {
            runtime.time.dp_overlap.clamp(0.0, 1.0)
        };
        let hidden = (traffic * overlap).min(compute * HIDING_SHARE);
        traffic - hidden + hidden * runtime.shared.interference
    }

    /// Reducing the step's gradients: a reduce_scatter where the optimizer is sharded, and an all_reduce over replicas.
    fn reduction(&self, parameters: RankParameters) -> Seconds {
        let bytes = self.run.runtime.reduction_dtype(self.run.workload).bytes();
        let sharded = self.run.parallel.zero_stage >= 1;
        let collective = if sharded { Collective::ReduceScatter } else { Collective::AllReduce };
        let within = if scatters_every_microbatch(self.run) {
            Seconds::ZERO
        } else {
            self.over(collective, parameters, bytes)
        };
        let shard = if sharded { f64::from(self.groups.dense.shape.ranks) } else { 1.0 };
        let replicas = Bytes(bytes * parameters.total() / shard);
        within + self.bucketed(Collective::AllReduce, replicas, self.groups.replicate, bytes)
    }

    /// Gathering updated parameters after the optimizer, where each rank owns a part.
    fn gather(&self, parameters: RankParameters) -> Seconds {
        if self.run.parallel.zero_stage == 0 || gathers_every_microbatch(self.run) {
            return Seconds::ZERO;
        }
        self.over(Collective::AllGather, parameters, GATHER_BYTES)
    }

    /// Calls of an engine whose ranks broadcast their parameters one after the other: as many as ranks, none of them hidden.
    fn broadcasts(&self) -> Seconds {
        let ranks = if self.run.parallel.zero_stage == 0 { 1 } else { self.groups.dense.shape.ranks };
        self.run.runtime.time.shard_broadcast * f64::from(ranks - ranks.min(1))
    }

    fn over(&self, collective: Collective, parameters: RankParameters, bytes: f64) -> Seconds {
        let padded = bytes * self.run.parallel.largest_shard();
        self.bucketed(collective, Bytes(padded * parameters.dense), self.groups.dense, bytes)
            + self.bucketed(collective, Bytes(padded * parameters.expert), self.groups.expert, bytes)
    }

    fn bucketed(&self, collective: Collective, tensor: Bytes, group: Group, bytes: f64) -> Seconds {
        let bucket = self.run.runtime.time.bucket;
        let reductions = bucket.count(tensor.get() / bytes, f64::from(group.shape.ranks));
        let buckets = match bucket.gathers {
            Some(gathers) if collective == Collective::AllGather => gathers.clamp(1.0, reductions),
            _ => reductions,
        };
        let (fabric, shape) = (self.fabric.over(group.way), group.shape);
        let measured = fabric.measured_time(collective, tensor, shape, buckets);
        measured.unwrap_or_else(|| fabric.time_in_buckets(collective, tensor, shape, buckets))
    }
}
