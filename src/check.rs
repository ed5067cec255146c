//! An independent verifier: is a layout valid, does it fit, what would help? It shares types with the search, but none
//! of its code.

pub mod remedies;
pub mod structure;

use crate::launch::{Given, Launcher};
use crate::layered;
use crate::plan::Plan;
use crate::room::tightest;
use cluster_profiles::{Bytes, Cluster};
use cost_models::Estimate;
use cost_models::estimate::hosts_fit;
use cost_models::rules::Violation;
use remedies::{Remedy, Subject};
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
    /// Bytes of the fullest rank; 0 where the layout is too broken to say.
    pub peak_bytes: Bytes,
    /// Its pipeline rank.
    pub fullest_rank: u32,
    /// The limit.
    pub memory_limit_bytes: Bytes,
    /// What the smallest GPU has; the limit leaves a margin of it free.
    pub memory_capacity_bytes: Bytes,
    /// By how much the fullest rank is over the limit; 0 where it fits.
    pub shortfall_bytes: Bytes,
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
    /// What a user should know before running this.
    pub warnings: Vec<String>,
    /// What the configuration leaves open and was assumed.
    pub assumed: Vec<String>,
    /// Flags or keys that were read and not understood.
    pub unknown: Vec<String>,
}

impl Check {
    /// Whether the layout can be run as it is.
    #[must_use]
    pub const fn passes(&self) -> bool {
        self.valid && self.fits
    }

    fn new(broken: Vec<Violation>, limit: Bytes) -> Self {
        Self {
            valid: broken.is_empty(),
            broken_rules: broken,
            fits: false,
            peak_bytes: Bytes::ZERO,
            fullest_rank: 0,
            memory_limit_bytes: limit,
            memory_capacity_bytes: limit,
            shortfall_bytes: Bytes::ZERO,
            largest_term: String::new(),
            largest_term_bytes: Bytes::ZERO,
            step_time_seconds: None,
            model_flops_utilization: None,
            remedies: Vec::new(),
            faster: Vec::new(),
            warnings: Vec::new(),
            assumed: Vec::new(),
            unknown: Vec::new(),
        }
    }

    /// Adds memory, time and what would help. A layout that is not valid has no step time.
    fn judge(&mut self, subject: &Subject) {
        let predicted = layered::prediction(&subject.run, subject.strategies);
        let Some(estimate) = predicted.filter(is_finite) else { return };
        let room = tightest(&subject.run, &estimate, subject.memory_limit);
        let fullest = room.memory;
        let largest =
            fullest.terms().into_iter().fold(("", Bytes::ZERO), |a, b| if b.1 > a.1 { b } else { a });
        self.fits = room.left() >= Bytes::ZERO && hosts_fit(&subject.run, &estimate.memory);
        self.peak_bytes = fullest.peak_bytes;
        let groups = subject.run.cluster.groups.iter();
        self.memory_capacity_bytes =
            groups.map(|group| group.gpu.memory).fold(Bytes(f64::INFINITY), Bytes::min);
        if !self.fits && fullest.peak_bytes <= self.memory_capacity_bytes {
            self.warnings.push(
                "the peak is inside the safety margin: it may run, with the allocator at its limit (set expandable_segments:True)"
                    .to_owned(),
            );
        }
        self.fullest_rank = fullest.rank;
        self.shortfall_bytes = (fullest.peak_bytes - room.limit).max(Bytes::ZERO);
        self.memory_limit_bytes = room.limit;
        self.largest_term = largest.0.to_owned();
        self.largest_term_bytes = largest.1;
        if !self.valid {
            return;
        }
        self.step_time_seconds = Some(estimate.step_time_seconds.get());
        self.model_flops_utilization = Some(estimate.model_flops_utilization);
        self.warnings.extend(estimate.warnings.iter().cloned());
        if subject.strategies.is_some() {
            return;
        }
        let changes = remedies::changes(subject, &estimate);
        self.remedies = remedies::freeing(&changes);
        self.faster = remedies::speeding(&changes);
    }
}

fn is_finite(estimate: &Estimate) -> bool {
    estimate.step_time_seconds.get().is_finite()
        && estimate.memory.iter().all(|rank| rank.peak_bytes.get().is_finite())
}

/// Verifies a plan: its rules, its structure, its memory.
#[must_use]
pub fn check(plan: &Plan) -> Check {
    let broken = structure::faults(plan);
    let limit = plan.inputs.memory_limit_bytes;
    let mut check = Check::new(broken, limit);
    let strategies = plan.layer_strategies.as_ref();
    let launcher = named(plan);
    check.judge(&Subject { run: plan.run(), strategies, memory_limit: limit, waived: &[], launcher });
    check
}

/// The launcher a plan was made for.
fn named(plan: &Plan) -> Option<&'static dyn Launcher> {
    plan.inputs.launcher.as_deref().and_then(crate::launch::named)
}

/// Verifies what a launcher's configuration says, on `cluster`, against `limit` bytes per GPU.
///
/// Rules that the launcher's reader found broken come first; the engine's follow, except those the reader has judged
/// itself.
#[must_use]
pub fn check_given(
    given: &Given,
    cluster: &Cluster,
    limit: Bytes,
    launcher: Option<&'static dyn Launcher>,
) -> Check {
    let mut broken = given.broken.clone();
    if let Some(stages) = &given.stages {
        let run = given.run(cluster, stages);
        let known: Vec<&str> =
            given.broken.iter().map(|rule| rule.id.as_str()).chain(given.waived.iter().copied()).collect();
        let strategies = given.layer_strategies.as_ref();
        let others =
            layered::broken(&run, strategies).into_iter().filter(|rule| !known.contains(&rule.id.as_str()));
        broken.extend(others.collect::<Vec<_>>());
    } else {
        broken.extend(given.engine_rules(cluster));
    }
    let mut check = Check::new(broken, limit);
    check.assumed.clone_from(&given.assumed);
    check.unknown.clone_from(&given.unknown);
    if let Some(stages) = &given.stages {
        let (run, waived) = (given.run(cluster, stages), given.waived.as_slice());
        let strategies = given.layer_strategies.as_ref();
        check.judge(&Subject { run, strategies, memory_limit: limit, waived, launcher });
    }
    check
}
