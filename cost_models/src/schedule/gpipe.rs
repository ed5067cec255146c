//! GPipe (arXiv:1811.06965): all forwards, then all backwards.
//!
//! ```text
//! p = 3, 4 microbatches, two columns a unit
//! rank 0 |F0F1F2F3............B0--B1--B2--B3--|
//! rank 1 |..F0F1F2F3......B0--B1--B2--B3--....|
//! rank 2 |....F0F1F2F3B0--B1--B2--B3--........|
//! ```
//!
//! Bubble (p - 1)(tF + tB); every rank holds m.

use super::op::Op;
use super::registry::{Definition, Generator};
use super::shape::Sizes;

/// GPipe.
pub(super) const DEFINITION: Definition = Definition {
    name: "gpipe",
    summary: "all forwards, then all backwards",
    source: "torch ScheduleGPipe; arXiv:1811.06965",
    rules: super::one_f_one_b::one_chunk,
    orders: Generator::PerRank(order),
    ..Definition::LOOPED
};

fn order(sizes: &Sizes, rank: u32) -> Vec<Op> {
    let forwards = (0..sizes.m).map(|j| Op::f(rank, j));
    forwards.chain((0..sizes.m).map(|j| Op::b(rank, j))).collect()
}
