//! Breadth-first units with a split backward, after ZeroPP (arXiv:2402.03791).
//!
//! ```text
//! p = 2, 4 microbatches, two columns a unit; lower case: the second chunk
//! rank 0 |F0F1f0f1....i0i1I0I1w0w1W0W1F2F3f2f3....i2i3I2I3w2w3W2W3|
//! rank 1 |..F0F1f0f1i0i1I0I1w0w1W0W1....F2F3f2f3i2i3I2I3w2w3W2W3..|
//! ```
//!
//! Units of U microbatches (the group size, p unless given): forwards chunk by chunk, then `I` last chunk first, then
//! `W`. FSDP gathers a chunk's weights once a unit. Bubble (p - 1)(tF + tI)m/U, vU held.
//!
//! Inferred from the paper's description; no code was found.

use super::op::{Op, OpKind};
use super::registry::{Definition, Generator};
use super::shape::Sizes;

/// Breadth-first units.
pub(super) const DEFINITION: Definition = Definition {
    name: "zeropp",
    summary: "breadth-first units with a split backward, made for FSDP inside the pipeline",
    source: "arXiv:2402.03791; the order is inferred from its description",
    splits_backward: true,
    default_chunks: 2,
    grouped: true,
    orders: Generator::PerRank(order),
    ..Definition::LOOPED
};

fn order(sizes: &Sizes, rank: u32) -> Vec<Op> {
    let unit = sizes.group.unwrap_or(sizes.p);
    let mut ops = Vec::with_capacity(3 * (sizes.m * sizes.v) as usize);
    for start in (0..sizes.m).step_by(unit as usize) {
        let microbatches = start..(start + unit).min(sizes.m);
        let stages = || (0..sizes.v).map(|chunk| chunk * sizes.p + rank);
        let all = |kind: OpKind, stage: u32| microbatches.clone().map(move |j| Op::new(kind, stage, j));
        ops.extend(stages().flat_map(|stage| all(OpKind::F, stage)));
        ops.extend(stages().rev().flat_map(|stage| all(OpKind::I, stage)));
        ops.extend(stages().rev().flat_map(|stage| all(OpKind::W, stage)));
    }
    ops
}
