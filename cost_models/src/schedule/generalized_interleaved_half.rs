//! GIS with groups of ceil(p/2): the least memory a generalized interleaved schedule can do with.
//!
//! ```text
//! p = 2, 4 microbatches, two columns a unit; lower case: the second chunk
//! rank 0 |F0..f0F1..i0w0f1I0W0F2i1w1f2I1W1F3i2w2f3I2W2..i3w3I3W3|
//! rank 1 |..F0..f0i0w0F1I0W0f1i1w1F2I1W1f2i2w2F3I2W2f3i3w3I3W3..|
//! ```
//!
//! Rank r holds (v - 1)ceil(p/2) + p - r, about half of interleaved 1F1B for many chunks.

use super::generalized_interleaved::order;
use super::registry::{Definition, Generator};

/// GIS with groups of half the ranks.
pub(super) const DEFINITION: Definition = Definition {
    name: "generalized-interleaved-half",
    summary: "interleaving by building blocks in groups of p/2: about half of interleaved 1F1B's activations",
    orders: Generator::PerRank(|sizes, rank| order(sizes, rank, sizes.group.unwrap_or(sizes.p.div_ceil(2)))),
    ..super::generalized_interleaved::DEFINITION
};
