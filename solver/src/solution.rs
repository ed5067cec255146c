//! The answer to a problem.

use crate::candidate::Candidate;
use crate::certificate::Certificate;
use crate::infeasible::Infeasible;
use cluster_profiles::{Cluster, Seconds};
use cost_models::layerwise::LayerStrategies;
use cost_models::{Estimate, ParallelConfig, StageMap};
use serde::{Deserialize, Serialize};

/// What a search answers.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// A plan.
    Solved(Box<Solution>),
    /// No layout fits, or none is legal.
    Infeasible(Box<Infeasible>),
    /// A limit came before any plan was found.
    Stopped {
        /// Layouts of the space.
        considered: u64,
    },
}

/// The best layout.
#[derive(Debug, Clone, PartialEq)]
pub struct Solution {
    /// The degrees.
    pub parallel: ParallelConfig,
    /// The layers of every stage.
    pub stages: StageMap,
    /// What blocks have of their own, where they differ.
    pub layer_strategies: Option<LayerStrategies>,
    /// Its prediction: what `estimate` says about it.
    pub estimate: Estimate,
    /// The cluster it runs on: the problem's, or a part of it where the objective leaves GPUs idle.
    pub cluster: Cluster,
    /// What was proved.
    pub certificate: Certificate,
    /// The best of other layouts.
    pub alternatives: Vec<Alternative>,
}

/// A layout that lost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// Its degrees.
    pub parallel: ParallelConfig,
    /// Its step.
    pub step_time_seconds: Seconds,
    /// Why it lost: the part of the step that grew most.
    pub why: String,
    /// The layers of its stages.
    #[serde(skip)]
    pub stages: Option<StageMap>,
    /// What its blocks have of their own, where they differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer_strategies: Option<LayerStrategies>,
}

impl Alternative {
    /// A layout that lost against `best`.
    #[must_use]
    pub fn new(candidate: Candidate, best: &Estimate) -> Self {
        Self {
            why: why(best, &candidate.estimate),
            parallel: candidate.parallel,
            step_time_seconds: candidate.estimate.step_time_seconds,
            stages: Some(candidate.stages),
            layer_strategies: candidate.layer_strategies,
        }
    }
}

/// Parts of a step, and what more of each is called.
const PARTS: [(&str, &str); 11] = [
    ("matmul", "slower or more matrix products"),
    ("attention", "slower or more attention"),
    ("other_kernels", "more memory-bound kernels"),
    ("tp", "more TP traffic"),
    ("cp", "more CP traffic"),
    ("ep", "more expert traffic"),
    ("pp", "more pipeline sends"),
    ("bubble", "larger bubble"),
    ("dp", "more exposed DP traffic"),
    ("optimizer", "longer optimizer step"),
    ("host", "more host time"),
];

/// Why a layout is slower than the best: the part of the step that grew most.
#[must_use]
pub fn why(best: &Estimate, other: &Estimate) -> String {
    if other.step_time_seconds <= best.step_time_seconds {
        return "as fast".to_owned();
    }
    let parts = best.time_seconds.parts().into_iter().zip(other.time_seconds.parts());
    let grown = parts.map(|((name, before), (_, after))| (name, (after - before).get()));
    let most = grown.max_by(|a, b| a.1.total_cmp(&b.1)).map_or("", |(name, _)| name);
    PARTS.iter().find(|(name, _)| *name == most).map_or(String::new(), |(_, words)| (*words).to_owned())
}
