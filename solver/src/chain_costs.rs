//! What stages cost where there is one per rank: the table that the program over splits works on.

use crate::leaf::Leaf;
use crate::partition::{StageCosts, StageTimes};
use crate::strategy::choose;
use cost_models::Recompute;
use cost_models::memory::MemoryTable;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

/// Stages of one chunk per rank, with the true memory of each remembered.
pub(crate) struct ChainCosts<'a, 'p> {
    pub(crate) leaf: &'a Leaf<'a, 'p>,
    pub(crate) memory: &'a MemoryTable<'a>,
    /// Microbatches every rank holds, at least.
    pub(crate) in_flight: Vec<f64>,
    pub(crate) splits_backward: bool,
    pub(crate) known: RefCell<BTreeMap<(usize, usize, usize), Option<Recompute>>>,
}

impl ChainCosts<'_, '_> {
    fn stage_times(&self, layers: &Range<usize>, recompute: Recompute) -> StageTimes {
        let times = self.leaf.layout.times;
        let work = times.work(layers, recompute);
        StageTimes { work, lead: if self.splits_backward { times.forward(layers) } else { work } }
    }
}

impl StageCosts for ChainCosts<'_, '_> {
    fn times(&self, stage: usize, layers: Range<usize>) -> Option<StageTimes> {
        let layout = &self.leaf.layout;
        if !layout.may_fit(&layers, self.in_flight[stage]) {
            return None;
        }
        Some(self.stage_times(&layers, layout.repeated()))
    }

    /// Bytes of a stage only grow with its layers.
    fn misfits_stay(&self) -> bool {
        true
    }

    fn least_work(&self, layers: &Range<usize>) -> f64 {
        self.leaf.layout.times.work(layers, self.leaf.layout.surely_repeated())
    }

    fn confirm(&self, stage: usize, layers: &Range<usize>, _times: StageTimes) -> Option<StageTimes> {
        let key = (stage, layers.start, layers.end);
        let known = self.known.borrow().get(&key).copied();
        let choice = known.unwrap_or_else(|| choose(self.leaf, self.memory, stage as u32, layers));
        self.known.borrow_mut().insert(key, choice);
        choice.map(|recompute| self.stage_times(layers, recompute))
    }
}
