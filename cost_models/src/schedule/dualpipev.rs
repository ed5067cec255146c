//! DualPipeV (torch `DualPipeV`): DualPipe's steps on one V-shaped pipeline, without the second copy of the weights.
//!
//! ```text
//! p = 2; lower case: the second chunk; & marks one combined operation
//! rank 0  F0 F1 | F2 f0 | i0 w0 f1 | (F3&b1) (f2&I0) ...
//! rank 1  .. .. F0 f0 F1 f1 | F2 b0 (f2&B0) (F3&b1) ...
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
    rules.require(sizes.m >= 2 * sizes.p, "microbatches", sizes.m, "DualPipeV needs at least 2p microbatches", &hint);
}
