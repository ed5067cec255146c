//! What a backward surely takes where modules come back more slowly than they are used.
//!
//! Between the beginnings of two layers of a backward lies the longer of the one's backward and the other's copy
//! ([`cost_models::module_offload`]). Where every layer's copy is longer than its backward, the backward of a stage is no shorter than the copies of
//! its layers; the model's last layer, which may stay, counts as the shortest backward.

use crate::problem::Problem;
use crate::units::Units;
use cost_models::memory::MemoryContext;
use cost_models::offload::shared_rate;
use cost_models::{ParallelConfig, Recompute};

/// For every unit the seconds of its backward that no stage's sum is below; none where some copy is shorter than the backward beside it.
/// `backward` is that of a unit of every kind, `weight` the part of it that is the weights' gradient.
pub(crate) fn least_backward(
    problem: &Problem,
    units: &Units,
    parallel: &ParallelConfig,
    backward: &[f64],
    weight: &[f64],
) -> Option<Vec<f64>> {
    let Recompute::Modules(choice) = parallel.recompute else { return None };
    if choice.moved.is_empty() || choice.percent < 100 {
        return None;
    }
    let copies = copies(problem, units, parallel)?;
    let moving = |kind: usize| units.as_slice().iter().any(|unit| unit.kind == kind && unit.blocks > 0);
    let kinds: Vec<usize> = (0..backward.len()).filter(|kind| moving(*kind)).collect();
    let single = units.as_slice().iter().all(|unit| unit.blocks <= 1);
    if !single || kinds.is_empty() || kinds.iter().any(|&kind| copies[kind] < backward[kind]) {
        return None;
    }
    let shortest = kinds.iter().map(|&kind| backward[kind]).fold(f64::INFINITY, f64::min);
    if kinds.iter().any(|&kind| weight[kind] > shortest) {
        return None;
    }
    let last = units.as_slice().iter().rposition(|unit| unit.blocks > 0);
    let seconds = units.as_slice().iter().enumerate().map(|(index, unit)| match unit.blocks {
        0 => backward[unit.kind],
        _ if Some(index) == last => shortest,
        _ => copies[unit.kind],
    });
    Some(seconds.collect())
}

/// Seconds of the copies of a unit of every kind, each way.
fn copies(problem: &Problem, units: &Units, parallel: &ParallelConfig) -> Option<Vec<f64>> {
    let context =
        MemoryContext::new(problem.model, problem.cluster, problem.workload, problem.runtime, parallel)
            .ok()?;
    let nodes = || problem.cluster.groups.iter().map(|group| &group.node);
    let rate = nodes().map(|node| shared_rate(node).get()).fold(f64::INFINITY, f64::min);
    let latency = nodes().map(|node| node.host.latency.get()).fold(0.0, f64::max);
    let copy = |index: usize| {
        let modules = context.layer_memory(index).modules;
        latency * f64::from(modules.copies) + modules.copied.get() / rate
    };
    Some(units.kinds().iter().map(|kind| kind.layers.clone().map(copy).sum()).collect())
}
