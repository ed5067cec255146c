//! PipeDream-2BW (arXiv:2006.09503): PipeDream with gradients accumulated over a step. Changes training.
//!
//! ```text
//! p = 3, 4 microbatches, two columns a unit; the window of a stream that goes on
//! rank 0 |F0F1F2........B0--F3B1--..B2--..B3--|
//! rank 1 |..F0F1....B0--F2B1--F3B2--..B3--....|
//! rank 2 |....F0B0--F1B1--F2B2--F3B3--........|
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
