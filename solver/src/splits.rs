//! A layout's stages: their ranks, layers and recompute, from where the stages end.

use crate::families::Ends;
use crate::units::Units;
use cost_models::schedule::Placement;
use cost_models::{ParallelConfig, Recompute, Stage, StageMap};
use std::ops::Range;

/// Unit ranges of stages that end there.
pub fn ranges(ends: &[usize]) -> impl Iterator<Item = Range<usize>> + '_ {
    let starts = std::iter::once(0).chain(ends.iter().copied());
    starts.zip(ends).map(|(start, &end)| start..end)
}

/// The stages of a layout. A counted recompute that covers every stage is written as all layers.
#[must_use]
pub fn stage_map(units: &Units, parallel: &ParallelConfig, placement: Placement, ends: &Ends) -> StageMap {
    let ranks = placement.ranks_of_stages(parallel.pp, ends.len() as u32);
    let mut chunks = vec![0u32; parallel.pp as usize];
    let stages = ranges(ends).zip(ranks).map(|(range, rank)| {
        let chunk = chunks[usize::from(rank)];
        chunks[usize::from(rank)] += 1;
        Stage { rank: u32::from(rank), chunk, layers: units.layers(range), recompute: parallel.recompute }
    });
    StageMap(stages.collect())
}

/// The most blocks any stage recomputes.
#[must_use]
pub fn most_recomputable(units: &Units, ends: &[usize]) -> u32 {
    let blocks = |range: Range<usize>| units.as_slice()[range].iter().map(|unit| unit.blocks).sum();
    ranges(ends).map(blocks).max().unwrap_or(0)
}

/// A recompute of so many layers, as all layers where no stage has more.
#[must_use]
pub fn normalised(recompute: Recompute, most: u32) -> Recompute {
    match recompute {
        Recompute::Full { layers: Some(layers) } if layers >= most => Recompute::Full { layers: None },
        other => other,
    }
}
