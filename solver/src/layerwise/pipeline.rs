//! All stages of a node: partial pipelines by rising bound, whole ones judged by `estimate`.

use super::bound::Bounds;
use super::node::Node;
use super::price::Prices;
use super::queue::Entry;
use super::stage::{Choice, Order, Spent, Stage, Trails};
use crate::observer::Patience;
use std::collections::{BTreeMap, BinaryHeap};

/// Partial pipelines of one node at most.
const MOST_PARTIAL: usize = 400_000;
/// What simulating one microbatch on one rank counts, in comparisons.
const SIMULATED: u64 = 150;

/// A pipeline's first stages.
#[derive(Debug, Clone, Copy)]
struct Partial {
    /// A step with it takes at least this.
    bound: f64,
    /// The one before it, and the choice that was added.
    before: u32,
    choice: Option<Choice>,
    ranks: usize,
    end: usize,
    /// Work of a microbatch on all its ranks.
    work: f64,
    /// What the rank that takes longest of it needs, those before it in front.
    most: f64,
    /// The same, less the work up to that rank's end and what warms it up: with all the work behind it, a bound too.
    back: f64,
}

impl Partial {
    /// No stage.
    const NONE: Self = Self {
        bound: 0.0,
        before: u32::MAX,
        choice: None,
        ranks: 0,
        end: 0,
        work: 0.0,
        most: 0.0,
        back: f64::NEG_INFINITY,
    };
}

/// What a search knows so far.
#[derive(Default)]
struct Known {
    cutoff: f64,
    trails: Trails,
    /// Stages by rank, first layer and what comes before it.
    stages: BTreeMap<(usize, usize, usize), Vec<Choice>>,
    /// Whether labels were left out for their number.
    thinned: bool,
    simulated: u64,
}

/// How a node was searched.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Closed {
    /// A step that was not looked at takes at least this; none if all were.
    pub open: Option<f64>,
    /// Every step takes at least this; infinite where none is below the cutoff.
    pub least: f64,
    /// Pipelines that were simulated.
    pub simulated: u64,
    /// Labels and partial pipelines that were compared.
    pub effort: u64,
}

/// A pipeline: the end of every stage, and the way of every layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pipeline {
    /// The layer after every stage.
    pub ends: Vec<usize>,
    /// The way of every layer, as an index into [`Node::ways_of`].
    pub ways: Vec<usize>,
}

/// The stages of a node.
pub struct Search<'n, 'g> {
    /// The node.
    pub node: &'n Node<'g>,
    /// Its bounds.
    pub bounds: &'n Bounds,
    /// Prices of bytes, where there is one rank.
    pub prices: Option<&'n Prices>,
    /// Seconds of a step outside all ranks.
    pub fixed: f64,
    /// What stages are compared by.
    pub order: Order,
    /// When to stop.
    pub patience: Patience<'n>,
    /// Labels and partial pipelines that may be compared.
    pub effort: u64,
    /// How much further a pipeline's bound may be above another's that has no stage yet, relative, and be looked at first.
    pub haste: f64,
}

impl Search<'_, '_> {
    /// Looks for steps below a cutoff, by rising bound. `judge` gives what a pipeline takes, and with it a new cutoff.
    pub fn run(&self, cutoff: f64, mut judge: impl FnMut(&Pipeline) -> f64) -> Closed {
        let ranks = self.node.grid.pp as usize;
        let mut known = Known { cutoff: cutoff - self.fixed, ..Known::default() };
        let mut list = vec![Partial { bound: self.bounds.least(), ..Partial::NONE }];
        let mut queue = BinaryHeap::from([Entry { bound: self.bounds.least(), order: 0, item: 0u32 }]);
        let mut least = f64::INFINITY;
        while let Some(Entry { item, .. }) = queue.pop() {
            let partial = list[item as usize];
            if partial.bound >= known.cutoff {
                continue;
            }
            if self.is_over(&known, list.len()) {
                let open = queue.iter().map(|entry| list[entry.item as usize].bound);
                let open = open.fold(partial.bound, f64::min);
                return self.closed(&known, Some(open), least.min(open));
            }
            if partial.ranks == ranks {
                least = least.min(partial.bound);
                known.simulated += 1;
                known.trails.effort += SIMULATED * self.node.grid.microbatches * ranks as u64;
                let step = judge(&self.pipeline(&list, item, &known.trails));
                known.cutoff = known.cutoff.min(step - self.fixed);
                continue;
            }
            for choice in self.choices(&partial, &mut known) {
                let next = self.next(&partial, item, choice);
                if next.bound < known.cutoff {
                    let index = list.len() as u32;
                    let ahead = 1.0 + self.haste * (ranks - next.ranks) as f64 / ranks as f64;
                    list.push(next);
                    queue.push(Entry { bound: next.bound * ahead, order: u64::from(index), item: index });
                }
            }
        }
        self.closed(&known, None, least)
    }

    /// Whether enough was done.
    fn is_over(&self, known: &Known, partial: usize) -> bool {
        let tired = known.trails.effort > self.effort || partial > MOST_PARTIAL;
        let found = known.simulated > 0 || known.trails.effort > 8 * self.effort.max(MOST_PARTIAL as u64);
        (tired && found) || self.patience.is_over()
    }

    fn closed(&self, known: &Known, open: Option<f64>, least: f64) -> Closed {
        let weak = self.prices.map_or_else(|| self.bounds.least(), |prices| prices.whole(self.bounds));
        let (open, least) = if known.thinned { (Some(weak), weak) } else { (open, least) };
        Closed {
            open: open.map(|open| open + self.fixed),
            least: least + self.fixed,
            simulated: known.simulated,
            effort: known.trails.effort,
        }
    }

    /// The stages that may follow a partial pipeline.
    fn choices(&self, partial: &Partial, known: &mut Known) -> Vec<Choice> {
        let entry = partial.choice.map(|choice| choice.tp);
        let key = (partial.ranks, partial.end, entry.map_or(0, |tp| tp + 1));
        if let Some(choices) = known.stages.get(&key) {
            known.trails.effort += choices.len() as u64;
            return choices.clone();
        }
        let stage = Stage {
            node: self.node,
            bounds: self.bounds,
            prices: self.prices,
            rank: partial.ranks,
            start: partial.end,
            entry,
            order: self.order,
            cutoff: known.cutoff,
            effort: if self.haste > 0.0 { 0 } else { self.effort },
        };
        let (choices, all) = stage.choices(&mut known.trails);
        known.thinned |= !all;
        known.stages.insert(key, choices.clone());
        choices
    }

    /// A pipeline with one stage more, and what a step of it takes at least.
    fn next(&self, partial: &Partial, item: u32, choice: Choice) -> Partial {
        let microbatches = self.node.grid.microbatches as f64;
        let Spent { forward, .. } = choice.spent;
        let reached = partial.work + choice.spent.step(microbatches);
        let work = partial.work + choice.spent.work();
        let warm = (self.node.warm_up(partial.ranks) - 1.0).max(0.0) * forward;
        let mut next = Partial {
            bound: 0.0,
            before: item,
            choice: Some(choice),
            ranks: partial.ranks + 1,
            end: choice.end,
            work,
            most: partial.most.max(reached),
            back: partial.back.max(reached - work - warm),
        };
        let (rank, end) = (next.ranks, next.end);
        next.bound = next
            .most
            .max(work + self.bounds.suffix(rank, end))
            .max(next.back + work + self.bounds.work_after(rank, end));
        next
    }

    fn pipeline(&self, list: &[Partial], item: u32, trails: &Trails) -> Pipeline {
        let mut chosen: Vec<Choice> = Vec::new();
        let mut at = item;
        while let Some(partial) = list.get(at as usize) {
            chosen.extend(partial.choice);
            at = partial.before;
        }
        chosen.reverse();
        Pipeline {
            ends: chosen.iter().map(|choice| choice.end).collect(),
            ways: chosen.iter().flat_map(|choice| trails.ways(choice.trail)).collect(),
        }
    }
}
