//! PACI: 1F1B that is never flushed, with a single version of the weights. Changes training.
//!
//! ```text
//! rank 0  F0 F1 F2 .. .. B0 B0 F3 B1 B1 F4 B2 B2 F5 ...     no cool-down between steps
//! rank 1  .. F0 F1 B0 B0 F2 B1 B1 F3 B2 B2 F4 ...
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
