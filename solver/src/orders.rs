//! The orders that ranks may be numbered in, as one more axis of a layout.
//!
//! An order moves the ranks of a stage apart or together ([`cost_models::order`]): it decides which groups stay inside nodes.
//! Of a step it changes two things only: how long the messages between stages take, where a whole pipeline fits into an
//! NVLink domain in one order and not in the other, and how long gradients and parameters travel between data-parallel ranks.
//! What layers take stays as it is: tp, cp and expert groups lie inside the block of ranks that no order cuts (rule M3).
//!
//! So an order is searched like a way to shard the state ([`Sharding`]), and exactly:
//!
//! - where all orders cost the same ([`orders_cost_the_same`]), there is one layout, in the first order;
//! - where their messages between stages take as long, a pipeline with all its splits is bounded and simulated once, and the
//!   order with the least traffic outside it is tried first, as among shardings;
//! - where messages differ, every order is a node of its own with its own bound.
//!
//! On links that are not all alike hosts are placed for every layout. Where `tp x cp` fills whole domains, the orders are
//! permutations of the same hosts, so that placing one is placing all; otherwise each order is placed. Over GPUs of several
//! kinds only the default order is searched, and the certificate speaks of no other.

use crate::constraint::Constraints;
use crate::mesh::{Mesh, Sharding};
use crate::term::Field;
use cluster_profiles::Cluster;
use cost_models::RankOrder;
use cost_models::order::{GridSizes, orders_cost_the_same};
use cost_models::rules::Engine;

/// The engine's orders that the constraints allow; its first where they allow none, so that they are what excludes it.
pub(crate) fn allowed_orders(engine: &Engine, constraints: &Constraints) -> Vec<RankOrder> {
    let orders = engine.rank_orders.iter().copied();
    let mut allowed: Vec<RankOrder> =
        orders.filter(|order| constraints.allows_name(Field::RankOrder, order.name())).collect();
    if allowed.is_empty() {
        allowed.extend(engine.rank_orders.first());
    }
    allowed
}

/// Whether the orders of a layout may differ in what they cost.
pub(crate) fn orders_differ(sizes: &GridSizes, cluster: &Cluster) -> bool {
    let domains = [cluster.smallest_domain(), cluster.main().node.domain];
    domains.iter().any(|&domain| !orders_cost_the_same(sizes, domain))
}

/// Those that may differ on a mesh in what they cost.
pub(crate) fn orders_of<'o>(orders: &'o [RankOrder], mesh: &Mesh, cluster: &Cluster) -> &'o [RankOrder] {
    let [tp, cp, dp, pp] = [mesh.tp, mesh.cp, mesh.dp, mesh.pp].map(u64::from);
    let differ = orders.len() > 1 && orders_differ(&GridSizes { tp, cp, dp, pp }, cluster);
    if differ { orders } else { &orders[..orders.len().min(1)] }
}

/// Whether no message between stages leaves an NVLink domain.
pub(crate) fn has_local_pipeline(mesh: &Mesh, sharding: Sharding, cluster: &Cluster) -> bool {
    mesh.sharded(sharding).has_local_pipeline(cluster.main().node.domain)
}
