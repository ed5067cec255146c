//! A set of kinds, and what no layout on it beats.
//!
//! Work that may be shared at will, down to fractions of a layer, takes T with
//!
//! ```text
//! T >= (w_0 + ... + w_(s-1)) + m w_s  on every stage s      sum over s of w_s / t_s = 1
//! ```
//!
//! `t` the seconds of the whole model on the GPUs of a stage, `w` those of a microbatch that it takes. What is left of T
//! after a stage's lead buys `c_s` of the model a second on the stages from s on: `c_s = c_(s+1) + max(0, 1/t_s - c_(s+1)) / m`,
//! and the least T is `1 / c_0`. Where ranks do not wait for the whole work of those before them, `c_s = c_(s+1) + 1 / (m t_s)`.

use super::kinds::{Kind, Row};
use crate::mesh::{Mesh, Pipeline, Sharding};
use crate::outside::outside_bound;
use crate::problem::Problem;
use crate::solve::space_of;
use crate::space::{Pruned, SearchSpace};
use crate::times::UnitTimes;
use crate::units::Units;
use cluster_profiles::Seconds;
use cost_models::Recompute;
use cost_models::schedule::{Placement, Vocabulary};
use cost_models::sites::{Network, limit_on};
use std::cmp::Reverse;

/// Kinds that work together, and the orders in which they may follow each other.
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
    /// The orders.
    pub rows: Vec<Row>,
}

/// A layout without stages, in one order of the kinds.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// Degrees.
    pub mesh: Mesh,
    /// Schedule and recompute.
    pub pipeline: Pipeline,
    /// Index of the order.
    pub row: usize,
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
            space: space_of(problem),
            alone: kinds.iter().enumerate().map(alone).collect(),
            rows: super::kinds::orders(kinds).iter().filter_map(|runs| Row::new(kinds, runs)).collect(),
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
        let parallel = mesh.sharded(Sharding { zero_stage: 0, dp_replicate: 1 });
        self.alone.iter().map(|alone| UnitTimes::new(alone, self.units, &parallel)).collect()
    }

    /// The slowest of some kinds: the one that a stage on all of them runs at.
    pub fn slowest(&self, kinds: &[usize]) -> usize {
        let speed = |kind: &usize| self.kinds[*kind].speed;
        kinds.iter().copied().min_by(|a, b| speed(a).total_cmp(&speed(b))).unwrap_or(0)
    }

    /// Orders that differ with so many stages.
    fn orders(&self, mesh: &Mesh) -> usize {
        if mesh.pp == 1 { self.rows.len().min(1) } else { self.rows.len() }
    }

    /// A value that no layout of a mesh beats, from the seconds of the whole model on every kind.
    pub fn mesh_bound(&self, mesh: &Mesh, whole: &[f64]) -> f64 {
        let world = self.problem.cluster.gpu_count();
        let rows = self.rows[..self.orders(mesh)].iter();
        let load = rows.map(|row| self.load(&row.kinds_of(mesh.pp, world), whole, mesh, false));
        self.value(load.fold(f64::INFINITY, f64::min) + self.problem.runtime.time.step.get())
    }

    /// Seconds of the pipeline, at least, with the kinds in these stages.
    fn load(&self, stages: &[Vec<usize>], whole: &[f64], mesh: &Mesh, waits: bool) -> f64 {
        let microbatches = mesh.num_microbatches as f64;
        let rate = stages.iter().rev().fold(0.0, |rate: f64, kinds| {
            let own = 1.0 / whole[self.slowest(kinds)].max(f64::MIN_POSITIVE);
            rate + if waits { (own - rate).max(0.0) } else { own } / microbatches
        });
        1.0 / rate
    }

    /// The layouts of a mesh with values that they cannot beat, as far as those are below the cutoff.
    pub fn layouts(&self, mesh: &Mesh, cutoff: f64) -> Vec<(f64, Layout)> {
        let mut list = Vec::new();
        let pipelines = self.space.pipelines(mesh, &mut Pruned::new());
        let times = self.times(mesh);
        let mut known: Vec<(Vec<Sharding>, f64)> = Vec::new();
        for (pipeline, shardings) in pipelines.into_iter().filter(|(pipeline, _)| is_chain(mesh, pipeline)) {
            let outside = known.iter().find(|(own, _)| *own == shardings).map(|(_, seconds)| *seconds);
            let outside = outside.unwrap_or_else(|| {
                let least = shardings.iter().map(|sharding| self.outside_of(mesh, *sharding, &times));
                known.push((shardings.clone(), least.fold(f64::INFINITY, f64::min)));
                known[known.len() - 1].1
            });
            let whole: Vec<f64> = times.iter().map(|times| times.whole(pipeline.recompute)).collect();
            for index in 0..self.orders(mesh) {
                let stages = self.rows[index].kinds_of(mesh.pp, self.problem.cluster.gpu_count());
                let load = self.load(&stages, &whole, mesh, waits_for_all(&pipeline));
                let bound = self.value(load + outside);
                if bound < cutoff {
                    list.push((bound, Layout { mesh: *mesh, pipeline, row: index }));
                }
            }
        }
        list
    }

    /// Seconds outside the pipeline, at least: the stage with the most parameters is on one of the kinds.
    pub fn outside_of(&self, mesh: &Mesh, sharding: Sharding, times: &[UnitTimes]) -> f64 {
        let parallel = mesh.sharded(sharding);
        let of_kind =
            self.alone.iter().zip(times).map(|(alone, times)| outside_bound(alone, &parallel, times));
        of_kind.fold(f64::INFINITY, f64::min)
    }
}

/// Whether a rank waits for the whole work of those before it: not where the backward is split, nor where the next step may
/// begin before this one has ended.
pub fn waits_for_all(pipeline: &Pipeline) -> bool {
    let definition = pipeline.schedule.kind.definition();
    !definition.splits_backward && !definition.staggered
}

/// One stage per rank in order, the head whole, every layer recomputed or none, no forward combined with a backward.
fn is_chain(mesh: &Mesh, pipeline: &Pipeline) -> bool {
    let definition = pipeline.schedule.kind.definition();
    let counted = matches!(pipeline.recompute, Recompute::Full { layers: Some(_) });
    let shape = mesh.pp == 1 || (pipeline.vpp == 1 && definition.placement == Placement::Loop);
    let plain = !definition.combines && !pipeline.per_stage;
    shape && !counted && plain && pipeline.schedule.vocabulary == Vocabulary::Whole
}
