//! The automatic scheduler: for given costs and a memory limit, the best order it can find, and a bound no order can
//! beat.
//!
//! ```text
//! handcrafted orders that fit  ┐
//! list schedules of many kinds ┼─ each with its gaps filled ─ the best ─ swaps along the critical path ─ result
//! repeated V blocks that fit   ┘
//! ```
//!
//! It is never worse than any other schedule of the list under the same limit because those are candidates: the sliced
//! ones and those of two pipelines where [`AutoOptions`] allow them. Equal costs give equal orders.

mod blocks;
mod candidates;
mod limits;
mod list;
mod swaps;
mod zero_bubble;

use super::costs::OpCosts;
use super::error::ScheduleError;
use super::orders::RankOrders;
use super::placement::Placement;
use super::registry::{Definition, Generator};
use super::shape::{MemoryLimit, Rules, ScheduleShape, Sizes, searchable};
use super::simulate::simulate;
use super::timeline::Timeline;
use super::{ScheduleKind, refill};

/// The automatic scheduler under the shape's memory limit, for the makespan.
pub(super) const DEFINITION: Definition = Definition {
    name: "auto",
    summary: "searched for the costs at hand, under a memory limit; never worse than any other schedule within it",
    source: "this project; building blocks after arXiv:2405.15362, list schedules after arXiv:2401.10241",
    splits_backward: true,
    rules: searchable,
    orders: Generator::Searched(|sizes, costs| Ok(search(sizes, costs, &AutoOptions::default())?.orders)),
    ..Definition::LOOPED
};

/// One stage a rank, and a size that can be searched.
pub(super) fn one_chunk(sizes: &Sizes, rules: &mut Rules) {
    super::one_f_one_b::one_chunk(sizes, rules);
    searchable(sizes, rules);
}

/// What the search minimises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Objective {
    /// The end of the step.
    #[default]
    Makespan,
    /// The longest span of a rank, for runtimes that stagger steps.
    Span,
}

/// How to search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AutoOptions {
    /// What to minimise.
    pub objective: Objective,
    /// Most microbatch-stages or bytes a rank may hold; the shape's limit where `None`.
    pub memory_limit: Option<MemoryLimit>,
    /// The only placement to look at; every one that suits the chunks where `None`.
    pub placement: Option<Placement>,
    /// Whether schedules that hold the weights twice are candidates.
    pub replicated_weights: bool,
    /// Equal slices that sequences may be cut into, at most; 1 keeps them whole. Attention has to be causal, and the
    /// runtime has to keep the keys of earlier slices.
    pub most_slices: u32,
    /// About how many times to simulate the whole schedule. The search ends when they are used up, or as many as make
    /// [`AutoOptions::MOST_OPS`] operations; handcrafted orders are looked at in any case.
    pub effort: u32,
}

impl Default for AutoOptions {
    fn default() -> AutoOptions {
        AutoOptions {
            objective: Objective::Makespan,
            memory_limit: None,
            placement: None,
            replicated_weights: false,
            most_slices: 1,
            effort: 600,
        }
    }
}

impl AutoOptions {
    /// Operations simulated by one search at most.
    pub const MOST_OPS: u64 = 6_000_000;
    /// More slices are not tried.
    pub const MOST_SLICES: u32 = 16;
}

/// What the search found.
#[derive(Debug, Clone)]
pub struct AutoSchedule {
    /// The order.
    pub orders: RankOrders,
    /// What it is made of.
    pub origin: String,
    /// What its operations cost: the costs given, or where it cuts sequences those of a slice.
    pub costs: OpCosts,
    /// Its run.
    pub timeline: Timeline,
    /// No order of a candidate placement and number of slices within the limit takes less. For [`Objective::Span`] a
    /// bound on the span.
    pub lower_bound: f64,
}

/// Searches an order for a pipeline of `shape.ranks` ranks with the costs' stages.
///
/// # Errors
/// Bad shapes and costs, and a memory limit that no candidate keeps.
pub fn auto_schedule(
    shape: &ScheduleShape,
    costs: &OpCosts,
    options: &AutoOptions,
) -> Result<AutoSchedule, ScheduleError> {
    let sizes = ScheduleKind::Auto.check(shape)?;
    limits::check_slices(&sizes, options)?;
    costs.check(sizes.p * sizes.v, 1)?;
    search(&sizes, costs, options)
}

pub(super) fn search(
    sizes: &Sizes,
    costs: &OpCosts,
    options: &AutoOptions,
) -> Result<AutoSchedule, ScheduleError> {
    let limit = options.memory_limit.or(sizes.memory_limit);
    let ops = 3 * u64::from(sizes.p) * u64::from(sizes.v) * u64::from(sizes.m);
    let effort = (u64::from(options.effort) * ops).min(AutoOptions::MOST_OPS).max(ops);
    let sliced = (2..=options.most_slices).map(|slices| costs.of_slices(slices)).collect();
    let mut search = Search { sizes, costs, sliced, options, limit, effort, bound: 0.0, best: None };
    search.bound = search.lower_bound();
    candidates::handcrafted(&mut search)?;
    zero_bubble::schedules(&mut search)?;
    list::schedules(&mut search)?;
    if search.placements().contains(&Placement::V) {
        blocks::repeated(&mut search)?;
    }
    candidates::searched(&mut search);
    swaps::improve(&mut search)?;
    let lower_bound = search.bound;
    let cap = limit.map_or_else(|| "memory".to_owned(), |limit| limit.to_string());
    let none = ScheduleError::MemoryCap { ranks: sizes.p, microbatches: sizes.m, cap };
    let Candidate { orders, origin, timeline, .. } = search.best.take().ok_or(none)?;
    let costs = search.costs_of(orders.slices()).clone();
    Ok(AutoSchedule { orders, origin, costs, timeline, lower_bound })
}

struct Candidate {
    orders: RankOrders,
    origin: String,
    timeline: Timeline,
    score: Score,
}

/// Time, and among equal ones the sum of squares of the ranks' times: what leaves room for the next improvement.
type Score = (f64, f64);

/// Work of finding and filling gaps, in simulations.
const FILLING: u64 = 12;
/// An order further from the best than this is not worth filling.
const WORTH_FILLING: f64 = 1.03;

struct Search<'a> {
    sizes: &'a Sizes,
    /// Costs of whole sequences.
    costs: &'a OpCosts,
    /// Costs of a slice, from two slices on.
    sliced: Vec<OpCosts>,
    options: &'a AutoOptions,
    limit: Option<MemoryLimit>,
    effort: u64,
    /// No order takes less.
    bound: f64,
    best: Option<Candidate>,
}

impl Search<'_> {
    /// Costs of operations where sequences are cut into so many slices.
    fn costs_of(&self, slices: u32) -> &OpCosts {
        let index = (slices as usize).checked_sub(2);
        index.and_then(|index| self.sliced.get(index)).unwrap_or(self.costs)
    }

    fn score(&self, timeline: &Timeline) -> Score {
        let from = |first_start: f64| match self.options.objective {
            Objective::Makespan => 0.0,
            Objective::Span => first_start,
        };
        let times = timeline.ranks.iter().map(|rank| rank.last_end - from(rank.first_start));
        let time = match self.options.objective {
            Objective::Makespan => timeline.makespan,
            Objective::Span => timeline.staggered_step(),
        };
        (time, times.map(|time| time * time).sum())
    }

    /// Takes an order as it is, if it runs, fits and is better. Returns its time if it runs and fits.
    fn consider(&mut self, orders: RankOrders, origin: impl Into<String>) -> Option<f64> {
        self.spend(orders.len() as u64);
        let timeline = self.run(&orders)?;
        let score = self.score(&timeline);
        if self.best.as_ref().is_none_or(|best| score < best.score) {
            self.best = Some(Candidate { orders, origin: origin.into(), timeline, score });
        }
        Some(score.0)
    }

    /// Takes an order, and where it comes near the best what it becomes with its gaps filled.
    fn consider_filled(&mut self, orders: RankOrders, origin: &str) -> Result<(), ScheduleError> {
        let Some(time) = self.consider(orders.clone(), origin) else { return Ok(()) };
        let near = self.best.as_ref().is_none_or(|best| time <= best.score.0 * WORTH_FILLING);
        if near && !self.is_done() { self.fill(&orders, origin) } else { Ok(()) }
    }

    /// Takes an order with its gaps filled.
    fn fill(&mut self, orders: &RankOrders, origin: &str) -> Result<(), ScheduleError> {
        self.spend(FILLING * orders.len() as u64);
        let cap = self.cap(orders.placement(), orders.slices());
        let filled = refill::refill(orders, self.costs_of(orders.slices()), &cap)?;
        self.consider(filled, format!("{origin}, gaps filled"));
        Ok(())
    }

    fn spend(&mut self, ops: u64) {
        self.effort = self.effort.saturating_sub(ops);
    }

    /// Whether the effort is used up or nothing better is left to find.
    fn is_done(&self) -> bool {
        self.effort == 0 || self.is_optimal()
    }

    /// Whether the best order takes no longer than the bound.
    fn is_optimal(&self) -> bool {
        self.best.as_ref().is_some_and(|best| best.score.0 <= self.bound * (1.0 + 1e-12))
    }

    /// A few rounds of microbatches that tell how the whole number would do.
    fn pilot(&self) -> Option<Sizes> {
        let (p, m) = (self.sizes.p, self.sizes.m);
        (m > 6 * p).then_some(Sizes { m: 4 * p + m % p, ..*self.sizes })
    }

    /// Time of an order of the pilot, if it runs and fits.
    fn pilot_time(&mut self, orders: &RankOrders) -> Option<f64> {
        self.spend(orders.len() as u64);
        Some(self.score(&self.run(orders)?).0)
    }

    /// An order's run, if it runs and fits.
    fn run(&self, orders: &RankOrders) -> Option<Timeline> {
        let timeline = simulate(orders, self.costs_of(orders.slices())).ok()?;
        self.fits(&timeline, orders.slices()).then_some(timeline)
    }
}
