//! Tries splits: which sharding fits, how long the step is, whether it is the best so far.

use crate::families::Ends;
use crate::leaf::{Candidate, Leaf, LeafResult, memory_of};
use crate::splits::{most_recomputable, normalised, ranges, stage_map};
use crate::strategy::{choose, most_of};
use crate::times::run_of;
use cluster_profiles::Seconds;
use cost_models::memory::MemoryTable;
use cost_models::offload::hosts_have_room;
use cost_models::{ParallelConfig, Recompute, estimate};

/// Simulates the splits of a leaf and keeps the best.
pub struct Judge<'a, 'p> {
    leaf: &'a Leaf<'a, 'p>,
    layouts: &'a [ParallelConfig],
    /// The layout with least state.
    leanest: usize,
    memory: Vec<Option<Option<MemoryTable<'a>>>>,
    /// Whether a rank may come so near to its GPU's capacity that the estimate adds a penalty, which a sharding with more
    /// traffic may avoid.
    near_edge: bool,
    /// Only values below this matter.
    pub cutoff: f64,
    /// What came of it so far.
    pub result: LeafResult,
}

/// What the stages of a split recompute.
#[derive(Debug, Clone)]
enum Choices {
    /// What the pipeline says.
    Same,
    /// A choice per stage.
    Each(Vec<Recompute>),
}

impl<'a, 'p> Judge<'a, 'p> {
    /// A judge of a leaf, whose layout with every sharding is given.
    #[must_use]
    pub fn new(leaf: &'a Leaf<'a, 'p>, layouts: &'a [ParallelConfig], cutoff: f64) -> Self {
        let memory = layouts.iter().map(|_| None).collect();
        let state = |(_, parallel): &(usize, &ParallelConfig)| (parallel.zero_stage, parallel.dp_shard);
        let leanest = layouts.iter().enumerate().max_by_key(state).map_or(0, |(index, _)| index);
        let problem = leaf.problem;
        let default = crate::problem::Problem { memory_limit: None, ..problem.clone() }.limit();
        Self {
            leaf,
            layouts,
            leanest,
            memory,
            near_edge: problem.limit() > default,
            cutoff,
            result: LeafResult::default(),
        }
    }

    /// Tries a split whose pipeline takes at least `pipeline` seconds.
    pub fn try_split(&mut self, ends: &Ends, pipeline: f64) {
        let leaf = self.leaf;
        if leaf.value_bound(pipeline + leaf.tables.outside()) >= self.cutoff {
            return;
        }
        let outside = |(index, parallel)| (leaf.outside_of(ends, parallel), index);
        let mut order: Vec<(f64, usize)> = self.layouts.iter().enumerate().map(outside).collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0));
        if order.first().is_some_and(|(outside, _)| leaf.value_bound(pipeline + outside) >= self.cutoff) {
            return;
        }
        let Some(lean) = self.choices(self.leanest, ends) else {
            self.result.too_large += 1;
            return;
        };
        // More room may spare a recompute, so that the sharding with least traffic need not be the best.
        let try_all = self.near_edge || leaf.layout.pipeline.per_stage;
        for (outside, index) in order {
            if leaf.value_bound(pipeline + outside) >= self.cutoff {
                return;
            }
            let choices = if index == self.leanest { Some(lean.clone()) } else { self.choices(index, ends) };
            let Some(choices) = choices else { continue };
            self.simulate(index, ends, choices);
            if !try_all {
                return;
            }
        }
    }

    /// What every stage recomputes with a sharding; none if a rank does not fit.
    fn choices(&mut self, index: usize, ends: &Ends) -> Option<Choices> {
        if !self.leaf.layout.pipeline.per_stage {
            return self.fits(index, ends).then_some(Choices::Same);
        }
        let leaf = self.leaf;
        let parallel = &self.layouts[index];
        let table = self.memory[index].get_or_insert_with(|| memory_of(leaf.problem, parallel));
        let memory = table.as_ref()?;
        let chosen = ranges(ends).enumerate().map(|(rank, units)| choose(leaf, memory, rank as u32, &units));
        chosen.collect::<Option<Vec<Recompute>>>().map(Choices::Each)
    }

    /// Whether every rank fits with a sharding.
    fn fits(&mut self, index: usize, ends: &Ends) -> bool {
        let leaf = self.leaf;
        let parallel = &self.layouts[index];
        let table = self.memory[index].get_or_insert_with(|| memory_of(leaf.problem, parallel));
        let Some(memory) = table else { return false };
        let stages = stage_map(leaf.units, parallel, leaf.placement(), ends);
        let limit = leaf.problem.limit().get();
        let reserve = &leaf.problem.runtime.memory.reserve;
        let moves = parallel.recompute.is_moving();
        let mut in_host = Vec::new();
        let fit = (0..parallel.pp).all(|rank| {
            let peak = memory.rank_peak(rank, stages.on_rank(rank));
            in_host.extend(moves.then_some(peak.in_host));
            reserve.reserved_bytes(peak.allocated()) <= limit
        });
        fit && hosts_have_room(leaf.problem.cluster, parallel, &in_host)
    }

    fn simulate(&mut self, index: usize, ends: &Ends, choices: Choices) {
        let leaf = self.leaf;
        let parallel = &self.layouts[index];
        let recompute = match &choices {
            Choices::Same => normalised(parallel.recompute, most_recomputable(leaf.units, ends)),
            Choices::Each(chosen) => most_of(chosen),
        };
        let parallel = ParallelConfig { recompute, ..parallel.clone() };
        let mut stages = stage_map(leaf.units, &parallel, leaf.placement(), ends);
        if let Choices::Each(chosen) = choices {
            stages.0.iter_mut().zip(chosen).for_each(|(stage, recompute)| stage.recompute = recompute);
        }
        let Ok(estimate) = estimate(&run_of(leaf.problem, &parallel, &stages)) else { return };
        self.result.simulated += 1;
        let load = Seconds(leaf.layout.average_load());
        let step = estimate.step_time_seconds + estimate.edge_penalty_seconds;
        let value = leaf.problem.objective.value(leaf.problem.cluster, step, load);
        if value < self.cutoff {
            self.cutoff = value;
            self.result.best = Some(Candidate { value, parallel, stages, estimate });
        }
    }
}
