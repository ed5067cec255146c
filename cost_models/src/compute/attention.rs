//! Core attention: softmax over query-key scores, without the projections around it.

use super::ForwardBackward;
use super::gemm::{Format, aligned, sustained_rate};
use crate::runtime::{AttentionKernel, SharedTraits};
use cluster_profiles::{Bytes, Flops, Gpu, Seconds};

/// Sizes of a core attention on one rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionShape {
    /// Sequences.
    pub batch: f64,
    /// Tokens of a sequence.
    pub seq: f64,
    /// Calls a sequence is cut into: the steps of a ring of context-parallel ranks, else 1. Each works on `seq / calls`
    /// queries and as many keys.
    pub calls: f64,
    /// Keys that a query meets in the mean: half the sequence under a causal mask without a window.
    pub keys: f64,
    /// Query heads.
    pub heads: f64,
    /// Key-value heads.
    pub kv_heads: f64,
    /// Width of queries and keys.
    pub qk_dim: f64,
    /// Width of values.
    pub v_dim: f64,
}

impl AttentionShape {
    /// Forward arithmetic: `2 b s keys a (d_qk + d_v)`.
    #[must_use]
    pub fn flops(&self) -> Flops {
        let pairs = self.batch * self.seq * self.keys * self.heads;
        Flops(2.0 * pairs * (self.qk_dim + self.v_dim))
    }
}

/// Rate by head width relative to 128: `ratio` at 64, in proportion to the width below, 1 from 128 on.
fn width_ratio(width: f64, ratio: f64) -> f64 {
    if width >= 128.0 {
        1.0
    } else if width >= 64.0 {
        ratio + (1.0 - ratio) * (width / 64.0).log2()
    } else {
        ratio * (width / 64.0).max(0.05)
    }
}

/// A narrow head does less arithmetic per key and reaches its rate only on longer sequences, by this power of the width.
const WIDTH_SATURATION: f64 = 0.7;

/// Arithmetic and traffic of a forward: `flops / (rate r(d) s / (s + s_half (128/d)^0.7)) + bytes / bandwidth`.
fn burst_core(gpu: &Gpu, shape: &AttentionShape) -> (Seconds, Seconds) {
    let curve = &gpu.kernels.attention;
    let width = f64::midpoint(shape.qk_dim, shape.v_dim).max(1.0);
    let length = (shape.seq / shape.calls).min(2.0 * shape.keys);
    let half = curve.s_half * (128.0 / width).powf(WIDTH_SATURATION);
    let rate = curve.rate * (width_ratio(width, curve.head_64_ratio) * length / (length + half));
    let elements = (shape.heads + shape.kv_heads) * (shape.qk_dim + shape.v_dim);
    let traffic =
        Bytes(2.0 * shape.batch * shape.seq * elements * shape.calls) / gpu.kernels.stream_bandwidth;
    (shape.flops() / rate, traffic)
}

/// A causal forward as an inference benchmark measures it: `launch + arithmetic + traffic`.
#[must_use]
pub fn attention_burst(gpu: &Gpu, shape: &AttentionShape) -> Seconds {
    let (arithmetic, traffic) = burst_core(gpu, shape);
    gpu.kernels.attention.launch + arithmetic + traffic
}

/// Speed of a fused kernel relative to the one the GPU's curve was measured with: FlashAttention-2 lacks the
/// asynchronous matrix instructions of Hopper and Blackwell, FlashAttention-1 the work split of 2.
fn kernel_speed(gpu: &Gpu, shared: &SharedTraits, kernel: AttentionKernel) -> f64 {
    let generation = match gpu.compute_capability {
        Some(capability) if capability >= 100 => shared.flash2_blackwell,
        Some(capability) if capability >= 90 => shared.flash2_hopper,
        _ => 1.0,
    };
    match kernel {
        AttentionKernel::Cudnn => 1.0,
        AttentionKernel::Flash2 => generation,
        _ => generation * shared.flash1,
    }
}

/// Launches of a backward (a dot product, the gradients, a conversion), in those of a forward.
const BACKWARD_LAUNCHES: f64 = 2.0;

/// Forward and backward of a fused attention kernel in training. The backward is
/// `forward y (1 + length / (s + 512))`, all of it in the input gradient: attention has no weights. `flash_speed` is the
/// engine's [`flash_speed`](crate::runtime::TimeTraits::flash_speed).
#[must_use]
pub fn fused_attention(
    gpu: &Gpu,
    shared: &SharedTraits,
    kernel: AttentionKernel,
    flash_speed: f64,
    shape: &AttentionShape,
) -> ForwardBackward {
    if shape.flops().get() <= 0.0 {
        return ForwardBackward::default();
    }
    let own = if kernel == AttentionKernel::Cudnn { 1.0 } else { flash_speed };
    let speed = own * kernel_speed(gpu, shared, kernel) * gpu.kernels.attention_clock();
    let (arithmetic, traffic) = burst_core(gpu, shape);
    let (launch, core) = (gpu.kernels.attention.launch * shape.calls, arithmetic / speed + traffic);
    let (long, short) = match kernel {
        AttentionKernel::Cudnn => (shared.attention_backward, shared.attention_backward_length),
        _ => (shared.flash_backward, shared.flash_backward_length),
    };
    let factor = long * (1.0 + short / (shape.seq / shape.calls + 512.0));
    ForwardBackward { forward: launch + core, backward: launch * BACKWARD_LAUNCHES + core * factor }
}

/// Multiple of elements that the width of a head should have in the batched products of unfused attention.
const ALIGNED_HEAD: u64 = 32;

/// Attention whose scores are written to memory: two batched products over the full square (nothing is skipped for the
/// mask) and the traffic of the softmax. Korthikanti et al., arXiv 2205.05198, section 4, names the tensors.
#[must_use]
pub fn unfused_attention(
    gpu: &Gpu,
    shared: &SharedTraits,
    kernel: AttentionKernel,
    shape: &AttentionShape,
) -> ForwardBackward {
    let scores = shape.batch * shape.heads * shape.seq * shape.seq;
    let rate = sustained_rate(gpu, shared, Format::Bits16)
        * (shared.unfused_attention_rate
            * aligned(&[shape.qk_dim], ALIGNED_HEAD, shared.attention_alignment));
    let products = Flops(2.0 * scores * (shape.qk_dim + shape.v_dim)) / rate;
    let bytes_per_score = match kernel {
        AttentionKernel::FusedSoftmax => shared.fused_softmax_bytes,
        _ => shared.unfused_softmax_bytes,
    };
    let traffic = Bytes(bytes_per_score * scores) / gpu.kernels.stream_bandwidth;
    ForwardBackward { forward: products + traffic, backward: products * 2.0 + traffic * 1.3 }
}

/// Chunk length of the chunked form of linear attention.
const LINEAR_CHUNK: f64 = 64.0;
/// Rate of its small chunk products relative to fused attention (assumed: no public measurement).
const LINEAR_RATE: f64 = 0.5;

/// Gated delta-net attention in its chunked form (Yang et al., arXiv 2412.06464, section 3.3): per token and value head
/// a state update and a read of `k v` each, twice for the delta rule, and products inside a chunk.
#[must_use]
pub fn linear_attention(gpu: &Gpu, tokens: f64, heads: f64, k_dim: f64, v_dim: f64) -> ForwardBackward {
    if tokens * heads <= 0.0 {
        return ForwardBackward::default();
    }
    let per_token = 6.0 * k_dim * v_dim + 2.0 * LINEAR_CHUNK * (2.0 * k_dim + v_dim);
    let rate = gpu.kernels.attention.rate * (gpu.kernels.attention_clock() * LINEAR_RATE);
    let forward = gpu.kernels.attention.launch + Flops(tokens * heads * per_token) / rate;
    ForwardBackward { forward, backward: forward * 2.5 }
}
