//! Clusters of several kinds of GPUs, and models small enough to try every layout on them.

use cluster_profiles::{Cluster, NodeGroup, catalog};
use cost_models::ModelSpec;
use cost_models::model::Layer;

pub const GPUS: [&str; 6] =
    ["h100-sxm-80gb", "a100-sxm-80gb", "a100-sxm-40gb", "l40s", "h200", "rtx-pro-6000"];

/// Nodes of each kind and GPUs of a node, for kinds of these names.
pub fn cluster_of(nodes: &[(u32, u32)], gpus: &[&str]) -> Cluster {
    let mut cluster = catalog::cluster("dgx-h100").expect("a catalogue cluster");
    let base = cluster.groups[0].clone();
    let group = |(&(count, size), gpu): (&(u32, u32), &&str)| {
        let mut group = NodeGroup { gpu: catalog::gpu(gpu).expect("a catalogue GPU"), ..base.clone() };
        (group.nodes, group.node.gpus, group.node.domain, group.node.nics) = (count, size, size, size);
        group
    };
    cluster.groups = nodes.iter().zip(gpus).map(group).collect();
    cluster.nodes_per_leaf = None;
    cluster
}

/// Llama-3.1-8B with fewer blocks.
pub fn llama_of(blocks: usize) -> ModelSpec {
    let mut model = cost_models::model::catalog::get("llama-3.1-8b").expect("a catalogue model");
    let mut seen = 0;
    model.layers.retain(|layer| {
        seen += usize::from(matches!(layer, Layer::Block(_)));
        !matches!(layer, Layer::Block(_)) || seen <= blocks
    });
    model
}

/// All sequences that use every kind as often as it is counted.
pub fn sequences(counts: &[usize]) -> Vec<Vec<usize>> {
    if counts.iter().all(|count| *count == 0) {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for kind in (0..counts.len()).filter(|kind| counts[*kind] > 0) {
        let mut rest = counts.to_vec();
        rest[kind] -= 1;
        all.extend(sequences(&rest).into_iter().map(|tail| [vec![kind], tail].concat()));
    }
    all
}
