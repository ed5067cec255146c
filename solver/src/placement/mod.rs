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

mod demand;
mod exact;
mod local;
mod program;

pub use demand::{Demands, Group, Traffic};
pub use program::best_placement;

use crate::certificate::ROUNDING;
use crate::problem::Problem;
use cluster_profiles::topology::Topology;
use cluster_profiles::{Cluster, ProfileError, Seconds};
use cost_models::{ParallelConfig, StageMap};
use serde::{Deserialize, Serialize};

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
    if demands.hosts() <= FEW_HOSTS { exact::place(demands) } else { local::place(demands) }
}

/// Which hosts a layout runs on, in rank order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostOrder {
    /// Names of the hosts: consecutive ranks fill one after the other.
    pub hosts: Vec<String>,
    /// Names of the hosts that are left out.
    pub spare: Vec<String>,
    /// Seconds of communication of a step that depend on the order.
    pub communication_seconds: Seconds,
    /// The same with the hosts in the cluster's own order.
    pub own_order_seconds: Seconds,
    /// No order has less.
    pub bound_seconds: Seconds,
}

/// The order of the hosts of `available`, which may be more than the layout needs, with least communication; none if ranks
/// do not fill whole hosts (or NVLink domains) of one size.
///
/// # Errors
/// [`ProfileError`] if the cluster is too large for a topology.
pub fn order_hosts(
    problem: &Problem,
    available: &Cluster,
    parallel: &ParallelConfig,
    stages: &StageMap,
) -> Result<Option<HostOrder>, ProfileError> {
    let topology = Topology::new(available)?;
    let Some(demands) = Demands::of_layout(problem, &topology, parallel, stages) else { return Ok(None) };
    let placed = place(&demands);
    let own: Vec<usize> = (0..demands.slots()).collect();
    let order = demands.host_order(&placed.hosts);
    let name = |host: usize| topology.hosts()[host].name.clone();
    let spare = (0..topology.hosts().len()).filter(|host| !order.contains(host)).map(name).collect();
    Ok(Some(HostOrder {
        hosts: order.iter().map(|&host| name(host)).collect(),
        spare,
        communication_seconds: Seconds(placed.seconds),
        own_order_seconds: Seconds(demands.seconds(&own)),
        bound_seconds: Seconds(placed.bound),
    }))
}
