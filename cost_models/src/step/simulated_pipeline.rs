//! A run's pipeline as the simulator sees it, with all microbatches: for pictures, traces and schedule files.

use super::data_parallel;
use super::error::StepError;
use super::op_costs::{op_costs, slices};
use super::optimizer::optimizer_time;
use super::pipeline::{is_staggered, orders_of, schedule_of};
use super::stages::StageCosts;
use crate::estimate::EstimateError;
use crate::layerwise::LayeredRun;
use crate::memory::{MemoryContext, MemoryTable, layered_contexts, layered_table};
use crate::run::TrainingRun;
use crate::schedule::{OpCosts, RankOrders, Schedule, Timeline, simulate};
use cluster_profiles::Seconds;

/// The orders of all microbatches of a run, and what every operation costs: seconds and bytes.
///
/// [`PipelineTime`](super::PipelineTime) simulates the same orders, or with many microbatches extrapolates their steady
/// state.
#[derive(Debug, Clone, PartialEq)]
pub struct SimulatedPipeline {
    /// The schedule.
    pub schedule: Schedule,
    /// Every rank's operations.
    pub orders: RankOrders,
    /// Their seconds, and the activation bytes they hold.
    pub costs: OpCosts,
    /// The pipeline's time with free hops between ranks, in seconds.
    pub without_hops: Seconds,
    /// Whether the next step's first forwards may start before this step has ended on all ranks.
    pub staggered: bool,
    /// What a step takes beside the pipeline.
    pub outside: Outside,
}

/// Parts of a step that follow the pipeline.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outside {
    /// Gradient reduction and parameter gathering that no computation hides.
    pub data_parallel: Seconds,
    /// The optimizer.
    pub optimizer: Seconds,
    /// The engine's fixed cost of a step.
    pub host: Seconds,
}

impl Outside {
    /// All of it.
    #[must_use]
    pub fn total(&self) -> Seconds {
        self.data_parallel + self.optimizer + self.host
    }
}

impl SimulatedPipeline {
    /// The pipeline of a run.
    ///
    /// # Errors
    /// As an estimate of the run.
    pub fn of(run: &TrainingRun) -> Result<Self, EstimateError> {
        Self::with(run, &StageCosts::of(run)?, &MemoryTable::new(MemoryContext::of(run)?)?)
    }

    /// The pipeline of a run with layer strategies.
    ///
    /// # Errors
    /// As an estimate of the run.
    pub fn layered(layered: &LayeredRun) -> Result<Self, EstimateError> {
        let run = layered.run();
        let contexts = layered_contexts(layered)?;
        Self::with(&run, &StageCosts::layered(layered)?, &layered_table(layered, &contexts)?)
    }

    fn with(run: &TrainingRun, stages: &StageCosts, memory: &MemoryTable) -> Result<Self, EstimateError> {
        let mut costs = op_costs(run, stages, true);
        for (cost, stage) in costs.stages.iter_mut().zip(&run.stages.0) {
            cost.activation_bytes = memory.held_bytes(stage) / slices(run);
        }
        let orders = orders_of(run, run.parallel.num_microbatches, &costs)?;
        let schedule = schedule_of(run)?;
        let staggered = is_staggered(run)?;
        let free = simulate(&orders, &op_costs(run, stages, false))
            .map_err(|source| StepError::Simulate { schedule: schedule.to_string(), source })?;
        let without_hops = Seconds(if staggered { free.staggered_step() } else { free.makespan });
        let outside = Outside {
            data_parallel: data_parallel::exposed(run, stages),
            optimizer: optimizer_time(run, stages),
            host: run.runtime.time.step,
        };
        Ok(Self { schedule, orders, costs, without_hops, staggered, outside })
    }

    /// The whole step, given the pipeline's run.
    #[must_use]
    pub fn step(&self, timeline: &Timeline) -> Seconds {
        self.pipeline(timeline) + self.outside.total()
    }

    /// What hops between ranks add to the step: `pp` of a plan's time.
    #[must_use]
    pub fn hops(&self, timeline: &Timeline) -> Seconds {
        (self.pipeline(timeline) - self.without_hops).max(Seconds::ZERO)
    }

    /// What the busiest rank waits for others with free hops: `bubble` of a plan's time. With [`Self::hops`] it makes the
    /// makespan bubble.
    #[must_use]
    pub fn waiting(&self, timeline: &Timeline) -> Seconds {
        let busiest = timeline.ranks.iter().map(|rank| rank.busy).fold(0.0, f64::max);
        (self.pipeline(timeline) - self.hops(timeline) - Seconds(busiest)).max(Seconds::ZERO)
    }

    fn pipeline(&self, timeline: &Timeline) -> Seconds {
        Seconds(if self.staggered { timeline.staggered_step() } else { timeline.makespan })
    }
}
