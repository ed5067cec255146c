//! What a search finds: layouts with stages.

use crate::problem::Problem;
use crate::times::run_of;
use cluster_profiles::Seconds;
use cost_models::layerwise::LayerStrategies;
use cost_models::{Estimate, ParallelConfig, StageMap};

/// A layout with stages, as estimated.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// What is minimised.
    pub value: f64,
    /// The degrees.
    pub parallel: ParallelConfig,
    /// The layers of every stage.
    pub stages: StageMap,
    /// Its prediction.
    pub estimate: Estimate,
    /// What blocks have of their own, where they differ.
    pub layer_strategies: Option<LayerStrategies>,
}

/// A layout with stages and what it is worth; how it is predicted in full is worked out when it is asked for.
#[derive(Debug, Clone)]
pub struct Draft {
    /// What is minimised.
    pub value: f64,
    /// The degrees.
    pub parallel: ParallelConfig,
    /// The layers of every stage.
    pub stages: StageMap,
    /// What every rank works at least, which objectives look at.
    load: Seconds,
    /// Its prediction, where the value needed it.
    estimate: Option<Estimate>,
}

impl Draft {
    /// A layout that is worth `value`, with its prediction if that is known.
    #[must_use]
    pub const fn new(
        value: f64,
        parallel: ParallelConfig,
        stages: StageMap,
        load: Seconds,
        estimate: Option<Estimate>,
    ) -> Self {
        Self { value, parallel, stages, load, estimate }
    }

    /// The layout with its prediction; none if that cannot be made.
    #[must_use]
    pub fn complete(self, problem: &Problem) -> Option<Candidate> {
        let Self { value, parallel, stages, load, estimate } = self;
        let (value, estimate) = match estimate {
            Some(estimate) => (value, estimate),
            None => {
                let estimate = cost_models::estimate(&run_of(problem, &parallel, &stages)).ok()?;
                let step = estimate.step_time_seconds + estimate.edge_penalty_seconds;
                (problem.objective.value(problem.cluster, step, load), estimate)
            }
        };
        Some(Candidate { value, parallel, stages, estimate, layer_strategies: None })
    }
}
