//! How long kernels take on one GPU: pure functions of the GPU kind and sizes.
//!
//! Every kernel comes twice. The *burst* form is what a benchmark of a few calls on a cold GPU measures; the curves of
//! [`cluster_profiles::KernelCurves`] are fitted to such benchmarks. The training form runs at the clock that the GPU
//! sustains under load, accumulates gradients in 32 bits, and counts the quantisation of activations by itself.

mod attention;
mod experts;
mod gemm;

pub use attention::{AttentionShape, attention_burst, fused_attention, linear_attention, unfused_attention};
pub use experts::{ExpertShape, expert_products, experts_burst};
pub use gemm::{Format, Product, cast, gemm, gemm_burst, sustained_rate};

use cluster_profiles::{Bytes, Gpu, Seconds};

/// Forward and backward of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ForwardBackward {
    /// Forward.
    pub forward: Seconds,
    /// Backward.
    pub backward: Seconds,
}

/// Time of a kernel that only moves `bytes` through the GPU's memory.
#[must_use]
pub fn stream(gpu: &Gpu, bytes: Bytes) -> Seconds {
    bytes / gpu.kernels.stream_bandwidth
}
