//! What stages cost on a row of kinds: the table that the program over splits works on.

use crate::bound::Layout;
use crate::partition::{Chain, StageCosts, StageTimes};
use crate::units::Units;
use cluster_profiles::Bytes;
use cost_models::Stage;
use cost_models::memory::MemoryTable;
use cost_models::runtime::ReserveTraits;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

/// Stages of which each waits for the slowest of its kinds and fits the smallest.
pub(super) struct Stages<'s> {
    pub(super) units: &'s Units,
    /// The layout on every kind.
    pub(super) bounds: &'s [Layout<'s>],
    /// The kind that every stage runs at.
    pub(super) slowest: &'s [usize],
    /// The kind with the least memory of every stage.
    pub(super) smallest: &'s [usize],
    pub(super) limits: &'s [Bytes],
    pub(super) memory: &'s MemoryTable<'s>,
    pub(super) reserve: &'s ReserveTraits,
    /// Microbatches every rank holds, at least.
    pub(super) in_flight: Vec<f64>,
    /// Work of a microbatch on the stages from one on, at least, by `stage x (units + 1) + first unit`.
    pub(super) behind: Vec<f64>,
    pub(super) chain: Chain,
    /// Whether the true memory of a stage fits.
    pub(super) known: RefCell<BTreeMap<(usize, usize, usize), bool>>,
}

impl Stages<'_> {
    /// The same with the least work behind every stage.
    pub(super) fn with_work_behind(mut self) -> Self {
        let (units, stages) = (self.chain.layers, self.chain.stages);
        let width = units + 1;
        let mut behind = vec![f64::INFINITY; (stages + 1) * width];
        behind[stages * width + units] = 0.0;
        for stage in (0..stages).rev() {
            // What is left for the stages in front: at least one unit each.
            for first in stage..units.saturating_sub(stages - stage - 1) {
                let ends = first + 1..=units - (stages - stage - 1);
                let with = |end: usize| self.work(stage, &(first..end)) + behind[(stage + 1) * width + end];
                behind[stage * width + first] = ends.map(with).fold(f64::INFINITY, f64::min);
            }
        }
        self.behind = behind;
        self
    }

    fn layout(&self, stage: usize) -> &Layout<'_> {
        &self.bounds[self.slowest[stage]]
    }

    fn work(&self, stage: usize, units: &Range<usize>) -> f64 {
        let layout = self.layout(stage);
        layout.times.work(units, layout.repeated())
    }
}

impl StageCosts for Stages<'_> {
    fn times(&self, stage: usize, units: Range<usize>) -> Option<StageTimes> {
        if !self.bounds[self.smallest[stage]].may_fit(&units, self.in_flight[stage]) {
            return None;
        }
        let layout = self.layout(stage);
        let work = layout.times.work(&units, layout.repeated());
        let lead = if layout.is_staggered() {
            0.0
        } else if layout.splits_backward() {
            layout.times.forward(&units)
        } else {
            work
        };
        Some(StageTimes { work, lead })
    }

    fn confirm(&self, stage: usize, units: &Range<usize>, times: StageTimes) -> Option<StageTimes> {
        let key = (stage, units.start, units.end);
        let known = self.known.borrow().get(&key).copied();
        let fits = known.unwrap_or_else(|| {
            let recompute = self.layout(stage).pipeline.recompute;
            let layers = self.units.layers(units.clone());
            let whole = Stage { rank: stage as u32, chunk: 0, layers, recompute };
            let peak = self.memory.rank_peak(stage as u32, [&whole]);
            self.reserve.reserved_bytes(peak.allocated()) <= self.limits[stage].get()
        });
        self.known.borrow_mut().insert(key, fits);
        fits.then_some(times)
    }

    /// In 1F1B a rank's first backward waits for the first microbatch to go through all stages and back, and after its last
    /// forward that microbatch goes on to the last stage and back: what lies behind the rank counts twice
    /// ([`crate::order_bound`]).
    fn span(&self, stage: usize, units: &Range<usize>, times: StageTimes) -> f64 {
        let (ranks, microbatches) = (self.chain.stages, self.chain.microbatches);
        let before = (ranks - stage) as f64;
        let is_1f1b = self.layout(stage).pipeline.schedule.kind.name() == "1f1b";
        if !is_1f1b || before >= microbatches {
            return 0.0;
        }
        let behind = self.behind[(stage + 1) * (self.chain.layers + 1) + units.end];
        let hops = 4.0 * self.chain.hop * (ranks - 1 - stage) as f64;
        (microbatches - before + 1.0) * times.work + 2.0 * behind + hops
    }
}
