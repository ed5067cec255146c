//! A Pareto front as a document: the fastest plan, and under `pareto` all plans that no other beats, cheapest first.

use crate::error::AppError;
use crate::inputs::Inputs;
use crate::offload;
use crate::plan::Plan;
use crate::replan::Request;
use crate::{Wishes, planned, problem_of};
use cluster_profiles::{Bytes, Cluster, Seconds};
use serde::Serialize;
use solver::pareto::{self, Trade};
use solver::{Objective, Observer};

/// The fastest plan, and the front it is the end of.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Front {
    /// The fastest plan: the document of `plan`.
    #[serde(flatten)]
    pub plan: Plan,
    /// Every plan that no other beats, cheapest first.
    pub pareto: Vec<Point>,
    /// Whether a limit came before all costs were tried.
    #[serde(skip)]
    pub stopped: bool,
}

/// A plan of the front.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// GPUs it uses.
    pub gpus: u64,
    /// Peak of its fullest GPU.
    pub peak_memory_bytes: Bytes,
    /// Price of a step, where all GPUs have a public price.
    pub dollars_per_step: Option<f64>,
    /// GPUs times the hours of a step.
    pub gpu_hours_per_step: f64,
    /// Its step.
    pub step_time_seconds: Seconds,
    /// The whole plan, with its certificate.
    pub plan: Plan,
}

/// The front of step time against a cost, each plan with what moves to it where it replaces one; none if no layout fits.
///
/// # Errors
/// As [`crate::plan()`]; a trade for dollars without prices; an old plan of another model.
pub fn front(
    inputs: &Inputs,
    wishes: &Wishes,
    trade: Trade,
    request: &Request,
    observer: &dyn Observer,
) -> Result<Option<Front>, AppError> {
    let Ok(mut wishes) = wishes.required(inputs) else { return Ok(None) };
    if offload::is_used(inputs) {
        wishes = wishes.without(&[offload::FORBIDS]);
    }
    let found = pareto::front(&problem_of(inputs, &wishes), trade, observer)
        .map_err(|error| AppError::Usage { faults: error.faults, hint: None })?;
    let everything = inputs.available.as_ref().unwrap_or(&inputs.cluster);
    let mut points = Vec::new();
    for solution in found.plans {
        let plan = planned(inputs.clone(), solution);
        points.push(Point::of(if request.is_empty() { plan } else { request.applied(plan, everything)? }));
    }
    let fastest = points.last().map(|point| point.plan.clone());
    Ok(fastest.map(|plan| Front { plan, pareto: points, stopped: found.stopped }))
}

impl Point {
    fn of(plan: Plan) -> Self {
        let cluster = &plan.inputs.cluster;
        let step = plan.estimate.step_time_seconds;
        let priced = has_price(cluster);
        let hours = cluster.gpu_count() as f64 * step.get() / 3600.0;
        let peaks = plan.estimate.memory.iter().map(|rank| rank.peak_bytes);
        Self {
            gpus: cluster.gpu_count(),
            peak_memory_bytes: peaks.fold(Bytes::ZERO, Bytes::max),
            dollars_per_step: priced.then(|| Objective::TokensPerDollar.value(cluster, step, step)),
            gpu_hours_per_step: hours,
            step_time_seconds: step,
            plan,
        }
    }
}

fn has_price(cluster: &Cluster) -> bool {
    cluster.groups.iter().all(|group| group.dollars_per_gpu_hour.is_some())
}
