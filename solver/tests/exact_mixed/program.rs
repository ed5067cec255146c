//! Which hosts form which stage with which layers, as an integer program.
//!
//! A binary variable says that a stage is on so many hosts of each kind with these layers. The chosen form a path from the first
//! layer to the last and use every host once; with `w` their work and m microbatches
//!
//! ```text
//! T >= sum over j < i of w_j + m w_i      for every stage i
//! ```

use crate::brute::{degrees, judged, parts};
use cluster_profiles::{Bytes, Cluster};
use cost_models::memory::MemoryTable;
use cost_models::sites::{limit_of_part, limit_on, speed};
use cost_models::{ParallelConfig, Stage};
use good_lp::{Constraint, Expression, ProblemVariables, Variable, constraint, variable};
use solver::Problem;
use solver::highs::{Mip, MipOptions};
use solver::leaf::memory_of;
use solver::outside::outside_bound;
use solver::times::UnitTimes;
use solver::units::Units;

/// Layers of a stage on hosts of these kinds.
struct Run {
    stage: usize,
    first: usize,
    end: usize,
    /// Hosts of every kind.
    hosts: Vec<usize>,
    work: f64,
    chosen: Variable,
}

/// A chosen stage: its place, its first unit and the one after its last, the hosts of every kind.
type Chosen = (usize, usize, usize, Vec<usize>);

/// Layouts that only shard their state differently.
struct Group<'a> {
    problem: &'a Problem<'a>,
    alone: &'a [Problem<'a>],
    units: &'a Units,
    shardings: &'a [ParallelConfig],
    times: Vec<UnitTimes>,
    memory: MemoryTable<'a>,
}

/// The best that integer programs find on any set of the kinds, each host of one GPU.
pub fn integer_program(problem: &Problem) -> Option<f64> {
    let units = Units::new(problem.model);
    let mut best: Option<f64> = None;
    for part in &parts(problem.cluster) {
        let limit = limit_of_part(part, problem.cluster, problem.runtime, problem.limit());
        let own = Problem { cluster: part, memory_limit: Some(limit), ..problem.clone() };
        let clusters: Vec<Cluster> =
            part.groups.iter().map(|group| Cluster { groups: vec![group.clone()], ..part.clone() }).collect();
        let alone = |(index, cluster)| Problem {
            cluster,
            memory_limit: Some(limit_on(part, problem.runtime, limit, index)),
            ..problem.clone()
        };
        let alone: Vec<Problem> = clusters.iter().enumerate().map(alone).collect();
        let mut degrees = degrees(&own);
        degrees.retain(|parallel| parallel.pp as usize <= units.len());
        let key = |own: &ParallelConfig| {
            let recompute = format!("{:?}", own.recompute);
            (own.pp, own.tp, own.sequence_parallel, own.micro_batch_size, recompute)
        };
        degrees.sort_by_key(key);
        for shardings in degrees.chunk_by(|a, b| key(a) == key(b)) {
            let first = ParallelConfig { zero_stage: 0, ..shardings[0].clone() };
            let lean = shardings.iter().max_by_key(|own| (own.zero_stage, own.dp_shard));
            let Some(memory) = lean.and_then(|lean| memory_of(&own, lean)) else { continue };
            let times = alone.iter().map(|alone| UnitTimes::new(alone, &units, &first)).collect();
            let group = Group { problem: &own, alone: &alone, units: &units, shardings, times, memory };
            best = group.search(best);
        }
    }
    best
}

impl Group<'_> {
    /// Choices by rising bound until none can be better.
    fn search(&self, mut best: Option<f64>) -> Option<f64> {
        let outside = |parallel: &ParallelConfig| {
            let kinds = self.alone.iter().zip(&self.times);
            kinds
                .map(|(alone, times)| outside_bound(alone, parallel, times, None))
                .fold(f64::INFINITY, f64::min)
        };
        let outside = self.shardings.iter().map(outside).fold(f64::INFINITY, f64::min);
        let mut excluded: Vec<Vec<Chosen>> = Vec::new();
        loop {
            let most = best.map_or(f64::INFINITY, |best| best - outside);
            let Some((bound, choice)) = self.next(&excluded, most) else { return best };
            if best.is_some_and(|best| bound + outside >= best) {
                return best;
            }
            let ends: Vec<usize> = choice.iter().map(|run| run.2).collect();
            let cluster = self.arranged(&choice);
            let steps = self.shardings.iter();
            let steps = steps.filter_map(|parallel| judged(self.problem, &cluster, parallel, &ends));
            best = best.into_iter().chain(steps).reduce(f64::min);
            excluded.push(choice);
        }
    }

    /// The hosts of the stages in rank order.
    fn arranged(&self, choice: &[Chosen]) -> Cluster {
        let cluster = self.problem.cluster;
        let names = cluster.host_names();
        let first = |kind: usize| cluster.groups[..kind].iter().map(|own| own.nodes as usize).sum::<usize>();
        let mut next: Vec<usize> = (0..cluster.groups.len()).map(first).collect();
        let mut hosts = Vec::new();
        for (.., counts) in choice {
            for (kind, count) in counts.iter().enumerate() {
                hosts.extend_from_slice(&names[next[kind]..next[kind] + count]);
                next[kind] += count;
            }
        }
        cluster.arranged(&hosts).expect("its own hosts")
    }

    fn next(&self, excluded: &[Vec<Chosen>], most: f64) -> Option<(f64, Vec<Chosen>)> {
        let parallel = &self.shardings[0];
        let stages = parallel.pp as usize;
        let mut variables = ProblemVariables::new();
        let runs = self.runs(most, &mut variables);
        let step = variables.add(variable().min(0.0));
        let sum = |wanted: &dyn Fn(&Run) -> bool, factor: &dyn Fn(&Run) -> f64| -> Expression {
            runs.iter().filter(|run| wanted(run)).map(|run| factor(run) * run.chosen).sum()
        };
        let mut constraints: Vec<Constraint> = Vec::new();
        for stage in 0..stages {
            constraints.push(constraint!(sum(&|run| run.stage == stage, &|_| 1.0) == 1));
            let before = sum(&|run| run.stage < stage, &|run| run.work);
            let own = sum(&|run| run.stage == stage, &|run| parallel.num_microbatches as f64 * run.work);
            constraints.push(constraint!(step >= before + own));
            for layer in 0..=self.units.len() {
                let begin = sum(&|run| run.stage == stage && run.first == layer, &|_| 1.0);
                let reached = sum(&|run| run.stage + 1 == stage && run.end == layer, &|_| 1.0);
                if stage > 0 {
                    constraints.push(constraint!(begin == reached));
                }
            }
        }
        for (kind, group) in self.problem.cluster.groups.iter().enumerate() {
            let used = sum(&|_| true, &|run| run.hosts[kind] as f64);
            constraints.push(constraint!(used == f64::from(group.nodes)));
        }
        for choice in excluded {
            let is = |run: &Run| choice[run.stage] == (run.stage, run.first, run.end, run.hosts.clone());
            constraints.push(constraint!(sum(&is, &|_| 1.0) <= stages as f64 - 1.0));
        }
        let solution = Mip::minimise(variables, step).with_all(constraints).solve(&MipOptions::default());
        let incumbent = solution.expect("HiGHS runs").incumbent?;
        let mut chosen: Vec<&Run> = runs.iter().filter(|run| incumbent.value(run.chosen) > 0.5).collect();
        chosen.sort_by_key(|run| run.stage);
        let (mut lead, mut bound) = (0.0, 0.0f64);
        for run in &chosen {
            bound = bound.max(lead + parallel.num_microbatches as f64 * run.work);
            lead += run.work;
        }
        let choice = chosen.iter().map(|run| (run.stage, run.first, run.end, run.hosts.clone()));
        Some((bound, choice.collect()))
    }

    /// Every stage that fits and is not above a bound by itself.
    fn runs(&self, most: f64, variables: &mut ProblemVariables) -> Vec<Run> {
        let parallel = &self.shardings[0];
        let (stages, units) = (parallel.pp as usize, self.units.len());
        let counts: Vec<usize> =
            self.problem.cluster.groups.iter().map(|group| group.nodes as usize).collect();
        let size = counts.iter().sum::<usize>() / stages;
        let mut runs = Vec::new();
        for hosts in choices(&counts, size) {
            let of = || (0..hosts.len()).filter(|kind| hosts[*kind] > 0);
            let rate = |kind: &usize| speed(&self.problem.cluster.groups[*kind].gpu);
            let slowest = of().min_by(|a, b| rate(a).total_cmp(&rate(b))).expect("a host");
            let limit = of().map(|kind| self.alone[kind].limit()).fold(Bytes(f64::INFINITY), Bytes::min);
            for stage in 0..stages {
                for (first, end) in
                    (0..units).flat_map(|first| (first + 1..=units).map(move |end| (first, end)))
                {
                    let in_place = (stage == 0) == (first == 0) && (stage + 1 == stages) == (end == units);
                    let work = self.times[slowest].work(&(first..end), parallel.recompute);
                    let small = parallel.num_microbatches as f64 * work <= most;
                    if in_place && small && self.fits(stage, first, end, limit) {
                        let chosen = variables.add(variable().binary());
                        runs.push(Run { stage, first, end, hosts: hosts.clone(), work, chosen });
                    }
                }
            }
        }
        runs
    }

    fn fits(&self, stage: usize, first: usize, end: usize, limit: Bytes) -> bool {
        let stage = Stage {
            rank: stage as u32,
            chunk: 0,
            layers: self.units.layers(first..end),
            recompute: self.shardings[0].recompute,
        };
        let peak = self.memory.rank_peak(stage.rank, [&stage]).allocated();
        self.problem.runtime.memory.reserve.reserved_bytes(peak) <= limit.get()
    }
}

/// All ways to choose so many hosts.
fn choices(counts: &[usize], size: usize) -> Vec<Vec<usize>> {
    let Some((&first, rest)) = counts.split_first() else {
        return if size == 0 { vec![Vec::new()] } else { Vec::new() };
    };
    let with = |own: usize| choices(rest, size - own).into_iter().map(move |tail| [vec![own], tail].concat());
    (0..=first.min(size)).flat_map(with).collect()
}
