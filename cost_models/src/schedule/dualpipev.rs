//! DualPipeV (torch `DualPipeV`): DualPipe's steps on one V-shaped pipeline, without the second copy of the weights.
//!
//! ```text
//! p = 2, 4 microbatches, lower case: the second chunk; combined pairs show their backward
//! rank 0 |F0F1F2f0i0w0f1b1----..B0----b2--..B1----b3--I2W2I3W3|
//! rank 1 |..F0f0F1f1F2b0--B0----b1----B1----b2--B2--..i3I3w3W3|
//! ```
//!
//! Bubble (p - 1)(F&B + tB - 3tW) in chunk times under the conditions of DualPipe; every rank holds 2p + 1 chunks.

use super::placement::Placement;
use super::registry::{Definition, Generator};
use super::shape::{Rules, Sizes};

/// DualPipeV.
pub(super) const DEFINITION: Definition = Definition {
    name: "dualpipev",
    summary: "DualPipe on a V: forwards combined with backwards, weights once",
    source: "deepseek-ai/DualPipe dualpipev.py; torch ScheduleDualPipeV",
    placement: Placement::V,
    splits_backward: true,
    combines: true,
    default_chunks: 2,
    rules,
    orders: Generator::PerRank(|sizes, rank| {
        super::dualpipe::eight_steps([rank, 2 * sizes.p - 1 - rank], sizes.p, rank, sizes.m)
    }),
    ..Definition::LOOPED
};

fn rules(sizes: &Sizes, rules: &mut Rules) {
    super::zb_v::two_chunks(sizes, rules);
    let hint = format!("use at least {} microbatches", 2 * sizes.p);
    rules.require(
        sizes.m >= 2 * sizes.p,
        "microbatches",
        sizes.m,
        "DualPipeV needs at least 2p microbatches",
        &hint,
    );
}
