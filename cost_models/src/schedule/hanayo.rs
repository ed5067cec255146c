//! Hanayo (arXiv:2308.15762): W waves down and up the ranks, 2W chunks a rank, weights once.
//!
//! ```text
//! p = 2, 3 microbatches, two columns a unit; lower case: the second chunk
//! rank 0 |F0F1..f0F2f1b0--f2b1--..B0--b2--B1--....B2--|
//! rank 1 |..F0f0F1f1F2f2..b0--B0--b1--B1--b2--B2--....|
//! ```
//!
//! Bubble 2(p - 1)tB in chunk times for any number of waves; every rank holds 2Wm. With a group size the microbatches
//! go in units of that many, one after the other: constant memory, but every unit has the bubble.
//!
//! Inferred: the order is that of a public re-implementation which names the paper, not of the authors' code.

use super::op::Op;
use super::placement::Placement;
use super::registry::{Definition, Generator};
use super::shape::{Rules, Sizes};

/// Hanayo.
pub(super) const DEFINITION: Definition = Definition {
    name: "hanayo",
    summary: "waves down and up the ranks: bidirectional pipelines without the second copy of the weights",
    source: "a public re-implementation of arXiv:2308.15762; the authors' code was not found",
    placement: Placement::Wave,
    default_chunks: 2,
    rules,
    grouped: true,
    orders: Generator::PerRank(order),
    ..Definition::LOOPED
};

fn rules(sizes: &Sizes, rules: &mut Rules) {
    let rule = "a wave goes down and up: an even number of chunks";
    rules.require(sizes.v.is_multiple_of(2), "chunks", sizes.v, rule, "use 2 chunks for every wave");
}

fn order(sizes: &Sizes, rank: u32) -> Vec<Op> {
    let unit = sizes.group.unwrap_or(sizes.m) as usize;
    let units = (0..sizes.m).step_by(unit).map(|start| start..(start + unit as u32).min(sizes.m));
    units.flat_map(|microbatches| wave_unit(sizes, rank, microbatches)).collect()
}

/// All waves of some microbatches: even chunks run ahead, odd chunks set the pace.
fn wave_unit(sizes: &Sizes, rank: u32, microbatches: std::ops::Range<u32>) -> Vec<Op> {
    let stage = |chunk: u32| {
        let way = if chunk.is_multiple_of(2) { rank } else { 2 * sizes.p - 1 - rank };
        2 * sizes.p * (chunk / 2) + way
    };
    let all = |chunk: u32| microbatches.clone().map(move |j| (stage(chunk), j));
    let even = || (0..sizes.v).step_by(2);
    let mut ahead = even().flat_map(all).map(|(stage, j)| Op::f(stage, j));
    let mut behind = even().rev().flat_map(|chunk| all(chunk + 1)).map(|(stage, j)| Op::b(stage, j));
    let first = (sizes.p - rank).min(microbatches.len() as u32) as usize;
    let mut ops: Vec<Op> = ahead.by_ref().take(first).collect();
    for (stage, j) in even().flat_map(|chunk| all(chunk + 1)) {
        ops.push(Op::f(stage, j));
        ops.extend(ahead.next().or_else(|| behind.next()));
    }
    for (stage, j) in even().rev().flat_map(all) {
        ops.push(Op::b(stage, j));
        ops.extend(behind.next());
    }
    ops.extend(behind);
    ops
}
