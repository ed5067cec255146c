//! What limits the search: memory, placements, slices, and times that nothing within them beats.

use super::super::bound::{self, BoundInput, memory_bound, memory_bound_bytes};
use super::super::error::ScheduleError;
use super::super::orders::Vocabulary;
use super::super::placement::Placement;
use super::super::refill::MemoryCap;
use super::super::shape::{MemoryLimit, Rules, Sizes};
use super::super::timeline::Timeline;
use super::{AutoOptions, Objective, Search};

/// Operations of whole sequences times slices, at most: sliced orders are all simulated.
const MOST_SLICED_OPS: u64 = 8_000_000;

/// Whether as many slices as the options allow can be tried.
pub(super) fn check_slices(sizes: &Sizes, options: &AutoOptions) -> Result<(), ScheduleError> {
    let most = options.most_slices;
    let mut rules = Rules::new("auto");
    let rule = format!("auto cuts sequences into 1 to {} slices", AutoOptions::MOST_SLICES);
    let hint = "use 1 for whole sequences; seq1f1b and terapipe take more";
    rules.require((1..=AutoOptions::MOST_SLICES).contains(&most), "slices", most, &rule, hint);
    let ops = 3 * u64::from(sizes.p * sizes.v) * u64::from(sizes.m) * u64::from(most);
    let hint = "use fewer slices or microbatches";
    rules.require(ops <= MOST_SLICED_OPS, "operations", ops, "more than a search simulates in time", hint);
    rules.finish()
}

impl Search<'_> {
    /// The limit as weights per stage and a bound per rank.
    pub(super) fn cap(&self, placement: &[u16], slices: u32) -> MemoryCap {
        let costs = self.costs_of(slices);
        let stages = costs.stages.len();
        let weight = |stage: usize| match self.limit {
            Some(MemoryLimit::Bytes(_)) => costs.stages[stage % stages].activation_bytes,
            Some(MemoryLimit::Chunks(_)) | None => 1.0,
        };
        let limit = match self.limit {
            Some(MemoryLimit::Bytes(bytes)) => bytes,
            Some(MemoryLimit::Chunks(chunks)) => f64::from(chunks) * f64::from(slices),
            None => f64::INFINITY,
        };
        MemoryCap {
            per_stage: (0..placement.len()).map(weight).collect(),
            limit: vec![limit; self.sizes.p as usize],
        }
    }

    pub(super) fn fits(&self, timeline: &Timeline, slices: u32) -> bool {
        timeline.ranks.iter().all(|rank| match self.limit {
            None => true,
            Some(MemoryLimit::Chunks(chunks)) => {
                u64::from(rank.peak_activations) <= u64::from(chunks) * u64::from(slices)
            }
            Some(MemoryLimit::Bytes(bytes)) => rank.peak_activation_bytes <= bytes * (1.0 + 1e-12),
        })
    }

    pub(super) fn placements(&self) -> Vec<Placement> {
        let sizes = self.sizes;
        let mut all = vec![Placement::Loop];
        if sizes.v == 2 {
            all.push(Placement::V);
        }
        if sizes.v > 2 && sizes.v.is_multiple_of(2) {
            all.push(Placement::Wave);
        }
        if self.options.replicated_weights && sizes.m.is_multiple_of(2) && sizes.v <= 2 {
            all.push(if sizes.v == 1 { Placement::Bidirectional } else { Placement::BidirectionalV });
        }
        all.retain(|&placement| self.options.placement.is_none_or(|only| only == placement));
        all
    }

    /// Slices that sequences may be cut into: sliced schedules have one stage a rank, in a loop.
    pub(super) fn slices(&self) -> std::ops::RangeInclusive<u32> {
        let able = self.sizes.v == 1 && self.placements().contains(&Placement::Loop);
        2..=if able { self.options.most_slices } else { 1 }
    }

    /// The least of the bounds of the placements and slices that are searched.
    pub(super) fn lower_bound(&self) -> f64 {
        let whole = self.placements().into_iter().map(|placement| self.bound_of(placement, 1));
        let cut = self.slices().map(|slices| self.bound_of(Placement::Loop, slices));
        whole.chain(cut).fold(f64::INFINITY, f64::min)
    }

    fn bound_of(&self, placement: Placement, slices: u32) -> f64 {
        let (sizes, costs) = (self.sizes, self.costs_of(slices));
        let stages = sizes.p * sizes.v;
        let placed = placement.ranks_of_stages(sizes.p, stages);
        let input = BoundInput {
            ranks: sizes.p,
            stages,
            placement: &placed,
            microbatches: sizes.m / placement.pipelines(),
            slices,
            splits_backward: true,
            combines: true,
            vocabulary: Vocabulary::Whole,
        };
        if self.options.objective == Objective::Span {
            return bound::busiest(&input, costs) + costs.optimizer;
        }
        let cap = match self.limit {
            Some(MemoryLimit::Chunks(chunks)) => {
                memory_bound(&input, costs, f64::from(chunks) * f64::from(slices))
            }
            Some(MemoryLimit::Bytes(bytes)) => memory_bound_bytes(&input, costs, bytes),
            None => 0.0,
        };
        bound::bound(&input, costs).max(cap)
    }
}
