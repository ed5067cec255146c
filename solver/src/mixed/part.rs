//! A set of kinds, and what no layout on it beats.
//!
//! Work that may be shared at will, down to fractions of a layer, takes T with
//!
//! ```text
//! T >= (w_0 + ... + w_(s-1)) + m w_s  on every stage s      sum over s of w_s / t_s = 1
//! ```
//!
//! `t` the seconds of the whole model on the GPUs of a stage, `w` those of a microbatch that it takes. Kinds differ in what they are
//! good at, so that a layer counts as the part of the most common one that it is on the kind where it is the smallest: on no kind is a
//! share of the model so counted done faster than that share of `t`. What is left of T
//! after a stage's lead buys `c_s` of the model a second on the stages from s on: `c_s = c_(s+1) + max(0, 1/t_s - c_(s+1)) / m`,
//! and the least T is `1 / c_0`. Where ranks do not wait for the whole work of those before them, `c_s = c_(s+1) + 1 / (m t_s)`.
//! Of all orders of the same stages the fastest first has the least T: exchanging two neighbours so that the faster is in front
//! never lessens `c`.

use super::deal::{Deal, StageType, deals};
use super::hops::{Far, far};
use super::kinds::Kind;
use crate::mesh::{Mesh, Pipeline, Sharding};
use crate::outside::outside_bound;
use crate::problem::Problem;
use crate::solve::space_of;
use crate::space::{Pruned, SearchSpace};
use crate::times::UnitTimes;
use crate::units::{UnitKind, Units};
use cluster_profiles::Seconds;
use cost_models::Recompute;
use cost_models::schedule::{Placement, Vocabulary};
use cost_models::sites::{Network, limit_on};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Kinds that work together.
pub struct Part<'a> {
    /// The problem on these kinds alone.
    pub problem: &'a Problem<'a>,
    /// The model's units.
    pub units: &'a Units,
    /// The kinds.
    pub kinds: &'a [Kind],
    /// Which of all kinds they are.
    pub ids: &'a [usize],
    /// Their hosts and the ways between them.
    pub network: &'a Network<'a>,
    /// The layouts.
    pub space: SearchSpace<'a>,
    /// The problem on every kind alone, with what its GPUs may hold.
    pub alone: Vec<Problem<'a>>,
    /// Ways between the kinds that are slower than their own links.
    pub far: Vec<Far>,
    /// The stages that the hosts may form, by number of stages.
    deals: Mutex<BTreeMap<u32, Arc<Vec<Deal>>>>,
}

/// A layout without layers, on the stages of a deal.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// Degrees.
    pub mesh: Mesh,
    /// Schedule and recompute.
    pub pipeline: Pipeline,
    /// Index of the deal.
    pub deal: usize,
}

impl<'a> Part<'a> {
    /// The layouts of some kinds.
    pub fn new(
        problem: &'a Problem<'a>,
        units: &'a Units,
        kinds: &'a [Kind],
        ids: &'a [usize],
        network: &'a Network<'a>,
    ) -> Self {
        let alone = |(index, kind): (usize, &'a Kind)| Problem {
            cluster: &kind.cluster,
            memory_limit: Some(limit_on(problem.cluster, problem.runtime, problem.limit(), index)),
            ..problem.clone()
        };
        Self {
            problem,
            units,
            kinds,
            ids,
            network,
            space: space_of(problem).in_default_order(),
            alone: kinds.iter().enumerate().map(alone).collect(),
            far: far(kinds, network),
            deals: Mutex::default(),
        }
    }

    /// The stages that the hosts may form.
    pub fn deals(&self, stages: u32) -> Arc<Vec<Deal>> {
        let make = || Arc::new(deals(self.kinds, stages, self.units.len(), !self.far.is_empty()));
        match self.deals.lock() {
            Ok(mut known) => Arc::clone(known.entry(stages).or_insert_with(make)),
            Err(_) => make(),
        }
    }

    /// Whether it is one kind only, which is planned without the others' restrictions.
    pub const fn is_alone(&self) -> bool {
        self.kinds.len() == 1
    }

    /// Tensor-parallel groups stay inside nodes of every kind.
    pub fn is_inside_nodes(&self, mesh: &Mesh) -> bool {
        let groups = &self.problem.cluster.groups;
        groups.iter().all(|group| group.node.domain.is_multiple_of(mesh.tp))
    }

    /// What a step of so many seconds is worth.
    pub fn value(&self, step: f64) -> f64 {
        self.problem.objective.value(self.problem.cluster, Seconds(step), Seconds(step))
    }

    /// The step that is worth a value: every objective is linear in it.
    pub fn step_of(&self, value: f64) -> f64 {
        let (none, second) = (self.value(0.0), self.value(1.0));
        (value - none) / (second - none)
    }

    /// The sharding with the least state.
    pub fn leanest(&self, mesh: &Mesh) -> Option<Sharding> {
        let shardings = self.space.shardings(mesh);
        shardings.into_iter().max_by_key(|own| (own.zero_stage, Reverse(own.dp_replicate)))
    }

    /// Times of every kind. No sharding has shorter ones.
    pub fn times(&self, mesh: &Mesh) -> Vec<UnitTimes> {
        let parallel = mesh.sharded(Sharding::NONE);
        self.alone.iter().map(|alone| UnitTimes::new(alone, self.units, &parallel)).collect()
    }

    /// The slowest kind of every type of stage: the one that the stage runs at.
    pub fn slowest(&self, deal: &Deal) -> Vec<usize> {
        let speed = |kind: &usize| self.kinds[*kind].speed;
        let of_type = |own: &StageType| {
            let kinds = own.parts.iter().map(|part| part.kind);
            kinds.min_by(|a, b| speed(a).total_cmp(&speed(b))).unwrap_or(0)
        };
        deal.types.iter().map(of_type).collect()
    }

    /// A value that no layout of a mesh beats, from the seconds of the whole model on every kind.
    pub fn mesh_bound(&self, mesh: &Mesh, whole: &[f64]) -> f64 {
        let deals = self.deals(mesh.pp);
        let load = deals.iter().map(|deal| self.load(deal, whole, mesh, false));
        self.value(load.fold(f64::INFINITY, f64::min) + self.problem.runtime.time.step.get())
    }

    /// Seconds of the pipeline, at least, with these stages in any order.
    fn load(&self, deal: &Deal, whole: &[f64], mesh: &Mesh, waits: bool) -> f64 {
        let microbatches = mesh.num_microbatches as f64;
        let types = self.slowest(deal).into_iter().zip(&deal.types);
        let mut rates: Vec<(f64, usize)> =
            types.map(|(kind, own)| (1.0 / whole[kind].max(f64::MIN_POSITIVE), own.count)).collect();
        rates.sort_by(|a, b| a.0.total_cmp(&b.0));
        let stages = rates.into_iter().flat_map(|(rate, count)| std::iter::repeat_n(rate, count));
        let rate = stages.fold(0.0, |rate: f64, own| {
            rate + if waits { (own - rate).max(0.0) } else { own } / microbatches
        });
        1.0 / rate
    }

    /// A value that no layers and no order of the stages of a deal beat.
    pub fn deal_bound(&self, layout: &Layout, deal: &Deal, times: &[UnitTimes], outside: f64) -> f64 {
        let pipeline = &layout.pipeline;
        let whole = self.whole(times, pipeline.recompute);
        self.value(self.load(deal, &whole, &layout.mesh, waits_for_all(pipeline)) + outside)
    }

    /// Seconds of the whole model on every kind, as far as work may be shared at will.
    fn whole(&self, times: &[UnitTimes], recompute: Recompute) -> Vec<f64> {
        let units = self.units.as_slice();
        let of_kind = |(kind, own): (usize, &UnitKind)| {
            let unit = units.iter().position(|unit| unit.kind == kind).map(|unit| unit..unit + 1);
            times
                .iter()
                .map(|times| (own.count, unit.as_ref().map_or(0.0, |unit| times.work(unit, recompute))))
                .collect()
        };
        shared(&self.units.kinds().iter().enumerate().map(of_kind).collect::<Vec<Vec<(u32, f64)>>>())
    }

    /// The layouts of a mesh with values that they cannot beat, as far as those are below the cutoff.
    pub fn layouts(&self, mesh: &Mesh, cutoff: f64) -> Vec<(f64, Layout)> {
        let mut list = Vec::new();
        let layouts = self.space.layouts(mesh, &mut Pruned::new());
        let times = self.times(mesh);
        let deals = self.deals(mesh.pp);
        let outside = layouts.shardings.iter().map(|sharding| self.outside_of(mesh, *sharding, &times));
        let outside = outside.fold(f64::INFINITY, f64::min);
        for pipeline in layouts.pipelines.into_iter().filter(|pipeline| is_chain(mesh, pipeline)) {
            for (index, deal) in deals.iter().enumerate() {
                let layout = Layout { mesh: *mesh, pipeline, deal: index };
                let bound = self.deal_bound(&layout, deal, &times, outside);
                if bound < cutoff {
                    list.push((bound, layout));
                }
            }
        }
        list
    }

    /// Seconds outside the pipeline, at least: the stage with the most parameters is on one of the kinds.
    pub fn outside_of(&self, mesh: &Mesh, sharding: Sharding, times: &[UnitTimes]) -> f64 {
        let parallel = mesh.sharded(sharding);
        let of_kind =
            self.alone.iter().zip(times).map(|(alone, times)| outside_bound(alone, &parallel, times, None));
        of_kind.fold(f64::INFINITY, f64::min)
    }
}

/// Seconds of the whole model on every kind of GPU, from the number of equal layers and the seconds of one on every kind. Every layer
/// counts as the part of the most common one that it is where it is the smallest.
pub fn shared(layers: &[Vec<(u32, f64)>]) -> Vec<f64> {
    let Some(most) = layers.iter().max_by_key(|own| own.first().map_or(0, |(count, _)| *count)) else {
        return Vec::new();
    };
    let part = |own: &Vec<(u32, f64)>| {
        let parts = own.iter().zip(most).map(|((_, seconds), (_, of))| seconds / of.max(f64::MIN_POSITIVE));
        own.first().map_or(0.0, |(count, _)| f64::from(*count)) * parts.fold(f64::INFINITY, f64::min)
    };
    let parts: f64 = layers.iter().map(part).sum();
    most.iter().map(|(_, seconds)| parts * seconds).collect()
}

/// Whether a rank waits for the whole work of those before it: not where the backward is split, nor where the next step may
/// begin before this one has ended.
pub fn waits_for_all(pipeline: &Pipeline) -> bool {
    let definition = pipeline.schedule.kind.definition();
    !definition.splits_backward && !definition.staggered
}

/// One stage per rank in order, the head whole, every layer recomputed or none, nothing moved, no forward combined with a backward.
pub(super) fn is_chain(mesh: &Mesh, pipeline: &Pipeline) -> bool {
    let definition = pipeline.schedule.kind.definition();
    let counted = matches!(
        pipeline.recompute,
        Recompute::Full { layers: Some(_) } | Recompute::Offload { .. } | Recompute::Modules(_)
    );
    let shape = mesh.pp == 1 || (pipeline.vpp == 1 && definition.placement == Placement::Loop);
    let plain = !definition.combines && !pipeline.per_stage;
    shape && !counted && plain && pipeline.schedule.vocabulary == Vocabulary::Whole
}
