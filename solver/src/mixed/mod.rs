//! Planning on GPUs of several kinds, or on islands of one kind joined by slow links.
//!
//! A kind is a group of equal nodes. Ranks fill the hosts in order, so that an order of the kinds says which GPUs form
//! which stage; a stage waits for the slowest GPU it holds, and fits if it fits the smallest.
//!
//! 1. Every set of kinds is planned: slow GPUs may be better left out. One kind alone is planned as ever.
//! 2. Several kinds: for every mesh the kinds come one after the other in each order, and in the order that HiGHS finds
//!    where layers may be shared freely ([`program`]).
//! 3. For each of these the layers are split exactly ([`crate::partition`]) by the speed of each stage's GPUs, best bound
//!    first, and simulated until no bound is below the best.

mod kinds;
pub mod program;
mod search;

use crate::certificate::Certificate;
use crate::leaf::Candidate;
use crate::observer::Observer;
use crate::problem::{Problem, ProblemError};
use crate::solution::{Alternative, Outcome, Solution};
use crate::space::Pruned;
use cluster_profiles::Cluster;
use cost_models::sites::limit_of_part;
use std::time::Instant;

/// Kinds up to which every set of them is planned.
const MOST_KINDS: usize = 4;

/// What became of one set of kinds.
struct Tried {
    plans: Vec<(Candidate, Cluster)>,
    bound: f64,
    considered: u64,
    pruned: Pruned,
    simulated: u64,
}

/// The best layout on the best set of kinds.
///
/// # Errors
/// [`ProblemError`] as [`crate::solve()`].
pub fn solve(
    problem: &Problem,
    observer: &dyn Observer,
    deadline: Option<Instant>,
) -> Result<Outcome, ProblemError> {
    let mut tried: Vec<Tried> = Vec::new();
    let mut refusal = None;
    for cluster in subsets(problem.cluster) {
        let late = observer.cancelled() || deadline.is_some_and(|deadline| Instant::now() >= deadline);
        if late && !tried.is_empty() {
            tried.push(Tried::nothing(0.0));
            break;
        }
        let best = best_value(&tried);
        let limit = limit_of_part(&cluster, problem.cluster, problem.runtime, problem.limit());
        let own =
            Problem { cluster: &cluster, available: None, memory_limit: Some(limit), ..problem.clone() };
        if cluster.is_homogeneous() {
            match single(&own, observer, deadline)? {
                Ok(found) => tried.push(found),
                Err(outcome) => refusal = refusal.or(Some(outcome)),
            }
        } else {
            tried.push(search::search(&own, observer, deadline, best));
        }
    }
    let Some(solution) = answer(problem, tried) else {
        return Ok(refusal.unwrap_or(Outcome::Stopped { considered: 0 }));
    };
    Ok(Outcome::Solved(Box::new(solution)))
}

/// All kinds together, then every other set of them.
fn subsets(cluster: &Cluster) -> Vec<Cluster> {
    let count = cluster.groups.len();
    let all = (1usize << count.min(MOST_KINDS)) - 1;
    let mut sets: Vec<usize> = if count <= MOST_KINDS { (1..all).collect() } else { Vec::new() };
    sets.sort_by_key(|set| std::cmp::Reverse(set.count_ones()));
    let names = cluster.host_names();
    let parts = sets.into_iter().filter_map(|set| {
        let mut first = 0;
        let mut hosts = Vec::new();
        for (index, group) in cluster.groups.iter().enumerate() {
            let end = first + group.nodes as usize;
            if set & (1 << index) != 0 {
                hosts.extend_from_slice(&names[first..end]);
            }
            first = end;
        }
        cluster.arranged(&hosts).ok()
    });
    std::iter::once(cluster.clone()).chain(parts).collect()
}

fn best_value(tried: &[Tried]) -> f64 {
    let plans = tried.iter().flat_map(|tried| &tried.plans);
    plans.map(|(candidate, _)| candidate.value).fold(f64::INFINITY, f64::min)
}

impl Tried {
    fn nothing(bound: f64) -> Self {
        Self { plans: Vec::new(), bound, considered: 0, pruned: Pruned::new(), simulated: 0 }
    }
}

/// One kind alone.
fn single(
    problem: &Problem,
    observer: &dyn Observer,
    deadline: Option<Instant>,
) -> Result<Result<Tried, Outcome>, ProblemError> {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let outcome = crate::solve::solve(&Problem { time_limit: left, ..problem.clone() }, observer)?;
    let Outcome::Solved(solution) = outcome else { return Ok(Err(outcome)) };
    let Solution { parallel, stages, estimate, cluster, certificate, .. } = *solution;
    let busy = estimate.step_time_seconds;
    let value = problem.objective.value(&cluster, estimate.step_time_seconds, busy);
    Ok(Ok(Tried {
        bound: value * (1.0 - certificate.gap),
        considered: certificate.considered,
        pruned: certificate.pruned,
        simulated: certificate.simulated,
        plans: vec![(Candidate { value, parallel, stages, estimate }, cluster)],
    }))
}

fn answer(problem: &Problem, tried: Vec<Tried>) -> Option<Solution> {
    let bound = tried.iter().map(|tried| tried.bound).fold(f64::INFINITY, f64::min);
    let considered = tried.iter().map(|tried| tried.considered).sum();
    let simulated = tried.iter().map(|tried| tried.simulated).sum();
    let mut pruned = Pruned::new();
    let mut plans = Vec::new();
    for own in tried {
        own.pruned.into_iter().for_each(|(rule, layouts)| *pruned.entry(rule).or_default() += layouts);
        plans.extend(own.plans);
    }
    plans.sort_by(|a, b| a.0.value.total_cmp(&b.0.value));
    let mut ranked = plans.into_iter();
    let (best, cluster) = ranked.next().filter(|(best, _)| best.value.is_finite())?;
    let step = best.estimate.step_time_seconds;
    let certificate =
        Certificate { considered, pruned, simulated, ..Certificate::new(best.value, bound, step) };
    let others = ranked.filter(|(other, _)| other.parallel != best.parallel);
    let others = others.take(problem.top.saturating_sub(1));
    Some(Solution {
        alternatives: others.map(|(other, _)| Alternative::new(other, &best.estimate)).collect(),
        parallel: best.parallel,
        stages: best.stages,
        estimate: best.estimate,
        cluster,
        certificate,
    })
}
