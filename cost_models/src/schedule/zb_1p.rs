//! ZB-1P: the automatic zero-bubble schedule in 1F1B's memory (p microbatches on every rank).
//!
//! ```text
//! p = 3, 4 microbatches, two columns a unit
//! rank 0 |F0F1F2....I0W0F3I1W1I2W2I3W3|
//! rank 1 |..F0F1..I0F2I1W0F3I2W1I3W2W3|
//! rank 2 |....F0I0F1I1F2I2W0F3I3W1W2W3|
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
    rules: super::auto::one_chunk,
    orders: Generator::Searched(|sizes, costs| {
        let limit = MemoryLimit::Chunks(sizes.p);
        let options =
            AutoOptions { objective: Objective::Span, memory_limit: Some(limit), ..AutoOptions::default() };
        Ok(search(sizes, costs, &options)?.orders)
    }),
    ..Definition::LOOPED
};
