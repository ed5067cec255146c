//! What becomes of a node: its children, or the best split of its layout.

use crate::bound::Layout;
use crate::bytes::average_may_fit;
use crate::leaf::{Goal, Leaf, LeafResult};
use crate::mesh::{Mesh, Pipeline, Sharding};
use crate::node::Kind;
use crate::objective::Objective;
use crate::orders::has_local_pipeline;
use crate::problem::Problem;
use crate::space::{Pruned, SearchSpace};
use crate::tables::Tables;
use crate::times::{Mode, UnitTimes, least_load};
use crate::units::Units;
use cluster_profiles::Seconds;
use cost_models::Recompute;
use cost_models::rules::{RecomputeFreedom, StageFreedom};
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
    fn prune(&mut self, rule: &str, layouts: usize) {
        *self.pruned.entry(rule.to_owned()).or_default() += layouts as u64;
    }
}

impl Tree<'_, '_> {
    /// Looks at a node; only values that meet the goal matter.
    #[must_use]
    pub fn expand(&self, kind: &Kind, goal: &Goal) -> Expansion {
        match kind {
            Kind::Mesh(mesh) => self.expand_mesh(mesh, goal.cutoff),
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

    fn load(&self, mesh: &Mesh, times: &UnitTimes) -> f64 {
        let average = times.whole(Recompute::None) / f64::from(mesh.pp);
        mesh.num_microbatches as f64 * average.max(times.granular_load(mesh.pp, Recompute::None))
    }

    fn value_bound(&self, step: f64, load: f64) -> f64 {
        self.problem.objective.bound(self.problem.cluster, Seconds(step), Seconds(load))
    }

    /// Every pipeline of a mesh. Without a pipeline the way the state is sharded may change what a layer costs, so that
    /// shardings are apart; with one, those whose messages between stages take another way.
    fn expand_mesh(&self, mesh: &Mesh, cutoff: f64) -> Expansion {
        let mut expansion = Expansion::default();
        let mut known: Vec<(bool, Vec<Sharding>, Option<Arc<Tables>>)> = Vec::new();
        let mut kept: Vec<(Pipeline, &[Sharding])> = Vec::new();
        let pipelines = self.space.pipelines(mesh, &mut expansion.pruned);
        for (pipeline, shardings) in &pipelines {
            let pipeline = *pipeline;
            let by_layer = self.problem.runtime.memory.state.whole_gradients;
            let combines = pipeline.schedule.kind.definition().combines;
            let alike =
                |a: &Sharding, b: &Sharding| mesh.pp > 1 && !by_layer && self.hops_alike(mesh, *a, *b);
            for group in shardings.chunk_by(alike) {
                let same = |(own, list, _): &(bool, Vec<Sharding>, _)| *own == combines && list == group;
                let index = known.iter().position(same).unwrap_or_else(|| {
                    let tables =
                        Tables::new(self.problem, self.units, mesh, group, pipeline.schedule, cutoff);
                    let tables = tables.map(|tables| tables.with_modules(self.space.recomputes()));
                    known.push((combines, group.to_vec(), tables.map(Arc::new)));
                    known.len() - 1
                });
                let tables = known[index].2.as_ref();
                if tables.is_some_and(|tables| self.load_bound(tables, &pipeline, cutoff) >= cutoff) {
                    continue;
                }
                if let Some(bound) = tables.and_then(|tables| self.any_split_bound(tables, &pipeline)) {
                    expansion.any_split = Some(expansion.any_split.map_or(bound, |least| least.min(bound)));
                }
                // The bound of a chain depends on what fits, and may be above that of one that moves more.
                let is_chain = || tables.is_some_and(|tables| self.leaf(&pipeline, tables).is_listed_chain());
                let less = self.space.moves_less(pipeline.recompute).filter(|_| !is_chain());
                let less = less.map(|recompute| (Pipeline { recompute, ..pipeline }, group));
                if less.is_some_and(|less| kept.contains(&less)) {
                    kept.push((pipeline, group));
                    continue;
                }
                match tables.and_then(|tables| self.first_child(tables, pipeline, cutoff)) {
                    Some((bound, kind)) if bound < cutoff => {
                        expansion.children.push((bound, kind));
                        kept.push((pipeline, group));
                    }
                    Some(_) => {}
                    None => expansion.prune("memory", group.len()),
                }
            }
        }
        expansion
    }

    /// Whether messages between stages take as long with both shardings.
    fn hops_alike(&self, mesh: &Mesh, a: Sharding, b: Sharding) -> bool {
        let local = |sharding| has_local_pipeline(mesh, sharding, self.problem.cluster);
        a.rank_order == b.rank_order || local(a) == local(b)
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

    /// A value that no split of a pipeline beats, from its load alone; that of a choice of modules is looked at only if what it
    /// repeats and waits may matter.
    fn load_bound(&self, tables: &Tables, pipeline: &Pipeline, cutoff: f64) -> f64 {
        let recompute = least_repeated(pipeline, self.space.freedom());
        let bound = |times: &UnitTimes| {
            let load =
                tables.mesh.num_microbatches as f64 * times.whole(recompute) / f64::from(tables.mesh.pp);
            self.value_bound(load + tables.outside(), self.load(&tables.mesh, &tables.times))
        };
        let least = bound(&tables.times);
        if least >= cutoff || !matches!(recompute, Recompute::Modules(_)) {
            return least;
        }
        bound(tables.under(self.problem, self.units, recompute).0)
    }

    /// A value that no split of a pipeline with several chunks beats; none where all its splits are looked at.
    fn any_split_bound(&self, tables: &Tables, pipeline: &Pipeline) -> Option<f64> {
        if pipeline.vpp == 1 || self.space.engine().stages == StageFreedom::Own {
            return None;
        }
        let seconds = self.layout(pipeline, tables).any_split_bound()?;
        Some(self.value_bound(seconds + tables.outside(), self.load(&tables.mesh, &tables.times)))
    }

    /// The first of the pipelines that this one stands for, with its bound: infinite where no split is found to be below the
    /// cutoff; none where none fits.
    fn first_child(&self, tables: &Arc<Tables>, pipeline: Pipeline, cutoff: f64) -> Option<(f64, Kind)> {
        let pipeline = self.first_pipeline(pipeline, tables)?;
        let limit = match self.problem.objective {
            Objective::StepTime => cutoff - tables.outside(),
            _ => f64::INFINITY,
        };
        let seconds = self.layout(&pipeline, tables).pipeline_bound_up_to(limit)?;
        let bound = self.value_bound(seconds + tables.outside(), self.load(&tables.mesh, &tables.times));
        Some((bound, Kind::Pipeline(Arc::clone(tables), pipeline)))
    }

    /// The pipeline, with the fewest recomputed layers that may fit where they can be counted.
    fn first_pipeline(&self, pipeline: Pipeline, tables: &Tables) -> Option<Pipeline> {
        if !self.counts_layers(&pipeline, tables) {
            return Some(pipeline);
        }
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

    fn layout<'t>(&self, pipeline: &'t Pipeline, tables: &'t Tables) -> Layout<'t> {
        let body = self.units.len() - self.units.leading() - self.units.trailing();
        let (times, bytes) = tables.under(self.problem, self.units, pipeline.recompute);
        Layout { mesh: &tables.mesh, pipeline, times, bytes, body }
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
        if leaf.is_listed_chain() || tables.mesh.pp == 1 {
            return self.solve(tables, pipeline, leaf.is_listed_chain(), goal);
        }
        let counted = matches!(pipeline.recompute, Recompute::Full { layers: Some(_) });
        let bound = leaf.family_bound(goal.cutoff);
        // A split that does not fit may be below all that do: it may fit with more modules moved.
        let least = bound.unwrap_or(goal.cutoff);
        let expands = self.has_more_moved(pipeline) && leaf.lacks_memory(least);
        let mut children = if expands { self.more_moved(tables, pipeline, goal.cutoff) } else { Vec::new() };
        match bound {
            Some(bound) => children.push((bound, Kind::Splits(Arc::clone(tables), *pipeline, expands))),
            // What is too large for so many recomputed layers may fit with more.
            None if counted && leaf.lacks_memory(goal.cutoff) => {
                children.extend(self.one_layer_more(tables, pipeline, goal.cutoff));
            }
            None => {}
        }
        Expansion { children, ..Expansion::default() }
    }

    /// Looks at all splits. Pipelines that move just more modules are no better where every split that matters fits, unless they are `known`
    /// already.
    fn solve(&self, tables: &Arc<Tables>, pipeline: &Pipeline, known: bool, goal: &Goal) -> Expansion {
        let mut expansion = Expansion::default();
        let leaf = self.leaf(pipeline, tables);
        let result = leaf.solve(goal);
        if !known && self.has_more_moved(pipeline) {
            let best = result.best.as_ref().map_or(goal.cutoff, |best| best.value.min(goal.cutoff));
            if leaf.memory_matters(&result, best) {
                expansion.children = self.more_moved(tables, pipeline, best);
            }
        }
        let next = self.one_layer_more(tables, pipeline, goal.cutoff);
        let layouts = if next.is_some() { 0 } else { tables.shardings.len() };
        let too_large = result.simulated == 0 && result.too_large > 0;
        if too_large {
            expansion.prune("memory", layouts);
        }
        expansion.children.extend(next);
        expansion.leaf = Some((result, if too_large { 0 } else { layouts as u64 }));
        expansion
    }

    /// Whether some choice of modules moves just more than a pipeline.
    fn has_more_moved(&self, pipeline: &Pipeline) -> bool {
        let mut choices = self.space.recomputes().iter();
        choices.any(|own| self.space.moves_less(*own) == Some(pipeline.recompute))
    }

    /// The same with just more modules moved: no split of it takes less time, so that it is of use only where a split does not fit.
    fn more_moved(&self, tables: &Arc<Tables>, pipeline: &Pipeline, cutoff: f64) -> Vec<(f64, Kind)> {
        let Some(sharded) = tables.shardings.first() else { return Vec::new() };
        let choices = self.space.recomputes().iter().copied();
        choices
            .filter(|own| self.space.moves_less(*own) == Some(pipeline.recompute))
            .map(|recompute| Pipeline { recompute, ..*pipeline })
            .filter(|more| self.space.allows(&tables.mesh.with(more, sharded.sharding)))
            .filter_map(|more| self.first_child(tables, more, cutoff))
            .filter(|(bound, _)| *bound < cutoff)
            .collect()
    }

    /// The same with one more layer recomputed, or moved.
    fn one_layer_more(&self, tables: &Arc<Tables>, pipeline: &Pipeline, cutoff: f64) -> Option<(f64, Kind)> {
        let more = self.one_more(pipeline, tables)?;
        let seconds = self.layout(&more, tables).pipeline_bound()?;
        let bound = self.value_bound(seconds + tables.outside(), self.load(&tables.mesh, &tables.times));
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

/// What is surely repeated: where layers can be counted, a pipeline that recomputes starts with one of them.
fn least_repeated(pipeline: &Pipeline, freedom: RecomputeFreedom) -> Recompute {
    match pipeline.recompute {
        Recompute::Full { .. } if freedom != RecomputeFreedom::AllOrNone => Recompute::None,
        other => other,
    }
}
