//! One layout on a row of kinds: its splits by rising bound, simulated until none can be better.

use super::kinds::Row;
use super::part::{Layout, Part, waits_for_all};
use super::stages::Stages;
use crate::bound::Layout as Bounds;
use crate::bytes::UnitBytes;
use crate::leaf::memory_of;
use crate::mesh::Sharding;
use crate::order_bound::Interleaving;
use crate::outside::{RankShare, outside_of};
use crate::partition::{Chain, SplitTable};
use crate::splits::{ranges, stage_map};
use crate::times::{UnitTimes, run_of};
use cluster_profiles::Bytes;
use cost_models::memory::MemoryTable;
use cost_models::rules::StageFreedom;
use cost_models::schedule::{BoundInput, Hop, OpCosts, Placement, Vocabulary, bound};
use cost_models::sites::Sites;
use cost_models::stages::default_stages;
use cost_models::step::{PreparedSchedule, StageCosts as RankCosts, step_seconds};
use cost_models::{ParallelConfig, StageMap};
use std::sync::Arc;

/// Splits of a layout that are simulated at most, and that are looked at.
const MOST_SIMULATED: u64 = 32;
const MOST_LISTED: u64 = 1024;
/// How far above the least bound splits are listed at first, and by how much that grows.
const FIRST_MARGIN: f64 = 0.005;
const MARGIN_GROWTH: f64 = 4.0;

/// A layout with stages on hosts.
#[derive(Debug, Clone)]
pub struct Choice {
    /// What is minimised.
    pub value: f64,
    /// The degrees.
    pub parallel: ParallelConfig,
    /// The layers of every stage.
    pub stages: StageMap,
    /// The hosts in rank order, by their index in the part's cluster.
    pub hosts: Vec<usize>,
}

/// What came of a layout.
#[derive(Debug)]
pub struct Found {
    /// Its best split, if any is below the cutoff.
    pub best: Option<Choice>,
    /// No split that was not looked at has a smaller value.
    pub open: f64,
    /// Splits simulated.
    pub simulated: u64,
}

impl Default for Found {
    fn default() -> Self {
        Self { best: None, open: f64::INFINITY, simulated: 0 }
    }
}

/// A sharding with what it needs to be judged.
struct Sharded<'s> {
    parallel: &'s ParallelConfig,
    memory: MemoryTable<'s>,
    sites: Option<Arc<Sites>>,
}

/// A layout on a row while it is split.
struct Splitter<'s, 'a> {
    part: &'s Part<'a>,
    layout: &'s Layout,
    row: &'s Row,
    times: &'s [UnitTimes],
    /// The kind that every stage runs at.
    slowest: &'s [usize],
    /// What a GPU of every stage may hold.
    limits: &'s [Bytes],
    hop: f64,
    /// Seconds outside the pipeline, at least.
    outside: f64,
    shardings: Vec<Sharded<'s>>,
    found: Found,
    best: f64,
}

impl Part<'_> {
    /// The best split of a layout with the kinds in the order of a row, if its value is below the cutoff; some split if any fits
    /// and `first` will do.
    pub fn split(&self, layout: &Layout, row: &Row, cutoff: f64, first: bool) -> Found {
        let mesh = &layout.mesh;
        let legal = self.space.shardings(mesh).into_iter();
        let with = |sharding: Sharding| mesh.with(&layout.pipeline, sharding);
        let legal: Vec<(Sharding, ParallelConfig)> = legal
            .map(|sharding| (sharding, with(sharding)))
            .filter(|(_, parallel)| self.space.allows(parallel))
            .collect();
        let times = self.times(mesh);
        let outside = legal.iter().map(|(sharding, _)| self.outside_of(mesh, *sharding, &times));
        let outside = outside.fold(f64::INFINITY, f64::min);
        let shardings = legal.iter().filter_map(|(_, parallel)| {
            Some(Sharded { parallel, memory: memory_of(self.problem, parallel)?, sites: None })
        });
        let shardings: Vec<Sharded> = shardings.collect();
        let Some(lean) = self.leanest(mesh) else { return Found::default() };
        let lean = with(lean);
        let stages = row.kinds_of_stages(&lean);
        let limit = |kind: &usize| self.alone[*kind].limit();
        let slowest: Vec<usize> = stages.iter().map(|kinds| self.slowest(kinds)).collect();
        let limits =
            stages.iter().map(|kinds| kinds.iter().map(limit).fold(Bytes(f64::INFINITY), Bytes::min));
        let limits: Vec<Bytes> = limits.collect();
        let splitter = Splitter {
            part: self,
            layout,
            row,
            times: &times,
            slowest: &slowest,
            limits: &limits,
            hop: self.hop(&lean, &times),
            outside,
            shardings,
            found: Found::default(),
            best: cutoff,
        };
        splitter.solve(&lean, first)
    }

    /// Seconds of a hop, at least, where no two stages share an NVLink domain.
    fn hop(&self, parallel: &ParallelConfig, times: &[UnitTimes]) -> f64 {
        let size = parallel.world_size() / u64::from(parallel.pp);
        let apart = self.kinds.iter().all(|kind| {
            let domain = u64::from(kind.cluster.main().node.domain);
            size >= domain && kind.gpus > domain
        });
        let least = times.iter().map(UnitTimes::least_hop).fold(f64::INFINITY, f64::min);
        if apart { least } else { 0.0 }
    }
}

impl Splitter<'_, '_> {
    fn solve(mut self, lean: &ParallelConfig, first: bool) -> Found {
        let part = self.part;
        if self.shardings.is_empty() {
            return self.found;
        }
        if part.space.engine().stages == StageFreedom::Own && lean.pp > 1 {
            self.try_own(lean);
            return self.found;
        }
        let Some(memory) = memory_of(part.problem, lean) else { return self.found };
        let bytes = part.alone.iter().map(|alone| UnitBytes::new(alone, part.units, lean));
        let Ok(bytes) = bytes.collect::<Result<Vec<UnitBytes>, _>>() else { return self.found };
        let tightest = |limit: &Bytes| (0..part.kinds.len()).find(|kind| part.alone[*kind].limit() == *limit);
        let smallest: Vec<usize> =
            self.limits.iter().map(|limit| tightest(limit).unwrap_or_default()).collect();
        let bounds = bounds_of(part, self.layout, self.times, &bytes);
        let splits = self.hop * if bounds[0].splits_backward() { 0.5 } else { 1.0 };
        let chain = Chain {
            layers: part.units.len(),
            stages: lean.pp as usize,
            microbatches: self.layout.mesh.num_microbatches as f64,
            hop: if waits_for_all(&self.layout.pipeline) || bounds[0].splits_backward() {
                splits
            } else {
                0.0
            },
        };
        let costs = Stages {
            units: part.units,
            bounds: &bounds,
            slowest: self.slowest,
            smallest: &smallest,
            limits: self.limits,
            memory: &memory,
            reserve: &part.problem.runtime.memory.reserve,
            in_flight: bounds[0].all_in_flight(),
            behind: Vec::new(),
            chain,
            known: std::cell::RefCell::default(),
        }
        .with_work_behind();
        self.list(chain, &costs, first);
        self.found
    }

    /// The split the engine makes by itself.
    fn try_own(&mut self, lean: &ParallelConfig) {
        let problem = self.part.problem;
        let policy = problem.runtime.memory.pipeline.split;
        let map = default_stages(problem.model, lean, policy, Placement::Loop);
        if let Some(ends) = map.ok().and_then(|map| self.part.units.ends_of(&map)) {
            self.judge(&ends);
        }
    }
}

impl Splitter<'_, '_> {
    /// Every split by rising bound. Splits far above the least bound are listed only when the best found does not rule them out.
    fn list(&mut self, chain: Chain, costs: &Stages, first: bool) {
        let room = self.part.step_of(self.best) - self.outside;
        let Some(least) = SplitTable::new(chain, costs, room).bound() else { return };
        let (mut listed, mut margin) = (0, FIRST_MARGIN);
        let mut done: Vec<Vec<usize>> = Vec::new();
        loop {
            let limit = (least * (1.0 + margin)).min(self.part.step_of(self.best) - self.outside);
            let table = SplitTable::new(chain, costs, limit);
            for split in table.splits(costs) {
                let bound = self.part.value(split.bound + self.outside);
                if bound >= self.best || (first && self.found.best.is_some()) {
                    return;
                }
                listed += 1;
                if listed > MOST_LISTED || self.found.simulated >= MOST_SIMULATED {
                    self.found.open = bound;
                    return;
                }
                if !done.contains(&split.ends) {
                    self.judge(&split.ends);
                    done.push(split.ends);
                }
            }
            if self.part.value(limit + self.outside) >= self.best || margin > 1e3 {
                return;
            }
            margin *= MARGIN_GROWTH;
        }
    }

    /// The best sharding of a split that fits every stage's GPUs, if it is better than what is known.
    fn judge(&mut self, ends: &Vec<usize>) {
        let part = self.part;
        let pipeline = self.pipeline_bound(ends);
        let outside = |index: usize| self.outside_with(self.shardings[index].parallel, ends);
        let mut order: Vec<(f64, usize)> = (0..self.shardings.len()).map(|i| (outside(i), i)).collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (outside, index) in order {
            if part.value(pipeline + outside) >= self.best {
                return;
            }
            let parallel = self.shardings[index].parallel;
            let stages = stage_map(part.units, parallel, Placement::Loop, ends);
            if !self.fits(index, &stages) {
                continue;
            }
            self.found.simulated += 1;
            let Some(step) = self.step(index, &stages) else { continue };
            let value = part.value(step);
            if value < self.best {
                self.best = value;
                let (parallel, hosts) = (parallel.clone(), self.row.hosts.clone());
                self.found.best = Some(Choice { value, parallel, stages, hosts });
            }
        }
    }

    fn fits(&self, index: usize, stages: &StageMap) -> bool {
        let reserve = &self.part.problem.runtime.memory.reserve;
        self.limits.iter().enumerate().all(|(rank, limit)| {
            let peak = self.shardings[index].memory.rank_peak(rank as u32, stages.on_rank(rank as u32));
            reserve.reserved_bytes(peak.allocated()) <= limit.get()
        })
    }

    /// Seconds of a step on the hosts of the row; none if some cannot reach each other.
    fn step(&mut self, index: usize, stages: &StageMap) -> Option<f64> {
        let (network, own) = (self.part.network, &mut self.shardings[index]);
        let sites = own.sites.get_or_insert_with(|| {
            let hosts: Vec<Option<usize>> = self.row.hosts.iter().copied().map(Some).collect();
            Arc::new(network.sites(&hosts, own.parallel, network.best()))
        });
        let run = run_of(self.part.problem, own.parallel, stages);
        let costs = RankCosts::at(&run, Some(Arc::clone(sites))).ok()?;
        let schedule = PreparedSchedule::of(&run, &costs).ok()?;
        step_seconds(&run, &costs, &schedule).ok().map(cluster_profiles::Seconds::get)
    }

    /// Seconds of the pipeline that no placement of a split's hosts beats.
    fn pipeline_bound(&self, ends: &[usize]) -> f64 {
        let (mesh, pipeline) = (&self.layout.mesh, &self.layout.pipeline);
        let recompute = pipeline.recompute;
        let stages = ranges(ends).zip(self.slowest);
        let stages = stages.map(|(units, &kind)| self.times[kind].op_times(&units, recompute)).collect();
        let microbatches = u32::try_from(mesh.num_microbatches).unwrap_or(u32::MAX);
        let hops = vec![Hop { latency: self.hop, transfer: 0.0 }; ends.len() - 1];
        let costs = OpCosts { stages, hops, ..OpCosts::default() };
        if mesh.pp == 1 || pipeline.schedule.kind.definition().staggered {
            let work = costs.stages.iter().map(|stage| stage.forward + stage.backward);
            return f64::from(microbatches) * work.fold(0.0, f64::max);
        }
        let placement: Vec<u16> = Placement::Loop.ranks_of_stages(mesh.pp, mesh.pp);
        let input = BoundInput {
            ranks: mesh.pp,
            stages: mesh.pp,
            placement: &placement,
            microbatches,
            slices: 1,
            splits_backward: pipeline.schedule.kind.definition().splits_backward,
            combines: false,
            vocabulary: Vocabulary::Whole,
        };
        let any = bound(&input, &costs);
        if pipeline.schedule.kind.name() != "1f1b" {
            return any;
        }
        let microbatches = microbatches as usize;
        let order = Interleaving { ranks: mesh.pp as usize, chunks: 1, microbatches, group: microbatches };
        any.max(order.bound(&costs))
    }

    /// Seconds outside the pipeline of a split with a sharding, at least.
    fn outside_with(&self, parallel: &ParallelConfig, ends: &[usize]) -> f64 {
        let recompute = self.layout.pipeline.recompute;
        let share = |kind: usize, units: std::ops::Range<usize>| {
            let [forward, input, weight] = self.times[kind].stage(&units, recompute);
            RankShare {
                parameters: self.times[kind].parameters(&units),
                times: Some((forward, input + weight)),
            }
        };
        let of_kind = self.part.alone.iter().enumerate().map(|(kind, alone)| {
            let own = ranges(ends).zip(self.slowest).filter(|(_, slowest)| **slowest == kind);
            let ranks: Vec<RankShare> = own.map(|(units, _)| share(kind, units)).collect();
            if ranks.is_empty() { 0.0 } else { outside_of(alone, parallel, &ranks) }
        });
        of_kind.fold(0.0, f64::max)
    }
}

/// What every kind's bounds look at.
fn bounds_of<'t>(
    part: &Part,
    layout: &'t Layout,
    times: &'t [UnitTimes],
    bytes: &'t [UnitBytes],
) -> Vec<Bounds<'t>> {
    let body = part.units.len() - part.units.leading() - part.units.trailing();
    let own = times.iter().zip(bytes);
    own.map(|(times, bytes)| Bounds { mesh: &layout.mesh, pipeline: &layout.pipeline, times, bytes, body })
        .collect()
}
