//! PACI: 1F1B that is never flushed, with a single version of the weights. Changes training.
//!
//! ```text
//! p = 3, 4 microbatches, two columns a unit; the window of a stream that goes on
//! rank 0 |F0F1F2........B0--F3B1--..B2--..B3--|
//! rank 1 |..F0F1....B0--F2B1--F3B2--..B3--....|
//! rank 2 |....F0B0--F1B1--F2B2--F3B3--........|
//! ```
//!
//! No bubble in the steady state and no further weights: a backward may see other weights than its forward.
//!
//! Inferred: only the claim of one version was at hand, no code.

use super::registry::Definition;

/// PACI.
pub(super) const DEFINITION: Definition = Definition {
    name: "paci",
    summary: "1F1B without flushes on one weight version; forward and backward may see different weights",
    source: "its claim of a single weight version; the order is PipeDream's",
    synchronous: false,
    weight_versions: |_, _| 1,
    vocabulary_orders: None,
    ..super::one_f_one_b::DEFINITION
};
