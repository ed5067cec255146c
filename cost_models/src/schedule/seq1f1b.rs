//! Seq1F1B (arXiv:2406.03488): 1F1B over slices of the sequence.
//!
//! ```text
//! p = 2, 3 microbatches, two columns a unit; numbers are slices, two a microbatch
//! rank 0 |F0F1F2....B1--F3B0--F4B3--F5B2--..B5--B4--|
//! rank 1 |..F0F1B1--F2B0--F3B3--F4B2--F5B5--B4--....|
//! ```
//!
//! Slices go forward ascending and, within a microbatch, backward descending, because a slice's keys get gradients
//! from all later ones. Bubble (p - 1)(tF + tB) of a slice; p - 1 + q slices held on rank 0.

use super::op::Op;
use super::registry::{Definition, Generator};
use super::shape::Sizes;

/// Seq1F1B.
pub(super) const DEFINITION: Definition = Definition {
    name: "seq1f1b",
    summary: "1F1B over slices of the sequence: 1/q of the bubble and about 1/q of the memory",
    source: "sail-sg/zero-bubble-pipeline-parallelism seq1f1b.py; arXiv:2406.03488",
    default_slices: Some(2),
    rules: super::one_f_one_b::one_chunk,
    orders: Generator::PerRank(order),
    ..Definition::LOOPED
};

/// The k-th slice to go backward.
pub(super) fn backward(sizes: &Sizes, rank: u32, k: u32) -> Op {
    Op::b(rank, k / sizes.q * sizes.q + sizes.q - 1 - k % sizes.q)
}

fn order(sizes: &Sizes, rank: u32) -> Vec<Op> {
    let units = sizes.m * sizes.q;
    let warmup = units.min((sizes.p + sizes.q).saturating_sub(rank + 2));
    let mut ops: Vec<Op> = (0..warmup).map(|k| Op::f(rank, k)).collect();
    for k in warmup..units {
        ops.extend([Op::f(rank, k), backward(sizes, rank, k - warmup)]);
    }
    ops.extend((units - warmup..units).map(|k| backward(sizes, rank, k)));
    ops
}
