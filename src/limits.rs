//! What a launcher's limits cost: the same search without them, and what it would need that the launcher has not.

use crate::plan::Plan;
use crate::{Wishes, launch};
use cluster_profiles::Seconds;
use cost_models::rules::{self, UNLIMITED};
use cost_models::{ParallelConfig, Runtime, TrainingRun};
use serde::{Deserialize, Serialize};
use solver::{Constraints, Observer, Outcome, Problem, Solution};

/// The best layout without the launcher's limits, and the limits it breaks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LauncherLimits {
    /// The layout.
    pub parallel: ParallelConfig,
    /// Its step time.
    pub step_time_seconds: Seconds,
    /// Step time of the plan over that, less one; 0 where the limits cost nothing.
    pub slower: f64,
    /// What the launcher cannot do, each with its rule.
    pub limits: Vec<String>,
}

/// Solves the plan's problem again without the limits of its launcher. `wishes` are the user's own, without what the
/// launcher forbids. None where no launcher is named, or where nothing was found in time.
#[must_use]
pub fn of(plan: &Plan, wishes: &Wishes, observer: &dyn Observer) -> Option<LauncherLimits> {
    let launcher = launch::named(plan.inputs.launcher.as_deref()?)?;
    let inputs = &plan.inputs;
    let engine = rules::engine(&inputs.runtime.name);
    // How the engine shards the state is no limit of a launcher.
    let others: Vec<String> = (0..=3)
        .filter(|stage| !engine.zero_stages.contains(stage))
        .map(|stage| format!("zero={stage}"))
        .collect();
    let others = Constraints::parse(&Vec::<String>::new(), &others).ok()?;
    let constraints = others.as_slice().iter().cloned().fold(wishes.constraints.clone(), Constraints::and);
    let runtime = Runtime { name: UNLIMITED.to_owned(), ..inputs.runtime.clone() };
    let problem = Problem {
        constraints,
        memory_limit: Some(inputs.memory_limit_bytes),
        time_limit: wishes.time_limit,
        top: 1,
        ..Problem::new(&inputs.model, &inputs.cluster, &inputs.workload, &runtime)
    };
    let Ok(Outcome::Solved(free)) = solver::solve(&problem, observer) else { return None };
    let (own, step) = (plan.estimate.step_time_seconds, free.estimate.step_time_seconds);
    let slower = own / step - 1.0;
    if slower <= 0.0 {
        let parallel = plan.parallel.clone();
        return Some(LauncherLimits { parallel, step_time_seconds: own, slower: 0.0, limits: Vec::new() });
    }
    let limits = broken(plan, launcher, &free);
    Some(LauncherLimits { parallel: free.parallel, step_time_seconds: step, slower, limits })
}

/// Rules of the launcher's engine that the layout breaks, and what the launcher itself has not.
fn broken(plan: &Plan, launcher: &dyn launch::Launcher, free: &Solution) -> Vec<String> {
    let inputs = &plan.inputs;
    let run = TrainingRun {
        model: &inputs.model,
        cluster: &free.cluster,
        workload: &inputs.workload,
        runtime: &inputs.runtime,
        parallel: &free.parallel,
        stages: &free.stages,
    };
    let rules = rules::broken(&run).into_iter().map(|rule| format!("{} {}", rule.id, rule.message));
    let forbidden = launcher.forbids().iter().filter(|term| {
        let one: [&str; 1] = [term];
        let none: [&str; 0] = [];
        Constraints::parse(&none, &one)
            .is_ok_and(|limit| limit.first_broken(&free.parallel, &free.cluster).is_some())
    });
    rules.chain(forbidden.map(|term| format!("no {term}"))).collect()
}
