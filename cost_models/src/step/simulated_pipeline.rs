//! A run's pipeline as the simulator sees it, with all microbatches: for pictures, traces and schedule files.

use super::data_parallel;
use super::op_costs::{op_costs, slices};
use super::optimizer::optimizer_time;
use super::pipeline::{is_staggered, orders_of, schedule_of};
use super::stages::StageCosts;
use crate::estimate::EstimateError;
use crate::memory::{MemoryContext, MemoryTable};
use crate::run::TrainingRun;
use crate::schedule::{OpCosts, RankOrders, Schedule, Timeline};
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
        let stages = StageCosts::of(run)?;
        let memory = MemoryTable::new(MemoryContext::of(run)?)?;
        let mut costs = op_costs(run, &stages, true);
        for (cost, stage) in costs.stages.iter_mut().zip(&run.stages.0) {
            cost.activation_bytes = memory.held_bytes(stage) / slices(run);
        }
        let orders = orders_of(run, run.parallel.num_microbatches, &costs)?;
        let outside = Outside {
            data_parallel: data_parallel::exposed(run, &stages),
            optimizer: optimizer_time(run, &stages),
            host: run.runtime.time.step,
        };
        Ok(Self { schedule: schedule_of(run)?, orders, costs, staggered: is_staggered(run)?, outside })
    }

    /// The whole step, given the pipeline's run.
    #[must_use]
    pub fn step(&self, timeline: &Timeline) -> Seconds {
        let pipeline = if self.staggered { timeline.staggered_step() } else { timeline.makespan };
        Seconds(pipeline) + self.outside.total()
    }
}
