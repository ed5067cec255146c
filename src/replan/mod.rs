//! Planning again for what is left of a cluster: the same global batch, the best layout, and what has to move to it.
//!
//! Nodes that remain seldom fill a layout well (seven of eight), so that smaller numbers of nodes are tried too, and hosts
//! left over are spare. Where an old plan is given, hosts take the places at which most of their state is there already,
//! and with a horizon the plan is the one whose move and steps together are soonest done:
//!
//! ```text
//! seconds(plan) = seconds to move(plan) + horizon x step(plan)
//! ```

mod movement;

pub use movement::{Moved, RankMove, movement};

use crate::error::AppError;
use crate::inputs::Inputs;
use crate::plan::{Placement, Plan};
use crate::{Answer, Wishes, estimate};
use cluster_profiles::{Cluster, Seconds};
use serde::{Deserialize, Serialize};
use solver::{Infeasible, Observer};

/// What a plan replaces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Replan {
    /// Hosts that are gone.
    pub lost: Vec<String>,
    /// What has to move; absent where no old plan was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved: Option<Moved>,
    /// Step time of the old plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_step_time_seconds: Option<Seconds>,
    /// Steps after which moving has to have paid back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub horizon_steps: Option<u64>,
    /// Step time of the fastest plan, where another pays back sooner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fastest_step_time_seconds: Option<Seconds>,
}

/// A replanning to be done.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Hosts that are gone.
    pub lost: Vec<String>,
    /// The plan that ran before.
    pub from: Option<Plan>,
    /// Steps after which moving has to have paid back.
    pub horizon: Option<u64>,
}

/// Layouts that compete where an old plan and a horizon are given.
const COMPETITORS: usize = 12;
/// Hosts up to which places are chosen by what is there already.
const MOST_ALIGNED: usize = 256;

/// The plan for what is left.
///
/// # Errors
/// As [`crate::plan()`]; an old plan of another model.
pub fn plan(
    inputs: Inputs,
    wishes: &Wishes,
    request: &Request,
    observer: &dyn Observer,
) -> Result<Answer, AppError> {
    if let Some(old) = &request.from {
        same_model(old, &inputs)?;
    }
    let horizon = request.from.as_ref().and(request.horizon);
    let wide = Wishes {
        top: if horizon.is_some() { wishes.top.max(COMPETITORS) } else { wishes.top },
        // What moves is only known where all layers are alike.
        layers_alike: wishes.layers_alike || request.from.is_some(),
        ..wishes.clone()
    };
    let mut plans: Vec<Plan> = Vec::new();
    let mut refusal: Option<Box<Infeasible>> = None;
    let mut stopped = None;
    for size in sizes(&inputs) {
        match crate::plan(size, &wide, observer)? {
            Answer::Plan(plan) => plans.push(*plan),
            Answer::Infeasible(infeasible) => refusal = refusal.or(Some(infeasible)),
            Answer::Stopped { considered } => stopped = Some(considered),
        }
        if observer.cancelled() {
            break;
        }
    }
    plans.sort_by(|a, b| a.estimate.step_time_seconds.get().total_cmp(&b.estimate.step_time_seconds.get()));
    let Some(fastest) = plans.first() else {
        return Ok(match (stopped, refusal) {
            (None, Some(infeasible)) => Answer::Infeasible(infeasible),
            (considered, _) => Answer::Stopped { considered: considered.unwrap_or(0) },
        });
    };
    let everything = inputs.available.as_ref().unwrap_or(&inputs.cluster).clone();
    let fastest_step = fastest.estimate.step_time_seconds;
    let mut chosen = match (&request.from, horizon) {
        (Some(old), Some(horizon)) => soonest(old, &plans, &everything, horizon, &request.lost)?,
        (Some(old), None) => aligned(old, fastest.clone(), &everything)?,
        (None, _) => fastest.clone(),
    };
    chosen.alternatives.truncate(wishes.top.saturating_sub(1));
    let slower = chosen.estimate.step_time_seconds > fastest_step;
    chosen.replan = Some(Replan {
        horizon_steps: horizon,
        fastest_step_time_seconds: slower.then_some(fastest_step),
        ..request.replaced_by(&chosen)
    });
    Ok(Answer::Plan(Box::new(chosen)))
}

impl Request {
    /// Whether there is nothing to replace.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lost.is_empty() && self.from.is_none()
    }

    /// What a plan replaces.
    fn replaced_by(&self, plan: &Plan) -> Replan {
        let old = self.from.as_ref();
        Replan {
            lost: self.lost.clone(),
            moved: old.map(|old| movement(old, plan, &self.lost)),
            old_step_time_seconds: old.map(|old| old.estimate.step_time_seconds),
            horizon_steps: None,
            fastest_step_time_seconds: None,
        }
    }

    /// A plan on hosts of `everything`, with its hosts where most of their state is already, and what has to move to them.
    ///
    /// # Errors
    /// An old plan of another model.
    pub fn applied(&self, plan: Plan, everything: &Cluster) -> Result<Plan, AppError> {
        let mut plan = match &self.from {
            Some(old) => {
                same_model(old, &plan.inputs)?;
                aligned(old, plan, everything)?
            }
            None => plan,
        };
        plan.replan = Some(self.replaced_by(&plan));
        Ok(plan)
    }
}

fn same_model(old: &Plan, inputs: &Inputs) -> Result<(), AppError> {
    if old.layer_strategies.is_some() {
        return Err(AppError::usage(
            "--from is a plan with strategies by layer, whose state cannot be told apart by rank",
            "leave out --from",
        ));
    }
    let (before, now) = (&old.inputs.model, &inputs.model);
    if before.layers == now.layers && before.hidden == now.hidden && before.vocab == now.vocab {
        return Ok(());
    }
    Err(AppError::usage(
        format!("--from is a plan of `{}`, --model is `{}`", before.name, now.name),
        "give a plan of the same model, or leave out --from",
    ))
}

/// The inputs with all nodes, and with fewer: the multiples of 2, 4, 8 and so on below, down to half of them.
fn sizes(inputs: &Inputs) -> Vec<Inputs> {
    let everything = inputs.available.as_ref().unwrap_or(&inputs.cluster);
    let node = u64::from(inputs.cluster.main().node.gpus);
    let nodes = inputs.cluster.node_count();
    let mut sizes = vec![inputs.clone()];
    if !everything.is_homogeneous() {
        return sizes;
    }
    let mut known = nodes;
    for unit in (1..=16).map(|power| 1u64 << power) {
        let fewer = nodes / unit * unit;
        if fewer == 0 || fewer * 2 < nodes {
            break;
        }
        if fewer == known {
            continue;
        }
        known = fewer;
        let Ok(cluster) = everything.resized(fewer * node) else { continue };
        sizes.push(Inputs { cluster, available: Some(everything.clone()), ..inputs.clone() });
    }
    sizes
}

/// Of all plans and their alternatives, the one that is done soonest.
fn soonest(
    old: &Plan,
    plans: &[Plan],
    everything: &Cluster,
    horizon: u64,
    lost: &[String],
) -> Result<Plan, AppError> {
    let mut best: Option<(f64, Plan)> = None;
    for plan in plans {
        for candidate in std::iter::once(plan.clone()).chain(others(plan)?) {
            let candidate = aligned(old, candidate, everything)?;
            let moved = movement(old, &candidate, lost);
            let seconds = moved.seconds.get() + horizon as f64 * candidate.estimate.step_time_seconds.get();
            if best.as_ref().is_none_or(|(known, _)| seconds < *known) {
                best = Some((seconds, candidate));
            }
        }
    }
    Ok(best.map_or_else(|| plans[0].clone(), |(_, plan)| plan))
}

/// The alternatives of a plan as plans of their own.
fn others(plan: &Plan) -> Result<Vec<Plan>, AppError> {
    let mut plans = Vec::new();
    for alternative in &plan.alternatives {
        let Some(stages) = alternative.stages.clone() else { continue };
        let parallel = alternative.parallel.clone();
        if parallel.world_size() != plan.inputs.cluster.gpu_count() {
            continue;
        }
        plans.push(with_layout(plan, plan.inputs.cluster.clone(), parallel, stages)?);
    }
    Ok(plans)
}

fn with_layout(
    plan: &Plan,
    cluster: Cluster,
    parallel: cost_models::ParallelConfig,
    stages: cost_models::StageMap,
) -> Result<Plan, AppError> {
    let inputs = Inputs { cluster, ..plan.inputs.clone() };
    let run = cost_models::TrainingRun {
        model: &inputs.model,
        cluster: &inputs.cluster,
        workload: &inputs.workload,
        runtime: &inputs.runtime,
        parallel: &parallel,
        stages: &stages,
    };
    let prediction = estimate(&run, inputs.memory_limit_bytes)?;
    let mut made = Plan::new(inputs, parallel, stages, prediction);
    made.certificate.clone_from(&plan.certificate);
    made.placement.spare.clone_from(&plan.placement.spare);
    made.inputs.available.clone_from(&plan.inputs.available);
    Ok(made)
}

/// The plan with its hosts where most of their state is already. Only where it makes no difference to the step.
fn aligned(old: &Plan, plan: Plan, everything: &Cluster) -> Result<Plan, AppError> {
    let node = &plan.inputs.cluster.main().node;
    let hosts = everything.host_names();
    if !everything.is_even() || node.domain > node.gpus || hosts.len() > MOST_ALIGNED {
        return Ok(plan);
    }
    let order = movement::best_order(old, &plan, &hosts);
    let cluster = everything.arranged(&order)?;
    let mut moved = with_layout(&plan, cluster, plan.parallel.clone(), plan.stages.clone())?;
    moved.placement = Placement::consecutive(&moved.inputs.cluster, &moved.parallel);
    moved.leave_out(everything);
    Ok(Plan { alternatives: plan.alternatives, ..moved })
}
