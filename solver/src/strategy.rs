//! What each stage keeps of its activations and what it repeats, where an engine lets every stage choose.
//!
//! With one stage per rank, the choices of the stages do not touch one another in memory, and every operation of a stage takes
//! as long or longer the more it repeats, so that the best choice of a stage is the one with least time that fits: keeping
//! all, the runtime's selective recompute, or the fewest layers repeated in full.

use crate::leaf::Leaf;
use cost_models::memory::MemoryTable;
use cost_models::{Recompute, Stage};
use std::ops::Range;

/// The recompute with least time with which some units fit a rank; none if they do not fit at all.
#[must_use]
pub fn choose(leaf: &Leaf, memory: &MemoryTable, rank: u32, units: &Range<usize>) -> Option<Recompute> {
    if !leaf.layout.pipeline.per_stage {
        let recompute = leaf.layout.pipeline.recompute;
        return fits(leaf, memory, rank, units, recompute).then_some(recompute);
    }
    let options = [Recompute::None, Recompute::Selective]
        .into_iter()
        .filter(|&recompute| leaf.may_recompute(recompute) && fits(leaf, memory, rank, units, recompute));
    let layers = fewest_layers(leaf, memory, rank, units).map(|n| Recompute::Full { layers: Some(n) });
    let seconds = |recompute: &Recompute| leaf.layout.times.work(units, *recompute);
    options.chain(layers).min_by(|a, b| seconds(a).total_cmp(&seconds(b)))
}

/// The fewest fully repeated layers with which some units fit.
fn fewest_layers(leaf: &Leaf, memory: &MemoryTable, rank: u32, units: &Range<usize>) -> Option<u32> {
    let blocks: u32 = leaf.units.as_slice()[units.clone()].iter().map(|unit| unit.blocks).sum();
    let with = |layers: u32| fits(leaf, memory, rank, units, Recompute::Full { layers: Some(layers) });
    if blocks == 0 || !with(blocks) {
        return None;
    }
    let (mut low, mut high) = (1, blocks);
    while low < high {
        let middle = low + (high - low) / 2;
        if with(middle) { high = middle } else { low = middle + 1 }
    }
    Some(low)
}

fn fits(leaf: &Leaf, memory: &MemoryTable, rank: u32, units: &Range<usize>, recompute: Recompute) -> bool {
    let stage = Stage { rank, chunk: 0, layers: leaf.units.layers(units.clone()), recompute };
    let allocated = memory.rank_peak(rank, [&stage]).allocated();
    leaf.problem.runtime.memory.reserve.reserved_bytes(allocated) <= leaf.problem.limit().get()
}

/// One word for the choices of all stages: the most any repeats.
#[must_use]
pub fn most_of(recomputes: &[Recompute]) -> Recompute {
    recomputes.iter().copied().max().unwrap_or(Recompute::None)
}
