//! A mesh becomes pipelines: those that may have a value below the cutoff, each with its bound.

use crate::expand::{Expansion, Tree};
use crate::leaf::Goal;
use crate::mesh::{Mesh, Pipeline, Sharding};
use crate::orders::has_local_pipeline;
use crate::tables::Tables;
use crate::times::UnitTimes;
use cost_models::Recompute;
use cost_models::rules::{RecomputeFreedom, StageFreedom};
use std::cell::OnceCell;
use std::sync::Arc;

/// The pipelines of a mesh, as far as they were looked at.
struct Pipelines<'t, 'a, 'p> {
    tree: &'t Tree<'a, 'p>,
    mesh: &'t Mesh,
    goal: &'t Goal,
    groups: Vec<Group<'t>>,
    /// What came of pipelines with a group of shardings: whether a split may fit.
    seen: Vec<(Pipeline, usize, bool)>,
    /// Layouts that do not fit.
    too_large: usize,
    expansion: Expansion,
}

/// Shardings that cost layers the same.
struct Group<'t> {
    shardings: &'t [Sharding],
    /// Their tables as far as they were asked for, if they make sense: of most schedules, and of those that combine forwards
    /// with backwards.
    tables: [OnceCell<Option<Arc<Tables>>>; 2],
}

impl Tree<'_, '_> {
    /// Every pipeline of a mesh. Without a pipeline the way the state is sharded may change what a layer costs, so that
    /// shardings are apart; with one, those whose messages between stages take another way.
    pub(crate) fn expand_mesh(&self, mesh: &Mesh, goal: &Goal) -> Expansion {
        let mut expansion = Expansion::default();
        let layouts = self.space.layouts(mesh, &mut expansion.pruned);
        let by_layer = self.problem.runtime.memory.state.whole_gradients;
        let alike = |a: &Sharding, b: &Sharding| mesh.pp > 1 && !by_layer && self.hops_alike(mesh, *a, *b);
        let group = |shardings| Group { shardings, tables: Default::default() };
        let groups: Vec<Group> = layouts.shardings.chunk_by(alike).map(group).collect();
        let count = groups.len();
        let seen = Vec::with_capacity(layouts.pipelines.len() * count);
        let mut pipelines = Pipelines { tree: self, mesh, goal, groups, seen, too_large: 0, expansion };
        for pipeline in &layouts.pipelines {
            (0..count).for_each(|group| pipelines.look_at(*pipeline, group));
        }
        let Pipelines { mut expansion, too_large, .. } = pipelines;
        if too_large > 0 {
            expansion.prune("memory", too_large);
        }
        expansion
    }

    /// Whether messages between stages take as long with both shardings.
    fn hops_alike(&self, mesh: &Mesh, a: Sharding, b: Sharding) -> bool {
        let local = |sharding| has_local_pipeline(mesh, sharding, self.problem.cluster);
        a.rank_order == b.rank_order || local(a) == local(b)
    }

    /// A value that no split of a pipeline beats, from its load alone; that of a choice of modules is looked at only if what it
    /// repeats and waits may matter.
    fn load_bound(&self, tables: &Tables, pipeline: &Pipeline, cutoff: f64) -> f64 {
        let recompute = least_repeated(pipeline, self.space.freedom());
        let bound = |times: &UnitTimes| {
            let pp = tables.mesh.pp;
            let fullest = (times.whole(recompute) / f64::from(pp)).max(times.granular_load(pp, recompute));
            let load = tables.mesh.num_microbatches as f64 * fullest;
            self.pipeline_value(tables, load)
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
        Some(self.pipeline_value(tables, seconds))
    }
}

impl<'t> Pipelines<'t, '_, '_> {
    /// Makes a pipeline with some shardings a child, unless none of its splits may have a value below the cutoff or fit.
    fn look_at(&mut self, pipeline: Pipeline, group: usize) {
        let (tree, cutoff) = (self.tree, self.goal.cutoff);
        let shardings = self.groups[group].shardings.len();
        let Some(tables) = self.tables_of(&pipeline, group) else {
            self.too_large += shardings;
            return;
        };
        let load = tree.load_bound(&tables, &pipeline, cutoff);
        if load >= cutoff {
            return;
        }
        if load < self.expansion.any_split.map_or(self.goal.any_split, |least| least.min(self.goal.any_split))
        {
            let bound = tree.any_split_bound(&tables, &pipeline);
            self.expansion.any_split = self.expansion.any_split.into_iter().chain(bound).reduce(f64::min);
        }
        let known = self.known(&tables, pipeline, group);
        let child = if known.is_some() { None } else { tree.first_child(&tables, pipeline, cutoff) };
        let fits = known.unwrap_or(child.is_some());
        self.seen.push((pipeline, group, fits));
        if !fits {
            self.too_large += shardings;
        }
        self.expansion.children.extend(child.filter(|(bound, _)| *bound < cutoff));
    }

    /// Whether a split may fit of a pipeline that need not be looked at: one that keeps more, and whose splits are no slower,
    /// stands for it if that may fit; one that costs the same stands for it in any case.
    fn known(&self, tables: &Tables, pipeline: Pipeline, group: usize) -> Option<bool> {
        let seen = |other: Pipeline| {
            let mut seen = self.seen.iter().rev();
            seen.find(|(known, own, _)| *known == other && *own == group).map(|(.., fits)| *fits)
        };
        let more = self.tree.keeps_more(self.mesh, &pipeline).and_then(seen).filter(|fits| *fits);
        let same = || tables.same(pipeline.recompute).map(|recompute| Pipeline { recompute, ..pipeline });
        more.or_else(|| same().and_then(seen))
    }

    fn tables_of(&self, pipeline: &Pipeline, group: usize) -> Option<Arc<Tables>> {
        let (tree, Group { shardings, tables }) = (self.tree, &self.groups[group]);
        let combines = pipeline.schedule.kind.definition().combines;
        let make = || {
            let cutoff = self.goal.cutoff;
            let tables =
                Tables::new(tree.problem, tree.units, self.mesh, shardings, pipeline.schedule, cutoff)?;
            Some(Arc::new(tables.with_modules(tree.space.recomputes())))
        };
        tables[usize::from(combines)].get_or_init(make).clone()
    }
}

/// What is surely repeated: where layers can be counted, a pipeline that recomputes starts with one of them.
fn least_repeated(pipeline: &Pipeline, freedom: RecomputeFreedom) -> Recompute {
    match pipeline.recompute {
        Recompute::Full { .. } if freedom != RecomputeFreedom::AllOrNone => Recompute::None,
        other => other,
    }
}
