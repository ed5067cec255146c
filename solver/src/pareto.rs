//! What a shorter step costs: the plans that no other beats in both step time and GPUs, memory or price.
//!
//! Every point is the fastest plan under a limit of its cost, with its own certificate; then the limit is lowered. The
//! GPUs of a cluster are tried in the sizes of [`crate::solve()`], memory in steps of [`MEMORY_STEP`].

use crate::objective::{Objective, unpriced};
use crate::observer::{Observer, Patience};
use crate::problem::{Problem, ProblemError};
use crate::solution::{Outcome, Solution};
use crate::solve::{answer, run, sizes};
use cluster_profiles::{Bytes, Cluster};
use std::time::Instant;

/// Part of the memory by which neighbouring plans differ at least.
pub const MEMORY_STEP: f64 = 0.02;

/// What is traded for step time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trade {
    /// GPUs in use.
    Gpus,
    /// Peak memory of the fullest GPU.
    Memory,
    /// Dollars for a step.
    Price,
}

impl Trade {
    /// Every trade.
    pub const ALL: [Self; 3] = [Self::Gpus, Self::Memory, Self::Price];

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gpus => "gpus",
            Self::Memory => "memory",
            Self::Price => "price",
        }
    }

    /// The trade called `name`.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|trade| trade.name() == name)
    }

    /// What a plan costs: GPUs, bytes, or dollars for a step.
    #[must_use]
    pub fn cost(self, solution: &Solution) -> f64 {
        let step = solution.estimate.step_time_seconds;
        match self {
            Self::Gpus => solution.cluster.gpu_count() as f64,
            Self::Memory => peak(solution).get(),
            Self::Price => Objective::TokensPerDollar.value(&solution.cluster, step, step),
        }
    }
}

/// The plans that no other beats, cheapest first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Front {
    /// The plans, each faster than those before it.
    pub plans: Vec<Solution>,
    /// Whether a limit came before all costs were tried.
    pub stopped: bool,
}

/// The trade of step time against a cost.
///
/// # Errors
/// As [`crate::solve()`]; a trade for dollars without prices.
pub fn front(problem: &Problem, trade: Trade, observer: &dyn Observer) -> Result<Front, ProblemError> {
    problem.check()?;
    let fault = (trade == Trade::Price).then(|| unpriced(problem.cluster)).flatten();
    if let Some(fault) = fault {
        return Err(ProblemError { faults: vec![fault] });
    }
    let deadline = problem.time_limit.and_then(|limit| Instant::now().checked_add(limit));
    let fastest = Problem { objective: Objective::StepTime, top: 1, ..problem.clone() };
    let mut found = match trade {
        Trade::Gpus | Trade::Price => over_sizes(&fastest, observer, deadline),
        Trade::Memory => over_memory(&fastest, observer, deadline),
    };
    found.plans = unbeaten_plans(found.plans, trade);
    Ok(found)
}

/// Rising sizes; one that is not faster than a smaller one costs more for nothing.
fn over_sizes(problem: &Problem, observer: &dyn Observer, deadline: Option<Instant>) -> Front {
    let mut front = Front::default();
    let mut fastest = f64::INFINITY;
    for cluster in sizes(problem.cluster) {
        let hosts = problem.available.unwrap_or(problem.cluster);
        let sized = Problem { cluster: &cluster, available: Some(hosts), ..problem.clone() };
        let Some((solution, stopped)) = solved(&sized, &cluster, observer, deadline, fastest) else {
            if observer.cancelled() || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                front.stopped = true;
                break;
            }
            continue;
        };
        fastest = solution.estimate.step_time_seconds.get();
        front.plans.push(solution);
        if stopped {
            front.stopped = true;
            break;
        }
    }
    front
}

/// Falling limits, from the one given.
fn over_memory(problem: &Problem, observer: &dyn Observer, deadline: Option<Instant>) -> Front {
    let mut front = Front::default();
    let mut limit = problem.limit();
    loop {
        let limited = Problem { memory_limit: Some(limit), ..problem.clone() };
        let Some((solution, stopped)) = solved(&limited, problem.cluster, observer, deadline, f64::INFINITY)
        else {
            front.stopped |= observer.cancelled() || deadline.is_some_and(|at| Instant::now() >= at);
            return front;
        };
        limit = Bytes(peak(&solution).get() * (1.0 - MEMORY_STEP));
        front.plans.push(solution);
        if stopped {
            front.stopped = true;
            return front;
        }
    }
}

/// The fastest plan faster than `cutoff` seconds, and whether a limit came first.
fn solved(
    problem: &Problem,
    cluster: &Cluster,
    observer: &dyn Observer,
    deadline: Option<Instant>,
    cutoff: f64,
) -> Option<(Solution, bool)> {
    if !problem.available.unwrap_or(cluster).is_even() {
        return placed(problem, observer, deadline, cutoff);
    }
    let found = run(problem, observer, deadline, cutoff);
    let stopped = found.stopped;
    if found.best.is_empty() {
        return None;
    }
    match answer(problem, cluster.clone(), found, Patience { observer, deadline }) {
        Outcome::Solved(solution) => Some((*solution, stopped)),
        _ => None,
    }
}

/// The same where it matters which host takes which place.
fn placed(
    problem: &Problem,
    observer: &dyn Observer,
    deadline: Option<Instant>,
    cutoff: f64,
) -> Option<(Solution, bool)> {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let outcome = crate::solve(&Problem { time_limit: left, ..problem.clone() }, observer);
    let Ok(Outcome::Solved(solution)) = outcome else { return None };
    let stopped = observer.cancelled() || deadline.is_some_and(|deadline| Instant::now() >= deadline);
    (solution.estimate.step_time_seconds.get() < cutoff).then_some((*solution, stopped))
}

fn peak(solution: &Solution) -> Bytes {
    let peaks = solution.estimate.memory.iter().map(|rank| rank.peak_bytes);
    peaks.fold(Bytes::ZERO, Bytes::max)
}

/// The entries that no other equals or beats in both measures, of which less is better, by the first measure; of equal ones
/// the first. Entries without a finite measure are left out.
#[must_use]
pub fn unbeaten<T>(mut list: Vec<(f64, f64, T)>) -> Vec<(f64, f64, T)> {
    list.retain(|entry| entry.0.is_finite() && entry.1.is_finite());
    list.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let mut least = f64::INFINITY;
    list.retain(|entry| {
        let better = entry.1 < least;
        least = least.min(entry.1);
        better
    });
    list
}

/// Those that no other beats, cheapest first.
fn unbeaten_plans(plans: Vec<Solution>, trade: Trade) -> Vec<Solution> {
    let measured = plans.into_iter().map(|plan| {
        let (cost, step) = (trade.cost(&plan), plan.estimate.step_time_seconds.get());
        (cost, step, plan)
    });
    unbeaten(measured.collect()).into_iter().map(|(_, _, plan)| plan).collect()
}
