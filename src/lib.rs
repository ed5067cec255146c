//! meshwright plans distributed training: a model, a cluster and a workload in; the fastest layout that fits, the
//! launcher files that run it, and a proof of how close to optimal it is out.
//!
//! The command line (`src/cli`) is a thin layer over what a program can call as well:
//!
//! ```
//! use meshwright::inputs::{self, Source};
//! use cost_models::{Dtype, Optimizer, Workload};
//! use cluster_profiles::Precision;
//!
//! let workload = Workload {
//!     global_batch: 128,
//!     seq_len: 8192,
//!     precision: Precision::Bf16,
//!     optimizer: Optimizer::Adamw,
//!     gradient_dtype: Some(Dtype::Fp32),
//!     expert_imbalance: 1.0,
//! };
//! let inputs = inputs::load(&Source {
//!     model: "llama-3.1-8b",
//!     cluster: "dgx-h100",
//!     gpus: Some(8),
//!     lost: &[],
//!     workload,
//!     runtime: None,
//!     launcher: None,
//!     memory_limit: None,
//! })?;
//! let answer = meshwright::plan(inputs, &meshwright::Wishes::default(), &solver::Silent)?;
//! assert!(matches!(answer, meshwright::Answer::Plan(plan) if plan.estimate.fits));
//! # Ok::<(), meshwright::error::AppError>(())
//! ```
//!
//! Four packages in one order: `cluster_profiles` (units, GPUs, links), `cost_models` (how long, how many bytes),
//! `solver` (which layout), and this one, the only place that reads and writes files or prints.

pub mod check;
pub mod cli;
pub mod error;
mod files;
pub mod fit;
pub mod host_memory;
pub mod inputs;
pub mod launch;
pub mod layered;
pub mod limits;
mod link_warnings;
pub mod offload;
pub mod pareto;
pub mod plan;
pub mod profile;
pub mod replan;
pub mod report;
pub mod require;
pub mod room;
pub mod study;
pub mod validate;

use cluster_profiles::Bytes;
use cost_models::step::Makespans;
use cost_models::{Estimate, TrainingRun, rules, sites};
use error::AppError;
use inputs::Inputs;
use offload::Offload;
use plan::Plan;
use solver::{Constraints, Infeasible, Objective, Observer, Outcome, Problem, ProblemError, Solution};
use std::sync::Arc;
use std::time::Duration;

/// What a plan is to be.
#[derive(Debug, Clone)]
pub struct Wishes {
    /// What is minimised.
    pub objective: Objective,
    /// What is fixed and forbidden.
    pub constraints: Constraints,
    /// When to answer with the best so far.
    pub time_limit: Option<Duration>,
    /// How much better than the plan, relative to it, a layout may be that was not looked at.
    pub gap: f64,
    /// Layouts to rank, the plan included.
    pub top: usize,
    /// Whether changes are looked for that would help, where nothing fits.
    pub nearest: bool,
    /// What the prediction must rest on.
    pub require: Option<require::Require>,
    /// What is kept in host memory; activations or the optimizer's state where nothing fits without, if none.
    pub offload: Option<Offload>,
    /// Whether all layers are to be alike, even where the runtime can do otherwise.
    pub layers_alike: bool,
    /// What was simulated before, for plans of inputs that have pipelines in common.
    pub makespans: Option<Arc<Makespans>>,
}

impl Default for Wishes {
    fn default() -> Self {
        Self {
            objective: Objective::StepTime,
            constraints: Constraints::default(),
            time_limit: None,
            gap: 0.0,
            top: 4,
            nearest: true,
            require: None,
            offload: None,
            layers_alike: false,
            makespans: None,
        }
    }
}

/// What a search answers.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// The best layout.
    Plan(Box<Plan>),
    /// No layout fits, and why.
    Infeasible(Box<Infeasible>),
    /// The time was up before any fitting layout was found.
    Stopped {
        /// Layouts of the space.
        considered: u64,
    },
}

/// Searches the fastest layout that fits. Where none does, activations, the optimizer's state or both go to host memory, if they
/// may and can.
///
/// # Errors
/// [`AppError::Usage`] with every wish that no layout can meet, whatever the memory.
pub fn plan(inputs: Inputs, wishes: &Wishes, observer: &dyn Observer) -> Result<Answer, AppError> {
    if wishes.offload == Some(Offload::Optimizer) {
        return searched(inputs.offloaded()?, wishes, observer);
    }
    let moves = offload::activation_fault(&inputs);
    if let (Some(Offload::Activations), Some(fault)) = (wishes.offload, &moves) {
        return Err(AppError::usage(
            format!("--offload activations: {fault}"),
            "use --runtime megatron-core or --launcher megatron",
        ));
    }
    let mut spills = offload::spills(&inputs, wishes.offload);
    let Some((optimizer, offload)) = spills.pop() else { return searched(inputs, wishes, observer) };
    // Ways out are looked for where it is clear that there is no plan.
    let silent = Wishes { nearest: false, ..wishes.clone() };
    let answer = searched(inputs.clone(), &silent, observer)?;
    match &answer {
        Answer::Infeasible(infeasible) if infeasible.leanest.is_some() => {}
        Answer::Infeasible(_) => return searched(inputs, wishes, observer),
        _ => return Ok(answer),
    }
    for (optimizer, offload) in spills {
        let spilled =
            spilled(&inputs, optimizer, &Wishes { offload: Some(offload), ..silent.clone() }, observer)?;
        if matches!(spilled, Answer::Plan(_)) {
            return Ok(spilled);
        }
    }
    spilled(&inputs, optimizer, &Wishes { offload: Some(offload), ..wishes.clone() }, observer)
}

/// The fastest layout with the optimizer's state in host memory or not, and of the rest what the wishes say.
fn spilled(
    inputs: &Inputs,
    optimizer: bool,
    wishes: &Wishes,
    observer: &dyn Observer,
) -> Result<Answer, AppError> {
    let own = if optimizer { inputs.clone().offloaded()? } else { inputs.clone() };
    searched(own, wishes, observer)
}

/// The fastest layout that fits, with the state where the inputs say.
fn searched(inputs: Inputs, wishes: &Wishes, observer: &dyn Observer) -> Result<Answer, AppError> {
    let mut wishes = match wishes.required(&inputs) {
        Ok(wishes) => wishes,
        Err(infeasible) => return Ok(Answer::Infeasible(infeasible)),
    };
    if offload::is_used(&inputs) {
        wishes = wishes.without(&[offload::FORBIDS]);
    }
    let outcome = solver::solve(&problem_of(&inputs, &wishes), observer).map_err(unsolvable)?;
    Ok(answered(inputs, outcome))
}

fn unsolvable(error: ProblemError) -> AppError {
    AppError::Usage { faults: error.faults, hint: None }
}

fn answered(inputs: Inputs, outcome: Outcome) -> Answer {
    match outcome {
        Outcome::Solved(solution) => Answer::Plan(Box::new(planned(inputs, *solution))),
        Outcome::Infeasible(infeasible) => Answer::Infeasible(infeasible),
        Outcome::Stopped { considered } => Answer::Stopped { considered },
    }
}

impl Wishes {
    /// These wishes, with what their requirement forbids on `inputs`.
    ///
    /// # Errors
    /// Why no layout meets it.
    pub fn required(&self, inputs: &Inputs) -> Result<Self, Box<Infeasible>> {
        let Some(require) = self.require else { return Ok(self.clone()) };
        Ok(self.without(&require.forbids(inputs)?))
    }

    /// These wishes, with some terms forbidden too.
    fn without(&self, terms: &[&'static str]) -> Self {
        let added = Constraints::parse(&[], terms).unwrap_or_default();
        let all = added.as_slice().iter().cloned();
        Self { constraints: all.fold(self.constraints.clone(), Constraints::and), ..self.clone() }
    }
}

/// What the solver is asked.
fn problem_of<'a>(inputs: &'a Inputs, wishes: &Wishes) -> Problem<'a> {
    Problem {
        constraints: wishes.constraints.clone(),
        memory_limit: Some(inputs.memory_limit_bytes),
        available: inputs.available.as_ref(),
        whole: inputs.whole.as_ref(),
        objective: wishes.objective,
        time_limit: wishes.time_limit,
        gap: wishes.gap,
        top: wishes.top,
        offloads: wishes.offload == Some(Offload::Never) && offload::fault(inputs).is_none(),
        moves_activations: wishes.offload.is_some_and(Offload::moves_activations)
            && offload::activation_fault(inputs).is_none(),
        nearest: wishes.nearest,
        layers_alike: wishes.layers_alike,
        makespans: wishes.makespans.clone(),
        recompute: inputs.launcher.as_deref().and_then(launch::named).and_then(|l| l.recompute()),
        ..Problem::new(&inputs.model, &inputs.cluster, &inputs.workload, &inputs.runtime)
    }
}

/// The plan of a solution.
fn planned(inputs: Inputs, solution: Solution) -> Plan {
    let whole = inputs.available.as_ref().unwrap_or(&inputs.cluster).clone();
    let limit = sites::limit_of_part(&solution.cluster, &whole, &inputs.runtime, inputs.memory_limit_bytes);
    let inputs = Inputs { cluster: solution.cluster, memory_limit_bytes: limit, ..inputs };
    let mut plan = Plan::new(inputs, solution.parallel, solution.stages, solution.estimate);
    plan.layer_strategies = solution.layer_strategies;
    plan.certificate = Some(solution.certificate);
    plan.alternatives = solution.alternatives;
    plan.leave_out(&whole);
    let fits = sites::fits(&plan.run(), &plan.estimate, plan.inputs.memory_limit_bytes);
    plan.estimate.fits = fits;
    plan
}

/// Predicts time and memory of a run against a memory limit.
///
/// # Errors
/// [`AppError::Illegal`] with every broken rule of the runtime, or a layout whose sizes do not fit together.
pub fn estimate(run: &TrainingRun, memory_limit: Bytes) -> Result<Estimate, AppError> {
    let broken = rules::broken(run);
    if !broken.is_empty() {
        return Err(AppError::Illegal(broken));
    }
    let mut estimate = cost_models::estimate(run)?;
    estimate.fits = sites::fits(run, &estimate, memory_limit);
    Ok(estimate)
}
