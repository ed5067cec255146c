//! The pipeline: stages, hops and a schedule make a makespan.

use super::closed_form::zero_bubble;
use super::error::StepError;
use super::stages::{StageCost, StageCosts};
use crate::comm::{Collective, Fabric};
use crate::layer_cost::{LayerContext, Passes};
use crate::run::TrainingRun;
use crate::schedule::{
    ChunkTimes, GroupRule, Hop, OpCosts, RankOrders, Schedule, ScheduleShape, StageCosts as OpTimes,
    Timeline, Vocabulary, VocabularyCosts, generate_for, simulate,
};
use cluster_profiles::{Bytes, Seconds};

/// Microbatches per pipeline rank from which on the steady state is extrapolated instead of simulated.
const SIMULATED_ROUNDS: u64 = 6;
/// Microbatches below which nothing is extrapolated.
const FEW: u64 = 64;
/// Rounds of the steady state that the extrapolation averages over: with uneven stages it repeats every few rounds.
const AVERAGED_ROUNDS: u64 = 3;

/// Makespan of the pipeline.
#[derive(Debug, Clone, PartialEq)]
pub struct PipelineTime {
    /// From the first forward to the last backward; the longest span of a rank where the next step's forwards may
    /// start before this step has ended everywhere.
    pub makespan: Seconds,
    /// The same with free hops between ranks.
    pub without_hops: Seconds,
    /// Work of every rank.
    pub busy: Vec<Seconds>,
}

/// A schedule's orders for one layout.
#[derive(Debug, Clone, PartialEq)]
pub struct PreparedSchedule {
    orders: Orders,
    staggered: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum Orders {
    /// One rank: the work, nothing else.
    Single,
    /// Orders of a number of microbatches, and of some rounds more where the rest is extrapolated.
    Simulated { orders: Box<RankOrders>, longer: Option<Box<RankOrders>> },
    /// A zero-bubble schedule known by its closed form, with this multiple of 1F1B's memory.
    ZeroBubble { memory: f64 },
}

impl PreparedSchedule {
    /// The orders of a run's schedule.
    ///
    /// # Errors
    /// [`StepError::Schedule`] if it does not exist or cannot run the layout.
    pub fn of(run: &TrainingRun, stages: &StageCosts) -> Result<Self, StepError> {
        let name = run.parallel.schedule.as_str();
        if run.parallel.pp == 1 && stages.stages.len() == 1 {
            return Ok(Self { orders: Orders::Single, staggered: false });
        }
        let staggered = matches!(name, "zb-1p" | "zb-2p" | "zb-v");
        let fail = |source| StepError::Schedule { schedule: name.to_owned(), source };
        let schedule = match catalogue_name(name).parse::<Schedule>() {
            Ok(schedule) => schedule,
            Err(source) => {
                let memory = match name {
                    "zb-1p" => 1.0,
                    "zb-2p" | "zb-2p-sync" => 2.0,
                    _ => return Err(fail(source)),
                };
                return Ok(Self { orders: Orders::ZeroBubble { memory }, staggered });
            }
        };
        let costs = op_costs(run, stages, true);
        let make = |microbatches: u64| {
            generate_for(schedule, &shape(run, microbatches), &costs).map(Box::new).map_err(fail)
        };
        let (first, second) = rounds(run);
        let orders = Orders::Simulated { orders: make(first)?, longer: second.map(make).transpose()? };
        Ok(Self { orders, staggered })
    }

    /// The makespan of a run's pipeline.
    ///
    /// # Errors
    /// [`StepError::Simulate`] if the orders wait for each other.
    pub fn makespan(&self, run: &TrainingRun, stages: &StageCosts) -> Result<Seconds, StepError> {
        self.span(run, stages, true)
    }

    fn span(&self, run: &TrainingRun, stages: &StageCosts, with_hops: bool) -> Result<Seconds, StepError> {
        match &self.orders {
            Orders::Single => {
                Ok(stages.rank_total(stages.busiest_rank()) * run.parallel.num_microbatches as f64)
            }
            Orders::ZeroBubble { memory } => Ok(zero_bubble_time(run, stages, *memory, with_hops)),
            Orders::Simulated { orders, longer } => {
                let costs = op_costs(run, stages, with_hops);
                extrapolated(run, self, orders, longer.as_deref(), &costs)
            }
        }
    }
}

/// The catalogue's name of a schedule: some published names say where the layers are, not another order.
fn catalogue_name(name: &str) -> &str {
    match name {
        "1f1b-redistributed-layers" => "1f1b",
        other => other,
    }
}

/// Microbatches to simulate, and a second number some rounds higher where more are extrapolated. Both leave the same
/// remainder modulo the ranks as the whole number, and so the same last round.
fn rounds(run: &TrainingRun) -> (u64, Option<u64>) {
    let (m, p) = (run.parallel.num_microbatches, u64::from(run.parallel.pp));
    let limit = if p <= 16 { SIMULATED_ROUNDS } else { SIMULATED_ROUNDS / 2 };
    if m <= (limit + AVERAGED_ROUNDS) * p || m <= FEW {
        return (m, None);
    }
    let first = limit * p + m % p;
    (first, Some(first + AVERAGED_ROUNDS * p))
}

fn shape(run: &TrainingRun, microbatches: u64) -> ScheduleShape {
    let mut shape = ScheduleShape::new(run.parallel.pp, u32::try_from(microbatches).unwrap_or(u32::MAX));
    shape.times = ChunkTimes::default();
    shape.group_rule = GroupRule::default();
    if run.parallel.vpp > 1 { shape.with_chunks(run.parallel.vpp) } else { shape }
}

impl PipelineTime {
    /// The makespan of a run.
    ///
    /// # Errors
    /// [`StepError::Simulate`] if the orders wait for each other.
    pub fn of(
        run: &TrainingRun,
        stages: &StageCosts,
        schedule: &PreparedSchedule,
    ) -> Result<Self, StepError> {
        let m = run.parallel.num_microbatches as f64;
        let busy: Vec<Seconds> = (0..stages.ranks.max(1)).map(|rank| stages.rank_total(rank) * m).collect();
        let time = |with_hops: bool| -> Result<Seconds, StepError> {
            match &schedule.orders {
                Orders::Single => Ok(busy.iter().copied().fold(Seconds::ZERO, Seconds::max)),
                Orders::ZeroBubble { memory } => Ok(zero_bubble_time(run, stages, *memory, with_hops)),
                Orders::Simulated { orders, longer } => {
                    let costs = op_costs(run, stages, with_hops);
                    extrapolated(run, schedule, orders, longer.as_deref(), &costs)
                }
            }
        };
        let makespan = time(true)?;
        let without_hops =
            if schedule.orders == Orders::Single { makespan } else { time(false)?.min(makespan) };
        Ok(Self { makespan, without_hops, busy })
    }
}

fn extrapolated(
    run: &TrainingRun,
    schedule: &PreparedSchedule,
    orders: &RankOrders,
    longer: Option<&RankOrders>,
    costs: &OpCosts,
) -> Result<Seconds, StepError> {
    let span = |orders: &RankOrders| -> Result<f64, StepError> {
        let fail = |source| StepError::Simulate { schedule: run.parallel.schedule.clone(), source };
        let timeline: Timeline = simulate(orders, costs).map_err(fail)?;
        Ok(if schedule.staggered { timeline.staggered_step() } else { timeline.makespan })
    };
    let first = span(orders)?;
    let Some(longer) = longer else { return Ok(Seconds(first)) };
    let simulated = f64::from(orders.total_microbatches());
    let round = f64::from(longer.total_microbatches()) - simulated;
    let per_microbatch = (span(longer)? - first) / round;
    Ok(Seconds(first + per_microbatch * (run.parallel.num_microbatches as f64 - simulated)))
}

/// Costs of the operations for the simulator.
fn op_costs(run: &TrainingRun, stages: &StageCosts, with_hops: bool) -> OpCosts {
    let context = LayerContext::of(run);
    let times = stages.stages.iter().map(op_times).collect();
    let hops = if with_hops { hops(run, &context.fabric, stages) } else { Vec::new() };
    let vocabulary = stages.split_head.map_or_else(VocabularyCosts::default, |(share, _)| {
        vocabulary_costs(run, &context, &share, head_split(run), with_hops)
    });
    OpCosts { stages: times, hops, vocabulary, ..OpCosts::default() }
}

/// How the schedule splits the output layer.
fn head_split(run: &TrainingRun) -> Vocabulary {
    let schedule = catalogue_name(&run.parallel.schedule).parse::<Schedule>();
    schedule.map_or(Vocabulary::Whole, |schedule| schedule.vocabulary)
}

/// Whether the schedule splits the output layer over all pipeline ranks.
pub(super) fn splits_head(run: &TrainingRun) -> bool {
    run.parallel.pp > 1 && head_split(run) != Vocabulary::Whole
}

fn op_times(stage: &StageCost) -> OpTimes {
    OpTimes::of_times(
        stage.passes.forward.total().get(),
        stage.passes.input_gradient.total().get(),
        stage.passes.weight_gradient.total().get(),
    )
}

/// Hops between stages on different ranks: over the NIC where neighbours are in different domains.
fn hops(run: &TrainingRun, fabric: &Fabric, stages: &StageCosts) -> Vec<Hop> {
    let stride = run.cluster.gpu_count() / u64::from(run.parallel.pp.max(1));
    let local = stride * u64::from(run.parallel.pp) <= u64::from(fabric.domain());
    let count = stages.stages.len().saturating_sub(1);
    let hop = |stage: &StageCost| Hop { latency: fabric.send(stage.output, local).get(), transfer: 0.0 };
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
    let bytes = Bytes(2.0 * context.tokens * context.hidden());
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

fn zero_bubble_time(run: &TrainingRun, stages: &StageCosts, memory: f64, with_hops: bool) -> Seconds {
    let slowest = stages.busiest_rank();
    let passes = stages.rank_passes(slowest);
    let times = (
        passes.forward.total().get(),
        passes.input_gradient.total().get(),
        passes.weight_gradient.total().get(),
    );
    let (p, m) = (f64::from(run.parallel.pp), run.parallel.num_microbatches as f64);
    let hop = if with_hops {
        let context = LayerContext::of(run);
        hops(run, &context.fabric, stages).first().map_or(0.0, |hop| hop.latency)
    } else {
        0.0
    };
    let sync = if run.parallel.schedule.ends_with("-sync") { (p - 1.0) * times.0 } else { 0.0 };
    let hops = 2.0 * (p - 1.0) * (1.0 + if memory > 1.0 { 0.0 } else { m / p });
    Seconds(zero_bubble(times, p, m, memory) + sync + hops * hop)
}
