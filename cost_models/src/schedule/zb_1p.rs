//! ZB-1P: the automatic zero-bubble schedule in 1F1B's memory (p microbatches on every rank).
//!
//! ```text
//! rank 0  F0 F1 F2 .. .. I0 W0 F3 I1 W1 .. I2 W2 .. I3 W3     at equal times that of ZB-H1
//! ```
//!
//! Searched for the costs at hand. With optimizer post-validation steps are staggered, so the span counts.

use super::auto::{AutoOptions, Objective, search};
use super::registry::{Definition, Generator};
use super::shape::MemoryLimit;

/// ZB-1P.
pub(super) const DEFINITION: Definition = Definition {
    name: "zb-1p",
    summary: "searched zero-bubble schedule in 1F1B's activation memory, steps staggered",
    source: "arXiv:2401.10241; sail-sg/zero-bubble-pipeline-parallelism zb.py; the search is this project's",
    splits_backward: true,
    staggered: true,
    rules: super::one_f_one_b::one_chunk,
    orders: Generator::Searched(|sizes, costs| {
        let limit = MemoryLimit::Chunks(sizes.p);
        let options = AutoOptions { objective: Objective::Span, memory_limit: Some(limit), ..AutoOptions::default() };
        Ok(search(sizes, costs, &options)?.orders)
    }),
    ..Definition::LOOPED
};
