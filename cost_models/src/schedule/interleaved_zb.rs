//! torch's InterleavedZeroBubble: ZB-H1 over v chunks a rank.
//!
//! ```text
//! p = 2, 4 microbatches, two columns a unit; lower case: the second chunk
//! rank 0 |F0F1f0f1..i0w0F2i1w1F3I0W0f2I1W1f3i2w2i3w3I2W2I3W3|
//! rank 1 |..F0F1f0i0f1i1w0F2I0w1F3I1W0f2i2W1f3i3w2I2w3I3W2W3|
//! ```
//!
//! Bubble (p - 1)(tF + tI - tW) in chunk times; (v - 1)g + p held where m is a multiple of p, and up to twice as much
//! where it is not, because torch then makes the groups larger.

use super::interleaved::group_size;
use super::registry::{Definition, Generator};
use super::shape::{GroupRule, Sizes};

/// InterleavedZeroBubble.
pub(super) const DEFINITION: Definition = Definition {
    name: "interleaved-zb",
    summary: "ZB-H1 over v chunks a rank",
    source: "torch ScheduleInterleavedZeroBubble",
    splits_backward: true,
    default_chunks: 2,
    rules: super::interleaved::torch_rules,
    round: group,
    orders: Generator::PerRank(|sizes, rank| super::zb_h1::order(sizes, rank, group(sizes))),
    ..Definition::LOOPED
};

/// torch's group size, whoever runs it.
fn group(sizes: &Sizes) -> u32 {
    group_size(&Sizes { group_rule: GroupRule::Torch, ..*sizes })
}
