//! Grouped matrix products of routed experts.

use super::gemm::{Format, sustained_rate};
use crate::runtime::SharedTraits;
use cluster_profiles::{Bytes, Flops, Gpu, Seconds};

/// Sizes of the experts' work on one rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExpertShape {
    /// Token copies that this rank's experts process.
    pub rows: f64,
    /// Width of the residual stream.
    pub hidden: f64,
    /// Inner width of an expert on this rank.
    pub ffn: f64,
    /// Matrices of an expert: 3 where it is gated, else 2.
    pub matrices: f64,
    /// Experts on this rank.
    pub experts: f64,
}

impl ExpertShape {
    /// Weights of the rank's experts.
    #[must_use]
    pub fn weights(&self) -> f64 {
        self.matrices * self.hidden * self.ffn * self.experts
    }

    /// Forward arithmetic.
    #[must_use]
    pub fn flops(&self) -> Flops {
        Flops(2.0 * self.matrices * self.rows * self.hidden * self.ffn)
    }
}

/// Fixed time of a fused expert layer of an inference engine: routing, sorting and five launches.
const BURST_LAUNCH: f64 = 30e-6;

/// Traffic of 8-bit experts per row and per token, relative to 16-bit ones: rows are half as wide, tokens are read once
/// more to be quantised.
const BURST_TRAFFIC_8BIT: (f64, f64) = (0.9, 1.5);

/// A fused forward of the experts as an inference benchmark measures it: products or weight reads, then the traffic of
/// permutation and activation, `expert_traffic (8 h + 4 f)` bytes for each of the rank's rows, and that of routing, reading and
/// summing up all `tokens` of the expert-parallel group, `expert_token_traffic h` bytes for each.
#[must_use]
pub fn experts_burst(gpu: &Gpu, format: Format, shape: &ExpertShape, tokens: f64) -> Seconds {
    let kernels = &gpu.kernels;
    let curve = match format {
        Format::Bits16 => &kernels.gemm_16bit,
        Format::Bits8 | Format::Bits4 => kernels.gemm_8bit.as_ref().unwrap_or(&kernels.gemm_16bit),
    };
    let products = shape.flops() / curve.rate;
    let weights = Bytes(format.bytes() * shape.weights()) / kernels.stream_bandwidth;
    let (by_row, by_token) = match format {
        Format::Bits16 => (1.0, 1.0),
        Format::Bits8 | Format::Bits4 => BURST_TRAFFIC_8BIT,
    };
    let rows = by_row * kernels.expert_traffic * (8.0 * shape.hidden + 4.0 * shape.ffn) * shape.rows;
    let all = by_token * kernels.expert_token_traffic * shape.hidden * tokens;
    Seconds(BURST_LAUNCH) + products.max(weights) + Bytes(rows + all) / kernels.stream_bandwidth
}

/// Fixed time of a grouped product in training.
const GROUPED_LAUNCH: f64 = 10e-6;

/// One pass (forward, input gradient or weight gradient) of the experts' products in training. `weight_bytes` is the
/// traffic per weight: its read in forward and input gradient, the accumulation in the weight gradient.
#[must_use]
pub fn expert_products(
    gpu: &Gpu,
    shared: &SharedTraits,
    format: Format,
    shape: &ExpertShape,
    weight_bytes: f64,
) -> Seconds {
    if shape.rows <= 0.0 || shape.weights() <= 0.0 {
        return Seconds::ZERO;
    }
    let narrow = shape.hidden.min(shape.ffn);
    let rate = sustained_rate(gpu, shared, format)
        * (shared.expert_rate * narrow / (narrow + shared.expert_half_width));
    let padding = 1.0 + 64.0 * shape.experts / shape.rows;
    let weights = Bytes(weight_bytes * shape.weights()) / gpu.kernels.stream_bandwidth;
    Seconds(GROUPED_LAUNCH) + (shape.flops() / rate * padding).max(weights)
}
