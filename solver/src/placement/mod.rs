//! Which host takes which place of the rank order.
//!
//! Ranks fill hosts in order ([`cost_models::grid`]), so that a layout is a row of *slots*, one per host, and a placement
//! says which host takes which slot. What a step spends on communication then depends on the links between the hosts:
//!
//! ```text
//! J = max over pipeline stages of the gradient traffic of its hosts, at the speed of their slowest pair
//!   + the same for groups of tp, cp and ep that span hosts, for every microbatch
//!   + exposed hops x the slowest way of a microbatch through its pipeline
//! ```
//!
//! [`Demands`] holds these as seconds for every pair of hosts, made from the cost model with the pair's bandwidth and latency
//! in the place of the cluster's link. [`place`] finds the placement with the least J: exactly for few hosts, by a seeded
//! local search with a bound for many. Hosts beyond the slots are spare and may be left out.
//!
//! J is a measure to search with. What counts is the step itself under a placement, which [`Seating`] asks the cost model
//! for: it decides between the placements that J proposes, and for few hosts it looks at every one that could be better.

mod demand;
mod exact;
mod local;
mod program;
mod reach;
mod seating;
mod uneven;

pub use demand::{Demands, Group, Traffic, even_twin};
pub use program::best_placement;
pub use reach::Reach;
pub use seating::{Seated, Seating};
pub(crate) use uneven::solve;

use crate::certificate::ROUNDING;

/// A placement and what is known about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    /// The host of every slot, as an index into the cluster's hosts.
    pub hosts: Vec<usize>,
    /// Seconds of communication of a step.
    pub seconds: f64,
    /// No placement has less.
    pub bound: f64,
}

impl Placed {
    /// How much less another placement could have, as a fraction.
    #[must_use]
    pub fn gap(&self) -> f64 {
        let gap = if self.seconds > 0.0 { (self.seconds - self.bound) / self.seconds } else { 0.0 };
        if gap < ROUNDING { 0.0 } else { gap }
    }
}

/// Hosts up to which every placement is looked at or ruled out.
const FEW_HOSTS: usize = 9;

/// The placement with least communication; hosts in their own order where no other is better.
#[must_use]
pub fn place(demands: &Demands) -> Placed {
    if demands.hosts() <= FEW_HOSTS { exact::place(demands) } else { local::place(demands, local::THOROUGH) }
}

/// A placement with little communication, after a first look.
#[must_use]
pub fn place_quickly(demands: &Demands) -> Placed {
    if demands.hosts() <= FEW_HOSTS { exact::place(demands) } else { local::place(demands, local::QUICK) }
}
