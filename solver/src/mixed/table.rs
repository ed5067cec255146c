//! Which type of stage comes where with which layers: the least bound from every place on, exactly.
//!
//! As [`crate::partition`], with a graph of stages ([`super::deal`]) in the place of a row of them: with the stages in front chosen
//! and the first layer of the next given, the best rest does not depend on the layers of those in front. With `t` the type of the
//! next stage, `w` and `a` its work and lead and `c` the hop to it,
//!
//! ```text
//! G(node, first) = min over t, end of  2 c + max( m w, a + G(node behind t, end) )
//! ```

use super::deal::{Deal, Node};
use super::stages::Stages;
use crate::partition::StageTimes;
use std::ops::Range;

/// What a table is made for.
pub(super) struct Program<'p> {
    pub(super) deal: &'p Deal,
    pub(super) costs: &'p Stages<'p>,
    /// Seconds of a hop, by type of the stages before and behind it; the same for all where nodes do not tell the last type.
    pub(super) hops: &'p [Vec<f64>],
    /// Layers.
    pub(super) layers: usize,
    /// The least work behind every node and first layer, hops included.
    pub(super) behind: Vec<f64>,
}

/// A stage that may come next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub(super) own: usize,
    /// The node behind it.
    pub(super) node: usize,
    pub(super) end: usize,
    pub(super) times: StageTimes,
    /// Seconds of the hop to it, there and back.
    pub(super) hop: f64,
    /// Seconds from when its hop is over until the step ends, at least, but for what comes behind it.
    pub(super) busy: f64,
    /// The least seconds from the node behind it on.
    pub(super) rest: f64,
}

/// The least bound from every node and first layer on.
pub(super) struct Table {
    width: usize,
    values: Vec<f64>,
    pub(super) cutoff: f64,
}

impl<'p> Program<'p> {
    pub(super) fn new(deal: &'p Deal, costs: &'p Stages<'p>, hops: &'p [Vec<f64>], layers: usize) -> Self {
        let mut program = Self { deal, costs, hops, layers, behind: Vec::new() };
        if costs.counts_behind() {
            program.behind = program.least_work();
        }
        program
    }

    /// First layers that a node may have: those before and behind it have one each at least.
    fn firsts(&self, node: &Node) -> Range<usize> {
        match node.stage {
            0 => 0..1,
            stage => stage..(self.layers + 1).saturating_sub(self.deal.graph.stages - stage),
        }
    }

    fn hop(&self, node: &Node, own: usize) -> f64 {
        if node.stage == 0 {
            0.0
        } else {
            2.0 * node.last.map_or(self.hops[0][0], |last| self.hops[last][own])
        }
    }

    /// The least work of a microbatch behind every node and first layer. Work is a sum over layers, so that a stage grows layer by
    /// layer.
    fn least_work(&self) -> Vec<f64> {
        let (nodes, width) = (&self.deal.graph.nodes, self.layers + 1);
        let mut behind = vec![f64::INFINITY; nodes.len() * width];
        behind[(nodes.len() - 1) * width + self.layers] = 0.0;
        for (index, node) in nodes.iter().enumerate().rev() {
            let firsts = self.firsts(node);
            for &(own, next) in &node.next {
                let mut begun = f64::INFINITY;
                for first in (firsts.start..self.layers).rev() {
                    let after = behind[next * width + first + 1];
                    begun = self.costs.work(own, &(first..first + 1)) + begun.min(after);
                    if firsts.contains(&first) {
                        let place = &mut behind[index * width + first];
                        *place = place.min(self.hop(node, own) + begun);
                    }
                }
            }
        }
        behind
    }

    /// Calls `each` for every stage that may come next and is not above the cutoff by itself, until it has `enough`.
    fn each(
        &self,
        table: &Table,
        node: usize,
        first: usize,
        mut each: impl FnMut(Step),
        enough: impl Fn() -> f64,
    ) {
        let (graph, costs) = (&self.deal.graph, self.costs);
        let here = &graph.nodes[node];
        let left = graph.stages - here.stage - 1;
        let ends = if left == 0 { self.layers } else { first + 1 }..(self.layers + 1).saturating_sub(left);
        for &(own, next) in &here.next {
            let hop = self.hop(here, own);
            for end in ends.clone() {
                let units = first..end;
                let times = costs.times(own, &units);
                let work = costs.microbatches * times.work;
                if hop + work > table.cutoff.min(enough()) || !costs.may_fit(here.stage, own, &units) {
                    break;
                }
                let rest = table.value(next, end);
                if rest.is_infinite() || !costs.is_listed(here.stage, &units) {
                    continue;
                }
                let behind = self.behind.get(next * table.width + end).copied().unwrap_or(0.0);
                let busy = work.max(costs.span(graph, here.stage, times, behind));
                each(Step { own, node: next, end, times, hop, busy, rest });
            }
        }
    }

    /// The stages that may come next.
    pub(super) fn steps(&self, table: &Table, node: usize, first: usize) -> Vec<Step> {
        let mut steps = Vec::new();
        self.each(table, node, first, |step| steps.push(step), || f64::INFINITY);
        steps
    }

    /// Fills a table with bounds up to a cutoff; with `exactly`, of stages that truly fit.
    pub(super) fn table(&self, cutoff: f64, exactly: bool) -> Table {
        let nodes = &self.deal.graph.nodes;
        let width = self.layers + 1;
        let mut table = Table { width, values: vec![f64::INFINITY; nodes.len() * width], cutoff };
        table.values[(nodes.len() - 1) * width + self.layers] = 0.0;
        for (index, node) in nodes.iter().enumerate().rev().skip(1) {
            for first in self.firsts(node) {
                let best = std::cell::Cell::new(f64::INFINITY);
                let look = |step: Step| {
                    let value = step.joined();
                    if value >= best.get() {
                        return;
                    }
                    let fits = !exactly || self.costs.fits(node.stage, step.own, &(first..step.end));
                    if fits {
                        best.set(value);
                    }
                };
                self.each(&table, index, first, look, || best.get());
                if best.get() <= cutoff {
                    table.values[index * width + first] = best.get();
                }
            }
        }
        table
    }
}

impl Step {
    /// Seconds from the end of the stage in front on, at least.
    fn joined(&self) -> f64 {
        self.hop + if self.rest == 0.0 { self.busy } else { self.busy.max(self.times.lead + self.rest) }
    }
}

impl Table {
    pub(super) fn value(&self, node: usize, first: usize) -> f64 {
        self.values[node * self.width + first]
    }

    /// The least bound of all; none if nothing is feasible below the cutoff.
    pub(super) fn bound(&self) -> Option<f64> {
        Some(self.value(0, 0)).filter(|bound| bound.is_finite())
    }
}
