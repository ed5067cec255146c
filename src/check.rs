//! An independent verifier: is a layout valid, does it fit, what would help? It shares types with the search, but none
//! of its code.

pub mod remedies;
mod structure;

use crate::plan::Plan;
use cluster_profiles::Bytes;
use cost_models::rules::{self, Violation};
use remedies::Remedy;
use serde::Serialize;

/// What is wrong with a layout, and what would help.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    /// Whether no rule is broken.
    pub valid: bool,
    /// Every broken rule.
    pub broken_rules: Vec<Violation>,
    /// Whether every rank stays below the memory limit.
    pub fits: bool,
    /// Bytes of the fullest rank.
    pub peak_bytes: Bytes,
    /// Its pipeline rank.
    pub fullest_rank: u32,
    /// The limit.
    pub memory_limit_bytes: Bytes,
    /// The largest term of memory there.
    pub largest_term: String,
    /// Bytes of the largest term.
    pub largest_term_bytes: Bytes,
    /// Predicted step time; absent where the layout cannot run.
    pub step_time_seconds: Option<f64>,
    /// Predicted model FLOPs utilisation.
    pub model_flops_utilization: Option<f64>,
    /// Single changes that free memory, best first.
    pub remedies: Vec<Remedy>,
    /// Single changes that make the step faster and fit, best first.
    pub faster: Vec<Remedy>,
    /// Flags or keys that were read and not understood.
    pub unknown: Vec<String>,
}

impl Check {
    /// Whether the layout can be run as it is.
    #[must_use]
    pub const fn passes(&self) -> bool {
        self.valid && self.fits
    }
}

/// Verifies a plan: its rules, its structure, its memory.
#[must_use]
pub fn check(plan: &Plan) -> Check {
    let mut broken = structure::faults(plan);
    if broken.is_empty() {
        broken.extend(rules::broken(&plan.run()));
    }
    let limit = plan.inputs.memory_limit_bytes;
    let mut check = Check {
        valid: broken.is_empty(),
        broken_rules: broken,
        fits: false,
        peak_bytes: Bytes::ZERO,
        fullest_rank: 0,
        memory_limit_bytes: limit,
        largest_term: String::new(),
        largest_term_bytes: Bytes::ZERO,
        step_time_seconds: None,
        model_flops_utilization: None,
        remedies: Vec::new(),
        faster: Vec::new(),
        unknown: Vec::new(),
    };
    if let Ok(estimate) = cost_models::estimate(&plan.run()) {
        let fullest = crate::report::summary::heaviest(&estimate.memory);
        let largest =
            fullest.terms().into_iter().fold(("", Bytes::ZERO), |a, b| if b.1 > a.1 { b } else { a });
        check.fits = fullest.peak_bytes <= limit;
        check.peak_bytes = fullest.peak_bytes;
        check.fullest_rank = fullest.rank;
        check.largest_term = largest.0.to_owned();
        check.largest_term_bytes = largest.1;
        check.step_time_seconds = Some(estimate.step_time_seconds.get());
        check.model_flops_utilization = Some(estimate.model_flops_utilization);
        let changes = remedies::changes(plan, &estimate);
        check.remedies = remedies::freeing(&changes);
        check.faster = remedies::speeding(&changes);
    }
    check
}
