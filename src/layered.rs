//! Layouts whose blocks may differ in tensor parallelism, sharding and recompute: one way to the numbers for both kinds.

use crate::error::AppError;
use crate::plan::Plan;
use cluster_profiles::Bytes;
use cost_models::layerwise::{self, LayerStrategies, LayeredRun};
use cost_models::rules::{self, Violation};
use cost_models::step::SimulatedPipeline;
use cost_models::{Estimate, EstimateError, TrainingRun, sites};

/// Every rule a layout breaks, those of its strategies by layer with it.
#[must_use]
pub fn broken(run: &TrainingRun, strategies: Option<&LayerStrategies>) -> Vec<Violation> {
    let mut broken = rules::broken(run);
    let faults = strategies.and_then(|strategies| LayeredRun::new(*run, strategies).err());
    broken.extend(faults.unwrap_or_default());
    broken
}

/// Predicts time and memory of a layout against a memory limit.
///
/// # Errors
/// As [`crate::estimate`]; broken rules of the strategies too.
pub fn estimate(
    run: &TrainingRun,
    strategies: Option<&LayerStrategies>,
    limit: Bytes,
) -> Result<Estimate, AppError> {
    let Some(strategies) = strategies else { return crate::estimate(run, limit) };
    let broken = broken(run, Some(strategies));
    if !broken.is_empty() {
        return Err(AppError::Illegal(broken));
    }
    let layered = LayeredRun::new(*run, strategies).map_err(AppError::Illegal)?;
    let mut estimate = layerwise::estimate(&layered)?;
    let limits = sites::rank_limits(run, limit);
    estimate.fits = estimate.memory.iter().zip(limits).all(|(rank, limit)| rank.peak_bytes <= limit);
    Ok(estimate)
}

/// The prediction without a limit; none for a layout that cannot be predicted.
#[must_use]
pub fn prediction(run: &TrainingRun, strategies: Option<&LayerStrategies>) -> Option<Estimate> {
    match strategies {
        None => cost_models::estimate(run).ok(),
        Some(strategies) => layerwise::estimate(&LayeredRun::new(*run, strategies).ok()?).ok(),
    }
}

/// The pipeline of a plan as the simulator sees it, with so many of its microbatches.
///
/// # Errors
/// A layout that cannot run.
pub fn pipeline(plan: &Plan, microbatches: u64) -> Result<SimulatedPipeline, AppError> {
    let parallel = cost_models::ParallelConfig { num_microbatches: microbatches, ..plan.parallel.clone() };
    let run = TrainingRun { parallel: &parallel, ..plan.run() };
    let pipeline: Result<SimulatedPipeline, EstimateError> = match &plan.layer_strategies {
        None => SimulatedPipeline::of(&run),
        Some(strategies) => {
            SimulatedPipeline::layered(&LayeredRun::new(run, strategies).map_err(AppError::Illegal)?)
        }
    };
    Ok(pipeline?)
}
