//! One set of several kinds: meshes by rising bound, each with the kinds in some order.

use super::Tried;
use super::kinds::{Kind, Row, kinds, orders};
use super::program::{StageKinds, assign};
use crate::bound::Layout;
use crate::bytes::UnitBytes;
use crate::highs::MipOptions;
use crate::leaf::{Candidate, memory_of};
use crate::mesh::{Mesh, Pipeline, Sharding};
use crate::observer::{Observer, Progress};
use crate::partition::{Chain, SplitTable, StageCosts, StageTimes};
use crate::problem::Problem;
use crate::solve::space_of;
use crate::space::SearchSpace;
use crate::splits::stage_map;
use crate::times::{UnitTimes, run_of};
use crate::units::Units;
use cluster_profiles::{Bytes, Seconds};
use cost_models::memory::MemoryTable;
use cost_models::schedule::{Placement, Vocabulary};
use cost_models::sites::Network;
use cost_models::step::{PreparedSchedule, StageCosts as RankCosts, step_seconds};
use cost_models::{ParallelConfig, Recompute, Stage, TrainingRun, estimate};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Layouts looked at between two looks at the best.
const BATCH: usize = 16;
/// Splits of a layout that are simulated at most.
const MOST_SIMULATED: usize = 6;
/// Layouts for which HiGHS is asked for an order of the kinds.
const ASKED: usize = 8;
/// What one such answer may take.
const PATIENCE: u32 = 2_000;

/// A layout without stages, in one order of the kinds, and what it cannot beat.
#[derive(Clone)]
struct Open {
    bound: f64,
    mesh: Mesh,
    pipeline: Pipeline,
    row: usize,
}

struct Search<'a, 'p> {
    problem: &'a Problem<'p>,
    units: &'a Units,
    space: &'a SearchSpace<'p>,
    kinds: &'a [Kind],
    rows: &'a [Row],
    networks: &'a [Network<'a>],
}

/// Searches the layouts of all kinds together; values from `cutoff` on do not matter.
pub fn search(problem: &Problem, observer: &dyn Observer, deadline: Option<Instant>, cutoff: f64) -> Tried {
    let kinds = kinds(problem);
    let rows: Vec<Row> = orders(&kinds).iter().filter_map(|runs| Row::new(problem.cluster, runs)).collect();
    let networks: Vec<Network> = rows.iter().filter_map(Row::network).collect();
    if rows.is_empty() || networks.len() != rows.len() {
        return Tried::nothing(f64::INFINITY);
    }
    let (units, space) = (Units::new(problem.model), space_of(problem));
    let search =
        Search { problem, units: &units, space: &space, kinds: &kinds, rows: &rows, networks: &networks };
    search.run(observer, deadline, cutoff)
}

impl Search<'_, '_> {
    fn run(&self, observer: &dyn Observer, deadline: Option<Instant>, cutoff: f64) -> Tried {
        let meshes = self.space.meshes();
        let mut tried =
            Tried { considered: meshes.considered, pruned: meshes.pruned, ..Tried::nothing(f64::INFINITY) };
        let able: Vec<&Mesh> = meshes.list.iter().filter(|mesh| self.is_inside_nodes(mesh)).collect();
        let mut open: Vec<Open> = able.par_iter().flat_map_iter(|mesh| self.open(mesh)).collect();
        open.sort_by(|a, b| a.bound.total_cmp(&b.bound));
        let mut best = cutoff;
        for (index, batch) in open.chunks(BATCH).enumerate() {
            if batch[0].bound >= best {
                break;
            }
            if observer.cancelled() || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                tried.bound = tried.bound.min(batch[0].bound);
                break;
            }
            let asked = index * BATCH < ASKED;
            let found: Vec<Found> = batch.par_iter().map(|own| self.solve(own, best, asked)).collect();
            for own in found {
                tried.simulated += own.simulated;
                tried.bound = tried.bound.min(own.open);
                best = own.best.as_ref().map_or(best, |(candidate, _)| best.min(candidate.value));
                tried.plans.extend(own.best);
            }
            observer.progress(Progress {
                simulated: tried.simulated,
                open: (open.len() - index * BATCH) as u64,
                best: best.is_finite().then_some(best),
                bound: batch[0].bound,
            });
        }
        tried.bound = tried.bound.min(best);
        tried.plans.sort_by(|a, b| a.0.value.total_cmp(&b.0.value));
        tried.plans.truncate(self.problem.top.max(4));
        tried
    }

    /// Tensor-parallel groups stay inside nodes of every kind.
    fn is_inside_nodes(&self, mesh: &Mesh) -> bool {
        let groups = &self.problem.cluster.groups;
        groups.iter().all(|group| group.node.domain.is_multiple_of(mesh.tp))
    }

    /// The layouts of a mesh with their bounds: all ranks share the work by their speed, down to fractions of a layer.
    fn open(&self, mesh: &Mesh) -> Vec<Open> {
        let mut list = Vec::new();
        let pipelines = self.space.pipelines(mesh, &mut crate::space::Pruned::new());
        let Some(lean) = self.leanest(mesh) else { return list };
        let parallel = mesh.sharded(lean);
        let times: Vec<UnitTimes> =
            self.kinds.iter().map(|kind| UnitTimes::new(&self.alone(kind), self.units, &parallel)).collect();
        for (pipeline, _) in pipelines.into_iter().filter(|(pipeline, _)| is_chain(mesh, pipeline)) {
            let whole: Vec<f64> = times.iter().map(|times| times.whole(pipeline.recompute)).collect();
            for (index, row) in self.rows.iter().enumerate() {
                let rate = row.kinds_of_stages(&parallel).into_iter().map(|kinds| {
                    1.0 / kinds.into_iter().map(|kind| whole[kind]).fold(f64::MIN_POSITIVE, f64::max)
                });
                let load = mesh.num_microbatches as f64 / rate.sum::<f64>();
                let bound = self.value(load + self.problem.runtime.time.step.get());
                list.push(Open { bound, mesh: *mesh, pipeline, row: index });
            }
        }
        list
    }

    fn value(&self, step: f64) -> f64 {
        self.problem.objective.value(self.problem.cluster, Seconds(step), Seconds(step))
    }

    fn alone<'k>(&'k self, kind: &'k Kind) -> Problem<'k> {
        Problem { cluster: &kind.cluster, memory_limit: Some(kind.limit), ..self.problem.clone() }
    }

    fn leanest(&self, mesh: &Mesh) -> Option<Sharding> {
        let shardings = self.space.shardings(mesh);
        shardings.into_iter().max_by_key(|own| (own.zero_stage, std::cmp::Reverse(own.dp_replicate)))
    }

    /// The best split of a layout, with the kinds as its row has them or as HiGHS would.
    fn solve(&self, own: &Open, cutoff: f64, asked: bool) -> Found {
        let mut found = self.split(own, &self.rows[own.row], &self.networks[own.row], cutoff);
        if asked
            && let Some(row) = self.asked(own)
            && let Some(network) = row.network()
        {
            let cutoff = found.best.as_ref().map_or(cutoff, |(candidate, _)| candidate.value.min(cutoff));
            let other = self.split(own, &row, &network, cutoff);
            found.simulated += other.simulated;
            found.best = other.best.or(found.best);
        }
        found
    }

    /// The row in the order of kinds that the integer program finds, where every stage is of one kind.
    fn asked(&self, own: &Open) -> Option<Row> {
        let parallel = own.mesh.with(&own.pipeline, self.leanest(&own.mesh)?);
        let size = parallel.world_size() / u64::from(parallel.pp);
        let pure = self.kinds.iter().all(|kind| kind.gpus.is_multiple_of(size));
        if !pure || parallel.pp < 2 {
            return None;
        }
        let tables = KindTables::new(self, &parallel)?;
        let body = self.units.leading()..self.units.len() - self.units.trailing();
        let count = body.len();
        let recompute = own.pipeline.recompute;
        let work = |kind: usize, units: Range<usize>| tables.times[kind].work(&units, recompute);
        let most = |stage: usize, kind: usize| {
            let layout = tables.layout(self, own, kind);
            let fits =
                |layers: usize| layout.may_fit(&(body.start..body.start + layers), layout.in_flight(stage));
            (1..=count).take_while(|layers| fits(*layers)).count() as u64
        };
        let kinds = 0..self.kinds.len();
        let shape = StageKinds {
            counts: self.kinds.iter().map(|kind| (kind.gpus / size) as usize).collect(),
            layers: count as u64,
            microbatches: own.mesh.num_microbatches as f64,
            seconds: kinds.clone().map(|kind| work(kind, body.clone()) / count.max(1) as f64).collect(),
            ends: kinds
                .clone()
                .map(|kind| (work(kind, 0..body.start), work(kind, body.end..self.units.len())))
                .collect(),
            most: (0..parallel.pp as usize)
                .map(|stage| kinds.clone().map(|kind| most(stage, kind)).collect())
                .collect(),
        };
        let options = MipOptions {
            time_limit: Some(Duration::from_secs(1)),
            node_limit: Some(PATIENCE),
            relative_gap: 1e-3,
            ..MipOptions::default()
        };
        let assigned = assign(&shape, &options).ok()??;
        let runs: Vec<(usize, u64)> = assigned.kinds.into_iter().map(|kind| (kind, size)).collect();
        Row::new(self.problem.cluster, &runs)
    }

    fn split(&self, own: &Open, row: &Row, network: &Network, cutoff: f64) -> Found {
        let mut found = Found::default();
        let Some(lean) = self.leanest(&own.mesh) else { return found };
        let parallel = own.mesh.with(&own.pipeline, lean);
        let (Some(tables), Some(memory)) =
            (KindTables::new(self, &parallel), memory_of(self.problem, &parallel))
        else {
            return found;
        };
        let stages = row.kinds_of_stages(&parallel);
        let limits: Vec<Bytes> = stages
            .iter()
            .map(|kinds| {
                kinds.iter().map(|kind| self.kinds[*kind].limit).fold(Bytes(f64::INFINITY), Bytes::min)
            })
            .collect();
        let costs = Costs {
            search: self,
            own,
            tables: &tables,
            stages: &stages,
            limits: &limits,
            memory: &memory,
            in_flight: tables.layout(self, own, 0).all_in_flight(),
        };
        let fixed = self.problem.runtime.time.step.get();
        let chain = Chain {
            layers: self.units.len(),
            stages: parallel.pp as usize,
            microbatches: own.mesh.num_microbatches as f64,
            hop: 0.0,
        };
        let table = SplitTable::new(chain, &costs, cutoff);
        let mut best = cutoff;
        for split in table.splits(&costs) {
            let bound = self.value(split.bound + fixed);
            if bound >= best {
                return found;
            }
            if found.simulated >= MOST_SIMULATED as u64 {
                found.open = bound;
                return found;
            }
            found.simulated += 1;
            if let Some((candidate, cluster)) = self.simulate(own, row, network, &limits, &split.ends, best) {
                best = candidate.value;
                found.best = Some((candidate, cluster));
            }
        }
        found
    }

    /// The best sharding of a split that fits every stage's GPUs.
    fn simulate(
        &self,
        own: &Open,
        row: &Row,
        network: &Network,
        limits: &[Bytes],
        ends: &[usize],
        cutoff: f64,
    ) -> Option<(Candidate, cluster_profiles::Cluster)> {
        let mut best: Option<(f64, ParallelConfig)> = None;
        let reserve = &self.problem.runtime.memory.reserve;
        for sharding in self.space.shardings(&own.mesh) {
            let parallel = own.mesh.with(&own.pipeline, sharding);
            if !self.space.allows(&parallel) {
                continue;
            }
            let stages = stage_map(self.units, &parallel, Placement::Loop, &ends.to_vec());
            let fits = memory_of(self.problem, &parallel).is_some_and(|memory| {
                limits.iter().enumerate().all(|(rank, limit)| {
                    let peak = memory.rank_peak(rank as u32, stages.on_rank(rank as u32));
                    reserve.reserved_bytes(peak.allocated()) <= limit.get()
                })
            });
            if !fits {
                continue;
            }
            let run = TrainingRun { cluster: &row.cluster, ..run_of(self.problem, &parallel, &stages) };
            let Some(step) = step_of(&run, network) else { continue };
            let value = self.value(step);
            if value < best.as_ref().map_or(cutoff, |(known, _)| *known) {
                best = Some((value, parallel));
            }
        }
        let (value, parallel) = best?;
        let stages = stage_map(self.units, &parallel, Placement::Loop, &ends.to_vec());
        let run = TrainingRun { cluster: &row.cluster, ..run_of(self.problem, &parallel, &stages) };
        let mut prediction = estimate(&run).ok()?;
        prediction.fits = true;
        Some((Candidate { value, parallel, stages, estimate: prediction }, row.cluster.clone()))
    }
}

/// Seconds of a step on the hosts of a network in their own order.
fn step_of(run: &TrainingRun, network: &Network) -> Option<f64> {
    let hosts: Vec<Option<usize>> = (0..network.topology().hosts().len()).map(Some).collect();
    let sites = network.sites(&hosts, run.parallel, network.best());
    let costs = RankCosts::at(run, Some(Arc::new(sites))).ok()?;
    let schedule = PreparedSchedule::of(run, &costs).ok()?;
    step_seconds(run, &costs, &schedule).ok().map(Seconds::get)
}

/// One stage per rank in order, the head whole, every layer recomputed or none.
fn is_chain(mesh: &Mesh, pipeline: &Pipeline) -> bool {
    let definition = pipeline.schedule.kind.definition();
    let counted = matches!(pipeline.recompute, Recompute::Full { layers: Some(_) });
    let shape = mesh.pp == 1 || (pipeline.vpp == 1 && definition.placement == Placement::Loop);
    shape && !counted && !pipeline.per_stage && pipeline.schedule.vocabulary == Vocabulary::Whole
}

/// What came of a layout.
struct Found {
    best: Option<(Candidate, cluster_profiles::Cluster)>,
    open: f64,
    simulated: u64,
}

impl Default for Found {
    fn default() -> Self {
        Self { best: None, open: f64::INFINITY, simulated: 0 }
    }
}

/// Times and bytes of every kind.
struct KindTables {
    times: Vec<UnitTimes>,
    bytes: Vec<UnitBytes>,
}

impl KindTables {
    fn new(search: &Search, parallel: &ParallelConfig) -> Option<Self> {
        let (mut times, mut bytes) = (Vec::new(), Vec::new());
        for kind in search.kinds {
            let alone = search.alone(kind);
            times.push(UnitTimes::new(&alone, search.units, parallel));
            bytes.push(UnitBytes::new(&alone, search.units, parallel).ok()?);
        }
        Some(Self { times, bytes })
    }

    fn layout<'t>(&'t self, search: &Search, own: &'t Open, kind: usize) -> Layout<'t> {
        let body = search.units.len() - search.units.leading() - search.units.trailing();
        Layout {
            mesh: &own.mesh,
            pipeline: &own.pipeline,
            times: &self.times[kind],
            bytes: &self.bytes[kind],
            body,
        }
    }
}

/// Stages of which each waits for the slowest of its kinds.
struct Costs<'s, 'a, 'p> {
    search: &'s Search<'a, 'p>,
    own: &'s Open,
    tables: &'s KindTables,
    stages: &'s [Vec<usize>],
    limits: &'s [Bytes],
    memory: &'s MemoryTable<'s>,
    in_flight: Vec<f64>,
}

impl StageCosts for Costs<'_, '_, '_> {
    fn times(&self, stage: usize, layers: Range<usize>) -> Option<StageTimes> {
        let recompute = self.own.pipeline.recompute;
        let mut slowest = StageTimes { work: 0.0, lead: 0.0 };
        for &kind in &self.stages[stage] {
            let layout = self.tables.layout(self.search, self.own, kind);
            if !layout.may_fit(&layers, self.in_flight[stage]) {
                return None;
            }
            let [forward, input, weight] = self.tables.times[kind].stage(&layers, recompute);
            let work = forward + input + weight;
            let lead = if layout.splits_backward() { forward } else { work };
            slowest = StageTimes { work: slowest.work.max(work), lead: slowest.lead.max(lead) };
        }
        Some(slowest)
    }

    fn confirm(&self, stage: usize, layers: &Range<usize>, times: StageTimes) -> Option<StageTimes> {
        let recompute = self.own.pipeline.recompute;
        let layers = self.search.units.layers(layers.clone());
        let whole = Stage { rank: stage as u32, chunk: 0, layers, recompute };
        let peak = self.memory.rank_peak(stage as u32, [&whole]);
        let reserved = self.search.problem.runtime.memory.reserve.reserved_bytes(peak.allocated());
        (reserved <= self.limits[stage].get()).then_some(times)
    }
}
