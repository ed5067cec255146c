//! One mesh with one pipeline: its splits in the order of their bounds, simulated until none can be better.
//!
//! Where the state lives does not change how long the pipeline takes, so that every split is tried with all shardings at
//! once: the one with least traffic that fits.

use crate::bound::Layout;
use crate::candidate::Draft;
use crate::chain_costs::ChainCosts;
use crate::families::Ends;
use crate::judge::Judge;
use crate::mesh::Sharding;
use crate::partition::{Chain, SplitTable};
use crate::problem::Problem;
use crate::tables::Tables;
use crate::units::Units;
use cost_models::memory::{MemoryContext, MemoryTable};
use cost_models::rules::StageFreedom;
use cost_models::schedule::Placement;
use cost_models::{ParallelConfig, Recompute};
use std::cell::RefCell;

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

    /// The rank of every stage of a split.
    pub(crate) fn placement_of(&self, ends: &Ends) -> Vec<u16> {
        self.placement().ranks_of_stages(self.layout.mesh.pp, ends.len() as u32)
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

/// Whether enough splits were looked at of a layout that can only be an alternative.
pub(crate) fn good_enough(judge: &Judge, tried: usize) -> bool {
    judge.result.simulated >= ENOUGH_FOR_ALTERNATIVES || tried > MOST_FOR_ALTERNATIVES
}

/// The memory table of a layout.
#[must_use]
pub fn memory_of<'a>(problem: &'a Problem, parallel: &'a ParallelConfig) -> Option<MemoryTable<'a>> {
    let context =
        MemoryContext::new(problem.model, problem.cluster, problem.workload, problem.runtime, parallel);
    MemoryTable::new(context.ok()?).ok()
}
