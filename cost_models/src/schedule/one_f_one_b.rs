//! 1F1B (PipeDream-flush; arXiv:2006.09503): as few forwards ahead as keep the ranks busy.
//!
//! ```text
//! p = 3, 4 microbatches, two columns a unit
//! rank 0 |F0F1F2........B0--F3B1--..B2--..B3--|
//! rank 1 |..F0F1....B0--F2B1--F3B2--..B3--....|
//! rank 2 |....F0B0--F1B1--F2B2--F3B3--........|
//! ```
//!
//! Bubble (p - 1)(tF + tB); rank r holds min(m, p - r). With a latency c between ranks every p microbatches cost
//! 2(p - 1)c more, because only p - r microbatches are in flight.
//!
//! With vocabulary passes the order is that of `vocabulary_1f1b.rs`.

use super::op::Op;
use super::registry::{Definition, Generator};
use super::shape::{Rules, Sizes};

/// 1F1B.
pub(super) const DEFINITION: Definition = Definition {
    name: "1f1b",
    summary: "one forward, one backward: the fewest activations for one stage a rank",
    source: "torch Schedule1F1B; Megatron-LM pipeline_parallel/schedules.py; arXiv:2006.09503",
    rules: one_chunk,
    vocabulary_orders: Some(super::vocabulary_1f1b::orders),
    orders: Generator::PerRank(order),
    ..Definition::LOOPED
};

/// Exactly one stage a rank.
pub(super) fn one_chunk(sizes: &Sizes, rules: &mut Rules) {
    let rule = "one stage a rank";
    rules.require(sizes.v == 1, "chunks", sizes.v, rule, "use interleaved-1f1b for several chunks");
}

/// `warmup` forwards, then forward and backward in turn, then the remaining backwards.
pub(super) fn order(sizes: &Sizes, rank: u32) -> Vec<Op> {
    let (m, warmup) = (sizes.m, sizes.m.min(sizes.p - 1 - rank));
    let mut ops: Vec<Op> = (0..warmup).map(|j| Op::f(rank, j)).collect();
    for j in warmup..m {
        ops.extend([Op::f(rank, j), Op::b(rank, j - warmup)]);
    }
    ops.extend((m - warmup..m).map(|j| Op::b(rank, j)));
    ops
}
