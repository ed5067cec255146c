//! ZB-2P without optimizer post-validation: the same order, but every step ends on all ranks before the next begins.
//!
//! ```text
//! p = 2, 4 microbatches, two columns a unit
//! rank 0 |F0F1F2I0W0F3I1W1I2W2I3W3..|
//! rank 1 |..F0I0F1I1F2I2W0F3I3W1W2W3|
//! ```
//!
//! The makespan counts: (p - 1)tF of bubble that the staggered form does not have.

use super::registry::Definition;

/// ZB-2P with a synchronous optimizer.
pub(super) const DEFINITION: Definition = Definition {
    name: "zb-2p-sync",
    summary: "zb-2p without optimizer post-validation",
    staggered: false,
    ..super::zb_2p::DEFINITION
};
