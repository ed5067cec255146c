//! torch's InterleavedZeroBubble: ZB-H1 over v chunks a rank.
//!
//! ```text
//! p = 2, v = 2; lower case: the second chunk
//! rank 0  F0 F1 f0 f1 i0 w0 F2 i1 w1 F3 I0 W0 f2 I1 W1 ...
//! rank 1  .. F0 F1 f0 i0 f1 i1 w0 F2 I0 w1 F3 I1 W0 ...
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
    orders: Generator::PerRank(|sizes, rank| {
        let g = group_size(&Sizes { group_rule: GroupRule::Torch, ..*sizes });
        super::zb_h1::order(sizes, rank, g)
    }),
    ..Definition::LOOPED
};
