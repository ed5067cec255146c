//! What any plan must satisfy, whatever the engine: its rules, and every rank on a GPU of its own.

use crate::layered;
use crate::plan::{Plan, RankPlacement};
use cost_models::grid;
use cost_models::rules::Violation;
use std::collections::{BTreeMap, BTreeSet};

/// Every fault: the rules of the plan's engine on degrees and stages, and its placement.
#[must_use]
pub fn faults(plan: &Plan) -> Vec<Violation> {
    let mut faults = layered::broken(&plan.run(), plan.layer_strategies.as_ref());
    faults.extend(placement(plan));
    faults
}

fn violation(id: &str, message: String, hint: &str) -> Violation {
    Violation { id: id.to_owned(), message, hint: Some(hint.to_owned()) }
}

fn placement(plan: &Plan) -> Vec<Violation> {
    let placement = &plan.placement;
    let seats: BTreeSet<(u32, u32)> = placement.ranks.iter().map(|rank| (rank.host, rank.gpu)).collect();
    let numbers: BTreeSet<u64> = placement.ranks.iter().map(|rank| rank.rank).collect();
    let world = plan.parallel.world_size();
    let mut faults = Vec::new();
    if numbers.len() as u64 != world || placement.ranks.len() as u64 != world {
        let message = format!("{} ranks are placed, the layout has {world}", numbers.len());
        faults.push(violation("placement-ranks", message, "every global rank once"));
    }
    if seats.len() != placement.ranks.len() {
        let message = "two ranks share a GPU".to_owned();
        faults.push(violation("placement-seats", message, "one rank per host and GPU"));
    }
    let order = plan.parallel.rank_order;
    if placement.rank_order != order {
        let message =
            format!("ranks are placed in the order {}, the layout has {order}", placement.rank_order);
        faults.push(violation("placement-order", message, "both name the same order"));
    }
    let elsewhere = |rank: &&RankPlacement| rank.coordinates != grid::coordinates(&plan.parallel, rank.rank);
    if let Some(rank) = placement.ranks.iter().find(elsewhere) {
        let message = format!("rank {} is not where the order {order} puts it on the axes", rank.rank);
        faults.push(violation(
            "placement-axes",
            message,
            "coordinates follow from the order and the degrees",
        ));
    }
    if placement.ranks.iter().any(|rank| rank.host as usize >= placement.hosts.len()) {
        let message = "a rank sits on a host that is not listed".to_owned();
        faults.push(violation("placement-hosts", message, "hosts are numbered from 0"));
    }
    faults.extend(told(plan));
    faults
}

/// Micro batches of different sizes: what a rank is told to take is what the layout says of its GPU.
fn told(plan: &Plan) -> Option<Violation> {
    let (parallel, ranks) = (&plan.parallel, &plan.placement.ranks);
    if !parallel.has_unequal_micro_batches() {
        let message = "ranks have micro batches of their own, and the layout has one for all".to_owned();
        let told = ranks.iter().any(|rank| rank.micro_batch_size.is_some());
        return told.then(|| violation("placement-batch", message, "leave them out of placement.ranks"));
    }
    let of_host = sizes_by_host(plan);
    let wrong = ranks.iter().find(|rank| {
        let host = plan.placement.hosts.get(rank.host as usize);
        host.and_then(|host| of_host.get(host.as_str())) != rank.micro_batch_size.as_ref()
    })?;
    let told = wrong.micro_batch_size.map_or_else(|| "none".to_owned(), |size| size.to_string());
    let message =
        format!("rank {} is told a micro batch of {told}, which is not its GPU's share", wrong.rank);
    Some(violation("placement-batch", message, "every rank takes what the shares say of its GPU"))
}

/// Micro batches of the ranks on every host, by its name.
fn sizes_by_host(plan: &Plan) -> BTreeMap<String, u64> {
    let cluster = &plan.inputs.cluster;
    let size = |gpu: &str| {
        let share = plan.parallel.shares.iter().find(|share| share.gpu == gpu);
        share.map_or(0, |share| share.micro_batch_size)
    };
    let of_group = cluster
        .groups
        .iter()
        .flat_map(|group| std::iter::repeat_n(size(&group.gpu.name), group.nodes as usize));
    cluster.host_names().into_iter().zip(of_group).collect()
}
