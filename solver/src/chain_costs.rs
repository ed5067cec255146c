//! What stages cost where there is one per rank: the table that the program over splits works on.

use crate::leaf::Leaf;
use crate::partition::{StageCosts, StageTimes};
use crate::strategy::choose;
use cost_models::Recompute;
use cost_models::memory::MemoryTable;
use cost_models::schedule::ScheduleKind;
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

    /// In 1F1B a rank's first backward waits for the first microbatch to go through all stages behind it and back, and after
    /// its last forward that microbatch goes the same way: what lies behind counts twice. In between, the rank works on all
    /// microbatches but those it holds, and on one more in its first forward and its last backward.
    fn span(&self, stage: usize, layers: &Range<usize>, times: StageTimes) -> f64 {
        let layout = &self.leaf.layout;
        let (ranks, microbatches) = (layout.mesh.pp as usize, layout.mesh.num_microbatches as f64);
        let held = (ranks - stage) as f64;
        let is_1f1b = layout.pipeline.schedule.kind == ScheduleKind::OneFOneB && layout.has_whole_loop();
        if !is_1f1b || held >= microbatches {
            return 0.0;
        }
        let hops = 2.0 * layout.hop() * (ranks - 1 - stage) as f64;
        let after = layers.end..layout.times.len();
        // Where layers are counted, they may be repeated in other stages.
        let repeated = match layout.repeated() {
            Recompute::Full { layers: Some(_) } => layout.surely_repeated(),
            other => other,
        };
        let behind = layout.times.work(&after, repeated) + hops;
        (microbatches - held + 1.0) * times.work + 2.0 * behind
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
