//! Planning on GPUs of several kinds, or on islands of one kind joined by slow links.
//!
//! A kind is a group of equal nodes. Ranks fill the hosts in order, so that an order of the hosts says which GPUs form
//! which stage; a stage waits for the slowest GPU it holds, and fits if it fits the smallest.
//!
//! 1. Every kind alone gives a first plan, which is there when a limit comes.
//! 2. All sets of kinds are searched together (`search`): meshes by a bound on work that is shared at will (`part`), then
//!    layouts with the stages that the hosts may form (`deal`). Kinds alone, where the others may be better left out, are
//!    planned as ever (`alone`).
//! 3. For each of these a dynamic program (`table`) says which stage comes where with which layers, exactly, by the speed and
//!    memory of its GPUs and the ways between kinds; the choices are listed by rising bound (`list`) and simulated until no
//!    bound is below the best (`split`).
//! 4. Where the engine's ranks may have micro batches of different sizes, those are chosen too, exactly (`unequal`, `shares`).
//! 5. Where kinds are too many for a table of every order, one kind follows the other; the best plans are tried once more in the
//!    order that HiGHS finds ([`program`]), and the bound stays one of all orders.

mod alone;
mod deal;
mod hops;
mod kinds;
mod list;
mod order;
mod part;
pub mod program;
mod queue;
mod search;
mod shares;
mod split;
mod stages;
mod table;
mod unequal;

use crate::candidate::Candidate;
use crate::certificate::Certificate;
use crate::infeasible::{explain, explain_mixed};
use crate::observer::{Observer, Patience};
use crate::problem::{Problem, ProblemError};
use crate::solution::{Alternative, Outcome, Solution};
use crate::space::Pruned;
use crate::times::run_of;
use crate::units::Units;
use cluster_profiles::Cluster;
use cost_models::estimate;
use cost_models::sites::{Network, limit_of_part};
use kinds::{Kind, kinds};
use part::Part;
use queue::Limits;
use split::Choice;
use std::time::Instant;

/// Kinds up to which every set of them is planned.
const MOST_KINDS: usize = 4;

/// A plan and the hosts it runs on.
type Plan = (Candidate, Cluster);

/// What became of all sets of kinds.
#[derive(Default)]
struct Tried {
    plans: Vec<Plan>,
    bound: f64,
    considered: u64,
    pruned: Pruned,
    simulated: u64,
    stopped: bool,
    /// Why a kind alone has no plan.
    refusal: Option<Result<Outcome, ProblemError>>,
}

/// Some of the kinds.
struct Set {
    /// Which.
    ids: Vec<usize>,
    /// Their hosts.
    cluster: Cluster,
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
    let sets = sets(problem.cluster);
    let limit = |set: &Set| limit_of_part(&set.cluster, problem.cluster, problem.runtime, problem.limit());
    let own =
        |set| Problem { memory_limit: Some(limit(set)), nearest: false, ..part_of(problem, &set.cluster) };
    let problems: Vec<Problem> = sets.iter().map(own).collect();
    let single = problems.iter().filter(|own| own.cluster.is_homogeneous());
    let mut tried =
        Tried { plans: single.filter_map(|own| alone::first(own, observer)).collect(), ..Tried::default() };
    let patience = Patience { observer, deadline };
    let limits = Limits { patience, cutoff: tried.best() };
    tried.search(&sets, &problems, &limits);
    let stopped = tried.stopped && patience.is_over();
    let (considered, pruned, refusal) = (tried.considered, tried.pruned.clone(), tried.refusal.take());
    match (tried.answer(problem), refusal) {
        (Some(solution), _) => Ok(Outcome::Solved(Box::new(solution))),
        (None, _) if stopped => Ok(Outcome::Stopped { considered }),
        (None, Some(refusal @ Err(_))) => refusal,
        (None, refusal) => explain_mixed(problem, &problems, patience)
            .map(|why| Ok(Outcome::Infeasible(Box::new(why))))
            .or(refusal)
            .unwrap_or_else(|| {
                let silent = Problem { nearest: false, ..problem.clone() };
                Ok(Outcome::Infeasible(Box::new(explain(&silent, &pruned, patience))))
            }),
    }
}

fn part_of<'a>(problem: &Problem<'a>, cluster: &'a Cluster) -> Problem<'a> {
    Problem { cluster, available: None, ..problem.clone() }
}

/// All kinds together, then every other set of them, the largest first.
fn sets(cluster: &Cluster) -> Vec<Set> {
    let count = cluster.groups.len();
    let all = (1usize << count.min(MOST_KINDS)) - 1;
    let mut sets: Vec<usize> = if count <= MOST_KINDS { (1..all).collect() } else { Vec::new() };
    sets.sort_by_key(|set| std::cmp::Reverse(set.count_ones()));
    let names = cluster.host_names();
    let parts = sets.into_iter().filter_map(|set| {
        let mut first = 0;
        let (mut hosts, mut ids) = (Vec::new(), Vec::new());
        for (index, group) in cluster.groups.iter().enumerate() {
            let end = first + group.nodes as usize;
            if set & (1 << index) != 0 {
                hosts.extend_from_slice(&names[first..end]);
                ids.push(index);
            }
            first = end;
        }
        Some(Set { ids, cluster: cluster.arranged(&hosts).ok()? })
    });
    std::iter::once(Set { ids: (0..count).collect(), cluster: cluster.clone() }).chain(parts).collect()
}

impl Tried {
    fn best(&self) -> f64 {
        self.plans.iter().map(|(candidate, _)| candidate.value).fold(f64::INFINITY, f64::min)
    }

    fn add_counts(&mut self, considered: u64, pruned: Pruned, simulated: u64) {
        self.considered += considered;
        self.simulated += simulated;
        pruned.into_iter().for_each(|(rule, layouts)| *self.pruned.entry(rule).or_default() += layouts);
    }

    /// Plans all sets.
    fn search(&mut self, sets: &[Set], problems: &[Problem], limits: &Limits) {
        let networks: Vec<Option<Network>> =
            problems.iter().map(|own| Network::new(own.cluster).ok()).collect();
        let kinds: Vec<Vec<Kind>> =
            networks.iter().map(|network| network.as_ref().map_or_else(Vec::new, kinds)).collect();
        let Some(units) = problems.first().map(|own| Units::new(own.model)) else { return };
        let known = sets.iter().zip(problems).zip(&networks).zip(&kinds);
        let parts: Vec<Part> = known
            .filter_map(|(((set, own), network), kinds)| {
                Some(Part::new(own, &units, kinds, &set.ids, network.as_ref()?))
            })
            .collect();
        let found = search::search(&parts, limits);
        self.bound = found.bound;
        self.add_counts(found.considered, found.pruned, found.simulated);
        self.stopped = found.stopped;
        let plans = found.plans.into_iter().filter_map(|(part, choice)| planned(&parts[part], choice));
        self.plans.extend(plans);
        for alone in found.alone {
            self.add_counts(alone.considered, alone.pruned, 0);
            self.plans.extend(alone.plan);
            self.refusal = self.refusal.take().or(alone.refusal);
            self.stopped |= alone.stopped;
        }
    }

    fn answer(self, problem: &Problem) -> Option<Solution> {
        let mut plans = self.plans;
        plans.sort_by(|a, b| a.0.value.total_cmp(&b.0.value));
        let mut ranked = plans.into_iter();
        let (best, cluster) = ranked.next().filter(|(best, _)| best.value.is_finite())?;
        let step = best.estimate.step_time_seconds;
        let certificate = Certificate {
            considered: self.considered,
            pruned: self.pruned,
            simulated: self.simulated,
            ..Certificate::new(best.value, self.bound.min(best.value), step)
                .of(&problem.objective, best.value)
        };
        let mut alternatives: Vec<Alternative> = Vec::new();
        for (other, _) in ranked {
            let known = alternatives.iter().any(|own| own.parallel == other.parallel);
            if other.parallel != best.parallel && !known {
                alternatives.push(Alternative::new(other, &best.estimate));
            }
        }
        alternatives.truncate(problem.top.saturating_sub(1));
        Some(Solution {
            alternatives,
            parallel: best.parallel,
            stages: best.stages,
            layer_strategies: None,
            estimate: best.estimate,
            cluster,
            certificate,
        })
    }
}

/// The plan of a choice: its hosts in rank order, and the estimate on them.
fn planned(part: &Part, choice: Choice) -> Option<Plan> {
    let names = part.problem.cluster.host_names();
    let hosts: Vec<String> = choice.hosts.iter().map(|&host| names[host].clone()).collect();
    let cluster = part.problem.cluster.arranged(&hosts).ok()?;
    let Choice { parallel, stages, .. } = choice;
    let run = run_of(part.problem, &parallel, &stages);
    let mut prediction = estimate(&cost_models::TrainingRun { cluster: &cluster, ..run }).ok()?;
    prediction.fits = true;
    let value = part.value(prediction.step_time_seconds.get());
    Some((Candidate { value, parallel, stages, estimate: prediction, layer_strategies: None }, cluster))
}
