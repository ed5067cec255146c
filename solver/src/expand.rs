//! What becomes of a node: its children, or the best split of its layout.

use crate::bound::Layout;
use crate::bytes::average_may_fit;
use crate::leaf::{Goal, Leaf, LeafResult};
use crate::mesh::{Mesh, Pipeline};
use crate::node::Kind;
use crate::objective::Objective;
use crate::problem::Problem;
use crate::space::{Pruned, SearchSpace};
use crate::tables::Tables;
use crate::times::{Mode, UnitTimes, least_load};
use crate::units::Units;
use cluster_profiles::Seconds;
use cost_models::Recompute;
use cost_models::rules::{RecomputeFreedom, StageFreedom};
use cost_models::schedule::{Interleaving, ScheduleShape};
use std::cmp::Reverse;
use std::sync::Arc;

/// What all nodes share.
pub struct Tree<'a, 'p> {
    /// The problem.
    pub problem: &'a Problem<'p>,
    /// The model's units.
    pub units: &'a Units,
    /// The layouts.
    pub space: &'a SearchSpace<'p>,
}

/// What became of a node.
#[derive(Debug, Default)]
pub struct Expansion {
    /// Smaller sets with their bounds.
    pub children: Vec<(f64, Kind)>,
    /// Layouts that were excluded.
    pub pruned: Pruned,
    /// A value that no split into several chunks beats, whether it is among those that are looked at or not.
    pub any_split: Option<f64>,
    /// For one pipeline: its splits, and the number of layouts they stand for.
    pub leaf: Option<(LeafResult, u64)>,
}

impl Expansion {
    pub(crate) fn prune(&mut self, rule: &str, layouts: usize) {
        *self.pruned.entry(rule.to_owned()).or_default() += layouts as u64;
    }
}

impl Tree<'_, '_> {
    /// Looks at a node; only values that meet the goal matter.
    #[must_use]
    pub fn expand(&self, kind: &Kind, goal: &Goal) -> Expansion {
        match kind {
            Kind::Mesh(mesh) => self.expand_mesh(mesh, goal),
            Kind::Pipeline(tables, pipeline) => self.tighten(tables, pipeline, goal),
            Kind::Splits(tables, pipeline, known) => self.solve(tables, pipeline, *known, goal),
        }
    }

    /// A value that no layout of a mesh beats, from the times of a microbatch through every kind of layer.
    #[must_use]
    pub fn mesh_bound(&self, mesh: &Mesh, works: &[(u32, f64)]) -> f64 {
        let load = mesh.num_microbatches as f64 * least_load(works, mesh.pp);
        self.value_bound(load + self.problem.runtime.time.step.get(), load)
    }

    pub(crate) fn load(&self, mesh: &Mesh, times: &UnitTimes) -> f64 {
        let average = times.whole(Recompute::None) / f64::from(mesh.pp);
        mesh.num_microbatches as f64 * average.max(times.granular_load(mesh.pp, Recompute::None))
    }

    pub(crate) fn value_bound(&self, step: f64, load: f64) -> f64 {
        self.problem.objective.bound(self.problem.cluster, Seconds(step), Seconds(load))
    }

    /// Whether the average rank may fit with one microbatch in flight, all state sharded and all recomputed that may be.
    #[must_use]
    pub fn average_may_fit(&self, mesh: &Mesh) -> bool {
        let shardings = self.space.state_shardings(mesh);
        let lean =
            shardings.iter().max_by_key(|sharding| (sharding.zero_stage, Reverse(sharding.dp_replicate)));
        let Some(lean) = lean else { return false };
        let recomputes = self.space.recomputes();
        let moves = recomputes.iter().any(|own| match own {
            Recompute::Offload { .. } => mesh.pp == 1,
            Recompute::Modules(_) => true,
            _ => false,
        });
        let most = recomputes.iter().map(|own| Mode::of(*own)).max_by_key(|mode| *mode as usize);
        let mode = if moves { None } else { Some(most.unwrap_or(Mode::Keep)) };
        let parallel = mesh.sharded(*lean);
        average_may_fit(self.problem, self.units, &parallel, f64::from(mesh.pp), mode)
    }

    /// The first of the pipelines that this one stands for, with its bound: infinite where no split is found to be below the
    /// cutoff; none where none fits.
    pub(crate) fn first_child(
        &self,
        tables: &Arc<Tables>,
        pipeline: Pipeline,
        cutoff: f64,
    ) -> Option<(f64, Kind)> {
        let limit = self.limit(tables, cutoff);
        let counts = self.counts_layers(&pipeline, tables);
        if counts && limit.is_finite() && !self.layout(&pipeline, tables).may_end_within(limit) {
            return Some((f64::INFINITY, Kind::Pipeline(Arc::clone(tables), pipeline)));
        }
        let pipeline = if counts { self.first_counted(pipeline, tables)? } else { pipeline };
        let bound = self.node_bound(tables, &pipeline, limit)?;
        Some((bound, Kind::Pipeline(Arc::clone(tables), pipeline)))
    }

    /// Seconds of a pipeline from which on nothing matters.
    fn limit(&self, tables: &Tables, cutoff: f64) -> f64 {
        match self.problem.objective {
            Objective::StepTime => cutoff - tables.outside(),
            _ => f64::INFINITY,
        }
    }

    /// The value that no split of a pipeline beats, nor of one that repeats more of the layers that it counts: fewer may fit with
    /// less even stages alone.
    fn node_bound(&self, tables: &Tables, pipeline: &Pipeline, limit: f64) -> Option<f64> {
        let layout = Layout { lean: true, ..self.layout(pipeline, tables) };
        let seconds = layout.pipeline_bound_up_to(limit)?;
        Some(self.pipeline_value(tables, seconds))
    }

    /// The value of a step whose pipeline takes at least so many seconds.
    pub(crate) fn pipeline_value(&self, tables: &Tables, seconds: f64) -> f64 {
        self.value_bound(seconds + tables.outside(), self.load(&tables.mesh, &tables.times))
    }

    /// The pipeline with the fewest recomputed layers that may fit.
    fn first_counted(&self, pipeline: Pipeline, tables: &Tables) -> Option<Pipeline> {
        let with = |layers: u32| match pipeline.recompute {
            Recompute::Offload { .. } => Pipeline { recompute: Recompute::Offload { layers }, ..pipeline },
            _ => Pipeline { recompute: Recompute::Full { layers: Some(layers) }, ..pipeline },
        };
        let may_fit = |layers: u32| self.layout(&with(layers), tables).some_split_may_fit();
        let moves = matches!(pipeline.recompute, Recompute::Offload { .. });
        let (mut low, mut high) = (1, self.most_layers(&tables.mesh, pipeline.vpp));
        if moves {
            high = high.saturating_sub(1).max(1);
        }
        if !may_fit(high) {
            return None;
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if may_fit(middle) { high = middle } else { low = middle + 1 }
        }
        Some(with(low))
    }

    /// Whether the number of layers that a pipeline repeats or moves is to be found.
    fn counts_layers(&self, pipeline: &Pipeline, tables: &Tables) -> bool {
        match pipeline.recompute {
            Recompute::Full { layers: None } => {
                !pipeline.per_stage && self.space.freedom() != RecomputeFreedom::AllOrNone
            }
            Recompute::Offload { .. } => self.one_more(pipeline, tables).is_some(),
            _ => false,
        }
    }

    /// The most blocks a stage can have.
    fn most_layers(&self, mesh: &Mesh, vpp: u32) -> u32 {
        let blocks: u32 = self.units.as_slice().iter().map(|unit| unit.blocks).sum();
        if vpp > 1 { blocks.div_ceil(mesh.pp * vpp) + 1 } else { blocks.max(1) }
    }

    /// A pipeline with the tables of its mesh.
    #[must_use]
    pub fn layout<'t>(&self, pipeline: &'t Pipeline, tables: &'t Tables) -> Layout<'t> {
        let body = self.units.len() - self.units.leading() - self.units.trailing();
        let (times, bytes) = tables.under(self.problem, self.units, pipeline.recompute);
        let group_size = self.problem.runtime.memory.pipeline.group_size;
        let shape = ScheduleShape { group_size, ..self.space.shape(&tables.mesh, pipeline.vpp) };
        let order = Interleaving::of(pipeline.schedule.kind, &shape);
        Layout { mesh: &tables.mesh, pipeline, times, bytes, body, order, lean: false }
    }

    pub(crate) fn leaf<'t>(&'t self, pipeline: &'t Pipeline, tables: &'t Tables) -> Leaf<'t, 't> {
        let layout = self.layout(pipeline, tables);
        Leaf {
            problem: self.problem,
            units: self.units,
            layout,
            tables,
            freedom: self.space.engine().stages,
            recomputes: self.space.recomputes(),
        }
    }

    /// The same pipeline with the bound of its best split.
    fn tighten(&self, tables: &Arc<Tables>, pipeline: &Pipeline, goal: &Goal) -> Expansion {
        let leaf = self.leaf(pipeline, tables);
        let counted = matches!(pipeline.recompute, Recompute::Full { layers: Some(_) });
        if leaf.is_listed_chain() && counted {
            return self.tighten_chain(tables, pipeline, goal.cutoff);
        }
        if leaf.is_listed_chain() || tables.mesh.pp == 1 {
            return self.solve(tables, pipeline, leaf.is_listed_chain(), goal);
        }
        let may_keep_less = self.may_keep_less(tables, pipeline);
        let family = leaf.family_bound(goal.cutoff, counted || may_keep_less);
        // A split that does not fit may be below all that do: it may fit where less is kept, or one more layer is repeated.
        let known = family.lacks_memory;
        let splits = |bound| (bound, Kind::Splits(Arc::clone(tables), *pipeline, known));
        let mut children: Vec<(f64, Kind)> = family.least.map(splits).into_iter().collect();
        if known && may_keep_less {
            children.extend(self.keep_less(tables, pipeline, goal.cutoff));
        }
        if known && counted {
            children.extend(self.one_layer_more(tables, pipeline, goal.cutoff));
        }
        Expansion { children, ..Expansion::default() }
    }

    /// The splits of a chain that counts repeated layers, and the same with one more: with that the stages may be more even.
    fn tighten_chain(&self, tables: &Arc<Tables>, pipeline: &Pipeline, cutoff: f64) -> Expansion {
        let seconds = self.layout(pipeline, tables).pipeline_bound_up_to(self.limit(tables, cutoff));
        let bound = seconds.map(|seconds| self.pipeline_value(tables, seconds));
        let splits = |bound| (bound, Kind::Splits(Arc::clone(tables), *pipeline, true));
        let own = bound.filter(|bound| *bound < cutoff).map(splits);
        let children = own.into_iter().chain(self.one_layer_more(tables, pipeline, cutoff)).collect();
        Expansion { children, ..Expansion::default() }
    }

    /// Looks at all splits. Pipelines that keep just less, or repeat one more layer, come next, unless they are `known` already:
    /// the former are no better where every split that matters fits.
    fn solve(&self, tables: &Arc<Tables>, pipeline: &Pipeline, known: bool, goal: &Goal) -> Expansion {
        let mut expansion = Expansion::default();
        let leaf = self.leaf(pipeline, tables);
        let result = leaf.solve(goal);
        if !known && self.may_keep_less(tables, pipeline) {
            let best = result.best.as_ref().map_or(goal.cutoff, |best| best.value.min(goal.cutoff));
            if leaf.memory_matters(&result, best) {
                expansion.children = self.keep_less(tables, pipeline, best);
            }
        }
        let next = if known { None } else { self.one_layer_more(tables, pipeline, goal.cutoff) };
        // All numbers of layers are one layout.
        let goes_on = next.is_some() || (known && self.one_more(pipeline, tables).is_some());
        let layouts = if goes_on { 0 } else { tables.shardings.len() };
        let too_large = result.simulated == 0 && result.too_large > 0;
        if too_large {
            expansion.prune("memory", layouts);
        }
        expansion.children.extend(next);
        expansion.leaf = Some((result, if too_large { 0 } else { layouts as u64 }));
        expansion
    }

    /// The same pipeline that repeats and moves just less: it has all the splits that are looked at of this one, none slower, as
    /// longer operations in one order end no earlier. None where the order or the choice of stages depends on what fits.
    pub(crate) fn keeps_more(&self, mesh: &Mesh, pipeline: &Pipeline) -> Option<Pipeline> {
        let definition = pipeline.schedule.kind.definition();
        // The bound of a chain depends on what fits, and may be above that of one that keeps less.
        let listed = self.space.engine().stages == StageFreedom::Listed;
        let is_chain = mesh.pp > 1 && pipeline.vpp == 1 && listed;
        if pipeline.per_stage || is_chain || !definition.is_fixed() {
            return None;
        }
        let recompute = self.space.keeps_more(pipeline.recompute)?;
        Some(Pipeline { recompute, ..*pipeline })
    }

    /// The pipelines that repeat or move just more: of use only where a split does not fit.
    fn that_keep_less(&self, tables: &Tables, pipeline: &Pipeline) -> impl Iterator<Item = Pipeline> {
        let choices = self.space.recomputes().iter().filter(|own| tables.same(**own).is_none());
        let others = choices.map(|&recompute| Pipeline { recompute, ..*pipeline });
        others.filter(|other| self.keeps_more(&tables.mesh, other) == Some(*pipeline))
    }

    fn may_keep_less(&self, tables: &Tables, pipeline: &Pipeline) -> bool {
        self.that_keep_less(tables, pipeline).next().is_some()
    }

    /// [`Self::that_keep_less`] with their bounds.
    fn keep_less(&self, tables: &Arc<Tables>, pipeline: &Pipeline, cutoff: f64) -> Vec<(f64, Kind)> {
        let allows = |other: &Pipeline| {
            let mut shardings = tables.shardings.iter();
            shardings.all(|sharded| self.space.allows(&tables.mesh.with(other, sharded.sharding)))
        };
        self.that_keep_less(tables, pipeline)
            .filter(allows)
            .filter_map(|other| self.first_child(tables, other, cutoff))
            .filter(|(bound, _)| *bound < cutoff)
            .collect()
    }

    /// The same with one more layer recomputed, or moved.
    fn one_layer_more(&self, tables: &Arc<Tables>, pipeline: &Pipeline, cutoff: f64) -> Option<(f64, Kind)> {
        let more = self.one_more(pipeline, tables)?;
        let bound = self.node_bound(tables, &more, self.limit(tables, cutoff))?;
        (bound < cutoff).then(|| (bound, Kind::Pipeline(Arc::clone(tables), more)))
    }

    /// The pipeline with one more of the layers that it counts, if that may run.
    fn one_more(&self, pipeline: &Pipeline, tables: &Tables) -> Option<Pipeline> {
        let most = self.most_layers(&tables.mesh, pipeline.vpp);
        let recompute = match pipeline.recompute {
            Recompute::Full { layers: Some(layers) } if layers < most => {
                Recompute::Full { layers: Some(layers + 1) }
            }
            Recompute::Offload { layers } if layers < most => Recompute::Offload { layers: layers + 1 },
            _ => return None,
        };
        let more = Pipeline { recompute, ..*pipeline };
        let sharding = tables.shardings.first()?.sharding;
        self.space.allows(&tables.mesh.with(&more, sharding)).then_some(more)
    }
}
