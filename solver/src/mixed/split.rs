//! One layout on the stages of a deal: types and layers of its stages by rising bound, simulated until none can be better.

use super::deal::Deal;
use super::kinds::hosts_of;
use super::list::{Assigned, List};
use super::part::{Layout, Part, waits_for_all};
use super::stages::Stages;
use super::table::Program;
use crate::bound::Layout as Bounds;
use crate::bytes::UnitBytes;
use crate::leaf::memory_of;
use crate::mesh::Sharding;
use crate::outside::{RankShare, outside_of};
use crate::splits::{ranges, stage_map};
use crate::times::{UnitTimes, run_of};
use cluster_profiles::Bytes;
use cost_models::memory::MemoryTable;
use cost_models::rules::StageFreedom;
use cost_models::schedule::{
    BoundInput, Hop, Interleaving, OpCosts, Placement, ScheduleKind, Vocabulary, bound,
};
use cost_models::sites::Sites;
use cost_models::stages::default_stages;
use cost_models::step::{PreparedSchedule, StageCosts as RankCosts, step_seconds};
use cost_models::{ParallelConfig, StageMap};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Choices of a layout that are simulated at most, and that are looked at.
const MOST_SIMULATED: u64 = 32;
const MOST_LISTED: u64 = 1024;
/// How far above the least bound choices are listed at first, and by how much that grows.
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
    /// By the types of the stages.
    sites: BTreeMap<Vec<usize>, Arc<Sites>>,
}

/// A layout on the stages of a deal while it is split.
struct Splitter<'s, 'a> {
    part: &'s Part<'a>,
    layout: &'s Layout,
    deal: &'s Deal,
    times: &'s [UnitTimes],
    /// The kind that every type of stage runs at.
    slowest: &'s [usize],
    /// What a GPU of every type may hold.
    limits: &'s [Bytes],
    /// Seconds of a hop from type to type, at least.
    hops: &'s [Vec<f64>],
    /// Seconds outside the pipeline, at least.
    outside: f64,
    shardings: Vec<Sharded<'s>>,
    found: Found,
    best: f64,
}

impl Part<'_> {
    /// The best split of a layout on the stages of a deal, if its value is below the cutoff; some split if any fits and `first`
    /// will do.
    pub fn split(&self, layout: &Layout, deal: &Deal, cutoff: f64, first: bool) -> Found {
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
            Some(Sharded { parallel, memory: memory_of(self.problem, parallel)?, sites: BTreeMap::new() })
        });
        let shardings: Vec<Sharded> = shardings.collect();
        let Some(lean) = self.leanest(mesh) else { return Found::default() };
        let limit = |kind: usize| self.alone[kind].limit();
        let limits = deal
            .types
            .iter()
            .map(|own| own.parts.iter().map(|part| limit(part.kind)).fold(Bytes(f64::INFINITY), Bytes::min));
        let limits: Vec<Bytes> = limits.collect();
        let splitter = Splitter {
            part: self,
            layout,
            deal,
            times: &times,
            slowest: &self.slowest(deal),
            limits: &limits,
            hops: &self.hops(mesh, deal),
            outside,
            shardings,
            found: Found::default(),
            best: cutoff,
        };
        splitter.solve(&with(lean), first)
    }
}

impl Splitter<'_, '_> {
    fn solve(mut self, lean: &ParallelConfig, first: bool) -> Found {
        let part = self.part;
        if self.shardings.is_empty() {
            return self.found;
        }
        let own = part.space.engine().stages == StageFreedom::Own && lean.pp > 1;
        let own = if own { self.own_split(lean) } else { Some(Vec::new()) };
        let Some(own) = own else { return self.found };
        let Some(memory) = memory_of(part.problem, lean) else { return self.found };
        let bytes = part.alone.iter().map(|alone| UnitBytes::new(alone, part.units, lean));
        let Ok(bytes) = bytes.collect::<Result<Vec<UnitBytes>, _>>() else { return self.found };
        let tightest = |limit: &Bytes| (0..part.kinds.len()).find(|kind| part.alone[*kind].limit() == *limit);
        let smallest: Vec<usize> =
            self.limits.iter().map(|limit| tightest(limit).unwrap_or_default()).collect();
        let bounds = bounds_of(part, self.layout, self.times, &bytes);
        let costs = Stages {
            units: part.units,
            bounds: &bounds,
            slowest: self.slowest,
            smallest: &smallest,
            limits: self.limits,
            memory: &memory,
            reserve: &part.problem.runtime.memory.reserve,
            in_flight: bounds[0].all_in_flight(),
            own: Some(own).filter(|own| !own.is_empty()),
            microbatches: self.layout.mesh.num_microbatches as f64,
            known: std::cell::RefCell::default(),
        };
        let hops = self.counted_hops(bounds[0].splits_backward());
        let program = Program::new(self.deal, &costs, &hops, part.units.len());
        self.list(&program, first);
        if self.deal.restricted {
            self.found.open =
                self.found.open.min(part.deal_bound(self.layout, self.deal, self.times, self.outside));
        }
        self.found
    }

    /// Hops as far as they count: half where a rank may do weight gradients while the last gradient travels; where nodes of the
    /// graph do not tell the type in front, the shortest for all.
    fn counted_hops(&self, splits_backward: bool) -> Vec<Vec<f64>> {
        let counts = match (waits_for_all(&self.layout.pipeline), splits_backward) {
            (_, true) => 0.5,
            (true, false) => 1.0,
            (false, false) => 0.0,
        };
        let told = self.deal.graph.nodes.iter().skip(1).all(|node| node.last.is_some());
        let least = self.hops.iter().flatten().copied().fold(f64::INFINITY, f64::min);
        let counted = |hop: &f64| counts * if told { *hop } else { least };
        self.hops.iter().map(|row| row.iter().map(counted).collect()).collect()
    }

    /// The split the engine makes by itself.
    fn own_split(&self, lean: &ParallelConfig) -> Option<Vec<usize>> {
        let problem = self.part.problem;
        let policy = problem.runtime.memory.pipeline.split;
        let map = default_stages(problem.model, lean, policy, Placement::Loop).ok()?;
        self.part.units.ends_of(&map)
    }
}

impl Splitter<'_, '_> {
    /// Every choice by rising bound. Those far above the least bound are listed only when the best found does not rule them out.
    fn list(&mut self, program: &Program, first: bool) {
        let room = self.part.step_of(self.best) - self.outside;
        let Some(least) = program.table(room, false).bound() else { return };
        let (mut listed, mut margin) = (0, FIRST_MARGIN);
        let mut done: Vec<Assigned> = Vec::new();
        loop {
            let limit = (least * (1.0 + margin)).min(self.part.step_of(self.best) - self.outside);
            for assigned in List::new(program, program.table(limit, false)) {
                let bound = self.part.value(assigned.bound + self.outside);
                if bound >= self.best || (first && self.found.best.is_some()) {
                    return;
                }
                listed += 1;
                if listed > MOST_LISTED || self.found.simulated >= MOST_SIMULATED {
                    self.found.open = bound;
                    return;
                }
                let known = done.iter().any(|own| own.types == assigned.types && own.ends == assigned.ends);
                if !known {
                    self.judge(&assigned);
                    done.push(assigned);
                }
            }
            if self.part.value(limit + self.outside) >= self.best || margin > 1e3 {
                return;
            }
            margin *= MARGIN_GROWTH;
        }
    }

    /// The best sharding of a split that fits every stage's GPUs, if it is better than what is known.
    fn judge(&mut self, assigned: &Assigned) {
        let part = self.part;
        let ends = &assigned.ends;
        let Some(hosts) = hosts_of(part.kinds, &self.deal.runs(&assigned.types)) else { return };
        let pipeline = self.pipeline_bound(assigned);
        let outside = |index: usize| self.outside_with(self.shardings[index].parallel, assigned);
        let mut order: Vec<(f64, usize)> = (0..self.shardings.len()).map(|i| (outside(i), i)).collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (outside, index) in order {
            if part.value(pipeline + outside) >= self.best {
                return;
            }
            let parallel = self.shardings[index].parallel;
            let stages = stage_map(part.units, parallel, Placement::Loop, ends);
            if !self.fits(index, &assigned.types, &stages) {
                continue;
            }
            self.found.simulated += 1;
            let Some(step) = self.step(index, &assigned.types, &hosts, &stages) else { continue };
            let value = part.value(step);
            if value < self.best {
                self.best = value;
                let (parallel, hosts) = (parallel.clone(), hosts.clone());
                self.found.best = Some(Choice { value, parallel, stages, hosts });
            }
        }
    }

    fn fits(&self, index: usize, types: &[usize], stages: &StageMap) -> bool {
        let reserve = &self.part.problem.runtime.memory.reserve;
        types.iter().enumerate().all(|(rank, own)| {
            let peak = self.shardings[index].memory.rank_peak(rank as u32, stages.on_rank(rank as u32));
            reserve.reserved_bytes(peak.allocated()) <= self.limits[*own].get()
        })
    }

    /// Seconds of a step on these hosts; none if some cannot reach each other.
    fn step(&mut self, index: usize, types: &[usize], hosts: &[usize], stages: &StageMap) -> Option<f64> {
        let (network, own) = (self.part.network, &mut self.shardings[index]);
        let parallel = own.parallel;
        let sites = own.sites.entry(types.to_vec()).or_insert_with(|| {
            let hosts: Vec<Option<usize>> = hosts.iter().copied().map(Some).collect();
            Arc::new(network.sites(&hosts, parallel, network.best()))
        });
        let run = run_of(self.part.problem, own.parallel, stages);
        let costs = RankCosts::at(&run, Some(Arc::clone(sites))).ok()?;
        let schedule = PreparedSchedule::of(&run, &costs).ok()?;
        step_seconds(&run, &costs, &schedule).ok().map(cluster_profiles::Seconds::get)
    }

    /// Seconds of the pipeline that no placement on hosts of these types beats.
    fn pipeline_bound(&self, assigned: &Assigned) -> f64 {
        let (mesh, pipeline) = (&self.layout.mesh, &self.layout.pipeline);
        let recompute = pipeline.recompute;
        let Assigned { types, ends, .. } = assigned;
        let op_times = |(units, own): (std::ops::Range<usize>, &usize)| {
            self.times[self.slowest[*own]].op_times(&units, recompute)
        };
        let stages = ranges(ends).zip(types).map(op_times).collect();
        let hop = |pair: &[usize]| Hop { latency: self.hops[pair[0]][pair[1]], transfer: 0.0 };
        let hops = types.windows(2).map(hop).collect();
        let microbatches = u32::try_from(mesh.num_microbatches).unwrap_or(u32::MAX);
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
        if pipeline.schedule.kind != ScheduleKind::OneFOneB {
            return any;
        }
        let microbatches = microbatches as usize;
        let order = Interleaving { ranks: mesh.pp as usize, chunks: 1, microbatches, group: microbatches };
        any.max(order.bound(&costs))
    }

    /// Seconds outside the pipeline of a split with a sharding, at least.
    fn outside_with(&self, parallel: &ParallelConfig, assigned: &Assigned) -> f64 {
        let recompute = self.layout.pipeline.recompute;
        let share = |kind: usize, units: std::ops::Range<usize>| {
            let [forward, input, weight] = self.times[kind].stage(&units, recompute);
            RankShare {
                parameters: self.times[kind].parameters(&units),
                times: Some((forward, input + weight)),
            }
        };
        let of_kind = self.part.alone.iter().enumerate().map(|(kind, alone)| {
            let stages = ranges(&assigned.ends).zip(&assigned.types);
            let own = stages.filter(|(_, own)| self.slowest[**own] == kind);
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
    let (mesh, pipeline) = (&layout.mesh, &layout.pipeline);
    let own = times.iter().zip(bytes);
    own.map(|(times, bytes)| Bounds { mesh, pipeline, times, bytes, body, order: None, lean: false })
        .collect()
}
