//! Problem in, solution out.

use crate::candidate::Candidate;
use crate::certificate::Certificate;
use crate::expand::Tree;
use crate::infeasible::{contradicted, explain};
use crate::layerwise;
use crate::mixed;
use crate::module_choices::module_choices;
use crate::objective::Objective;
use crate::observer::{Observer, Patience};
use crate::placement;
use crate::problem::{Problem, ProblemError};
use crate::search::{Found, Limits, search};
use crate::solution::{Alternative, Outcome, Solution};
use crate::space::SearchSpace;
use crate::units::Units;
use crate::within::too_slow;
use cluster_profiles::Cluster;
use cost_models::rules::engine;
use std::time::Instant;

/// The best layout, or why there is none.
///
/// # Errors
/// [`ProblemError`] with every fault that no layout can mend: sizes of 0, a schedule that the engine lacks.
pub fn solve(problem: &Problem, observer: &dyn Observer) -> Result<Outcome, ProblemError> {
    problem.check()?;
    let contradictions = problem.constraints.contradictions(problem.cluster);
    if !contradictions.is_empty() {
        let deadline = problem.time_limit.and_then(|limit| Instant::now().checked_add(limit));
        let patience = Patience { observer, deadline };
        return Ok(Outcome::Infeasible(Box::new(contradicted(problem, &contradictions, patience))));
    }
    let fault = |error: cluster_profiles::ProfileError| ProblemError { faults: vec![error.to_string()] };
    let Some(reach) = placement::Reach::of(problem).map_err(fault)? else {
        return solve_connected(problem, observer);
    };
    let used = reach.used(problem);
    let connected = Problem { cluster: &used, available: Some(&reach.together), ..problem.clone() };
    let mut outcome = solve_connected(&connected, observer)?;
    if let Outcome::Solved(solution) = &mut outcome {
        solution.estimate.warnings.push(reach.warning());
    }
    Ok(outcome)
}

/// The best layout on hosts that all reach each other.
fn solve_connected(problem: &Problem, observer: &dyn Observer) -> Result<Outcome, ProblemError> {
    let mut outcome = solve_on_hosts(problem, observer)?;
    let hosts = problem.available.unwrap_or(problem.cluster);
    let by_layer = hosts.is_homogeneous() && hosts.is_even() && layerwise::applies(problem);
    let alike = engine(&problem.runtime.name).layerwise && !by_layer;
    match &mut outcome {
        Outcome::Solved(solution) => solution.certificate.layers_alike = alike,
        Outcome::Infeasible(why) if alike => {
            why.reason.push_str("; only layouts with layers alike were searched")
        }
        _ => (),
    }
    Ok(outcome)
}

/// The best layout by the search that the hosts call for.
fn solve_on_hosts(problem: &Problem, observer: &dyn Observer) -> Result<Outcome, ProblemError> {
    let deadline = problem.time_limit.and_then(|limit| Instant::now().checked_add(limit));
    let hosts = problem.available.unwrap_or(problem.cluster);
    // Strategies by layer are only known where all ranks are alike.
    let alike = Problem { layers_alike: true, ..problem.clone() };
    if hosts.is_homogeneous() && !hosts.is_even() {
        return placement::solve(&alike, observer, deadline);
    }
    if !hosts.is_homogeneous() {
        return mixed::solve(&alike, observer, deadline);
    }
    let (cluster, found) = find(problem, observer, deadline, f64::INFINITY);
    Ok(answer(problem, cluster, found, Patience { observer, deadline }))
}

/// The best layouts whose value is below the cutoff, and the cluster they run on.
pub(crate) fn find(
    problem: &Problem,
    observer: &dyn Observer,
    deadline: Option<Instant>,
    cutoff: f64,
) -> (Cluster, Found) {
    if problem.objective.may_leave_gpus_idle() {
        return search_sizes(problem, observer, deadline, cutoff);
    }
    (problem.cluster.clone(), run(problem, observer, deadline, cutoff))
}

/// The layouts of a problem.
#[must_use]
pub fn space_of<'p>(problem: &'p Problem<'_>) -> SearchSpace<'p> {
    let engine = engine(&problem.runtime.name);
    let space = SearchSpace::new(problem.facts(), engine, problem.cluster, &problem.constraints)
        .with_recompute(problem.recompute.unwrap_or(engine.recompute))
        .with_offload(problem.moves_activations, &module_choices(problem.model));
    // Stages over GPUs of several kinds are planned in the default order alone.
    if problem.cluster.is_homogeneous() { space } else { space.in_default_order() }
}

/// The best layout alone.
#[must_use]
pub fn best_of(problem: &Problem, patience: Patience) -> Option<Candidate> {
    let alone = Problem { top: 1, ..problem.clone() };
    let quiet = Quiet(patience.observer);
    run(&alone, &quiet, patience.deadline, f64::INFINITY).best.into_iter().next()
}

/// Lets an observer stop a search that it does not watch.
struct Quiet<'a>(&'a dyn Observer);

impl Observer for Quiet<'_> {
    fn cancelled(&self) -> bool {
        self.0.cancelled()
    }
}

pub(crate) fn run(
    problem: &Problem,
    observer: &dyn Observer,
    deadline: Option<Instant>,
    cutoff: f64,
) -> Found {
    if layerwise::applies(problem) {
        return layerwise::run(problem, observer, deadline, cutoff);
    }
    let units = Units::new(problem.model);
    let space = space_of(problem);
    let tree = Tree { problem, units: &units, space: &space };
    let patience = Patience { observer, deadline };
    search(&tree, &Limits { patience, top: problem.top, cutoff, gap: problem.gap })
}

/// Searches clusters of rising size and keeps the best.
fn search_sizes(
    problem: &Problem,
    observer: &dyn Observer,
    deadline: Option<Instant>,
    limit: f64,
) -> (Cluster, Found) {
    let mut best: Option<(Cluster, Found)> = None;
    let mut total: Option<Found> = None;
    for cluster in sizes(problem.cluster) {
        let cutoff = best.as_ref().and_then(|(_, found)| found.best.first()).map_or(limit, |c| c.value);
        let found = run(&Problem { cluster: &cluster, ..problem.clone() }, observer, deadline, cutoff);
        let stopped = found.stopped;
        total = Some(add(total, &found));
        let found_one = !found.best.is_empty();
        if found_one {
            best = Some((cluster, found));
        }
        if stopped || (found_one && matches!(problem.objective, Objective::Gpus { .. })) {
            break;
        }
    }
    let total = total.unwrap_or_default();
    match best {
        Some((cluster, found)) => (cluster, Found { best: found.best, ..total }),
        None => (problem.cluster.clone(), total),
    }
}

/// Counts of two searches together; the bound is the lower one.
fn add(total: Option<Found>, found: &Found) -> Found {
    let mut sum =
        total.unwrap_or_else(|| Found { bound: f64::INFINITY, any_split: f64::INFINITY, ..Found::default() });
    sum.bound = sum.bound.min(found.bound);
    sum.any_split = sum.any_split.min(found.any_split);
    sum.considered += found.considered;
    sum.simulated += found.simulated;
    sum.stopped |= found.stopped;
    for (rule, layouts) in &found.pruned {
        *sum.pruned.entry(rule.clone()).or_default() += layouts;
    }
    sum
}

/// The cluster with one node, two, and so on up to all: every number of nodes up to 16, then steps of an eighth or less.
pub(crate) fn sizes(cluster: &Cluster) -> Vec<Cluster> {
    let node = u64::from(cluster.main().node.gpus);
    let all = cluster.gpu_count();
    let mut nodes = 1;
    let mut sizes = Vec::new();
    while nodes * node < all {
        sizes.extend(cluster.resized(nodes * node).ok());
        nodes += (nodes / 8).max(1);
    }
    sizes.push(cluster.clone());
    sizes
}

pub(crate) fn answer(problem: &Problem, cluster: Cluster, found: Found, patience: Patience) -> Outcome {
    let mut ranked = found.best.into_iter();
    let Some(best) = ranked.next() else {
        if found.stopped {
            return Outcome::Stopped { considered: found.considered };
        }
        let slow = too_slow(problem, patience).unwrap_or_else(|| explain(problem, &found.pruned, patience));
        return Outcome::Infeasible(Box::new(slow));
    };
    let step = best.estimate.step_time_seconds;
    let certificate = Certificate {
        considered: found.considered,
        pruned: found.pruned,
        simulated: found.simulated,
        unbalanced_gap: Certificate::gap_to(best.value, found.any_split),
        ..Certificate::new(best.value, found.bound, step).of(&problem.objective, best.value)
    };
    Outcome::Solved(Box::new(Solution {
        alternatives: ranked.map(|candidate| lost(problem, candidate, &best)).collect(),
        parallel: best.parallel,
        stages: best.stages,
        layer_strategies: best.layer_strategies,
        estimate: best.estimate,
        cluster,
        certificate,
    }))
}

/// A layout that lost; of one that is as fast or faster, what the objective has against it.
fn lost(problem: &Problem, candidate: Candidate, best: &Candidate) -> Alternative {
    let dearer = candidate.value / best.value - 1.0;
    let faster = candidate.estimate.step_time_seconds <= best.estimate.step_time_seconds;
    let mut alternative = Alternative::new(candidate, &best.estimate);
    if faster && problem.objective != Objective::StepTime {
        alternative.why = format!("{:.1} % more {}", dearer * 100.0, problem.objective.resource());
    }
    alternative
}
