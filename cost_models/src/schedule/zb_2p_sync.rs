//! ZB-2P without optimizer post-validation: the same order, but every step ends on all ranks before the next begins.
//!
//! ```text
//! rank 0  F0 F1 F2 F3 F4 I0 W0 F5 I1 W1 ... W W .. ..     the ranks that start first wait at the end
//! rank 1  .. F0 F1 F2 I0 F3 I1 W0 F4 ...       W W W ..
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
