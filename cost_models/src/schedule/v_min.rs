//! V-Min (arXiv:2405.15362): two chunks a rank placed as a V, about a third of 1F1B's activations.
//!
//! ```text
//! p = 2, 4 microbatches, two columns a unit; lower case: the second chunk
//! rank 0 |F0F1F2f0i0w0f1I0W0i1w1F3I1W1f2i2w2..I2W2f3i3w3..I3W3|
//! rank 1 |..F0f0F1f1i0I0w0W0F2i1I1f2w1W1F3i2I2f3w2W2..i3I3w3W3|
//! ```
//!
//! The block's slots on rank r: r, 2p - 1 - r, 2p + k + r, 4p + k - 1 - r for F, f, i, I, with k = 2 where 3 divides p.
//! Bubble 4p - 5 (4p - 7 where 3 divides p) at unit times, more when tF, tI and tW differ; 2 floor((p + 4)/3) chunks
//! held.
//!
//! The gap filling is our own, so bubbles need not be those of the authors' greedy reordering.

use super::costs::OpCosts;
use super::error::ScheduleError;
use super::orders::RankOrders;
use super::placement::Placement;
use super::registry::{Definition, Generator};
use super::shape::Sizes;
use super::v_block::{Block, squeeze};

/// V-Min.
pub(super) const DEFINITION: Definition = Definition {
    name: "v-min",
    summary: "two chunks a rank as a V, split backward: a third of 1F1B's activations",
    source: "arXiv:2405.15362; sail-sg/zero-bubble-pipeline-parallelism v_auto_schedule.py",
    placement: Placement::V,
    splits_backward: true,
    default_chunks: 2,
    rules: super::v_block::rules,
    orders: Generator::Searched(|sizes, _: &OpCosts| orders(sizes)),
    ..Definition::LOOPED
};

/// The block.
pub(super) fn block(p: u32) -> Block {
    let k = if p.is_multiple_of(3) { 2 } else { 0 };
    Block((0..p).map(|r| [r, 2 * p - 1 - r, 2 * p + k + r, 4 * p + k - 1 - r]).collect())
}

fn orders(sizes: &Sizes) -> Result<RankOrders, ScheduleError> {
    squeeze(block(sizes.p).orders(sizes)?, sizes)
}
