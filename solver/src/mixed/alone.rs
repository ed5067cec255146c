//! One kind of GPU alone, planned as ever.

use super::Plan;
use super::queue::Limits;
use crate::candidate::Candidate;
use crate::observer::Observer;
use crate::placement::even_twin;
use crate::problem::{Problem, ProblemError};
use crate::solution::{Outcome, Solution};
use crate::solve::{answer, find, solve};
use crate::space::Pruned;
use cost_models::sites::Network;
use std::time::Duration;

/// What came of one kind alone.
#[derive(Debug, Default)]
pub struct Alone {
    /// Its best plan, if there is one below the cutoff.
    pub plan: Option<Plan>,
    /// No layout has a smaller value; those from the cutoff on count as the cutoff.
    pub bound: f64,
    /// Layouts of the space.
    pub considered: u64,
    /// Layouts excluded, by what.
    pub pruned: Pruned,
    /// Splits simulated.
    pub simulated: u64,
    /// Why there is no plan, whatever the cutoff.
    pub refusal: Option<Result<Outcome, ProblemError>>,
    /// Whether a limit came first.
    pub stopped: bool,
}

/// Some plan, at once.
pub fn first(problem: &Problem, observer: &dyn Observer) -> Option<Plan> {
    let quick = Problem { time_limit: Some(Duration::ZERO), top: 1, ..problem.clone() };
    match solve(&quick, observer) {
        Ok(Outcome::Solved(solution)) => Some(plan_of(problem, *solution)),
        _ => None,
    }
}

/// The best plan with a value below the cutoff.
pub fn plan(problem: &Problem, limits: &Limits, cutoff: f64) -> Alone {
    let twin;
    let even = problem.cluster.is_even();
    let own = if even {
        problem
    } else {
        let best = Network::new(problem.cluster).ok().map(|network| network.best());
        twin = even_twin(problem.cluster, best);
        &Problem { cluster: &twin, ..problem.clone() }
    };
    let (cluster, found) = find(own, limits.patience.observer, limits.patience.deadline, cutoff);
    let stopped = found.stopped;
    if found.best.is_empty() && (cutoff.is_finite() || stopped) {
        let (bound, considered, simulated) = (found.bound, found.considered, found.simulated);
        return Alone { bound, considered, pruned: found.pruned, simulated, stopped, ..Alone::default() };
    }
    let outcome = if even {
        Ok(answer(problem, cluster, found, limits.patience))
    } else {
        let left = limits.patience.left();
        solve(&Problem { time_limit: left, ..problem.clone() }, limits.patience.observer)
    };
    match outcome {
        Ok(Outcome::Solved(solution)) => {
            let certificate = solution.certificate.clone();
            let plan = plan_of(problem, *solution);
            Alone {
                bound: plan.0.value * (1.0 - certificate.gap),
                plan: Some(plan),
                considered: certificate.considered,
                pruned: certificate.pruned,
                simulated: certificate.simulated,
                refusal: None,
                stopped,
            }
        }
        Ok(Outcome::Stopped { considered }) => Alone { considered, stopped: true, ..Alone::default() },
        other => Alone { bound: f64::INFINITY, refusal: Some(other), stopped, ..Alone::default() },
    }
}

fn plan_of(problem: &Problem, solution: Solution) -> Plan {
    let Solution { parallel, stages, estimate, cluster, .. } = solution;
    let step = estimate.step_time_seconds;
    let value = problem.objective.value(&cluster, step, step);
    (Candidate { value, parallel, stages, estimate, layer_strategies: None }, cluster)
}
