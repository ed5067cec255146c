//! Complete splits in the order of their bound.

use crate::by_order::compare_by_order;
use crate::partition::{SplitTable, StageCosts, StageTimes};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::rc::Rc;

/// A complete split: the end of every stage, and its bound.
#[derive(Debug, Clone, PartialEq)]
pub struct Split {
    /// One past the last layer of every stage.
    pub ends: Vec<usize>,
    /// No schedule of this split is faster.
    pub bound: f64,
}

impl Split {
    /// The layers of every stage.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| start..end)
    }
}

/// The end of a stage, after the stages before it, which many splits share.
#[derive(Debug)]
struct Ended {
    end: usize,
    before: Option<Rc<Self>>,
}

/// The first stages of a split.
#[derive(Debug)]
struct Partial {
    /// Least bound of any completion.
    bound: f64,
    /// Sum of squared works: among equal bounds, even splits come first.
    unevenness: f64,
    /// Stages so far.
    stages: usize,
    last: Option<Rc<Ended>>,
    /// Sum of leads and hops so far.
    lead: f64,
    /// Largest term of the bound so far.
    reached: f64,
    /// How many were opened before it: what is left to tell equals apart.
    number: u64,
}

impl Partial {
    /// The first layer that is in no stage yet.
    fn next_layer(&self) -> usize {
        self.last.as_ref().map_or(0, |last| last.end)
    }

    /// Its bound with stages behind it that take `rest` seconds at least.
    fn with_rest(&self, rest: f64) -> f64 {
        with_rest(self.reached, self.lead, rest)
    }

    fn ends(&self) -> Vec<usize> {
        let mut ends: Vec<usize> =
            std::iter::successors(self.last.as_deref(), |ended| ended.before.as_deref())
                .map(|ended| ended.end)
                .collect();
        ends.reverse();
        ends
    }
}

/// What stages have reached, or what those behind them come to; nothing is behind the last one.
fn with_rest(reached: f64, lead: f64, rest: f64) -> f64 {
    if rest == 0.0 { reached } else { reached.max(lead + rest) }
}

impl Ord for Partial {
    fn cmp(&self, other: &Self) -> Ordering {
        let bound = other.bound.total_cmp(&self.bound);
        bound
            .then_with(|| self.stages.cmp(&other.stages))
            .then_with(|| other.unevenness.total_cmp(&self.unevenness))
            .then_with(|| other.number.cmp(&self.number))
    }
}

compare_by_order!(Partial);

/// Costs whose first look at a stage is the dearer one.
struct Confirmed<'a, C>(&'a C);

impl<C: StageCosts> StageCosts for Confirmed<'_, C> {
    fn times(&self, stage: usize, layers: Range<usize>) -> Option<StageTimes> {
        let times = self.0.times(stage, layers.clone())?;
        self.0.confirm(stage, &layers, times)
    }

    fn least_work(&self, layers: &Range<usize>) -> f64 {
        self.0.least_work(layers)
    }

    fn span(&self, stage: usize, layers: &Range<usize>, times: StageTimes) -> f64 {
        self.0.span(stage, layers, times)
    }
}

/// Partial splits continued without one becoming complete, after which the table is filled again with the dearer look:
/// what it says is feasible then is, so that no way ends in a stage that does not fit.
const MOST_DEAD_ENDS: usize = 512;

/// Bounds this near to one another are the same but for the order of their sums.
const ROUNDING: f64 = 1e-12;

/// Complete splits by rising bound.
#[derive(Debug)]
pub struct Splits<'a, C> {
    table: &'a SplitTable,
    /// The table of the dearer look, once the first has led astray too often.
    confirmed: Option<SplitTable>,
    costs: &'a C,
    open: BinaryHeap<Partial>,
    opened: u64,
    /// Partial splits continued since the last complete one.
    continued: usize,
    most_dead_ends: usize,
}

impl<'a, C: StageCosts> Splits<'a, C> {
    /// All splits of a table.
    pub(crate) fn new(table: &'a SplitTable, costs: &'a C) -> Self {
        let root = Partial {
            bound: table.value(0, 0),
            unevenness: 0.0,
            stages: 0,
            last: None,
            lead: 0.0,
            reached: 0.0,
            number: 0,
        };
        let open = BinaryHeap::from([root]);
        let most_dead_ends = MOST_DEAD_ENDS;
        Self { table, confirmed: None, costs, open, opened: 0, continued: 0, most_dead_ends }
    }

    /// The same splits, with the table filled again after another number of dead ends.
    #[must_use]
    pub const fn with_dead_ends(mut self, most: usize) -> Self {
        self.most_dead_ends = most;
        self
    }

    /// The least seconds from a stage on.
    fn rest(&self, stage: usize, first: usize) -> f64 {
        self.confirmed.as_ref().unwrap_or(self.table).value(stage, first)
    }

    /// Values every open split with the dearer look.
    fn look_closer(&mut self) {
        let table = self.table;
        self.confirmed = Some(SplitTable::new(table.chain, &Confirmed(self.costs), table.cutoff));
        let open = std::mem::take(&mut self.open);
        let again = open.into_iter().filter_map(|partial| {
            let rest = self.rest(partial.stages, partial.next_layer());
            let bound = partial.bound.max(partial.with_rest(rest));
            (bound <= table.cutoff).then_some(Partial { bound, ..partial })
        });
        self.open = again.collect();
    }

    /// Opens what may follow a partial split, but for the evenest of those that are as good as `least`: that one comes back.
    fn expand(&mut self, partial: &Partial, least: f64) -> Option<Partial> {
        let (stage, first) = (partial.stages, partial.next_layer());
        let (table, chain) = (self.table, self.table.chain);
        let mut evenest: Option<Partial> = None;
        for (end, times) in table.stages_from(self.costs, stage, first) {
            let rest = self.rest(stage + 1, end);
            let joined = |times: StageTimes| {
                let span = self.costs.span(stage, &(first..end), times);
                let own = span.max(chain.microbatches * times.work);
                let reached = partial.reached.max(partial.lead + own);
                let lead = partial.lead + times.lead + 2.0 * chain.hop;
                (with_rest(reached, lead, rest).max(partial.bound), lead, reached)
            };
            if joined(times).0 > table.cutoff {
                continue;
            }
            let Some(times) = self.costs.confirm(stage, &(first..end), times) else { continue };
            let (bound, lead, reached) = joined(times);
            if bound > table.cutoff {
                continue;
            }
            self.opened += 1;
            let next = Partial {
                bound,
                unevenness: partial.unevenness + times.work * times.work,
                stages: stage + 1,
                last: Some(Rc::new(Ended { end, before: partial.last.clone() })),
                lead,
                reached,
                number: self.opened,
            };
            if bound > least * (1.0 + ROUNDING) {
                self.open.push(next);
            } else if evenest.as_ref().is_none_or(|best| next.unevenness < best.unevenness) {
                self.open.extend(evenest.replace(next));
            } else {
                self.open.push(next);
            }
        }
        evenest
    }

    /// Follows a partial split to a complete one that is as good, if there is one.
    fn complete(&mut self, mut partial: Partial) -> Option<Split> {
        let least = partial.bound;
        while partial.stages < self.table.chain.stages {
            self.continued += 1;
            partial = self.expand(&partial, least)?;
        }
        Some(Split { bound: least, ends: partial.ends() })
    }
}

impl<C: StageCosts> Iterator for Splits<'_, C> {
    type Item = Split;

    fn next(&mut self) -> Option<Split> {
        self.continued = 0;
        while let Some(partial) = self.open.pop() {
            if partial.bound > self.table.cutoff || partial.bound.is_infinite() {
                return None;
            }
            if self.continued > self.most_dead_ends && self.confirmed.is_none() {
                self.open.push(partial);
                self.look_closer();
            } else if let Some(split) = self.complete(partial) {
                return Some(split);
            }
        }
        None
    }
}
