//! The strategies of one stage: a dynamic program over its layers, with all that no other choice beats in everything.
//!
//! A *label* is a choice of strategies for the layers so far. It is dropped where another that ends with the same tensor
//! parallelism is no larger in anything the step or the memory of the rank grows with: both are sums or maxima over layers, and
//! what follows costs the same after either. Orders of equal layers with equal strategies give equal labels, of which one is
//! kept, so that a run of equal layers has as many labels as it has counts per strategy that matter.

use super::bound::{Bounds, ends};
use super::node::{Held, Node};
use super::price::Prices;

/// What labels are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// What bounds are made of: work of a microbatch, and what a step takes of the rank. Exact without a pipeline.
    Bound,
    /// All that a simulated pipeline depends on.
    Everything,
}

/// Relative difference below which sums of the same terms count as equal.
const ROUNDING: f64 = 1e-12;
/// Labels of one layer and degree that are kept; of more, those that are best at some price of a byte.
const MOST_LABELS: usize = 400;

/// Seconds of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Spent {
    /// Forward of a microbatch.
    pub forward: f64,
    /// Backward of a microbatch.
    pub backward: f64,
    /// Reduction and gathering.
    pub sync: f64,
    /// Optimizer.
    pub optimizer: f64,
}

impl Spent {
    /// Forward and backward of a microbatch.
    #[must_use]
    pub fn work(&self) -> f64 {
        self.forward + self.backward
    }

    /// What a step of so many microbatches takes on the rank alone.
    #[must_use]
    pub fn step(&self, microbatches: f64) -> f64 {
        microbatches * self.work() + self.sync + self.optimizer
    }
}

/// A whole stage.
#[derive(Debug, Clone, Copy)]
pub struct Choice {
    /// The layer after its last.
    pub end: usize,
    /// Index of the tensor parallelism of its last layer.
    pub tp: usize,
    /// Its seconds.
    pub spent: Spent,
    /// The last step of its trail.
    pub trail: u32,
}

/// Which way every layer went: each entry names the one before it.
#[derive(Debug, Default)]
pub struct Trails {
    entries: Vec<(u32, u8)>,
    /// Labels that were compared.
    pub effort: u64,
}

/// No entry.
const NONE: u32 = u32::MAX;

impl Trails {
    fn push(&mut self, before: u32, way: usize) -> u32 {
        self.entries.push((before, way as u8));
        self.entries.len() as u32 - 1
    }

    /// The ways of the layers of a stage, in order, as indices into [`Node::ways_of`].
    #[must_use]
    pub fn ways(&self, mut trail: u32) -> Vec<usize> {
        let mut ways = Vec::new();
        while let Some(&(before, way)) = self.entries.get(trail as usize) {
            ways.push(usize::from(way));
            trail = before;
        }
        ways.reverse();
        ways
    }
}

#[derive(Debug, Clone, Copy)]
struct Label {
    /// What is compared of its seconds.
    times: [f64; 4],
    /// State and saved activations of all microbatches in flight.
    bytes: f64,
    /// State and what exists at the end of the backward, where that can be the peak; 0 elsewhere.
    late: f64,
    /// State and what exists in the optimizer's step, where that can be the peak; 0 elsewhere.
    step: f64,
    spent: Spent,
    held: Held,
    trail: u32,
}

impl Label {
    /// Whether nothing can follow after which `other` would be better. Largest units, working sets and buffers are maxima: one
    /// that is larger here costs its difference at most, whatever follows.
    fn no_worse(&self, other: &Self, rates: [f64; 2]) -> bool {
        let at_most = |own: f64, other: f64| own <= other * (1.0 + ROUNDING);
        if !self.times.iter().zip(&other.times).all(|(own, other)| at_most(*own, *other)) {
            return false;
        }
        let more = |part: fn(&Held) -> f64| (part(&self.held) - part(&other.held)).max(0.0);
        let [largest, all] = rates;
        let extra = largest * more(|held| held.unit)
            + all * more(|held| held.units)
            + more(|held| held.transient)
            + more(|held| held.workspace);
        let fits = |own: f64, other: f64| own == 0.0 || at_most(own + extra, other);
        at_most(self.bytes + extra, other.bytes) && fits(self.late, other.late) && fits(self.step, other.step)
    }
}

/// A stage to be filled.
pub struct Stage<'n, 'g> {
    /// The node.
    pub node: &'n Node<'g>,
    /// Its bounds.
    pub bounds: &'n Bounds,
    /// Prices of bytes for all layers, where there is one rank.
    pub prices: Option<&'n Prices>,
    /// Its rank.
    pub rank: usize,
    /// Its first layer.
    pub start: usize,
    /// Index of the tensor parallelism of the layer before it.
    pub entry: Option<usize>,
    /// What labels are compared by.
    pub order: Order,
    /// Only steps below this matter.
    pub cutoff: f64,
    /// Labels that may be compared before fewer are kept.
    pub effort: u64,
}

impl Stage<'_, '_> {
    /// Every stage that may be part of the best step, and whether none was left out for their number.
    #[must_use]
    pub fn choices(&self, trails: &mut Trails) -> (Vec<Choice>, bool) {
        let node = self.node;
        let ends: Vec<usize> = ends(node, self.rank, self.start).collect();
        let Some(&furthest) = ends.last() else { return (Vec::new(), true) };
        let degrees = node.grid.tps.len();
        let mut labels: Vec<Vec<Label>> = vec![Vec::new(); degrees];
        let (mut all, mut choices) = (true, Vec::new());
        for layer in self.start..furthest {
            let mut next: Vec<Vec<Label>> = vec![Vec::new(); degrees];
            for (index, way) in node.ways_of(layer).iter().enumerate() {
                if layer == self.start {
                    let first = self.label(Spent::default(), Held::default());
                    self.extend(&first, self.entry, layer, index, &mut next[way.tp], trails);
                    continue;
                }
                for (tp, of_tp) in labels.iter().enumerate() {
                    for label in of_tp {
                        self.extend(label, Some(tp), layer, index, &mut next[way.tp], trails);
                    }
                }
            }
            for of_tp in &mut next {
                let most = if trails.effort < self.effort { MOST_LABELS } else { 0 };
                all &= self.thin(of_tp, most);
            }
            labels = next;
            if labels.iter().all(Vec::is_empty) {
                break;
            }
            if ends.binary_search(&(layer + 1)).is_ok() {
                self.close(layer + 1, &labels, &mut choices);
            }
        }
        (choices, all)
    }

    fn extend(
        &self,
        label: &Label,
        from: Option<usize>,
        layer: usize,
        index: usize,
        into: &mut Vec<Label>,
        trails: &mut Trails,
    ) {
        let node = self.node;
        let way = &node.ways_of(layer)[index];
        let numbers = &way.numbers;
        let hop = from.map_or_else(Default::default, |from| node.grid.exchanges[from][way.tp]);
        let spent = Spent {
            forward: label.spent.forward + numbers.forward + hop.forward,
            backward: label.spent.backward + numbers.backward + hop.backward,
            sync: label.spent.sync + numbers.sync,
            optimizer: label.spent.optimizer + numbers.optimizer,
        };
        let mut held = label.held.with(way, hop.transient, node.most_units);
        if node.peak(self.rank, &held, self.start == 0, false) > node.room {
            return;
        }
        if self.rank + 1 == node.grid.pp as usize {
            // Head and loss exist when no layer's working set does.
            held.transient = held.transient.max(node.fixed.head);
        }
        let mut made = self.label(spent, held);
        let rates = node.fixed.rates();
        trails.effort += into.len() as u64 + 1;
        if self.is_too_long(&made, layer + 1, way.tp) || into.iter().any(|other| other.no_worse(&made, rates))
        {
            return;
        }
        into.retain(|other| !made.no_worse(other, rates));
        made.trail = trails.push(label.trail, index);
        into.push(made);
    }

    /// Whether no step with these layers, up to `end`, is below the cutoff.
    fn is_too_long(&self, label: &Label, end: usize, tp: usize) -> bool {
        let step = label.spent.step(self.node.grid.microbatches as f64);
        if let Some(prices) = self.prices {
            let bytes = label.held.resident().get() + self.node.in_flight[self.rank] * label.held.saved;
            return prices.least(step, bytes, end, tp) >= self.cutoff;
        }
        self.bounds.work_before(self.rank, self.start) + step >= self.cutoff
    }

    /// A label of what was spent and is held.
    fn label(&self, spent: Spent, held: Held) -> Label {
        let node = self.node;
        let microbatches = node.grid.microbatches as f64;
        let resident = held.resident().get();
        let saved = node.in_flight[self.rank] * held.saved;
        let times = match self.order {
            Order::Everything => [spent.forward, spent.backward, spent.sync, spent.optimizer],
            Order::Bound if node.grid.pp == 1 => [spent.step(microbatches), 0.0, 0.0, 0.0],
            Order::Bound => [spent.work(), spent.step(microbatches), 0.0, 0.0],
        };
        let (late, step) = (held.state.late.get(), held.state.step.get());
        let after = late + if self.start == 0 { node.fixed.embedding_gradient } else { 0.0 };
        Label {
            times,
            bytes: resident + saved,
            late: if after > saved { resident + late } else { 0.0 },
            step: if step > saved { resident + step } else { 0.0 },
            spent,
            held,
            trail: NONE,
        }
    }

    /// Keeps the labels that are best at some price of a byte where there are more than `most`; whether all were kept.
    fn thin(&self, labels: &mut Vec<Label>, most: usize) -> bool {
        let prices = self.bounds.prices(self.rank);
        if labels.len() <= most.max(prices.len() / 2) {
            return true;
        }
        let microbatches = self.node.grid.microbatches as f64;
        let mut kept: Vec<usize> = prices
            .iter()
            .filter_map(|price| {
                let cost =
                    |label: &Label| label.spent.step(microbatches) + microbatches * price * label.bytes;
                (0..labels.len()).min_by(|&a, &b| cost(&labels[a]).total_cmp(&cost(&labels[b])))
            })
            .collect();
        kept.sort_unstable();
        kept.dedup();
        *labels = kept.iter().map(|&index| labels[index]).collect();
        false
    }

    fn close(&self, end: usize, labels: &[Vec<Label>], choices: &mut Vec<Choice>) {
        let node = self.node;
        let is_last = self.rank + 1 == node.grid.pp as usize;
        let before = self.bounds.work_before(self.rank, self.start);
        let after = self.bounds.suffix(self.rank + 1, end);
        for (tp, of_tp) in labels.iter().enumerate() {
            for label in of_tp {
                let fits = node.peak(self.rank, &label.held, self.start == 0, is_last) <= node.room;
                if fits && before + label.spent.work() + after < self.cutoff {
                    choices.push(Choice { end, tp, spent: label.spent, trail: label.trail });
                }
            }
        }
    }
}
