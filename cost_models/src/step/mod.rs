//! How long one optimizer step takes: stages, pipeline, data parallelism, optimizer.
//!
//! [`step_time`] is the number that plans report. It sums the layers of every stage ([`StageCosts`]), lets the
//! schedule's simulator put the stages together ([`PipelineTime`]), and adds what data parallelism leaves exposed
//! ([`data_parallel`]), the optimizer and the engine's fixed cost. [`step_time_bound`] is never above it and takes no
//! simulation.

mod closed_form;
pub mod data_parallel;
mod error;
pub mod host_optimizer;
mod layered;
mod makespans;
mod op_costs;
mod optimizer;
mod pipeline;
mod shares;
mod simulated_pipeline;
mod stages;

pub use closed_form::one_f_one_b_upper;
pub use error::StepError;
pub use makespans::Makespans;
pub use optimizer::{OwnedParameters, optimizer_time};
pub use pipeline::{PipelineTime, PreparedSchedule};
pub use shares::{KindStages, kind_stages, stages_on};
pub use simulated_pipeline::{Outside, SimulatedPipeline};
pub use stages::{StageCost, StageCosts};

use crate::estimate::TimeBreakdown;
use crate::run::TrainingRun;
use cluster_profiles::Seconds;

/// The predicted step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepTime {
    /// Where the time goes, on the busiest pipeline rank. Its total is the step time.
    pub breakdown: TimeBreakdown,
    /// Idle share of the pipeline: idle / (ranks x makespan).
    pub bubble_fraction: f64,
    /// Pipeline rank with the most work.
    pub busiest_rank: u32,
}

impl StepTime {
    /// Duration of the step.
    #[must_use]
    pub fn total(&self) -> Seconds {
        self.breakdown.total()
    }
}

/// The step time of a run.
///
/// # Errors
/// [`StepError`] if the layout has a degree of zero, stages that miss layers, or a schedule that cannot run it.
pub fn step_time(run: &TrainingRun) -> Result<StepTime, StepError> {
    let stages = StageCosts::of(run)?;
    let schedule = PreparedSchedule::of(run, &stages)?;
    step_time_of(run, &stages, &schedule)
}

/// The step time from stage costs and a schedule made beforehand.
///
/// # Errors
/// [`StepError`] if the schedule cannot run these stages.
pub fn step_time_of(
    run: &TrainingRun,
    stages: &StageCosts,
    schedule: &PreparedSchedule,
) -> Result<StepTime, StepError> {
    let pipeline = PipelineTime::of(run, stages, schedule)?;
    let rank = stages.busiest_rank();
    let own = stages.rank_passes(rank);
    let work =
        (own.forward + own.input_gradient + own.weight_gradient) * run.parallel.num_microbatches as f64;
    let exposed = data_parallel::exposed(run, stages);
    let hops = (pipeline.makespan - pipeline.without_hops).max(Seconds::ZERO);
    let alone = pipeline.uncombined.get(rank).copied().unwrap_or(Seconds::ZERO);
    let breakdown = TimeBreakdown {
        matmul: work.matmul,
        attention: work.attention,
        other_kernels: work.other_kernels,
        tp: work.tp,
        cp: work.cp,
        ep: work.ep + alone,
        pp: hops,
        bubble: (pipeline.makespan - hops - work.total() - alone).max(Seconds::ZERO),
        dp: work.dp + exposed,
        optimizer: optimizer_time(run, stages),
        host: work.host + run.runtime.time.step,
    };
    let all = pipeline.busy.iter().copied().sum::<Seconds>();
    let span = pipeline.makespan * pipeline.busy.len() as f64;
    let bubble_fraction = if span.get() > 0.0 { (1.0 - all / span).max(0.0) } else { 0.0 };
    Ok(StepTime { breakdown, bubble_fraction, busiest_rank: rank as u32 })
}

/// Duration of a step without its breakdown: one simulation less than [`step_time_of`].
///
/// # Errors
/// [`StepError`] if the schedule cannot run these stages.
pub fn step_seconds(
    run: &TrainingRun,
    stages: &StageCosts,
    schedule: &PreparedSchedule,
) -> Result<Seconds, StepError> {
    Ok(schedule.makespan(run, stages)? + outside_pipeline(run, stages))
}

/// The part of a step outside the pipeline: data-parallel traffic that nothing hides, the optimizer, the engine's fixed cost.
#[must_use]
pub fn outside_pipeline(run: &TrainingRun, stages: &StageCosts) -> Seconds {
    data_parallel::exposed(run, stages) + optimizer_time(run, stages) + run.runtime.time.step
}

/// A time the step cannot beat, without simulating it: the work of the busiest rank, and what is outside the pipeline.
///
/// # Errors
/// As [`step_time`], but for the schedule, which is not looked at.
pub fn step_time_bound(run: &TrainingRun) -> Result<Seconds, StepError> {
    let stages = StageCosts::of(run)?;
    let microbatches = run.parallel.num_microbatches as f64;
    let busiest = stages.rank_total(stages.busiest_rank()) * microbatches;
    Ok(busiest + outside_pipeline(run, &stages))
}
