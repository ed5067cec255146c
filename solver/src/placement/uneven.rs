//! Planning on a cluster whose links are not all alike.
//!
//! ```text
//! as if all links were the best there are   -> layouts, each with a step that no placement of it beats
//! as if all links were the worst there are  -> more layouts, which depend less on links
//! every layout, its hosts placed            -> the step it really takes; the shortest is the plan
//! ```
//!
//! The first search proves the bound; the gap is what placement could not make up for.

use super::demand::even_twin;
use super::seating::Seating;
use crate::candidate::Candidate;
use crate::certificate::Certificate;
use crate::observer::{Observer, Patience, Progress};
use crate::orders::orders_differ;
use crate::problem::{Problem, ProblemError};
use crate::search::Found;
use crate::solution::{Alternative, Outcome, Solution};
use crate::solve::{answer, find, space_of};
use crate::space::SearchSpace;
use cluster_profiles::{Cluster, Seconds};
use cost_models::order::GridSizes;
use cost_models::sites::Network;
use cost_models::{ParallelConfig, RankOrder, estimate};
use rayon::prelude::*;
use std::time::Instant;

/// Layouts that the search with the best links hands on to be placed.
const HANDED_ON: usize = 12;
/// Layouts that the search with the worst links hands on.
const WITH_WORST: usize = 3;
/// Layouts placed between two looks at the best so far.
const BATCH: usize = 4;
/// Layouts that are placed thoroughly in the end.
const THOROUGH: usize = 2;

/// A layout on its hosts.
struct Placed {
    candidate: Candidate,
    cluster: Cluster,
    proved: bool,
}

/// The best layout and the hosts it runs on.
///
/// # Errors
/// [`ProblemError`] if the cluster is too large for a topology, or no layout's hosts can reach each other.
pub fn solve(
    problem: &Problem,
    observer: &dyn Observer,
    deadline: Option<Instant>,
) -> Result<Outcome, ProblemError> {
    let available = problem.available.unwrap_or(problem.cluster);
    let network =
        Network::new(available).map_err(|error| ProblemError { faults: vec![error.to_string()] })?;
    let twin = even_twin(problem.cluster, Some(network.best()));
    let optimistic =
        Problem { cluster: &twin, available: None, top: HANDED_ON.max(problem.top), ..problem.clone() };
    // Each of the two searches and the placing have their share of the time.
    let patience = Patience { observer, deadline };
    let (size, first) = find(&optimistic, observer, patience.share(0.5).deadline, f64::INFINITY);
    if first.best.is_empty() {
        return Ok(answer(&optimistic, size, first, patience));
    }
    let worst = even_twin(problem.cluster, Some(network.worst()));
    let pessimistic = Problem { cluster: &worst, top: WITH_WORST, ..optimistic.clone() };
    let second = if patience.is_over() {
        Found::default()
    } else {
        find(&pessimistic, observer, patience.share(0.5).deadline, f64::INFINITY).1
    };
    let bound = first.bound;
    let search = Search { problem, network: &network, space: space_of(problem), patience };
    let placed = search.place_all(&first.best, &second.best);
    search.answer(placed, bound, &first)
}

struct Search<'a, 'p> {
    problem: &'a Problem<'p>,
    network: &'a Network<'a>,
    space: SearchSpace<'a>,
    patience: Patience<'a>,
}

impl Search<'_, '_> {
    /// Places layouts by rising value under the best links, until none can be better than the best placed.
    fn place_all(&self, first: &[Candidate], second: &[Candidate]) -> Vec<Placed> {
        let mut placed: Vec<Placed> = Vec::new();
        for (list, is_bound) in [(first, true), (second, false)] {
            for (number, batch) in list.chunks(BATCH).enumerate() {
                let best = placed.iter().map(|own| own.candidate.value).fold(f64::INFINITY, f64::min);
                let enough = is_bound && batch[0].value >= best && placed.len() >= self.problem.top;
                if enough || (number > 0 && self.patience.is_over()) {
                    break;
                }
                let ordered: Vec<Candidate> = batch.iter().flat_map(|own| self.in_all_orders(own)).collect();
                let more = ordered.par_iter().map(|candidate| self.place(candidate, true));
                placed.extend(more.collect::<Vec<_>>().into_iter().flatten());
                self.report(&placed, first);
            }
        }
        placed.sort_by(|a, b| a.candidate.value.total_cmp(&b.candidate.value));
        self.place_thoroughly(&mut placed);
        placed
    }

    /// A layout in every order of its ranks that hosts cannot make up for.
    fn in_all_orders(&self, candidate: &Candidate) -> Vec<Candidate> {
        let own = candidate.parallel.rank_order;
        let mut list = vec![candidate.clone()];
        if orders_differ(&GridSizes::of(&candidate.parallel), self.network.cluster()) {
            let others = RankOrder::ALL.into_iter().filter(|order| *order != own);
            let layouts =
                others.map(|rank_order| ParallelConfig { rank_order, ..candidate.parallel.clone() });
            let allowed = layouts.filter(|parallel| self.space.allows(parallel));
            list.extend(allowed.map(|parallel| Candidate { parallel, ..candidate.clone() }));
        }
        list
    }

    fn report(&self, placed: &[Placed], list: &[Candidate]) {
        let best = placed.iter().map(|own| own.candidate.value).reduce(f64::min);
        let bound = list.first().map_or(0.0, |first| first.value);
        let open = list.len().saturating_sub(placed.len()) as u64;
        self.patience.observer.progress(Progress { simulated: placed.len() as u64, open, best, bound });
    }

    fn place_thoroughly(&self, placed: &mut [Placed]) {
        let count = placed.len().min(THOROUGH);
        let better: Vec<Option<Placed>> = placed[..count]
            .par_iter()
            .map(|own| {
                let open = !own.proved && !self.patience.is_over();
                open.then(|| self.place(&own.candidate, false)).flatten()
            })
            .collect();
        for (own, better) in placed.iter_mut().zip(better) {
            if let Some(better) = better.filter(|better| better.candidate.value < own.candidate.value) {
                *own = better;
            }
        }
        placed.sort_by(|a, b| a.candidate.value.total_cmp(&b.candidate.value));
    }

    /// The layout on the hosts that suit it best; none if they cannot reach each other.
    fn place(&self, candidate: &Candidate, quick: bool) -> Option<Placed> {
        let seating = Seating::new(self.problem, self.network, &candidate.parallel, &candidate.stages);
        let (hosts, proved) = match seating {
            Some(seating) => {
                let seated = seating.best(quick);
                (seated.hosts, seated.proved)
            }
            None => (self.own_order(candidate.parallel.world_size()), false),
        };
        let hosts: Vec<String> =
            hosts.iter().map(|&host| self.network.topology().hosts()[host].name.clone()).collect();
        let available = self.network.cluster();
        let own = hosts.iter().eq(available.host_names().iter());
        let cluster = if own { available.clone() } else { available.arranged(&hosts).ok()? };
        let run = cost_models::TrainingRun {
            cluster: &cluster,
            ..crate::times::run_of(self.problem, &candidate.parallel, &candidate.stages)
        };
        let prediction = estimate(&run).ok()?;
        let value = self.value(candidate, &cluster, prediction.step_time_seconds);
        let candidate = Candidate { value, estimate: prediction, ..candidate.clone() };
        Some(Placed { candidate, cluster, proved })
    }

    /// Hosts in their own order, as many as the ranks fill.
    fn own_order(&self, world: u64) -> Vec<usize> {
        let hosts = self.network.topology().hosts();
        let mut filled = 0;
        (0..hosts.len())
            .take_while(|&host| {
                let open = filled < world;
                filled += u64::from(hosts[host].gpus);
                open
            })
            .collect()
    }

    /// Every objective is linear in the step, but for its limits.
    fn value(&self, candidate: &Candidate, cluster: &Cluster, step: Seconds) -> f64 {
        let of = |step: Seconds| self.problem.objective.value(cluster, step, Seconds::ZERO);
        candidate.value + of(step) - of(candidate.estimate.step_time_seconds)
    }

    fn answer(&self, placed: Vec<Placed>, bound: f64, found: &Found) -> Result<Outcome, ProblemError> {
        let mut ranked = placed.into_iter();
        let Some(best) = ranked.next().filter(|best| best.candidate.value.is_finite()) else {
            return Err(ProblemError { faults: vec![UNREACHABLE.to_owned()] });
        };
        let estimate = best.candidate.estimate;
        let certificate = Certificate {
            considered: found.considered,
            pruned: found.pruned.clone(),
            simulated: found.simulated,
            ..Certificate::new(best.candidate.value, bound, estimate.step_time_seconds)
                .of(&self.problem.objective, best.candidate.value)
        };
        let mut alternatives: Vec<Alternative> = Vec::new();
        for other in ranked {
            let class = class_of(&other.candidate.parallel);
            let known = alternatives.iter().any(|own| class_of(&own.parallel) == class);
            if class_of(&best.candidate.parallel) != class && !known {
                alternatives.push(Alternative::new(other.candidate, &estimate));
            }
        }
        alternatives.truncate(self.problem.top.saturating_sub(1));
        Ok(Outcome::Solved(Box::new(Solution {
            parallel: best.candidate.parallel,
            stages: best.candidate.stages,
            layer_strategies: None,
            estimate,
            cluster: best.cluster,
            certificate,
            alternatives,
        })))
    }
}

/// Layouts that count as one alternative.
fn class_of(parallel: &ParallelConfig) -> [u32; 5] {
    [parallel.tp, parallel.pp, parallel.cp, parallel.ep, parallel.etp]
}

const UNREACHABLE: &str = "no placement of any layout lets its hosts reach each other: the cluster's links fall apart \
                           into parts (broken links); leave hosts out with --lost";
