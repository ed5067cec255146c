//! PipeDream-2BW (arXiv:2006.09503): PipeDream with gradients accumulated over a step. Changes training.
//!
//! ```text
//! rank 0  F0 F1 F2 .. .. B0 B0 F3 B1 B1 F4 B2 B2 F5 ...     no cool-down between steps
//! rank 1  .. F0 F1 B0 B0 F2 B1 B1 F3 B2 B2 F4 ...
//! ```
//!
//! No bubble in the steady state and two versions of the weights; every update is one step late.

use super::registry::Definition;

/// PipeDream-2BW.
pub(super) const DEFINITION: Definition = Definition {
    name: "pipedream-2bw",
    summary: "1F1B without flushes, two weight versions; weights one step stale",
    source: "arXiv:2006.09503",
    synchronous: false,
    weight_versions: |_, _| 2,
    vocabulary_orders: None,
    ..super::one_f_one_b::DEFINITION
};
