//! Layouts without pipeline whose ranks have micro batches of different sizes, by kind of GPU ([`cost_models::shares`]).
//!
//! The degrees and the number of microbatches `m` are enumerated: every one that divides the global batch. For each the sizes are
//! chosen exactly ([`super::shares`]): first on works that no sharding and no recompute lessens, which bounds all layouts of a
//! mesh, then on seconds as the estimate has them. Shares that turn out equal are left to the layouts with one micro batch,
//! whose step is no longer: they wait for the slowest kind alone, which is one of those that are waited for here.
//!
//! A rank holds more bytes with more sequences, so that the most that fit are found by halving. Micro batches above
//! [`MOST_SEQUENCES`] are no part of the space.

use super::kinds::{Run, hosts_of};
use super::part::{Part, is_chain};
use super::shares::{bands, gcd, least_maximum};
use super::split::{Choice, Found};
use crate::divisors::divisors;
use crate::mesh::{Mesh, Pipeline, Sharding};
use crate::splits::stage_map;
use crate::term::{Field, Term};
use crate::times::{UnitTimes, run_of, works};
use cluster_profiles::Bytes;
use cost_models::layer_cost::Memo;
use cost_models::memory::kind_peak;
use cost_models::rules::{Axis, Facts};
use cost_models::schedule::Placement;
use cost_models::shares::{KindShare, slowest_group};
use cost_models::sites::{Sites, limit_on};
use cost_models::step::{data_parallel::exposed, optimizer_time, stages_on};
use cost_models::{ParallelConfig, StageMap};
use std::sync::Arc;

/// Sequences of a microbatch on a rank, at most.
const MOST_SEQUENCES: u64 = 1024;
/// The largest weight of a kind's state beside that of another.
const MOST_WEIGHT: u32 = 8;
/// Sequences up to which it is not asked before how many fit.
const FEW: u64 = 8;

/// GPUs of one name.
struct Kind {
    gpu: String,
    /// A kind of the part that has these GPUs.
    index: usize,
    gpus: u64,
    /// What a GPU may hold.
    limit: Bytes,
}

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
        let mut list: Vec<Vec<u32>> = vec![Vec::new()];
        for _ in 0..kinds {
            let with =
                |own: Vec<u32>| (1..=MOST_WEIGHT).map(move |weight| [own.clone(), vec![weight]].concat());
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
        let mut best = Best { cutoff, found: Found::default(), pipeline: None };
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
                    let work = Work { seconds: seconds.clone(), counts, outside };
                    grid.judge(&pipeline, sharding, &work, &mut best);
                }
            }
        }
        (best.pipeline, best.found)
    }
}

fn mesh_of([tp, cp, dp]: [u64; 3], sequence_parallel: bool) -> Mesh {
    let degree = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    let (tp, cp, dp) = (degree(tp), degree(cp), degree(dp));
    Mesh { tp, cp, pp: 1, dp, ep: 1, etp: 1, sequence_parallel, micro_batch_size: 1, num_microbatches: 1 }
}

/// What was found so far.
struct Best {
    cutoff: f64,
    found: Found,
    pipeline: Option<Pipeline>,
}

/// A mesh with what its ranks may take.
struct Grid<'g, 'a> {
    part: &'g Part<'a>,
    mesh: &'g Mesh,
    kinds: Vec<Kind>,
    /// Ranks of every kind.
    ranks: Vec<u64>,
    /// Numbers of microbatches.
    counts: Vec<u64>,
    /// The most sequences that a rank of every kind may take.
    most: Vec<u64>,
}

impl<'g, 'a> Grid<'g, 'a> {
    fn new(part: &'g Part<'a>, mesh: &'g Mesh) -> Self {
        let kinds = part.gpu_kinds();
        let size = u64::from(mesh.tp) * u64::from(mesh.cp);
        let ranks: Vec<u64> = kinds.iter().map(|kind| kind.gpus / size).collect();
        let counts = part.microbatch_counts(mesh);
        let total = counts.first().map_or(0, |count| part.space.facts().global_batch / count);
        let others = |own: u64| u64::from(mesh.dp) - own;
        let most =
            ranks.iter().map(|own| (total.saturating_sub(others(*own)) / own).min(MOST_SEQUENCES)).collect();
        let mut grid = Self { part, mesh, kinds, ranks, counts, most };
        if grid.most.iter().any(|most| *most > FEW) {
            grid.most = (0..grid.kinds.len()).map(|kind| grid.most_that_fit(kind)).collect();
        }
        grid
    }

    fn share(&self, kind: usize, size: u64) -> KindShare {
        let ranks = u32::try_from(self.ranks[kind]).unwrap_or(u32::MAX);
        KindShare { gpu: self.kinds[kind].gpu.clone(), ranks, micro_batch_size: size, state: 1 }
    }

    /// Something for every kind and size, in their order.
    fn table<T>(&self, of: impl Fn(&Kind, u64) -> T) -> Vec<Vec<T>> {
        let kinds = self.kinds.iter().zip(&self.most);
        kinds.map(|(kind, most)| (1..=*most).map(|size| of(kind, size)).collect()).collect()
    }

    fn total(&self, count: u64) -> u64 {
        self.part.space.facts().global_batch / count
    }

    /// Every number of microbatches with the least seconds that all take, from those of a microbatch, as far as below the cutoff.
    fn least(&self, seconds: &[Vec<f64>], cutoff: f64) -> Vec<(u64, f64)> {
        let of = |&count: &u64| {
            let least = least_maximum(&self.ranks, seconds, self.total(count), cutoff / count as f64)?;
            Some((count, least.0 * count as f64))
        };
        self.counts.iter().filter_map(of).collect()
    }

    fn stages(&self, parallel: &ParallelConfig) -> StageMap {
        stage_map(self.part.units, parallel, Placement::Loop, &vec![self.part.units.len()])
    }

    /// Whether so many sequences fit a rank of a kind, with what its layout's shares say of its state.
    fn fits(&self, parallel: &ParallelConfig, stages: &StageMap, kind: usize, size: u64) -> bool {
        let run = run_of(self.part.problem, parallel, stages);
        let reserve = &self.part.problem.runtime.memory.reserve;
        let state = parallel.shares.get(kind).map_or(1, |share| share.state);
        let peak = kind_peak(&run, &KindShare { state, ..self.share(kind, size) });
        peak.is_ok_and(|peak| reserve.reserved_bytes(peak.allocated()) <= self.kinds[kind].limit.get())
    }

    /// Shares that leave a kind as little state as any.
    fn least_state(&self, kind: usize) -> Vec<KindShare> {
        let weight = |own: usize| if own == kind { 1 } else { MOST_WEIGHT };
        let uneven = self.part.problem.runtime.uneven_shards;
        let shares = (0..self.kinds.len()).map(|own| KindShare { state: weight(own), ..self.share(own, 1) });
        if uneven { shares.collect() } else { Vec::new() }
    }

    /// The most sequences that fit a rank of a kind with any sharding and recompute, 0 if none does.
    fn most_that_fit(&self, kind: usize) -> u64 {
        let part = self.part;
        let (zeros, recomputes) = (part.space.engine().zero_stages.iter(), part.space.recomputes());
        // More replicas of the state hold more of it.
        let shardings = zeros.map(|&zero_stage| Sharding { zero_stage, ..Sharding::NONE });
        let layouts = shardings.flat_map(|sharding| {
            let parallel = ParallelConfig { shares: self.least_state(kind), ..self.mesh.sharded(sharding) };
            recomputes.iter().map(move |&recompute| ParallelConfig { recompute, ..parallel.clone() })
        });
        let mut fit = 0;
        for parallel in layouts {
            let stages = self.stages(&parallel);
            let mut over = self.most[kind] + 1;
            if fit + 1 >= over || !self.fits(&parallel, &stages, kind, fit + 1) {
                continue;
            }
            fit += 1;
            while fit + 1 < over {
                let middle = fit + (over - fit) / 2;
                if self.fits(&parallel, &stages, kind, middle) { fit = middle } else { over = middle }
            }
        }
        fit
    }

    /// The sites of a layout on every kind; none if hosts cannot reach each other.
    fn sites(&self, parallel: &ParallelConfig) -> Option<(Vec<usize>, Vec<Arc<Sites>>)> {
        let part = self.part;
        let runs: Vec<Run> =
            part.kinds.iter().enumerate().map(|(kind, own)| Run { kind, gpus: own.gpus }).collect();
        let hosts = hosts_of(part.kinds, &runs)?;
        let row: Vec<Option<usize>> = hosts.iter().copied().map(Some).collect();
        let sites = part.network.sites(&row, parallel, part.network.best());
        let on = |kind: &Kind| sites.on_kind(part.problem.cluster, &kind.gpu).map(Arc::new);
        let sites = self.kinds.iter().map(on).collect::<Option<Vec<Arc<Sites>>>>()?;
        Some((hosts, sites))
    }

    /// Tries numbers of microbatches by rising bound on their works with a sharding, for every way to weight its state.
    fn judge(&self, pipeline: &Pipeline, sharding: Sharding, work: &Work, best: &mut Best) {
        let part = self.part;
        let parallel = self.mesh.with(pipeline, sharding);
        if !part.allows_unequal(&parallel) {
            return;
        }
        let Some((hosts, sites)) = self.sites(&parallel) else { return };
        for weights in part.weightings(self.kinds.len(), sharding) {
            let share = |(kind, &state): (usize, &u32)| KindShare { state, ..self.share(kind, 1) };
            let shares = weights.iter().enumerate().map(share).collect();
            let parallel = ParallelConfig { shares, ..parallel.clone() };
            let Some(mut costs) = Costs::new(self, &parallel, &sites, &work.seconds) else { continue };
            for &(count, bound) in &work.counts {
                if part.value(bound + work.outside) >= best.cutoff {
                    break;
                }
                let room = part.step_of(best.cutoff) - costs.after;
                let Some(seconds) = costs.seconds(count, room) else { continue };
                best.found.simulated += 1;
                let chosen = self.chosen(&seconds, self.total(count), room, parallel.has_uneven_state());
                let Some((slowest, sizes)) = chosen else { continue };
                let value = part.value(slowest + costs.after);
                if value < best.cutoff {
                    best.cutoff = value;
                    best.pipeline = Some(*pipeline);
                    let (parallel, stages) = self.layout(&parallel, count, &sizes);
                    best.found.best = Some(Choice { value, parallel, stages, hosts: hosts.clone() });
                }
            }
        }
    }

    /// A layout with these sizes, and its stages.
    fn layout(&self, parallel: &ParallelConfig, count: u64, sizes: &[u64]) -> (ParallelConfig, StageMap) {
        let own = parallel.shares.iter().zip(sizes);
        let shares = own.map(|(share, &size)| KindShare { micro_batch_size: size, ..share.clone() });
        let sized = ParallelConfig { num_microbatches: count, ..parallel.clone() };
        let parallel = sized.with_shares(shares.collect());
        let stages = self.stages(&parallel);
        (parallel, stages)
    }

    /// The sizes that take least, of those that may be chosen. The same size for all with even state is left to the layouts with
    /// one micro batch, unless those are excluded: then all other sizes have another one on some kind.
    fn chosen(&self, seconds: &[Vec<f64>], total: u64, room: f64, uneven: bool) -> Option<(f64, Vec<u64>)> {
        let (part, ranks) = (self.part, &self.ranks);
        let may_equal = part.may_differ(false, uneven);
        if !part.may_differ(true, uneven) {
            return (uneven && may_equal).then(|| self.equal(seconds, total, room))?;
        }
        let (slowest, sizes) = least_maximum(ranks, seconds, total, room)?;
        let size = sizes[0];
        if sizes.iter().any(|own| *own != size) || (uneven && may_equal) {
            return Some((slowest, sizes));
        }
        if may_equal {
            return None;
        }
        let without = |kind: usize| {
            let mut seconds = seconds.to_vec();
            seconds[kind][size as usize - 1] = f64::INFINITY;
            least_maximum(ranks, &seconds, total, room)
        };
        (0..ranks.len()).filter_map(without).reduce(|a, b| if b.0 < a.0 { b } else { a })
    }

    /// The same size for all.
    fn equal(&self, seconds: &[Vec<f64>], total: u64, room: f64) -> Option<(f64, Vec<u64>)> {
        let dp = u64::from(self.mesh.dp);
        let size = total.is_multiple_of(dp).then(|| total / dp)?;
        let of_kind = |own: &Vec<f64>| own.get(size as usize - 1).copied().unwrap_or(f64::INFINITY);
        let slowest = seconds.iter().map(of_kind).fold(f64::NEG_INFINITY, f64::max);
        (slowest < room).then(|| (slowest, vec![size; self.ranks.len()]))
    }
}

/// Works that bound what is looked at with a sharding.
struct Work {
    /// Seconds of a microbatch by kind and size.
    seconds: Vec<Vec<f64>>,
    /// Numbers of microbatches by rising seconds of all of them.
    counts: Vec<(u64, f64)>,
    /// Seconds outside the microbatches, at least.
    outside: f64,
}

/// What the ranks of every kind take with a sharding and a way to weight its state, as far as it was asked.
struct Costs<'c, 'g, 'a> {
    grid: &'c Grid<'g, 'a>,
    parallel: &'c ParallelConfig,
    stages: StageMap,
    sites: &'c [Arc<Sites>],
    /// Works of a microbatch, which are less.
    work: &'c [Vec<f64>],
    /// Seconds of a microbatch, and what is exposed after all of them; infinite where it does not fit.
    known: Vec<Vec<Option<[f64; 2]>>>,
    /// Seconds of the optimizer and of what a step takes whatever the layout.
    after: f64,
}

impl<'c, 'g, 'a> Costs<'c, 'g, 'a> {
    fn new(
        grid: &'c Grid<'g, 'a>,
        parallel: &'c ParallelConfig,
        sites: &'c [Arc<Sites>],
        work: &'c [Vec<f64>],
    ) -> Option<Self> {
        let stages = grid.stages(parallel);
        let known = grid.most.iter().map(|most| vec![None; *most as usize]).collect();
        let mut costs = Self { grid, parallel, stages, sites, work, known, after: 0.0 };
        let run = run_of(grid.part.problem, parallel, &costs.stages);
        let first = stages_on(&run, parallel.shares.first()?, Arc::clone(sites.first()?)).ok()?;
        costs.after = (optimizer_time(&run, &first.stages) + grid.part.problem.runtime.time.step).get();
        Some(costs)
    }

    fn of(&mut self, kind: usize, size: u64) -> [f64; 2] {
        let place = size as usize - 1;
        if let Some(known) = self.known[kind][place] {
            return known;
        }
        let cost = self.estimated(kind, size).unwrap_or([f64::INFINITY; 2]);
        self.known[kind][place] = Some(cost);
        cost
    }

    fn estimated(&self, kind: usize, size: u64) -> Option<[f64; 2]> {
        let constraints = &self.grid.part.problem.constraints;
        let allowed = constraints.allows_number(Field::Axis(Axis::MicroBatch), size);
        if !allowed || !self.grid.fits(self.parallel, &self.stages, kind, size) {
            return None;
        }
        let run = run_of(self.grid.part.problem, self.parallel, &self.stages);
        let own = stages_on(&run, &self.grid.share(kind, size), Arc::clone(&self.sites[kind])).ok()?;
        Some([own.stages.rank_total(0).get(), exposed(&run, &own.stages).get()])
    }

    /// Seconds of so many microbatches for every kind and size that may matter below a cutoff; none if no answer is below.
    fn seconds(&mut self, count: u64, cutoff: f64) -> Option<Vec<Vec<f64>>> {
        let (grid, microbatches) = (self.grid, count as f64);
        let bands = bands(&grid.ranks, self.work, grid.total(count), cutoff / microbatches)?;
        let mut seconds: Vec<Vec<f64>> =
            grid.most.iter().map(|most| vec![f64::INFINITY; *most as usize]).collect();
        for (kind, band) in bands.into_iter().enumerate() {
            for size in band {
                let place = size as usize - 1;
                if self.work[kind][place] * microbatches < cutoff {
                    let [microbatch, after] = self.of(kind, size);
                    seconds[kind][place] = microbatch * microbatches + after;
                }
            }
        }
        Some(seconds)
    }
}
