//! V-Half (arXiv:2405.15362): two chunks a rank placed as a V, about half of 1F1B's activations.
//!
//! ```text
//! p = 2, 4 microbatches, two columns a unit; lower case: the second chunk
//! rank 0 |F0F1F2f0i0w0f1i1I0w1W0f2F3i2I1w2W1f3i3I2w3I3W2W3..|
//! rank 1 |..F0f0F1f1i0w0I0W0F2f2i1w1I1W1F3f3i2I2i3I3w2W2w3W3|
//! ```
//!
//! The block's slots on rank r: 2r, 3p - 2 - r, 3p + k + 2r - 1, 6p + k - 2 - r for F, f, i, I, with k = 3 for even p. It is
//! repeated, squeezed and its gaps are filled as far as its own peak of 2 floor(p/2) + 2 chunks allows. Meant for
//! m >= 2p.
//!
//! With the output layer split over the ranks (`v-half-vocab1`, `v-half-vocab2`) the input gradients move six slots for
//! every barrier and all ranks run the passes of a microbatch 3.5 slots after the last stage's forward. That order is
//! inferred: no code was found.
//!
//! The gap filling is our own, so bubbles need not be those of the authors' greedy reordering.

use super::costs::OpCosts;
use super::error::ScheduleError;
use super::op::{Op, OpKind};
use super::orders::{RankOrders, Vocabulary};
use super::placement::Placement;
use super::registry::{Definition, Generator};
use super::shape::Sizes;
use super::v_block::{Block, PERIOD, slots, squeeze};

/// V-Half.
pub(super) const DEFINITION: Definition = Definition {
    name: "v-half",
    summary: "two chunks a rank as a V, split backward: half of 1F1B's activations and about half of its bubble",
    source: "arXiv:2405.15362; sail-sg/zero-bubble-pipeline-parallelism v_auto_schedule.py",
    placement: Placement::V,
    splits_backward: true,
    default_chunks: 2,
    rules: super::v_block::rules,
    vocabulary_orders: Some(vocabulary_orders),
    orders: Generator::Searched(|sizes, _: &OpCosts| orders(sizes)),
    ..Definition::LOOPED
};

/// The block.
pub(super) fn block(p: u32) -> Block {
    let k = if p.is_multiple_of(2) { 3 } else { 0 };
    Block((0..p).map(|r| [2 * r, 3 * p - 2 - r, 3 * p + k + 2 * r - 1, 6 * p + k - 2 - r]).collect())
}

/// The block with room for one or two barriers, and the passes in it.
fn vocabulary_orders(sizes: &Sizes, vocabulary: Vocabulary) -> Vec<Vec<Op>> {
    let barriers = if vocabulary == Vocabulary::TwoBarriers { 2 } else { 1 };
    let ranks = block(sizes.p).0.into_iter().zip(0..);
    ranks
        .map(|([fa, fb, ib, ia], rank)| {
            let later = [fa, fb, ib + PERIOD * barriers, ia + PERIOD * barriers];
            let mut slots = slots(&later, rank, sizes);
            let pass = |j: u32| 3 * sizes.p - 2 + PERIOD * j + 3;
            slots.extend((0..sizes.m).map(|j| (pass(j), Op::new(OpKind::S, rank, j))));
            slots.extend((0..sizes.m).map(|j| (pass(j + 1), Op::new(OpKind::T, rank, j))));
            // A pass lies half a slot after the operation of its slot, `T` of the microbatch before first.
            slots.sort_by_key(|&(slot, op)| (slot, op.kind.is_vocabulary(), op.kind == OpKind::S));
            slots.into_iter().map(|(_, op)| op).collect()
        })
        .collect()
}

fn orders(sizes: &Sizes) -> Result<RankOrders, ScheduleError> {
    squeeze(block(sizes.p).orders(sizes)?, sizes)
}
