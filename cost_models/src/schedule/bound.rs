//! Times no order can beat.

use super::costs::{OpCosts, StageCosts};
use super::orders::{RankOrders, Vocabulary};

/// What a bound may assume about the orders it bounds.
#[derive(Debug, Clone)]
pub struct BoundInput<'a> {
    /// Ranks.
    pub ranks: u32,
    /// Stages of one pipeline.
    pub stages: u32,
    /// Rank of every stage, pipeline after pipeline.
    pub placement: &'a [u16],
    /// Microbatches of one pipeline.
    pub microbatches: u32,
    /// Slices of a sequence.
    pub slices: u32,
    /// Whether orders may split the backward.
    pub splits_backward: bool,
    /// Whether orders may combine a forward with a backward.
    pub combines: bool,
    /// Whether every rank runs vocabulary passes.
    pub vocabulary: Vocabulary,
}

/// A time no order with the placement and operations of `orders` can beat, whatever its sequence: for every rank,
/// the earliest moment it can start, its work, and what must follow its last backward; and one microbatch's way
/// through the pipeline and back. Never above the simulated makespan, but for rounding.
pub fn lower_bound(orders: &RankOrders, costs: &OpCosts) -> f64 {
    bound(
        &BoundInput {
            ranks: orders.ranks(),
            stages: orders.stages(),
            placement: orders.placement(),
            microbatches: orders.microbatches(),
            slices: orders.slices(),
            splits_backward: orders.splits_backward(),
            combines: orders.orders().iter().flatten().any(|op| op.paired),
            vocabulary: orders.vocabulary(),
        },
        costs,
    )
}

/// [`lower_bound`] for orders that need not exist yet.
pub fn bound(input: &BoundInput, costs: &OpCosts) -> f64 {
    let paths = Paths::new(input, costs);
    let loads = loads_of_ranks(input, costs);
    let ranks = loads.iter().map(|load| rank_bound(input, costs, &paths, load));
    ranks.fold(paths.round_trip(input, costs), f64::max) + costs.optimizer
}

/// A bound that also holds the average number of live microbatch-stages of a rank to `cap`: every microbatch-stage
/// lives at least as long as its way to the last stage and back, and `cap` of them at a time fit into the step.
pub fn memory_bound(input: &BoundInput, costs: &OpCosts, cap: f64) -> f64 {
    let paths = Paths::new(input, costs);
    let per_rank = (0..input.ranks as usize).map(|rank| {
        let lives =
            stages_of(input, rank).map(|stage| paths.life(input, costs, stage % input.stages as usize));
        lives.sum::<f64>() * f64::from(input.microbatches * input.slices) / cap
    });
    per_rank.fold(0.0, f64::max)
}

/// [`memory_bound`] with every microbatch-stage counted by its bytes against a limit of `bytes`.
pub(super) fn memory_bound_bytes(input: &BoundInput, costs: &OpCosts, bytes: f64) -> f64 {
    let paths = Paths::new(input, costs);
    let per_rank = (0..input.ranks as usize).map(|rank| {
        let lives = stages_of(input, rank).map(|stage| {
            let depth = stage % input.stages as usize;
            paths.life(input, costs, depth) * costs.stages[depth].activation_bytes
        });
        lives.sum::<f64>() * f64::from(input.microbatches * input.slices) / bytes
    });
    per_rank.fold(0.0, f64::max)
}

/// The work of the busiest rank, which no span can be shorter than.
pub(super) fn busiest(input: &BoundInput, costs: &OpCosts) -> f64 {
    let units = f64::from(input.microbatches) * slice_total(input, costs);
    let work = |rank: usize| {
        let stages = stages_of(input, rank).map(|stage| &costs.stages[stage % input.stages as usize]);
        units * stages.map(|stage| work_seconds(input, stage)).sum::<f64>() + units_of_passes(input, costs)
    };
    (0..input.ranks as usize).map(work).fold(0.0, f64::max)
}

fn stages_of<'a>(input: &BoundInput<'a>, rank: usize) -> impl Iterator<Item = usize> + use<'a> {
    input
        .placement
        .iter()
        .enumerate()
        .filter(move |&(_, &home)| usize::from(home) == rank)
        .map(|(stage, _)| stage)
}

/// Sums along the pipeline: `forward[s]` before `F` of stage s can start, `backward[s]` after its gradient is sent.
struct Paths {
    forward: Vec<f64>,
    backward: Vec<f64>,
    /// The shortest slice relative to the average one.
    scale: f64,
}

impl Paths {
    fn new(input: &BoundInput, costs: &OpCosts) -> Paths {
        let scale = costs.slice_scale.iter().copied().fold(1.0, f64::min);
        let stages = input.stages as usize;
        let (mut forward, mut backward) = (vec![0.0; stages], vec![0.0; stages]);
        for s in 1..stages {
            let apart = input.placement[s] != input.placement[s - 1];
            let hop = if apart { costs.hop_seconds(s - 1) } else { 0.0 };
            forward[s] = forward[s - 1] + scale * costs.stages[s - 1].forward + hop;
            backward[s] = backward[s - 1] + scale * gradient_seconds(input, &costs.stages[s - 1]) + hop;
        }
        Paths { forward, backward, scale }
    }

    /// One microbatch through all stages and back, and the rest of its backward on the first stage.
    fn round_trip(&self, input: &BoundInput, costs: &OpCosts) -> f64 {
        self.life(input, costs, 0)
    }

    /// From the start of `F` to the end of the backward of one microbatch on a stage.
    fn life(&self, input: &BoundInput, costs: &OpCosts, stage: usize) -> f64 {
        let last = input.stages as usize - 1;
        let turn = self.forward[last] - self.forward[stage] + self.scale * costs.stages[last].forward;
        let back = if stage == last {
            0.0
        } else {
            self.backward[last] - self.backward[stage + 1]
                + self.scale * gradient_seconds(input, &costs.stages[last])
                + self.hop_before(input, costs, stage + 1)
        };
        turn + back + self.scale * whole_backward(input, &costs.stages[stage])
    }

    fn hop_before(&self, input: &BoundInput, costs: &OpCosts, stage: usize) -> f64 {
        let apart = input.placement[stage] != input.placement[stage - 1];
        if apart { costs.hop_seconds(stage - 1) } else { 0.0 }
    }
}

/// Until the previous stage can go on.
fn gradient_seconds(input: &BoundInput, stage: &StageCosts) -> f64 {
    if input.splits_backward { stage.input_grad.min(stage.backward) } else { stage.backward }
}

/// Both gradients of one microbatch.
fn whole_backward(input: &BoundInput, stage: &StageCosts) -> f64 {
    if input.splits_backward { stage.shortest_backward() } else { stage.backward }
}

/// What a rank does for each microbatch.
#[derive(Clone, Copy)]
struct Load {
    /// Its lowest stage, with two pipelines the lower one of the two: there its work begins and ends. None without stages.
    first: Option<usize>,
    /// All its work.
    work: f64,
    /// The same up to what the stages in front wait for.
    until_gradient: f64,
    /// Its quickest reduction of gradients.
    last_sync: f64,
}

fn loads_of_ranks(input: &BoundInput, costs: &OpCosts) -> Vec<Load> {
    let none = Load { first: None, work: 0.0, until_gradient: 0.0, last_sync: f64::INFINITY };
    let mut loads = vec![none; input.ranks as usize];
    for (index, &home) in input.placement.iter().enumerate() {
        let Some(load) = loads.get_mut(usize::from(home)) else { continue };
        let depth = index % input.stages as usize;
        let stage = &costs.stages[depth];
        load.first = Some(load.first.map_or(depth, |first| first.min(depth)));
        load.work += work_seconds(input, stage);
        load.until_gradient += until_gradient(input, stage);
        load.last_sync = load.last_sync.min(stage.gradient_sync);
    }
    loads
}

fn rank_bound(input: &BoundInput, costs: &OpCosts, paths: &Paths, load: &Load) -> f64 {
    let Some(first) = load.first else { return 0.0 };
    let units = f64::from(input.microbatches) * slice_total(input, costs);
    let passes = units_of_passes(input, costs);
    let head = paths.forward[first];
    let all_work = head + (units * load.work + passes) + load.last_sync;
    let rest = if input.splits_backward {
        paths.scale
            * (costs.stages[0].shortest_backward() - gradient_seconds(input, &costs.stages[0])).max(0.0)
    } else {
        0.0
    };
    let to_last_gradient = units * load.until_gradient + passes;
    all_work.max(head + to_last_gradient + paths.backward[first] + rest)
}

fn slice_total(input: &BoundInput, costs: &OpCosts) -> f64 {
    if costs.slice_scale.is_empty() { f64::from(input.slices) } else { costs.slice_scale.iter().sum() }
}

fn units_of_passes(input: &BoundInput, costs: &OpCosts) -> f64 {
    let passes = f64::from(input.microbatches) * f64::from(input.slices);
    match input.vocabulary {
        Vocabulary::Whole => 0.0,
        Vocabulary::Interlaced | Vocabulary::OneBarrier => passes * costs.vocabulary.s,
        Vocabulary::TwoBarriers => passes * (costs.vocabulary.s + costs.vocabulary.t),
    }
}

/// Forward and whole backward of one microbatch.
fn work_seconds(input: &BoundInput, stage: &StageCosts) -> f64 {
    combined(input, stage, whole_backward(input, stage))
}

/// Forward and what the previous stage waits for.
fn until_gradient(input: &BoundInput, stage: &StageCosts) -> f64 {
    combined(input, stage, gradient_seconds(input, stage))
}

fn combined(input: &BoundInput, stage: &StageCosts, backward: f64) -> f64 {
    let saving = if input.combines { stage.pair_saving + stage.backward_pair_saving } else { 0.0 };
    (stage.forward + backward - saving).max(0.0)
}
