//! Which number of the hardware would help most: the change of the step for a change of each, the layout unchanged.

use crate::plan::Plan;
use crate::study::hardware::NUMBERS;
use cost_models::TrainingRun;
use serde::Serialize;

/// How the step follows one number.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sensitivity {
    /// The number.
    pub name: String,
    /// Percent by which the step changes for one percent more of the number: d ln(step) / d ln(number).
    pub elasticity: f64,
    /// The step with half of it and with twice as much, in seconds.
    pub step_halved_seconds: f64,
    /// See `step_halved_seconds`.
    pub step_doubled_seconds: f64,
}

/// Relative change by which the derivative is taken.
const CHANGE: f64 = 0.01;

/// How the step of a plan follows every number of its cluster, largest first.
#[must_use]
pub fn sensitivities(plan: &Plan) -> Vec<Sensitivity> {
    let mut list: Vec<Sensitivity> = NUMBERS
        .iter()
        .filter_map(|number| {
            let step = |factor: f64| step_with(plan, |cluster| (number.scale)(cluster, factor));
            let (more, less) = (step(1.0 + CHANGE)?, step(1.0 - CHANGE)?);
            let elasticity = (more / less).ln() / ((1.0 + CHANGE) / (1.0 - CHANGE)).ln();
            let (halved, doubled) = (step(0.5)?, step(2.0)?);
            Some(Sensitivity {
                name: number.name.to_owned(),
                elasticity,
                step_halved_seconds: halved,
                step_doubled_seconds: doubled,
            })
        })
        .filter(|sensitivity| sensitivity.step_halved_seconds != sensitivity.step_doubled_seconds)
        .collect();
    list.sort_by(|a, b| b.elasticity.abs().total_cmp(&a.elasticity.abs()));
    list
}

/// The step of a plan's layout on a changed cluster.
fn step_with(plan: &Plan, change: impl FnOnce(&mut cluster_profiles::Cluster)) -> Option<f64> {
    let mut cluster = plan.inputs.cluster.clone();
    change(&mut cluster);
    let run = TrainingRun { cluster: &cluster, ..plan.run() };
    cost_models::estimate(&run).ok().map(|estimate| estimate.step_time_seconds.get())
}
