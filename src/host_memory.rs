//! What a plan keeps in the memory of the hosts: activations and state that leave the GPUs.

use crate::layered;
use crate::plan::Plan;
use cluster_profiles::{Bytes, Cluster};
use cost_models::memory::rank_memory;
use cost_models::{RankMemory, Runtime, TrainingRun};
use std::collections::BTreeMap;

/// The memory of one host.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HostMemory {
    /// Saved activations of all its GPUs.
    pub activations: Bytes,
    /// Parameters, gradients and optimizer state of all its GPUs.
    pub state: Bytes,
    /// What the host has, where that is known.
    pub capacity: Option<Bytes>,
}

impl HostMemory {
    /// All that is kept there.
    #[must_use]
    pub fn total(&self) -> Bytes {
        self.activations + self.state
    }

    /// Whether more is kept there than the host has.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.capacity.is_some_and(|capacity| self.total() > capacity)
    }
}

/// Every host of a plan, in the order of its placement; none where nothing leaves the GPUs.
#[must_use]
pub fn by_host(plan: &Plan) -> Vec<HostMemory> {
    let activations: Vec<Bytes> = plan.estimate.memory.iter().map(|rank| rank.host_bytes).collect();
    let state = moved_state(plan);
    if activations.iter().chain(&state).all(|bytes| *bytes == Bytes::ZERO) {
        return Vec::new();
    }
    let capacities = capacities(&plan.inputs.cluster);
    let empty = |name: &String| HostMemory {
        activations: Bytes::ZERO,
        state: Bytes::ZERO,
        capacity: capacities.get(name).copied().flatten(),
    };
    let mut hosts: Vec<HostMemory> = plan.placement.hosts.iter().map(empty).collect();
    for rank in &plan.placement.ranks {
        if let Some(host) = hosts.get_mut(rank.host as usize) {
            let of = |list: &[Bytes]| list.get(rank.coordinates.pp as usize).copied().unwrap_or(Bytes::ZERO);
            host.activations += of(&activations);
            host.state += of(&state);
        }
    }
    hosts
}

/// The host with the least room; none where nothing leaves the GPUs.
#[must_use]
pub fn fullest(hosts: &[HostMemory]) -> Option<HostMemory> {
    let share = |host: &HostMemory| host.total() / host.capacity.unwrap_or(Bytes(1e30));
    let fuller = |a: HostMemory, b: HostMemory| {
        let order = share(&b).total_cmp(&share(&a)).then(b.total().get().total_cmp(&a.total().get()));
        if order.is_gt() { b } else { a }
    };
    hosts.iter().copied().reduce(fuller)
}

/// State of a GPU of every pipeline rank that lies in host memory: what the GPU would hold more without.
fn moved_state(plan: &Plan) -> Vec<Bytes> {
    let run = plan.run();
    let traits = &run.runtime.memory.state;
    if traits.optimizer_offload + traits.gradient_offload + traits.parameter_offload == 0.0 {
        return Vec::new();
    }
    let mut runtime: Runtime = run.runtime.clone();
    let traits = &mut runtime.memory.state;
    (traits.optimizer_offload, traits.gradient_offload, traits.parameter_offload) = (0.0, 0.0, 0.0);
    let run = TrainingRun { runtime: &runtime, ..run };
    let whole = match &plan.layer_strategies {
        None => rank_memory(&run).ok(),
        strategies => layered::prediction(&run, strategies.as_ref()).map(|estimate| estimate.memory),
    };
    let state = |rank: &RankMemory| rank.parameters_bytes + rank.gradients_bytes + rank.optimizer_bytes;
    let pairs = plan.estimate.memory.iter().zip(whole.into_iter().flatten());
    pairs.map(|(own, whole)| (state(&whole) - state(own)).max(Bytes::ZERO)).collect()
}

/// The memory of every host by its name.
fn capacities(cluster: &Cluster) -> BTreeMap<String, Option<Bytes>> {
    let groups = cluster.groups.iter();
    let memories = groups.flat_map(|group| std::iter::repeat_n(group.node.memory, group.nodes as usize));
    cluster.host_names().into_iter().zip(memories).collect()
}
