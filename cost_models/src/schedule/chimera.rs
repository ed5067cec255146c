//! Chimera (arXiv:2107.06925): two 1F1B pipelines in opposite directions, one stage of each a rank.
//!
//! ```text
//! p = 4, 4 microbatches, two columns a unit; lower case: the other direction
//! rank 0 |F0F1..f0b0--f1b1--..B0--....B1--|
//! rank 1 |..F0f0F1f1..b0--B0--b1--B1--....|
//! rank 2 |..f0F0f1F1..B0--b0--B1--b1--....|
//! rank 3 |f0f1..F0B0--F1B1--..b0--....b1--|
//! ```
//!
//! Weights twice, and a gradient all-reduce between the two copies. Bubble (p - 2)(n tB - (n - 1) tF) for n = m/p
//! units, full-stage times; rank r holds p/2 + 1 + min(r, p - 1 - r). Units are concatenated directly; the paper's
//! forward doubling and backward halving are not offered because no source for their order was found.

use super::bitpipe::{RankView, concatenated, units_of_p};
use super::op::Op;
use super::placement::Placement;
use super::registry::{Definition, Generator};
use super::shape::{Rules, Sizes};

/// Chimera with direct concatenation.
pub(super) const DEFINITION: Definition = Definition {
    name: "chimera",
    summary: "two opposite 1F1B pipelines; weights twice",
    source: "Shigangli/Chimera chimera_pipeline_rank.py; arXiv:2107.06925",
    placement: Placement::Bidirectional,
    rules,
    orders: Generator::PerRank(order),
    ..Definition::LOOPED
};

fn rules(sizes: &Sizes, rules: &mut Rules) {
    super::one_f_one_b::one_chunk(sizes, rules);
    units_of_p(sizes, rules, "Chimera");
}

fn order(sizes: &Sizes, rank: u32) -> Vec<Op> {
    let (p, h) = (sizes.p, sizes.p / 2);
    let mirrored = p - 1 - rank;
    let stages = [rank, p + mirrored];
    let view = RankView::new(sizes, rank);
    let sequence = |x: usize, y: usize| {
        let mut unit = vec![stages[x]; view.alone];
        unit.extend([stages[y], stages[x]].repeat(h as usize - view.alone));
        unit.extend(vec![stages[y]; view.alone]);
        unit
    };
    let warmup = h + rank.min(mirrored);
    concatenated(sizes, &sequence(view.near, view.far), &sequence(view.far, view.near), warmup as usize)
}
