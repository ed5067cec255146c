//! Stages with their types and layers in the order of their bound.

use super::table::{Program, Step, Table};
use crate::by_order::compare_by_order;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::rc::Rc;

/// Types and layers of all stages.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Assigned {
    /// The type of every stage.
    pub(super) types: Vec<usize>,
    /// One past its last layer.
    pub(super) ends: Vec<usize>,
    /// No schedule of it is faster.
    pub(super) bound: f64,
}

/// A stage after those in front of it, which many have in common.
#[derive(Debug)]
struct Chosen {
    own: usize,
    end: usize,
    before: Option<Rc<Self>>,
}

/// The first stages.
#[derive(Debug)]
struct Partial {
    /// Least bound of any completion.
    bound: f64,
    /// Stages so far.
    stages: usize,
    /// How often the type changes: among equal bounds, kinds that stay together come first.
    changes: usize,
    /// Sum of squared works: then even splits.
    unevenness: f64,
    node: usize,
    last: Option<Rc<Chosen>>,
    /// Sum of leads and hops so far.
    lead: f64,
    /// Largest term of the bound so far.
    reached: f64,
    /// How many were opened before it: what is left to tell equals apart.
    number: u64,
}

impl Partial {
    fn chosen(&self) -> impl Iterator<Item = &Chosen> {
        std::iter::successors(self.last.as_deref(), |chosen| chosen.before.as_deref())
    }

    /// The first layer that is in no stage yet.
    fn next_layer(&self) -> usize {
        self.last.as_ref().map_or(0, |last| last.end)
    }

    fn assigned(&self) -> Assigned {
        let mut types: Vec<usize> = self.chosen().map(|chosen| chosen.own).collect();
        let mut ends: Vec<usize> = self.chosen().map(|chosen| chosen.end).collect();
        types.reverse();
        ends.reverse();
        Assigned { types, ends, bound: self.bound }
    }

    /// With one stage more.
    fn with(&self, step: &Step, number: u64) -> Self {
        let start = self.lead + step.hop;
        let reached = self.reached.max(start + step.busy);
        let lead = start + step.times.lead;
        let bound = if step.rest == 0.0 { reached } else { reached.max(lead + step.rest) };
        let changed = self.last.as_ref().is_some_and(|last| last.own != step.own);
        Self {
            bound: bound.max(self.bound),
            stages: self.stages + 1,
            changes: self.changes + usize::from(changed),
            unevenness: self.unevenness + step.times.work * step.times.work,
            node: step.node,
            last: Some(Rc::new(Chosen { own: step.own, end: step.end, before: self.last.clone() })),
            lead,
            reached,
            number,
        }
    }
}

impl Ord for Partial {
    fn cmp(&self, other: &Self) -> Ordering {
        let bound = other.bound.total_cmp(&self.bound);
        bound
            .then_with(|| self.stages.cmp(&other.stages))
            .then_with(|| other.changes.cmp(&self.changes))
            .then_with(|| other.unevenness.total_cmp(&self.unevenness))
            .then_with(|| other.number.cmp(&self.number))
    }
}

compare_by_order!(Partial);

/// Partial choices continued without one becoming complete, after which the table is filled again with the true memory.
const MOST_DEAD_ENDS: usize = 256;

/// Bounds this near to one another are the same but for the order of their sums.
const ROUNDING: f64 = 1e-12;

/// Complete choices by rising bound.
pub(super) struct List<'p> {
    program: &'p Program<'p>,
    table: Table,
    /// Whether the table knows what truly fits.
    exact: bool,
    open: BinaryHeap<Partial>,
    opened: u64,
    /// Partial choices continued since the last complete one.
    continued: usize,
}

impl<'p> List<'p> {
    /// All choices of a table.
    pub(super) fn new(program: &'p Program<'p>, table: Table) -> Self {
        let root = Partial {
            bound: table.value(0, 0),
            stages: 0,
            changes: 0,
            unevenness: 0.0,
            node: 0,
            last: None,
            lead: 0.0,
            reached: 0.0,
            number: 0,
        };
        Self { program, table, exact: false, open: BinaryHeap::from([root]), opened: 0, continued: 0 }
    }

    /// Values everything open by what truly fits.
    fn look_closer(&mut self) {
        self.table = self.program.table(self.table.cutoff, true);
        self.exact = true;
        let table = &self.table;
        let again = std::mem::take(&mut self.open).into_iter().filter_map(|partial| {
            let rest = table.value(partial.node, partial.next_layer());
            let bound = partial.bound.max(partial.reached).max(partial.lead + rest);
            (bound <= table.cutoff).then_some(Partial { bound, ..partial })
        });
        self.open = again.collect();
    }

    /// Opens what may follow, but for the first of those that are as good as `least`: that one comes back.
    fn expand(&mut self, partial: &Partial, least: f64) -> Option<Partial> {
        let mut first: Option<Partial> = None;
        let start = partial.next_layer();
        for step in self.program.steps(&self.table, partial.node, start) {
            let next = partial.with(&step, self.opened + 1);
            let fits = || self.program.costs.fits(partial.stages, step.own, &(start..step.end));
            if next.bound > self.table.cutoff || !fits() {
                continue;
            }
            self.opened += 1;
            if next.bound > least * (1.0 + ROUNDING) {
                self.open.push(next);
                continue;
            }
            let better =
                |known: &Partial| (next.changes, next.unevenness) < (known.changes, known.unevenness);
            if first.as_ref().is_none_or(better) {
                self.open.extend(first.replace(next));
            } else {
                self.open.push(next);
            }
        }
        first
    }

    /// Follows a partial choice to a complete one that is as good, if there is one.
    fn complete(&mut self, mut partial: Partial) -> Option<Assigned> {
        let least = partial.bound;
        while partial.stages < self.program.deal.graph.stages {
            self.continued += 1;
            partial = self.expand(&partial, least)?;
        }
        Some(Assigned { bound: least, ..partial.assigned() })
    }
}

impl Iterator for List<'_> {
    type Item = Assigned;

    fn next(&mut self) -> Option<Assigned> {
        self.continued = 0;
        while let Some(partial) = self.open.pop() {
            if partial.bound > self.table.cutoff || partial.bound.is_infinite() {
                return None;
            }
            if self.continued > MOST_DEAD_ENDS && !self.exact {
                self.open.push(partial);
                self.look_closer();
            } else if let Some(assigned) = self.complete(partial) {
                return Some(assigned);
            }
        }
        None
    }
}
