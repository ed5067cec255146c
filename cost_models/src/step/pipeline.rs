//! The pipeline: stages, hops and a schedule make a makespan.

use super::error::StepError;
use super::op_costs::op_costs;
use super::stages::StageCosts;
use crate::layer_cost::Passes;
use crate::run::TrainingRun;
use crate::schedule::{
    Interleaving, Op, OpCosts, OpKind, RankOrders, Schedule, generate_for, makespan, simulate,
};
use cluster_profiles::Seconds;

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
    /// The part of it that is expert traffic which the schedule's combined pairs would hide, in passes that run alone.
    pub uncombined: Vec<Seconds>,
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
    Simulated { orders: Box<RankOrders>, longer: Option<Longer> },
}

/// What the rest of a step is extrapolated with.
#[derive(Debug, Clone, PartialEq)]
struct Longer {
    /// Orders of some rounds more.
    orders: RankOrders,
    /// The order of all microbatches, which bounds what is extrapolated.
    whole: Option<Interleaving>,
}

impl PreparedSchedule {
    /// The orders of a run's schedule.
    ///
    /// # Errors
    /// [`StepError::Schedule`] if it does not exist or cannot run the layout.
    pub fn of(run: &TrainingRun, stages: &StageCosts) -> Result<Self, StepError> {
        if run.parallel.pp == 1 && stages.stages.len() == 1 && !schedule_of(run)?.kind.definition().combines {
            return Ok(Self { orders: Orders::Single, staggered: false });
        }
        let costs = op_costs(run, stages, true);
        let make = |microbatches: u64| orders_of(run, microbatches, &costs);
        let (first, second) = rounds(run)?;
        let kind = schedule_of(run)?.kind;
        let shape = run.runtime.schedule_shape(run.parallel, run.parallel.num_microbatches);
        let longer = |microbatches: u64| -> Result<Longer, StepError> {
            Ok(Longer { orders: make(microbatches)?, whole: Interleaving::of(kind, &shape) })
        };
        let orders = Box::new(make(first)?);
        let orders = Orders::Simulated { orders, longer: second.map(longer).transpose()? };
        Ok(Self { orders, staggered: is_staggered(run)? })
    }

    /// The makespan of a run's pipeline.
    ///
    /// # Errors
    /// [`StepError::Simulate`] if the orders wait for each other.
    pub fn makespan(&self, run: &TrainingRun, stages: &StageCosts) -> Result<Seconds, StepError> {
        self.span(run, stages, true)
    }

    /// Expert traffic of a step on every rank that no combined pair hides, because its pass runs alone.
    #[must_use]
    fn uncombined(&self, stages: &StageCosts) -> Vec<Seconds> {
        let Orders::Simulated { orders, .. } = &self.orders else { return vec![Seconds::ZERO] };
        let alone = |op: Op| {
            let stage = stages.stages.get(orders.depth_of(op.stage) as usize);
            let passes = stage.map_or_else(Passes::default, |stage| stage.passes);
            match op.kind {
                OpKind::F => passes.forward.ep_hidden,
                OpKind::I => passes.input_gradient.ep_hidden,
                OpKind::W => passes.weight_gradient.ep_hidden,
                OpKind::B => passes.input_gradient.ep_hidden + passes.weight_gradient.ep_hidden,
                OpKind::S | OpKind::T => Seconds::ZERO,
            }
        };
        let of_rank = |order: &Vec<Op>| {
            let paired = |at: usize| order[at].paired || (at > 0 && order[at - 1].paired);
            (0..order.len()).filter(|&at| !paired(at)).map(|at| alone(order[at])).sum()
        };
        orders.orders().iter().map(of_rank).collect()
    }

    fn span(&self, run: &TrainingRun, stages: &StageCosts, with_hops: bool) -> Result<Seconds, StepError> {
        match &self.orders {
            Orders::Single => {
                Ok(stages.rank_total(stages.busiest_rank()) * run.parallel.num_microbatches as f64)
            }
            Orders::Simulated { orders, longer } => {
                let costs = op_costs(run, stages, with_hops);
                self.extrapolated(run, orders, longer.as_ref(), &costs)
            }
        }
    }

    /// Microbatches that are not simulated take as long as the last ones that are, and all together no less than their order
    /// allows: the rank that is busiest in the long run may not be the last to end yet.
    fn extrapolated(
        &self,
        run: &TrainingRun,
        orders: &RankOrders,
        longer: Option<&Longer>,
        costs: &OpCosts,
    ) -> Result<Seconds, StepError> {
        let span = |orders: &RankOrders| -> Result<f64, StepError> {
            let fail = |source| StepError::Simulate { schedule: run.parallel.schedule.clone(), source };
            if self.staggered {
                return Ok(simulate(orders, costs).map_err(fail)?.staggered_step());
            }
            makespan(orders, costs).map_err(fail)
        };
        let first = span(orders)?;
        let Some(longer) = longer else { return Ok(Seconds(first)) };
        let simulated = f64::from(orders.total_microbatches());
        let round = f64::from(longer.orders.total_microbatches()) - simulated;
        let per_microbatch = (span(&longer.orders)? - first) / round;
        let whole = first + per_microbatch * (run.parallel.num_microbatches as f64 - simulated);
        Ok(Seconds(longer.whole.map_or(whole, |order| whole.max(order.bound(costs)))))
    }
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
        let combines = schedule_of(run)?.kind.definition().combines;
        let ranks = stages.ranks.max(1);
        let uncombined = if combines { schedule.uncombined(stages) } else { vec![Seconds::ZERO; ranks] };
        let busy =
            (0..ranks).zip(&uncombined).map(|(rank, &alone)| stages.rank_total(rank) * m + alone).collect();
        let makespan = schedule.span(run, stages, true)?;
        let without_hops = match schedule.orders {
            Orders::Single => makespan,
            Orders::Simulated { .. } => schedule.span(run, stages, false)?.min(makespan),
        };
        Ok(Self { makespan, without_hops, busy, uncombined })
    }
}

/// The orders of a run's schedule for this many microbatches.
pub(super) fn orders_of(
    run: &TrainingRun,
    microbatches: u64,
    costs: &OpCosts,
) -> Result<RankOrders, StepError> {
    let shape = run.runtime.schedule_shape(run.parallel, microbatches);
    generate_for(schedule_of(run)?, &shape, costs).map_err(|source| fault(run, source))
}

/// The run's schedule.
pub(super) fn schedule_of(run: &TrainingRun) -> Result<Schedule, StepError> {
    run.parallel.schedule.parse().map_err(|source| fault(run, source))
}

fn fault(run: &TrainingRun, source: crate::schedule::ScheduleError) -> StepError {
    StepError::Schedule { schedule: run.parallel.schedule.clone(), source }
}

/// Whether the next step's first forwards may start before this step has ended on all ranks.
pub(super) fn is_staggered(run: &TrainingRun) -> Result<bool, StepError> {
    Ok(schedule_of(run)?.kind.definition().staggered && !run.runtime.time.synchronous_steps)
}

/// Microbatches to simulate, and a second number some rounds higher where more are extrapolated. Both leave the same
/// remainder modulo a round as the whole number, and so the same last round.
fn rounds(run: &TrainingRun) -> Result<(u64, Option<u64>), StepError> {
    let (m, p) = (run.parallel.num_microbatches, u64::from(run.parallel.pp));
    let kind = schedule_of(run)?.kind;
    let sizes = kind.check(&run.runtime.schedule_shape(run.parallel, m));
    let round = sizes.map_or(p, |sizes| u64::from((kind.definition().round)(&sizes)));
    let limit = if p <= 16 { SIMULATED_ROUNDS } else { SIMULATED_ROUNDS / 2 };
    if m <= (limit + AVERAGED_ROUNDS) * round || m <= FEW {
        return Ok((m, None));
    }
    let first = limit * round + m % round;
    Ok((first, Some(first + AVERAGED_ROUNDS * round)))
}
