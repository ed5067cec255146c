//! Layouts without pipeline whose ranks have micro batches of different sizes, by kind of GPU ([`cost_models::shares`]).
//!
//! The degrees and the number of microbatches `m` are enumerated: every one that divides the global batch. For each the sizes are
//! chosen exactly ([`super::shares`]): first on works that no sharding and no recompute lessens, which bounds all layouts of a
//! mesh, then on seconds as the estimate has them. Shares that turn out equal are left to the layouts with one micro batch,
//! whose step is no longer: they wait for the slowest kind alone, which is one of those that are waited for here.
//!
//! Where the engine shards unevenly, every way to weight the state of the kinds with small numbers is tried as well: up to
//! [`MOST_WEIGHT`], less where kinds are so many that there are more than [`MOST_WEIGHTINGS`]. No uneven way has faster collectives
//! than the even one has where memory is no limit, and with every one the optimizer's time is known beforehand: that bounds it.
//!
//! A rank holds more bytes with more sequences, so that the most that fit are found by halving. Micro batches above
//! [`MOST_SEQUENCES`] are no part of the space.

mod costs;
mod grid;

use super::part::{Part, is_chain};
use super::shares::gcd;
use super::split::Found;
use crate::divisors::divisors;
use crate::mesh::{Mesh, Pipeline, Sharding};
use crate::term::{Field, Term};
use crate::times::{UnitTimes, works};
use cost_models::ParallelConfig;
use cost_models::layer_cost::Memo;
use cost_models::rules::{Axis, Facts};
use cost_models::shares::slowest_group;
use cost_models::sites::limit_on;
use grid::{Best, Grid, Kind, Work};

/// Sequences of a microbatch on a rank, at most.
const MOST_SEQUENCES: u64 = 1024;
/// The largest weight of a kind's state beside that of another, and ways to weight the state of all kinds.
const MOST_WEIGHT: u32 = 8;
const MOST_WEIGHTINGS: u32 = 512;

/// Meshes whose ranks may have micro batches of different sizes.
#[derive(Debug, Default)]
pub struct Meshes {
    /// The meshes, with one sequence in one microbatch.
    pub list: Vec<Mesh>,
    /// Layouts of them, whatever the sizes.
    pub considered: u64,
}

impl Part<'_> {
    /// The meshes whose ranks may have micro batches of different sizes.
    pub fn unequal_meshes(&self) -> Meshes {
        let mut meshes = Meshes::default();
        let (engine, world) = (self.space.engine(), self.space.facts().world);
        let kinds = self.gpu_kinds();
        let able = engine.unequal_micro_batches || self.problem.runtime.uneven_shards;
        if kinds.len() < 2 || !able {
            return meshes;
        }
        let degrees = |able: bool, ranks: u64| if able { divisors(ranks) } else { vec![1] };
        for tp in degrees(engine.tensor, world) {
            for cp in degrees(engine.context, world / tp) {
                for sequence_parallel in [false, true] {
                    let mesh = mesh_of([tp, cp, world / tp / cp], sequence_parallel);
                    let whole = kinds.iter().all(|kind| kind.gpus.is_multiple_of(tp * cp));
                    if whole && self.is_inside_nodes(&mesh) && self.may_run(&mesh) {
                        let counts = self.microbatch_counts(&mesh).len() as u64;
                        meshes.considered += self.space.layout_count(&mesh) * counts;
                        meshes.list.push(mesh);
                    }
                }
            }
        }
        meshes
    }

    /// The kinds by the names of their GPUs, in rank order.
    fn gpu_kinds(&self) -> Vec<Kind> {
        let (problem, mut list) = (self.problem, Vec::<Kind>::new());
        for (index, kind) in self.kinds.iter().enumerate().filter(|(_, kind)| kind.gpus > 0) {
            let gpu = &kind.cluster.main().gpu.name;
            if let Some(known) = list.iter_mut().find(|known| known.gpu == *gpu) {
                known.gpus += kind.gpus;
                continue;
            }
            let group = slowest_group(problem.cluster, gpu).unwrap_or_default();
            let limit = limit_on(problem.cluster, problem.runtime, problem.limit(), group);
            list.push(Kind { gpu: gpu.clone(), index, gpus: kind.gpus, limit });
        }
        list
    }

    /// Numbers of microbatches that leave every rank a sequence.
    fn microbatch_counts(&self, mesh: &Mesh) -> Vec<u64> {
        let batch = self.space.facts().global_batch;
        let field = Field::Axis(Axis::Microbatches);
        let constraints = &self.problem.constraints;
        let able =
            |count: &u64| batch / count >= u64::from(mesh.dp) && constraints.allows_number(field, *count);
        divisors(batch).into_iter().filter(able).collect()
    }

    /// Whether anything may run on a mesh.
    fn may_run(&self, mesh: &Mesh) -> bool {
        let shardings = self.space.shardings(mesh);
        let pipelines = self.space.single_pipelines(mesh);
        let mut layouts =
            pipelines.iter().flat_map(|own| shardings.iter().map(move |sharding| mesh.with(own, *sharding)));
        layouts.any(|parallel| self.allows_unequal(&parallel))
            && [(true, false), (false, true), (true, true)].into_iter().any(|(a, b)| self.may_differ(a, b))
    }

    /// Whether a layout keeps the engine's rules, but for the one on the global batch.
    fn keeps_rules(&self, parallel: &ParallelConfig) -> bool {
        let facts = Facts { global_batch: parallel.global_batch(), ..self.space.facts().clone() };
        self.space.engine().allows(&facts, parallel)
    }

    /// Whether a layout keeps the rules and every constraint, but for those on micro batches, their number and shares.
    fn allows_unequal(&self, parallel: &ParallelConfig) -> bool {
        let of_sizes = |term: &Term| {
            let number = matches!(term, Term::Number(Field::Axis(Axis::MicroBatch | Axis::Microbatches), _));
            number || matches!(term, Term::UnequalMicroBatches | Term::UnevenState)
        };
        let mut others =
            self.problem.constraints.as_slice().iter().filter(|constraint| !of_sizes(&constraint.term));
        others.all(|constraint| constraint.allows(parallel, self.problem.cluster))
            && self.keeps_rules(parallel)
    }

    /// Whether micro batches may differ or not, with state that does or does not.
    fn may_differ(&self, unequal: bool, uneven: bool) -> bool {
        let able = (!unequal || self.space.engine().unequal_micro_batches)
            && (!uneven || self.problem.runtime.uneven_shards);
        let mut constraints = self.problem.constraints.as_slice().iter();
        able && constraints.all(|constraint| match constraint.term {
            Term::UnequalMicroBatches => constraint.wanted == unequal,
            Term::UnevenState => constraint.wanted == uneven,
            _ => true,
        })
    }

    /// The ways to weight the state of every kind with a sharding, the even one first.
    fn weightings(&self, kinds: usize, sharding: Sharding) -> Vec<Vec<u32>> {
        let even = vec![vec![1; kinds]];
        let able = sharding.zero_stage >= 2 && sharding.dp_replicate == 1;
        if !able || !(self.may_differ(false, true) || self.may_differ(true, true)) {
            return even;
        }
        let most = most_weight(kinds);
        let mut list: Vec<Vec<u32>> = vec![Vec::new()];
        for _ in 0..kinds {
            let with = |own: Vec<u32>| (1..=most).map(move |weight| [own.clone(), vec![weight]].concat());
            list = list.into_iter().flat_map(with).collect();
        }
        let common = |weights: &Vec<u32>| weights.iter().fold(0, |a, b| gcd(a, u64::from(*b)));
        list.retain(|weights| common(weights) == 1 && weights.iter().any(|weight| *weight != weights[0]));
        [even, list].concat()
    }

    /// A value that no layout of a mesh beats, whatever the sizes of its micro batches.
    pub fn unequal_bound(&self, mesh: &Mesh) -> f64 {
        let grid = Grid::new(self, mesh);
        let work = |kind: &Kind, size: u64| {
            let parallel = Mesh { micro_batch_size: size, ..*mesh }.sharded(Sharding::NONE);
            let layers = works(&self.alone[kind.index], self.units, &parallel, &Memo::default());
            layers.iter().map(|(count, seconds)| f64::from(*count) * seconds).sum()
        };
        let seconds = grid.table(work);
        let least = grid.least(&seconds, f64::INFINITY).into_iter().map(|(_, seconds)| seconds);
        self.value(least.fold(f64::INFINITY, f64::min) + self.problem.runtime.time.step.get())
    }

    /// The best layout of a mesh with micro batches of different sizes, if its value is below the cutoff, and what runs on it.
    pub fn unequal(&self, mesh: &Mesh, cutoff: f64) -> (Option<Pipeline>, Found) {
        let grid = Grid::new(self, mesh);
        let mut best = Best::below(cutoff);
        let of_size = |kind: &Kind, size: u64| {
            let parallel = Mesh { micro_batch_size: size, ..*mesh }.sharded(Sharding::NONE);
            UnitTimes::new(&self.alone[kind.index], self.units, &parallel)
        };
        let times = grid.table(of_size);
        let single = self.times(mesh);
        for pipeline in self.space.single_pipelines(mesh).into_iter().filter(|own| is_chain(mesh, own)) {
            let whole =
                |own: &Vec<UnitTimes>| own.iter().map(|times| times.whole(pipeline.recompute)).collect();
            let seconds: Vec<Vec<f64>> = times.iter().map(whole).collect();
            for sharding in self.space.shardings(mesh) {
                let outside = self.outside_of(mesh, sharding, &single);
                let mut counts = grid.least(&seconds, self.step_of(best.cutoff) - outside);
                counts.sort_by(|a, b| a.1.total_cmp(&b.1));
                if !counts.is_empty() {
                    let work = Work { seconds: seconds.clone(), counts, outside: Some(outside) };
                    grid.judge(&pipeline, sharding, &work, &mut best);
                }
            }
        }
        (best.pipeline, best.found)
    }
}

/// The largest weight of as many kinds.
fn most_weight(kinds: usize) -> u32 {
    let few = |weight: &u32| u64::from(*weight).saturating_pow(kinds as u32) <= u64::from(MOST_WEIGHTINGS);
    (1..=MOST_WEIGHT).rev().find(few).unwrap_or(1)
}

fn mesh_of([tp, cp, dp]: [u64; 3], sequence_parallel: bool) -> Mesh {
    let degree = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    let (tp, cp, dp) = (degree(tp), degree(cp), degree(dp));
    Mesh { tp, cp, pp: 1, dp, ep: 1, etp: 1, sequence_parallel, micro_batch_size: 1, num_microbatches: 1 }
}
