//! What follows from the rows of a study: what is best, what is worth its price, where one choice takes over from another.

mod batch;
mod break_even;
mod gather;
mod pareto;
mod sensitivity;
mod switches;

pub use batch::{BatchPlan, Phase, Speed, schedule as batch_schedule};
pub use break_even::{BreakEven, Pair, break_even_price};
pub use gather::{Gathered, Outcome};
pub use pareto::TradeOff;
pub use sensitivity::{PointSensitivities, Sensitivity, sensitivities};
pub use switches::{Switch, switches};

use super::file::Study;
use super::merge::Rows;
use super::run::plan_of;
use crate::Answer;
use crate::error::AppError;
use crate::plan::Plan;
use rayon::prelude::*;
use serde::Serialize;
use std::collections::BTreeMap;

/// Everything that follows from a study.
#[derive(Debug, Clone, Serialize)]
pub struct Decisions {
    /// Name of the study.
    pub name: String,
    /// Points by status.
    pub counts: BTreeMap<String, u64>,
    /// Points that do not count, by what binds.
    pub binding: BTreeMap<String, u64>,
    /// The reason of the first of them, where it has one.
    pub reasons: BTreeMap<String, String>,
    /// The best point of every job.
    pub best: Vec<Outcome>,
    /// Fronts of every job.
    pub fronts: Vec<TradeOff>,
    /// Where another layout becomes best along an axis.
    pub switches: Vec<Switch>,
    /// Prices at which two clusters cost the same for a token.
    pub break_even: Vec<BreakEven>,
    /// Batch sizes over a training, if asked for.
    pub batch_schedules: Vec<BatchPlan>,
    /// By how many percent a step changes for one percent of every number of the hardware, at the best point of the first jobs.
    pub sensitivities: Vec<PointSensitivities>,
}

/// Jobs whose best point is asked what would help it.
const MOST_SENSITIVE: usize = 8;

/// The decisions of a study, and the plan of its best point.
///
/// # Errors
/// Rows that cannot be read.
pub fn decide(study: &Study, rows: &mut Rows) -> Result<(Decisions, Gathered, Option<Plan>), AppError> {
    let gathered = Gathered::read(study, rows)?;
    let best = gathered.best_of_jobs(study);
    let plan_of = |best: &Outcome| match plan_of(study, best.point, 4) {
        Ok(Answer::Plan(plan)) => Some(*plan),
        _ => None,
    };
    let jobs: Vec<(&str, &Outcome)> =
        gathered.by_job().into_iter().map(|(job, _)| job).zip(&best).take(MOST_SENSITIVE).collect();
    let helped: Vec<Option<(PointSensitivities, Plan)>> = jobs
        .par_iter()
        .map(|(job, best)| {
            let plan = plan_of(best)?;
            Some((PointSensitivities::of(study, job, best.point, &plan), plan))
        })
        .collect();
    let mut plan = None;
    let mut sensitivities = Vec::new();
    for (number, (helped, own)) in helped.into_iter().enumerate().filter_map(|(at, one)| Some((at, one?))) {
        sensitivities.push(helped);
        plan = plan.or_else(|| (number == 0).then_some(own));
    }
    let decisions = Decisions {
        name: study.name.clone(),
        counts: gathered.counts.clone(),
        binding: gathered.binding.clone(),
        reasons: gathered.reasons.clone(),
        fronts: gathered.fronts(),
        switches: switches(study, &gathered),
        break_even: break_even::break_even(study, &gathered),
        batch_schedules: batch::of_study(study, &gathered),
        sensitivities,
        best,
    };
    Ok((decisions, gathered, plan))
}
