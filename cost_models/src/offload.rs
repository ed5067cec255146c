//! Saved activations that wait in host memory between forward and backward.
//!
//! Transformer Engine's order (`transformer_engine/pytorch/cpu_offload.py`, `OffloadSynchronizer`, which Megatron-LM's
//! `--cpu-offloading-num-layers` runs): of L layers the first N are copied out, each as soon as its forward is done, one after
//! the other, beside the computation. Layer `l` begins its forward only when layer `l - (L - N)` is out. In the backward layer
//! `i` begins to come back when the backward of layer `L - 1 - N + i` begins, and has to be there before its own. So no more than
//! `L - N` neighbouring layers hold their activations at any moment, in the forward as in the backward.
//!
//! ```text
//! compute  F0 F1 F2 F3 ..B3 B2 B1 B0        L = 4, N = 2: F2 waits for 0 to be out, F3 for 1;
//! out         0  1                          1 comes back beside B2, 0 beside B1
//! back                     1  0
//! ```

use crate::parallel::ParallelConfig;
use cluster_profiles::{BytesPerSecond, Cluster, NodeShape, Seconds};

/// GPUs behind one PCIe switch, whose way to the host they share (HGX and DGX boards since the A100; the pairs of PipeOffload, arXiv
/// 2503.01328, whose 15 and 21 GB/s per A100 and H100 are about half of the links' own rates).
const GPUS_PER_SWITCH: f64 = 2.0;

/// Bytes per second each way between a GPU and its host when all GPUs of a node copy.
#[must_use]
pub fn shared_rate(node: &NodeShape) -> BytesPerSecond {
    let sharing =
        if node.host.kind == "pcie" { GPUS_PER_SWITCH.min(f64::from(node.gpus.max(1))) } else { 1.0 };
    BytesPerSecond(node.host.bandwidth.get() / sharing)
}

/// Whether the hosts have room for the activations that wait in them, of which every GPU of a pipeline rank has so many bytes there:
/// `in_host`, by rank. Ranks fill hosts in order, a pipeline rank after the other; a host whose memory is not known has room.
#[must_use]
pub fn hosts_have_room(cluster: &Cluster, parallel: &ParallelConfig, in_host: &[f64]) -> bool {
    let most = in_host.iter().copied().fold(0.0, f64::max);
    if most == 0.0 {
        return true;
    }
    let of_rank = (parallel.world_size() / u64::from(parallel.pp.max(1))).max(1);
    cluster.groups.iter().all(|group| {
        let Some(memory) = group.node.memory else { return true };
        let gpus = u64::from(group.node.gpus);
        if of_rank >= gpus {
            return most * gpus as f64 <= memory.get();
        }
        let together = in_host.chunks(gpus.div_ceil(of_rank) as usize);
        together.map(|ranks| ranks.iter().sum::<f64>() * of_rank as f64).all(|bytes| bytes <= memory.get())
    })
}

/// A layer as the copies see it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CopiedLayer {
    /// Seconds of its forward.
    pub forward: f64,
    /// Seconds of its backward.
    pub backward: f64,
    /// Seconds of a copy of what it saves, each way.
    pub copy: f64,
}

/// Seconds that the forward and the backward of one microbatch wait for copies when the first `moved` layers go out.
#[must_use]
pub fn waits(layers: &[CopiedLayer], moved: usize) -> [Seconds; 2] {
    [forward_wait(layers, moved), backward_wait(layers, moved)].map(Seconds)
}

fn forward_wait(layers: &[CopiedLayer], moved: usize) -> f64 {
    let moved = moved.min(layers.len());
    let held = layers.len() - moved;
    let (mut now, mut work) = (0.0_f64, 0.0);
    let mut out: Vec<f64> = Vec::with_capacity(moved);
    for (index, layer) in layers.iter().enumerate() {
        let awaited = index.checked_sub(held).and_then(|first| out.get(first)).copied();
        now = now.max(awaited.unwrap_or(0.0)) + layer.forward;
        work += layer.forward;
        if index < moved {
            let free = out.last().copied().unwrap_or(0.0);
            out.push(now.max(free) + layer.copy);
        }
    }
    // With all layers out, the backward begins when the last copy has ended.
    let last = if held == 0 { out.last().copied().unwrap_or(0.0) } else { 0.0 };
    now.max(last) - work
}

fn backward_wait(layers: &[CopiedLayer], moved: usize) -> f64 {
    let moved = moved.min(layers.len());
    let held = layers.len() - moved;
    let (mut now, mut work, mut free) = (0.0_f64, 0.0, 0.0_f64);
    let mut back = vec![0.0; moved];
    for index in (0..layers.len()).rev() {
        let coming = (index + 1).checked_sub(held).filter(|&coming| coming < moved);
        if let Some(coming) = coming {
            free = now.max(free) + layers[coming].copy;
            back[coming] = free;
        }
        now = now.max(back.get(index).copied().unwrap_or(0.0)) + layers[index].backward;
        work += layers[index].backward;
    }
    now - work
}

/// The most bytes that layers saving `saved` hold at any moment of forward and backward when the first `moved` go out.
#[must_use]
pub fn most_held(saved: &[f64], moved: usize) -> f64 {
    let held = saved.len().saturating_sub(moved).max(1);
    let ends = 1..=saved.len();
    ends.map(|end| saved[end.saturating_sub(held)..end].iter().sum::<f64>()).fold(0.0, f64::max)
}
