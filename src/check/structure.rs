//! What any plan must satisfy, whatever the engine: every layer on one stage, every rank on one GPU, the batch whole.

use crate::plan::Plan;
use cost_models::rules::Violation;
use std::collections::BTreeSet;

/// Every fault.
#[must_use]
pub fn faults(plan: &Plan) -> Vec<Violation> {
    [world(plan), batch(plan), stages(plan), placement(plan)].into_iter().flatten().collect()
}

fn violation(id: &str, message: String, hint: &str) -> Violation {
    Violation { id: id.to_owned(), message, hint: Some(hint.to_owned()) }
}

fn world(plan: &Plan) -> Vec<Violation> {
    let (needed, there) = (plan.parallel.world_size(), plan.inputs.cluster.gpu_count());
    if needed == there {
        return Vec::new();
    }
    let message = format!("the degrees multiply to {needed} ranks, the cluster has {there} GPUs");
    vec![violation("world-size", message, "tp x pp x cp x dp_replicate x dp_shard is the number of GPUs")]
}

fn batch(plan: &Plan) -> Vec<Violation> {
    let (made, wanted) = (plan.parallel.global_batch(), plan.inputs.workload.global_batch);
    if made == wanted {
        return Vec::new();
    }
    let message = format!("micro batch x microbatches x dp is {made}, the global batch {wanted}");
    vec![violation("global-batch", message, "choose a micro batch that divides the batch per replica")]
}

fn stages(plan: &Plan) -> Vec<Violation> {
    let parallel = &plan.parallel;
    let mut faults = Vec::new();
    let wanted = u64::from(parallel.pp) * u64::from(parallel.vpp);
    if plan.stages.0.len() as u64 != wanted {
        let message = format!("{} stages, pp x vpp is {wanted}", plan.stages.0.len());
        faults.push(violation("stage-count", message, "one stage per chunk of every pipeline rank"));
    }
    if let Some(stage) =
        plan.stages.0.iter().find(|stage| stage.rank >= parallel.pp || stage.chunk >= parallel.vpp)
    {
        let message = format!("a stage on rank {} chunk {}", stage.rank, stage.chunk);
        faults.push(violation("stage-place", message, "ranks are below pp, chunks below vpp"));
    }
    let mut next = 0;
    for stage in &plan.stages.0 {
        let range = stage.layer_range();
        if range.start != next && !range.is_empty() {
            let message = format!("a stage starts at layer {}, expected {next}", range.start);
            faults.push(violation(
                "stage-layers",
                message,
                "every layer stands on exactly one stage, in order",
            ));
            return faults;
        }
        next = if range.is_empty() { next } else { range.end };
    }
    let layers = plan.inputs.model.layers.len();
    if next != layers {
        let message = format!("the stages hold {next} of the model's {layers} layers");
        faults.push(violation("stage-layers", message, "every layer stands on exactly one stage, in order"));
    }
    faults
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
