//! Looped breadth-first (arXiv:2211.05953): every microbatch through a chunk before the next chunk.
//!
//! ```text
//! p = 2, 3 microbatches, two columns a unit; lower case: the second chunk
//! rank 0 |F0F1F2f0f1f2......b0--b1--b2--B0--B1--B2--|
//! rank 1 |..F0F1F2f0f1f2b0--b1--b2--B0--B1--B2--....|
//! ```
//!
//! Bubble (p - 1)(tF + tB) in chunk times for m >= p; every rank holds mv. torch runs the backwards of a chunk in
//! reverse order of microbatches, which takes as long.

use super::op::Op;
use super::registry::{Definition, Generator};
use super::shape::Sizes;

/// Looped breadth-first.
pub(super) const DEFINITION: Definition = Definition {
    name: "looped-bfs",
    summary: "GPipe over v chunks a rank, breadth first",
    source: "torch ScheduleLoopedBFS; arXiv:2211.05953",
    default_chunks: 2,
    orders: Generator::PerRank(order),
    ..Definition::LOOPED
};

fn order(sizes: &Sizes, rank: u32) -> Vec<Op> {
    let stages = (0..sizes.v).map(|chunk| chunk * sizes.p + rank);
    let forwards = stages.clone().flat_map(|stage| (0..sizes.m).map(move |j| Op::f(stage, j)));
    forwards.chain(stages.rev().flat_map(|stage| (0..sizes.m).map(move |j| Op::b(stage, j)))).collect()
}
