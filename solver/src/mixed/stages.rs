//! What stages of every type cost: the table that the program over splits works on.

use super::deal::Graph;
use crate::bound::Layout;
use crate::partition::StageTimes;
use crate::units::Units;
use cluster_profiles::Bytes;
use cost_models::Stage;
use cost_models::memory::MemoryTable;
use cost_models::runtime::ReserveTraits;
use cost_models::schedule::ScheduleKind;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

/// Stages of which each waits for the slowest of its kinds and fits the smallest.
pub(super) struct Stages<'s> {
    pub(super) units: &'s Units,
    /// The layout on every kind.
    pub(super) bounds: &'s [Layout<'s>],
    /// The kind that every type of stage runs at.
    pub(super) slowest: &'s [usize],
    /// The kind with the least memory of every type.
    pub(super) smallest: &'s [usize],
    /// What a GPU of every type may hold.
    pub(super) limits: &'s [Bytes],
    pub(super) memory: &'s MemoryTable<'s>,
    pub(super) reserve: &'s ReserveTraits,
    /// Microbatches every rank holds, at least.
    pub(super) in_flight: Vec<f64>,
    /// The only split there is, where the engine makes it by itself.
    pub(super) own: Option<Vec<usize>>,
    pub(super) microbatches: f64,
    /// Whether the true memory of a stage fits.
    pub(super) known: RefCell<BTreeMap<(usize, usize, usize, usize), bool>>,
}

impl Stages<'_> {
    fn layout(&self, own: usize) -> &Layout<'_> {
        &self.bounds[self.slowest[own]]
    }

    /// Work of a microbatch on some units as a type of stage.
    pub(super) fn work(&self, own: usize, units: &Range<usize>) -> f64 {
        let layout = self.layout(own);
        layout.times.work(units, layout.repeated())
    }

    /// Whether units may fit as a stage in this place; with more of them it does not become true.
    pub(super) fn may_fit(&self, stage: usize, own: usize, units: &Range<usize>) -> bool {
        self.bounds[self.smallest[own]].may_fit(units, self.in_flight[stage])
    }

    /// Whether the engine can make units the stage in this place.
    pub(super) fn is_listed(&self, stage: usize, units: &Range<usize>) -> bool {
        let start = |ends: &Vec<usize>| if stage == 0 { 0 } else { ends[stage - 1] };
        self.own.as_ref().is_none_or(|ends| start(ends) == units.start && ends[stage] == units.end)
    }

    /// Times of a stage.
    pub(super) fn times(&self, own: usize, units: &Range<usize>) -> StageTimes {
        let layout = self.layout(own);
        let work = self.work(own, units);
        let lead = if layout.is_staggered() {
            0.0
        } else if layout.splits_backward() {
            layout.times.forward(units)
        } else {
            work
        };
        StageTimes { work, lead }
    }

    /// Whether the true memory of a stage fits.
    pub(super) fn fits(&self, stage: usize, own: usize, units: &Range<usize>) -> bool {
        let key = (stage, own, units.start, units.end);
        let known = self.known.borrow().get(&key).copied();
        let fits = known.unwrap_or_else(|| {
            let recompute = self.layout(own).pipeline.recompute;
            let layers = self.units.layers(units.clone());
            let whole = Stage { rank: stage as u32, chunk: 0, layers, recompute };
            let peak = self.memory.rank_peak(stage as u32, [&whole]);
            self.reserve.reserved_bytes(peak.allocated()) <= self.limits[own].get()
        });
        self.known.borrow_mut().insert(key, fits);
        fits
    }

    /// In 1F1B a rank's first backward waits for the first microbatch to go through all stages and back, and after its last
    /// forward that microbatch goes on to the last stage and back: what lies behind the rank counts twice
    /// ([`cost_models::schedule::Interleaving`]).
    pub(super) fn span(&self, graph: &Graph, stage: usize, times: StageTimes, behind: f64) -> f64 {
        let before = (graph.stages - stage) as f64;
        if !self.counts_behind() || before >= self.microbatches {
            return 0.0;
        }
        (self.microbatches - before + 1.0) * times.work + 2.0 * behind
    }

    /// Whether what lies behind a rank counts twice.
    pub(super) fn counts_behind(&self) -> bool {
        self.bounds[0].pipeline.schedule.kind == ScheduleKind::OneFOneB
    }
}
