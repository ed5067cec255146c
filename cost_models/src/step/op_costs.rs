//! What the simulator is told about a run: times of every stage's operations, hops, passes of a split output layer.

use super::stages::{StageCost, StageCosts};
use crate::comm::{Collective, Fabric};
use crate::layer_cost::{LayerContext, PassCost, Passes};
use crate::run::TrainingRun;
use crate::schedule::{Hop, OpCosts, Schedule, Sends, StageCosts as OpTimes, Vocabulary, VocabularyCosts};
use crate::sites::Sites;
use cluster_profiles::Bytes;

/// Costs of the operations for the simulator.
pub(super) fn op_costs(run: &TrainingRun, stages: &StageCosts, with_hops: bool) -> OpCosts {
    let context = LayerContext::of(run);
    let share = 1.0 / slices(run);
    let times = stages.stages.iter().map(|stage| op_times(stage, share)).collect();
    let hops = if with_hops { hops(run, &context, stages, share) } else { Vec::new() };
    let vocabulary = stages.split_head.map_or_else(VocabularyCosts::default, |(share, _)| {
        vocabulary_costs(run, &context, &share, head_split(run), with_hops)
    });
    OpCosts { stages: times, hops, vocabulary, sends: sends(run), ..OpCosts::default() }
}

/// Whether a rank waits until its messages have arrived: where the run says that sends are not overlapped. Engines whose
/// 1F1B blocks are not told apart: their fitted numbers rest on overlapped sends.
fn sends(run: &TrainingRun) -> Sends {
    match run.runtime.facts.overlap.pp {
        Some(false) => Sends::Blocking,
        Some(true) | None => Sends::Overlapped,
    }
}

/// Slices a microbatch is cut into.
pub(super) fn slices(run: &TrainingRun) -> f64 {
    let schedule = run.parallel.schedule.parse::<Schedule>().ok();
    schedule.and_then(|schedule| schedule.kind.definition().default_slices).map_or(1.0, f64::from)
}

/// How the schedule splits the output layer.
fn head_split(run: &TrainingRun) -> Vocabulary {
    let schedule = run.parallel.schedule.parse::<Schedule>();
    schedule.map_or(Vocabulary::Whole, |schedule| schedule.vocabulary)
}

/// Whether the schedule splits the output layer over all pipeline ranks.
pub(super) fn splits_head(run: &TrainingRun) -> bool {
    run.parallel.pp > 1 && head_split(run) != Vocabulary::Whole
}

/// Times of a stage's operations by themselves, and what a combined pair saves of them.
fn op_times(stage: &StageCost, share: f64) -> OpTimes {
    let Passes { forward, input_gradient: input, weight_gradient: weight } = stage.passes * share;
    let alone = |pass: PassCost| (pass.total() + pass.ep_hidden).get();
    OpTimes {
        pair_saving: forward.ep_hidden.get(),
        backward_pair_saving: (input.ep_hidden + weight.ep_hidden).get(),
        ..OpTimes::of_times(alone(forward), alone(input), alone(weight))
    }
}

/// Hops between stages on different ranks: over the NIC where neighbours are in different domains.
fn hops(run: &TrainingRun, context: &LayerContext, stages: &StageCosts, share: f64) -> Vec<Hop> {
    match &stages.sites {
        Some(sites) => stages.stages.windows(2).map(|pair| site_hop(run, sites, pair, share)).collect(),
        None => even_hops(run, &context.fabric, stages, share),
    }
}

/// The hop between two stages whose ranks run on sites of their own.
fn site_hop(run: &TrainingRun, sites: &Sites, pair: &[StageCost], share: f64) -> Hop {
    let hop = sites.hop(pair[0].rank, pair[1].rank);
    let nodes = &run.cluster.groups[sites.list[pair[0].rank].group];
    let fabric = Fabric::of_group(run.cluster, nodes, &run.runtime.shared).over(hop.way);
    let latency = fabric.send(Bytes(pair[0].output.get() * share), hop.way.is_none()).get();
    Hop { latency, transfer: 0.0 }
}

fn even_hops(run: &TrainingRun, fabric: &Fabric, stages: &StageCosts, share: f64) -> Vec<Hop> {
    let local = run.parallel.has_local_pipeline(fabric.domain());
    let count = stages.stages.len().saturating_sub(1);
    let hop = |stage: &StageCost| {
        let latency = fabric.send(Bytes(stage.output.get() * share), local).get();
        Hop { latency, transfer: 0.0 }
    };
    stages.stages.iter().take(count).map(hop).collect()
}

/// The passes of an output layer that is split over all ranks (Yeung et al., arXiv 2411.05288): S computes logits and,
/// with one barrier, the input gradient; T the rest.
fn vocabulary_costs(
    run: &TrainingRun,
    context: &LayerContext,
    share: &Passes,
    split: Vocabulary,
    with_hops: bool,
) -> VocabularyCosts {
    let forward = share.forward.total().get();
    let (input, weight) = (share.input_gradient.total().get(), share.weight_gradient.total().get());
    let bytes = Bytes(context.element_bytes() * context.tokens * context.hidden());
    let group = run.cluster.group_shape(run.parallel.pp, run.parallel.tp);
    let reduce = context.fabric.time(Collective::AllReduce, bytes, group).get();
    let local = group.is_local();
    let send = if with_hops { context.fabric.send(bytes, local).get() } else { 0.0 };
    match split {
        Vocabulary::Interlaced => VocabularyCosts {
            s: forward + input + weight + reduce * 2.0,
            t: 0.0,
            broadcast: send,
            ..Default::default()
        },
        Vocabulary::OneBarrier => VocabularyCosts {
            s: forward + input,
            t: weight,
            broadcast: send,
            barrier: reduce,
            ..Default::default()
        },
        Vocabulary::TwoBarriers | Vocabulary::Whole => VocabularyCosts {
            s: forward,
            t: input + weight,
            broadcast: send,
            barrier: reduce,
            ..Default::default()
        },
    }
}
