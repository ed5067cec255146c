//! Which number of the hardware would help most: the change of the step for a change of each, the layout unchanged; for the
//! memory of a GPU, which the step of a layout that fits does not follow, the step of the best layout for other amounts.

use crate::plan::Plan;
use crate::study::file::Study;
use crate::study::hardware::{NUMBERS, scale_memory};
use crate::{Answer, Wishes};
use cost_models::TrainingRun;
use serde::Serialize;
use solver::Silent;

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
    crate::layered::prediction(&run, plan.layer_strategies.as_ref())
        .map(|estimate| estimate.step_time_seconds.get())
}

/// What would help at one point.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PointSensitivities {
    /// What is trained.
    pub job: String,
    /// The point.
    pub point: u64,
    /// Every number, largest first.
    pub numbers: Vec<Sensitivity>,
    /// The step with half the memory of every GPU, planned anew; none where nothing fits.
    pub memory_halved_seconds: Option<f64>,
    /// The same with twice as much.
    pub memory_doubled_seconds: Option<f64>,
}

impl PointSensitivities {
    /// What would help at a point with this plan.
    #[must_use]
    pub fn of(study: &Study, job: &str, point: u64, plan: &Plan) -> Self {
        Self {
            job: job.to_owned(),
            point,
            numbers: sensitivities(plan),
            memory_halved_seconds: step_with_memory(study, point, 0.5),
            memory_doubled_seconds: step_with_memory(study, point, 2.0),
        }
    }
}

/// The step of a point's best layout with so many times the memory; limits of the study grow along.
fn step_with_memory(study: &Study, point: u64, factor: f64) -> Option<f64> {
    let mut draft = study.draft(point).ok()?;
    draft.edits.push((scale_memory, factor));
    draft.memory_limit = draft.memory_limit.map(|limit| limit * factor);
    let ready = draft.ready(&study.library, study.objective).ok()?;
    match crate::plan(ready.inputs, &Wishes { top: 1, ..ready.wishes }, &Silent) {
        Ok(Answer::Plan(plan)) => Some(plan.estimate.step_time_seconds.get()),
        _ => None,
    }
}
