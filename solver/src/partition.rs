//! Which contiguous layers go to which stage, one stage per pipeline rank: an exact dynamic program, and the splits in
//! the order of their bound.
//!
//! A rank cannot finish a step before its first microbatch has come through the ranks in front of it, it has done the
//! work of all m microbatches, and the last gradient has gone back through the ranks in front of it:
//!
//! ```text
//! T >= max over i of ( sum of (a_j + 2 c) for j < i  +  m w_i )
//! ```
//!
//! with `w` the forward and backward of one microbatch on a stage, `a` the part of it that must come before the next rank
//! begins and after it ends (all of it with a fused backward, the forward where the backward is split), `c` a hop. The maximum over suffixes obeys `G_i = max(m w_i, a_i + 2 c + G_(i+1))`, so
//! that the best split from a layer on does not depend on the layers before it: [`SplitTable`] holds its value for
//! every stage and first layer. [`Splits`] then lists complete splits by rising bound, best first, for as long as the
//! caller wants: until the simulated time of one is no more than the bound of the next.

use crate::split_list::Splits;
use std::ops::{Range, RangeInclusive};

/// Room for rounding.
const ROUNDING: f64 = 1e-9;

/// Times of one microbatch on a stage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StageTimes {
    /// Forward and backward: what the rank is busy for.
    pub work: f64,
    /// What comes before the next rank begins or after it ends: all of it, or the forward where the backward is split.
    pub lead: f64,
}

/// What the layers of a stage cost.
pub trait StageCosts {
    /// The times of `layers` as stage `stage`; none where they do not fit or are not allowed there.
    fn times(&self, stage: usize, layers: Range<usize>) -> Option<StageTimes>;

    /// Whether a stage that does not fit still does not with more layers behind it, so that no longer one is looked at.
    fn misfits_stay(&self) -> bool {
        false
    }

    /// A second, dearer look at a stage that is about to be part of a split: its times, which are not below those of the
    /// first look; none if it does not fit after all.
    fn confirm(&self, _stage: usize, _layers: &Range<usize>, times: StageTimes) -> Option<StageTimes> {
        Some(times)
    }

    /// Work of a microbatch on some layers, at least, on however many stages they are.
    fn least_work(&self, _layers: &Range<usize>) -> f64 {
        0.0
    }

    /// Seconds from when a stage's lead is over until the step ends, at least, besides the work of all microbatches: for orders in
    /// which what lies behind a stage holds it up. They may only grow with the times, and fall with later ends.
    fn span(&self, _stage: usize, _layers: &Range<usize>, _times: StageTimes) -> f64 {
        0.0
    }
}

/// A chain of layers to be cut into stages.
#[derive(Debug, Clone, Copy)]
pub struct Chain {
    /// Layers; a split holds each once, in order.
    pub layers: usize,
    /// Stages, one per rank.
    pub stages: usize,
    /// Microbatches of a step.
    pub microbatches: f64,
    /// Seconds of a message between neighbouring ranks.
    pub hop: f64,
}

impl Chain {
    /// The bound of stages with these times: no schedule of one stage per rank is faster.
    #[must_use]
    pub fn bound(&self, stages: &[StageTimes]) -> f64 {
        let mut lead = 0.0;
        stages.iter().fold(0.0, |bound: f64, times| {
            let rank = lead + self.microbatches * times.work;
            lead += times.lead + 2.0 * self.hop;
            bound.max(rank)
        })
    }
}

/// The least bound of every suffix, for splits whose bound is at most a cutoff.
#[derive(Debug)]
pub struct SplitTable {
    pub(crate) chain: Chain,
    /// Value of `stage x (layers + 1) + first layer`; infinite where no split is feasible below the cutoff, and no number where
    /// no split gets to.
    values: Vec<f64>,
    pub(crate) cutoff: f64,
}

impl SplitTable {
    /// Fills the table. Stages that alone exceed `cutoff` are not looked at: work only grows with layers. Nor are first layers
    /// that no feasible stages in front lead to, or behind which there is more work than the stages left do by then.
    pub fn new(chain: Chain, costs: &impl StageCosts, cutoff: f64) -> Self {
        let width = chain.layers + 1;
        let mut table = Self { chain, values: vec![f64::NAN; (chain.stages + 1) * width], cutoff };
        table.values[chain.stages * width + chain.layers] = 0.0;
        table.fill(costs, 0, 0);
        table
    }

    /// The value of a stage and first layer, from those of the stages behind.
    fn fill(&mut self, costs: &impl StageCosts, stage: usize, first: usize) -> f64 {
        let index = stage * (self.chain.layers + 1) + first;
        if self.values[index].is_nan() {
            self.values[index] = if self.may_end(costs, stage, first) {
                self.best_from(costs, stage, first)
            } else {
                f64::INFINITY
            };
        }
        self.values[index]
    }

    /// Whether the stages left may do the work of the layers left.
    fn may_end(&self, costs: &impl StageCosts, stage: usize, first: usize) -> bool {
        let work = self.chain.microbatches * costs.least_work(&(first..self.chain.layers));
        work <= (self.chain.stages - stage) as f64 * self.cutoff * (1.0 + ROUNDING)
    }

    fn best_from(&mut self, costs: &impl StageCosts, stage: usize, first: usize) -> f64 {
        let mut best = f64::INFINITY;
        for end in self.ends(stage, first) {
            let Some(times) = costs.times(stage, first..end) else {
                if costs.misfits_stay() {
                    break;
                }
                continue;
            };
            if self.chain.microbatches * times.work > self.cutoff {
                break;
            }
            let rest = self.fill(costs, stage + 1, end);
            if rest.is_finite() {
                let span = costs.span(stage, &(first..end), times);
                best = best.min(self.joined(times, span, rest));
            }
        }
        best
    }

    /// Where a stage that begins at `first` may end: every stage has a layer.
    fn ends(&self, stage: usize, first: usize) -> RangeInclusive<usize> {
        let (layers, after) = (self.chain.layers, self.chain.stages - stage - 1);
        if after == 0 { layers..=layers } else { first + 1..=layers - after.min(layers) }
    }

    /// Every feasible end of a stage that begins at `first`, with its times.
    pub(crate) fn stages_from<'a, C: StageCosts>(
        &'a self,
        costs: &'a C,
        stage: usize,
        first: usize,
    ) -> impl Iterator<Item = (usize, StageTimes)> + 'a {
        let known = self.ends(stage, first).map_while(move |end| match costs.times(stage, first..end) {
            Some(times) if self.chain.microbatches * times.work > self.cutoff => None,
            None if costs.misfits_stay() => None,
            times => Some((end, times)),
        });
        known.filter_map(|(end, times)| Some((end, times?)))
    }

    fn joined(&self, times: StageTimes, span: f64, rest: f64) -> f64 {
        let own = span.max(self.chain.microbatches * times.work);
        if rest == 0.0 { own } else { own.max(times.lead + 2.0 * self.chain.hop + rest) }
    }

    pub(crate) fn value(&self, stage: usize, first: usize) -> f64 {
        let value = self.values[stage * (self.chain.layers + 1) + first];
        if value.is_nan() { f64::INFINITY } else { value }
    }

    /// The least bound of all splits; none if no split is feasible below the cutoff.
    #[must_use]
    pub fn bound(&self) -> Option<f64> {
        let bound = self.value(0, 0);
        (bound.is_finite() && bound <= self.cutoff).then_some(bound)
    }

    /// Complete splits by rising bound.
    pub fn splits<'a, C: StageCosts>(&'a self, costs: &'a C) -> Splits<'a, C> {
        Splits::new(self, costs)
    }
}
