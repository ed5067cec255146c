//! ZB-H1 (arXiv:2401.10241, handcrafted schedule 1): 1F1B with the weight gradients moved into the cool-down.
//!
//! ```text
//! p = 3, 4 microbatches, two columns a unit
//! rank 0 |F0F1F2....I0W0F3I1W1I2W2I3W3|
//! rank 1 |..F0F1..I0F2I1W0F3I2W1I3W2W3|
//! rank 2 |....F0I0F1I1F2I2W0F3I3W1W2W3|
//! ```
//!
//! Rank r: p - 1 - r forwards, then forward, `I`, and `W` of r microbatches ago. Bubble (p - 1)(tF + tI - tW) for
//! m >= p; every rank holds up to p.

use super::interleaved::Steps;
use super::op::Op;
use super::registry::{Definition, Generator};
use super::shape::Sizes;

/// ZB-H1.
pub(super) const DEFINITION: Definition = Definition {
    name: "zb-h1",
    summary: "1F1B with late weight gradients: a third of the bubble in the same memory",
    source: "arXiv:2401.10241; the order torch's ScheduleInterleavedZeroBubble takes with one stage a rank",
    splits_backward: true,
    rules: super::one_f_one_b::one_chunk,
    orders: Generator::PerRank(|sizes, rank| order(sizes, rank, sizes.m)),
    ..Definition::LOOPED
};

/// The order for any number of chunks, with groups of g microbatches.
pub(super) fn order(sizes: &Sizes, rank: u32, g: u32) -> Vec<Op> {
    let steps = Steps::new(sizes, rank, g);
    let total = steps.len();
    let warmup = (((sizes.v - 1) * g + sizes.p - 1 - rank) as usize).min(total);
    let weight = |k: usize| {
        let (stage, j) = steps.backward(k);
        Op::w(stage, j)
    };
    let lag = (rank as usize).min(total);
    let mut ops: Vec<Op> = (0..warmup).map(|k| steps.forward(k)).collect();
    for k in 0..total {
        if k + warmup < total {
            ops.push(steps.forward(k + warmup));
        }
        let (stage, j) = steps.backward(k);
        ops.push(Op::i(stage, j));
        if k >= lag {
            ops.push(weight(k - lag));
        }
    }
    ops.extend((total - lag..total).map(weight));
    ops
}
