//! One mesh with one pipeline: its splits in the order of their bounds, simulated until none can be better.
//!
//! Where the state lives does not change how long the pipeline takes, so that every split is tried with all shardings at
//! once: the one with least traffic that fits.

use crate::bound::Layout;
use crate::chain_costs::ChainCosts;
use crate::families::{Balanced, Ends, Slack, balanced_splits, even_ends};
use crate::gauge::Gauge;
use crate::judge::Judge;
use crate::mesh::Sharding;
use crate::partition::{Chain, SplitTable};
use crate::problem::Problem;
use crate::tables::Tables;
use crate::times::run_of;
use crate::units::Units;
use cluster_profiles::Seconds;
use cost_models::layerwise::LayerStrategies;
use cost_models::memory::{MemoryContext, MemoryTable};
use cost_models::rules::StageFreedom;
use cost_models::schedule::Placement;
use cost_models::stages::default_stages;
use cost_models::{Estimate, ParallelConfig, Recompute, StageMap};
use std::cell::RefCell;
use std::ops::Range;

/// A layout with stages, as estimated.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// What is minimised.
    pub value: f64,
    /// The degrees.
    pub parallel: ParallelConfig,
    /// The layers of every stage.
    pub stages: StageMap,
    /// Its prediction.
    pub estimate: Estimate,
    /// What blocks have of their own, where they differ.
    pub layer_strategies: Option<LayerStrategies>,
}

/// A layout with stages and what it is worth; how it is predicted in full is worked out when it is asked for.
#[derive(Debug, Clone)]
pub struct Draft {
    /// What is minimised.
    pub value: f64,
    /// The degrees.
    pub parallel: ParallelConfig,
    /// The layers of every stage.
    pub stages: StageMap,
    /// What every rank works at least, which objectives look at.
    load: Seconds,
    /// Its prediction, where the value needed it.
    estimate: Option<Estimate>,
}

impl Draft {
    /// A layout that is worth `value`, with its prediction if that is known.
    #[must_use]
    pub const fn new(
        value: f64,
        parallel: ParallelConfig,
        stages: StageMap,
        load: Seconds,
        estimate: Option<Estimate>,
    ) -> Self {
        Self { value, parallel, stages, load, estimate }
    }

    /// The layout with its prediction; none if that cannot be made.
    #[must_use]
    pub fn complete(self, problem: &Problem) -> Option<Candidate> {
        let Self { value, parallel, stages, load, estimate } = self;
        let (value, estimate) = match estimate {
            Some(estimate) => (value, estimate),
            None => {
                let estimate = cost_models::estimate(&run_of(problem, &parallel, &stages)).ok()?;
                let step = estimate.step_time_seconds + estimate.edge_penalty_seconds;
                (problem.objective.value(problem.cluster, step, load), estimate)
            }
        };
        Some(Candidate { value, parallel, stages, estimate, layer_strategies: None })
    }
}

/// What a layout has to beat.
#[derive(Debug, Clone, Copy)]
pub struct Goal {
    /// Only values below this matter.
    pub cutoff: f64,
    /// The best value found so far: above it a layout can only be an alternative, and a good split of it will do.
    pub best: f64,
    /// The least value found so far that no split into several chunks, balanced or not, has a smaller one than.
    pub any_split: f64,
}

/// What came of a layout.
#[derive(Debug, Default)]
pub struct LeafResult {
    /// Its best split, if any is below the cutoff.
    pub best: Option<Draft>,
    /// A bound on splits that were not looked at; none if all were.
    pub open: Option<f64>,
    /// Splits simulated.
    pub simulated: u64,
    /// Splits that did not fit.
    pub too_large: u64,
    /// Whether a split that fits did not with a sharding that has less traffic.
    pub is_squeezed: bool,
}

/// A layout to be split.
pub struct Leaf<'a, 'p> {
    /// The problem.
    pub problem: &'a Problem<'p>,
    /// The model's units.
    pub units: &'a Units,
    /// Degrees, pipeline, tables.
    pub layout: Layout<'a>,
    /// What is known of the mesh, with the shardings it may have.
    pub tables: &'a Tables,
    /// Which splits the engine takes.
    pub freedom: StageFreedom,
    /// What a stage may recompute where it chooses.
    pub recomputes: &'a [Recompute],
}

/// Splits of one stage per rank that are simulated per layout at most.
const MOST_SIMULATED: u64 = 64;
/// Splits of one stage per rank that are listed per layout at most, simulated or not.
const MOST_LISTED: usize = 2048;
/// Splits that are simulated of a layout that can only be an alternative.
const ENOUGH_FOR_ALTERNATIVES: u64 = 2;
/// Splits that are looked at of a layout that can only be an alternative.
const MOST_FOR_ALTERNATIVES: usize = 64;
/// How far above the least bound splits are listed at first, and by how much that grows.
const FIRST_MARGIN: f64 = 0.01;
const MARGIN_GROWTH: f64 = 4.0;

impl Leaf<'_, '_> {
    /// Looks for the best split with a value below the goal's cutoff; for a good one where that cannot be the best of all.
    #[must_use]
    pub fn solve(&self, goal: &Goal) -> LeafResult {
        let shardings = self.tables.shardings.iter();
        let layouts: Vec<ParallelConfig> = shardings.map(|sharded| self.parallel(sharded.sharding)).collect();
        let mut judge = Judge::new(self, &layouts, goal.cutoff);
        if self.is_listed_chain() {
            self.try_chain(&mut judge, goal.best);
        } else {
            self.try_family(&mut judge, goal.best);
        }
        judge.result
    }

    /// Whether any contiguous split with one stage per rank may run.
    #[must_use]
    pub fn is_listed_chain(&self) -> bool {
        self.layout.mesh.pp > 1 && self.freedom == StageFreedom::Listed && self.layout.is_chain()
    }

    /// How stages lie on ranks.
    #[must_use]
    pub fn placement(&self) -> Placement {
        self.layout.pipeline.schedule.kind.definition().placement
    }

    /// Whether a stage may choose this.
    #[must_use]
    pub fn may_recompute(&self, recompute: Recompute) -> bool {
        self.recomputes.contains(&recompute)
    }

    /// The layout with a sharding.
    #[must_use]
    pub fn parallel(&self, sharding: Sharding) -> ParallelConfig {
        self.layout.mesh.with(self.layout.pipeline, sharding)
    }

    /// What no split of the family beats, and if the caller `asks` whether one that does not fit might. Splits whose fullest rank alone is above the least value so far are not looked at any
    /// closer: the others come by rising load.
    #[must_use]
    pub fn family_bound(&self, cutoff: f64, asks: bool) -> FamilyBound {
        let mut least = cutoff;
        let mut gauge = Gauge::new(self, self.stages());
        let mut ends = Ends::with_capacity(self.stages());
        let value = |seconds: f64| self.value_bound(seconds + self.tables.outside());
        let mut load_of = |split: &FamilySplit| {
            split.balanced().and_then(|blocks| gauge.load_by_blocks(blocks)).unwrap_or_else(|| {
                split.write(self.units, &mut ends);
                gauge.load(&ends)
            })
        };
        let mut splits: Vec<(f64, FamilySplit)> =
            self.family().into_iter().map(|split| (load_of(&split), split)).collect();
        splits.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut too_large: Vec<&FamilySplit> = Vec::new();
        for (load, split) in &splits {
            if value(*load) >= least {
                break;
            }
            split.write(self.units, &mut ends);
            if gauge.may_fit(&ends) {
                let bound = gauge.bound_until(&ends, |seconds| value(seconds) >= least);
                least = least.min(value(bound));
            } else {
                too_large.push(split);
            }
        }
        // Few need to know, and each split is bounded for it.
        let mut is_less = |split: &FamilySplit| {
            split.write(self.units, &mut ends);
            value(gauge.bound_until(&ends, |seconds| value(seconds) >= least)) < least
        };
        let lacks_memory = asks && too_large.into_iter().any(&mut is_less);
        FamilyBound { least: (least < cutoff).then_some(least), lacks_memory }
    }

    /// Whether a split of the family with a value below `cutoff` does not fit.
    #[must_use]
    pub fn lacks_memory(&self, cutoff: f64) -> bool {
        let mut gauge = Gauge::new(self, self.stages());
        let mut ends = Ends::with_capacity(self.stages());
        let below = |seconds: f64| self.value_bound(seconds + self.tables.outside()) < cutoff;
        self.family().iter().any(|split| {
            let load = split.balanced().and_then(|blocks| gauge.load_by_blocks(blocks));
            if load.is_some_and(|load| !below(load)) {
                return false;
            }
            split.write(self.units, &mut ends);
            !gauge.may_fit(&ends) && below(gauge.load(&ends)) && below(gauge.bound(&ends))
        })
    }

    /// Whether a split that may be below `cutoff` does not fit, or one that fits costs more the more it holds.
    #[must_use]
    pub fn memory_matters(&self, result: &LeafResult, cutoff: f64) -> bool {
        result.too_large > 0 || result.is_squeezed || self.problem.is_near_edge() || self.lacks_memory(cutoff)
    }

    /// The rank of every stage of a split.
    pub(crate) fn placement_of(&self, ends: &Ends) -> Vec<u16> {
        self.placement().ranks_of_stages(self.layout.mesh.pp, ends.len() as u32)
    }

    /// A finite list of splits. Of those whose bound reaches the cutoff it only matters whether any fits.
    fn try_family(&self, judge: &mut Judge, best: f64) {
        let mut gauge = Gauge::new(self, self.stages());
        let value = |seconds: f64| self.value_bound(seconds + self.tables.outside());
        let hopeless = |seconds: f64| value(seconds) >= judge.cutoff;
        let mut list: Vec<(f64, f64, Ends)> = Vec::new();
        let mut any_fits = false;
        let mut ends = Ends::new();
        for split in self.family() {
            let load = split.balanced().and_then(|blocks| gauge.load_by_blocks(blocks));
            if load.is_some_and(hopeless) && any_fits {
                continue;
            }
            split.write(self.units, &mut ends);
            let seconds = gauge.bound_until(&ends, hopeless);
            if (hopeless(seconds) && any_fits) || !gauge.may_fit(&ends) {
                continue;
            }
            any_fits = true;
            if !hopeless(seconds) {
                list.push((value(seconds), seconds, ends.clone()));
            }
        }
        judge.result.too_large += u64::from(!any_fits);
        list.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (tried, (bound, seconds, ends)) in list.into_iter().enumerate() {
            if bound >= judge.cutoff || (bound >= best && good_enough(judge, tried)) {
                break;
            }
            judge.try_split(&ends, seconds);
        }
    }

    fn stages(&self) -> usize {
        (self.layout.mesh.pp * self.layout.pipeline.vpp) as usize
    }

    fn family(&self) -> Vec<FamilySplit> {
        let stages = self.stages();
        if stages == 1 {
            return vec![FamilySplit::Given(vec![self.units.len()])];
        }
        match self.freedom {
            StageFreedom::Own => self.own_split().into_iter().map(FamilySplit::Given).collect(),
            StageFreedom::Listed => {
                let splits = balanced_splits(self.units, stages, self.layout.ranks(), self.slack());
                splits.into_iter().map(FamilySplit::Balanced).collect()
            }
        }
    }

    /// The split the engine makes by itself.
    fn own_split(&self) -> Option<Ends> {
        let stages = self.layout.mesh.pp * self.layout.pipeline.vpp;
        if self.problem.model.blocks().next().is_none() {
            return Some(even_ends(self.units, stages as usize));
        }
        let policy = self.problem.runtime.memory.pipeline.split;
        let parallel = self.parallel(self.tables.shardings.first()?.sharding);
        let map = default_stages(self.problem.model, &parallel, policy, self.placement()).ok()?;
        self.units.ends_of(&map)
    }

    /// What embedding and head are worth in blocks, and one more.
    fn slack(&self) -> Slack {
        let times = self.layout.times;
        let recompute = self.layout.repeated();
        let count = self.units.len();
        let (first, last) = (self.units.leading(), count - self.units.trailing());
        let block = times.work(&(first..last), recompute) / (last - first).max(1) as f64;
        let worth = |units: Range<usize>| {
            (times.work(&units, recompute) / block.max(f64::MIN_POSITIVE)).ceil() as usize + 1
        };
        Slack { first: worth(0..first).min(2), last: worth(last..count).min(6) }
    }

    /// Every split of one stage per rank, by rising bound. Splits far above the least bound are listed only when the best
    /// found does not rule them out.
    fn try_chain(&self, judge: &mut Judge, best: f64) {
        let Some(least) = self.layout.pipeline_bound() else { return };
        let Some(lean) = self.tables.leanest() else { return };
        let parallel = self.parallel(lean.sharding);
        let Some(memory) = memory_of(self.problem, &parallel) else { return };
        let in_flight = self.layout.all_in_flight();
        let costs = ChainCosts {
            leaf: self,
            memory: &memory,
            in_flight,
            splits_backward: self.layout.splits_backward(),
            known: RefCell::default(),
        };
        let mut listed = 0;
        let mut done: Vec<Ends> = Vec::new();
        let mut margin = FIRST_MARGIN;
        loop {
            let limit = least * (1.0 + margin);
            let table = SplitTable::new(self.chain(), &costs, limit);
            for split in table.splits(&costs) {
                listed += 1;
                let bound = self.value_bound(split.bound.max(least) + self.tables.outside());
                if bound >= judge.cutoff || (bound >= best && good_enough(judge, listed)) {
                    return;
                }
                if listed > MOST_LISTED || judge.result.simulated >= MOST_SIMULATED {
                    judge.result.open = Some(bound);
                    return;
                }
                if !done.contains(&split.ends) {
                    judge.try_split(&split.ends, self.split_bound(&split.ends));
                    done.push(split.ends);
                }
            }
            if self.value_bound(limit + self.tables.outside()) >= judge.cutoff || margin > 1e3 {
                return;
            }
            margin *= MARGIN_GROWTH;
        }
    }

    pub(crate) fn chain(&self) -> Chain {
        let times = self.layout.times;
        Chain {
            layers: times.len(),
            stages: self.layout.mesh.pp as usize,
            microbatches: self.layout.mesh.num_microbatches as f64,
            hop: self.layout.hop(),
        }
    }
}

/// What is known of all splits that an engine runs of a layout.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FamilyBound {
    /// The value that no split that fits beats; none if that is not below the cutoff.
    pub least: Option<f64>,
    /// Whether a split that does not fit may be below that, or below the cutoff where there is none; false unless asked for.
    pub lacks_memory: bool,
}

/// A split that an engine runs.
enum FamilySplit {
    /// By the ends of its stages.
    Given(Ends),
    /// By their blocks.
    Balanced(Balanced),
}

impl FamilySplit {
    const fn balanced(&self) -> Option<&Balanced> {
        match self {
            Self::Given(_) => None,
            Self::Balanced(split) => Some(split),
        }
    }

    fn write(&self, units: &Units, ends: &mut Ends) {
        match self {
            Self::Given(given) => ends.clone_from(given),
            Self::Balanced(split) => split.write(units, ends),
        }
    }
}

/// Whether enough splits were looked at of a layout that can only be an alternative.
fn good_enough(judge: &Judge, tried: usize) -> bool {
    judge.result.simulated >= ENOUGH_FOR_ALTERNATIVES || tried > MOST_FOR_ALTERNATIVES
}

/// The memory table of a layout.
#[must_use]
pub fn memory_of<'a>(problem: &'a Problem, parallel: &'a ParallelConfig) -> Option<MemoryTable<'a>> {
    let context =
        MemoryContext::new(problem.model, problem.cluster, problem.workload, problem.runtime, parallel);
    MemoryTable::new(context.ok()?).ok()
}
