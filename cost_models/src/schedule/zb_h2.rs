//! ZB-H2 (arXiv:2401.10241, handcrafted schedule 2): twice the memory of 1F1B, no idle time within a rank's span.
//!
//! ```text
//! p = 2, 4 microbatches, two columns a unit
//! rank 0 |F0F1F2I0W0F3I1W1I2W2I3W3..|
//! rank 1 |..F0I0F1I1F2I2W0F3I3W1W2W3|
//! ```
//!
//! Rank r: 2(p - r) - 1 forwards, then `I`, `W` of 2r microbatches ago, forward. Span bubble
//! (p - 1)(tF + tI - 2tW) where that is positive, 0 at equal times; the makespan bubble is still (p - 1)tF, so the
//! gain needs optimizer post-validation. Every rank holds 2p - 1.

use super::op::Op;
use super::registry::{Definition, Generator};
use super::shape::{Rules, Sizes};

/// ZB-H2.
pub(super) const DEFINITION: Definition = Definition {
    name: "zb-h2",
    summary: "twice 1F1B's activations for no idle time inside a rank's span",
    source: "arXiv:2401.10241",
    splits_backward: true,
    rules,
    orders: Generator::PerRank(order),
    ..Definition::LOOPED
};

fn rules(sizes: &Sizes, rules: &mut Rules) {
    super::one_f_one_b::one_chunk(sizes, rules);
    let least = 2 * sizes.p - 1;
    let hint = format!("use at least {least} microbatches, or zb-h1");
    rules.require(
        sizes.m >= least,
        "microbatches",
        sizes.m,
        "ZB-H2 needs at least 2p - 1 microbatches",
        &hint,
    );
}

fn order(sizes: &Sizes, rank: u32) -> Vec<Op> {
    let m = sizes.m;
    let warmup = (2 * (sizes.p - rank) - 1).min(m);
    let lag = (2 * rank).min(m);
    let mut ops: Vec<Op> = (0..warmup).map(|j| Op::f(rank, j)).collect();
    for k in 0..m {
        ops.push(Op::i(rank, k));
        if k >= lag {
            ops.push(Op::w(rank, k - lag));
        }
        if k + warmup < m {
            ops.push(Op::f(rank, k + warmup));
        }
    }
    ops.extend((m - lag..m).map(|j| Op::w(rank, j)));
    ops
}
