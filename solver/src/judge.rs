//! Tries splits: which sharding fits, how long the step is, whether it is the best so far.

use crate::candidate::Draft;
use crate::certificate::ROUNDING;
use crate::families::Ends;
use crate::gauge::Gauge;
use crate::leaf::{Leaf, LeafResult, memory_of};
use crate::outside::RankShare;
use crate::splits::{most_recomputable, normalised, ranges, stage_map};
use crate::strategy::{choose, most_of};
use crate::times::run_of;
use cluster_profiles::Seconds;
use cost_models::memory::MemoryTable;
use cost_models::offload::hosts_have_room;
use cost_models::step::{PreparedSchedule, StageCosts, StepError, outside_pipeline};
use cost_models::{ParallelConfig, Recompute, TrainingRun, estimate};

/// Simulates the splits of a leaf and keeps the best.
pub struct Judge<'a, 'p> {
    leaf: &'a Leaf<'a, 'p>,
    layouts: &'a [ParallelConfig],
    /// The layout with least state.
    leanest: usize,
    memory: Vec<Option<Option<MemoryTable<'a>>>>,
    /// Bounds splits whose stages have chosen.
    gauge: Option<Gauge<'a, 'a, 'p>>,
    /// The orders of all splits, where they are the same.
    orders: Option<PreparedSchedule>,
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
        Self {
            leaf,
            layouts,
            leanest,
            memory,
            gauge: None,
            orders: None,
            near_edge: leaf.problem.is_near_edge(),
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
        let mut traffic = Traffic::new(leaf, self.layouts, ends);
        let Some(least) = traffic.next() else { return };
        if leaf.value_bound(pipeline + least.0) >= self.cutoff {
            return;
        }
        let Some(lean) = self.choices(self.leanest, ends) else {
            self.result.too_large += 1;
            return;
        };
        // More room may spare a recompute, so that the sharding with least traffic need not be the best.
        let try_all = self.near_edge || leaf.layout.pipeline.per_stage;
        let mut next = Some(least);
        while let Some((outside, index)) = next {
            if leaf.value_bound(pipeline + outside) >= self.cutoff {
                return;
            }
            let choices = if index == self.leanest { Some(lean.clone()) } else { self.choices(index, ends) };
            if let Some(choices) = choices {
                if self.may_be_better(ends, &choices, outside) {
                    self.simulate(index, ends, choices);
                }
                if !try_all {
                    return;
                }
            } else {
                self.result.is_squeezed = true;
            }
            next = traffic.next();
        }
    }

    /// Whether the stages' choices leave a bound below the cutoff.
    fn may_be_better(&mut self, ends: &Ends, choices: &Choices, outside: f64) -> bool {
        let Choices::Each(chosen) = choices else { return true };
        let leaf = self.leaf;
        let gauge = self.gauge.get_or_insert_with(|| Gauge::new(leaf, ends.len()));
        let below = |seconds: f64| leaf.value_bound(seconds + outside) < self.cutoff;
        below(gauge.bound_with(ends, Some(chosen), |seconds| !below(seconds)))
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
        let run = run_of(leaf.problem, &parallel, &stages);
        let load = Seconds(leaf.layout.average_load());
        let value = |step: Seconds| leaf.problem.objective.value(leaf.problem.cluster, step, load);
        let Ok(step) = self.step(&run) else { return };
        self.result.simulated += 1;
        let (mut worth, mut predicted) = (value(step), None);
        if self.near_edge && worth * (1.0 - ROUNDING) < self.cutoff {
            let Ok(estimate) = estimate(&run) else { return };
            worth = value(estimate.step_time_seconds + estimate.edge_penalty_seconds);
            predicted = Some(estimate);
        }
        if worth < self.cutoff {
            self.cutoff = worth;
            self.result.best = Some(Draft::new(worth, parallel, stages, load, predicted));
        }
    }

    /// The step time, without what it is made of.
    fn step(&mut self, run: &TrainingRun) -> Result<Seconds, StepError> {
        let costs = StageCosts::of(run)?;
        let makespan = match &self.leaf.problem.makespans {
            Some(known) => known.of(run, &costs, || self.makespan(run, &costs)),
            None => self.makespan(run, &costs),
        };
        Ok(makespan? + outside_pipeline(run, &costs))
    }

    fn makespan(&mut self, run: &TrainingRun, costs: &StageCosts) -> Result<Seconds, StepError> {
        let fixed = self.leaf.layout.pipeline.schedule.kind.definition().is_fixed();
        let orders = match self.orders.take().filter(|_| fixed) {
            Some(known) => known,
            None => PreparedSchedule::of(run, costs)?,
        };
        let makespan = orders.makespan(run, costs);
        self.orders = Some(orders);
        makespan
    }
}

/// The shardings by the seconds that a split costs outside the pipeline with them, least first. These are worked out for a
/// sharding only when what it costs at least is less than the rest.
struct Traffic<'a, 'p> {
    leaf: &'a Leaf<'a, 'p>,
    layouts: &'a [ParallelConfig],
    /// What the ranks of the split bring.
    shares: Vec<RankShare>,
    /// Seconds, whether they are only the least, and which layout.
    open: Vec<(f64, bool, usize)>,
}

impl<'a, 'p> Traffic<'a, 'p> {
    fn new(leaf: &'a Leaf<'a, 'p>, layouts: &'a [ParallelConfig], ends: &Ends) -> Self {
        let shardings = leaf.tables.shardings.iter().enumerate();
        let open = shardings.map(|(index, sharded)| (sharded.outside * (1.0 - ROUNDING), true, index));
        Self { leaf, layouts, shares: leaf.shares(ends), open: open.collect() }
    }

    fn next(&mut self) -> Option<(f64, usize)> {
        loop {
            let order = |a: &(f64, bool, usize), b: &(f64, bool, usize)| {
                a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)).then(a.2.cmp(&b.2))
            };
            let at = (0..self.open.len()).min_by(|&a, &b| order(&self.open[a], &self.open[b]))?;
            let (seconds, at_least, index) = self.open[at];
            if !at_least {
                self.open.swap_remove(at);
                return Some((seconds, index));
            }
            self.open[at] = (self.leaf.outside_of(&self.shares, &self.layouts[index]), false, index);
        }
    }
}
