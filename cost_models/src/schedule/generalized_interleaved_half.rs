//! GIS with groups of ceil(p/2): the least memory a generalized interleaved schedule can do with.
//!
//! ```text
//! p = 2, v = 2, g = 1; lower case: the second chunk
//! rank 0  F0 .. f0 .. .. i0 w0 F1 I0 W0 f1 ...
//! rank 1  .. F0 .. f0 i0 w0 F1 I0 W0 f1 ...
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
