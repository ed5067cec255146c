//! The optimizer step of parameters whose state lives in host memory (ZeRO-Offload, arXiv 2101.06840, section 4; Megatron-LM
//! `megatron/core/optimizer/cpu_offloading`).
//!
//! Gradients go to the host, the host updates master weights and moments, and the parameters come back, one after the other
//! and after the backward:
//!
//! ```text
//! t = 4 n / link  +  28 n g / memory  +  4 n / link
//! ```
//!
//! with `n` offloaded parameters of a GPU, `g` GPUs that share a host, `link` the bandwidth of a GPU's host link each way and
//! `memory` that of the host's memory: Adam in fp32 reads gradient, master weight and two moments (16 bytes) and writes all but
//! the gradient (12).

use cluster_profiles::{Bytes, BytesPerSecond, NodeShape, Seconds};

/// Bytes of a gradient on its way to the host, and of a parameter on its way back: both fp32, cast on the GPU.
const COPIED_BYTES: f64 = 4.0;
/// Bytes that an update of one parameter moves through the host's memory.
const UPDATED_BYTES: f64 = 28.0;
/// Bandwidth of a host's memory that an update reaches, all its sockets together. Assumed: two sockets of eight channels
/// DDR4-3200 have 410 GB/s, of which streams with writes reach about half.
pub const HOST_MEMORY_BANDWIDTH: BytesPerSecond = BytesPerSecond(200e9);

/// Seconds that updating `parameters` of every GPU of a node on its host adds to the step.
#[must_use]
pub fn host_update(node: &NodeShape, parameters: f64) -> Seconds {
    if parameters <= 0.0 {
        return Seconds::ZERO;
    }
    let copy = node.host.latency + Bytes(COPIED_BYTES * parameters) / node.host.bandwidth;
    let update = Bytes(UPDATED_BYTES * parameters * f64::from(node.gpus)) / HOST_MEMORY_BANDWIDTH;
    copy * 2.0 + update
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster_profiles::catalog;

    #[test]
    fn a_host_updates_as_fast_as_its_memory_and_its_links_let_it() {
        let mut node = catalog::cluster("dgx-h100").unwrap().main().node.clone();
        node.host.latency = Seconds::ZERO;
        node.host.bandwidth = BytesPerSecond(50e9);
        let seconds = host_update(&node, 1e9).get();
        assert!((seconds - (0.08 + 0.08 + 28.0 * 8.0 / 200.0)).abs() < 1e-12, "{seconds}");
        assert_eq!(host_update(&node, 0.0), Seconds::ZERO);
        let slow = NodeShape { gpus: 16, ..node.clone() };
        assert!(host_update(&slow, 1e9) > host_update(&node, 1e9));
    }
}
