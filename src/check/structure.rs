//! What any plan must satisfy, whatever the engine: its rules, and every rank on a GPU of its own.

use crate::layered;
use crate::plan::Plan;
use cost_models::rules::Violation;
use std::collections::BTreeSet;

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
    if placement.ranks.iter().any(|rank| rank.host as usize >= placement.hosts.len()) {
        let message = "a rank sits on a host that is not listed".to_owned();
        faults.push(violation("placement-hosts", message, "hosts are numbered from 0"));
    }
    faults
}
