//! How fast a GPU kind runs its kernels: a handful of numbers per kind, each set with its provenance.
//!
//! The formulas that use them stand in the cost model (`compute.rs`, `comm.rs`); here they are data.

use crate::quantity;
use crate::units::{BytesPerSecond, FlopsPerSecond, Seconds};
use serde::{Deserialize, Serialize};

/// Where a set of parameters comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// `fitted`, `datasheet`, `published`, `assumed`.
    pub basis: Basis,
    /// Fitted to what, taken from which sibling, or stated where.
    pub from: String,
    /// Median error on the data it was fitted to, as a fraction, where there is any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median_error: Option<f64>,
}

/// How a number came to be, from the firmest to the softest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// Measured on this very hardware and imported.
    Measured,
    /// The maker's figure.
    Datasheet,
    /// A figure from a public benchmark page or document.
    Published,
    /// Fitted to public measurements of this kind.
    Fitted,
    /// Taken from a sibling or a rule of thumb.
    Assumed,
}

/// Matrix multiplication in one precision class:
/// `time = launch + max(2mnk / (rate * wave^0.3 * k/(k + k_half)), bytes / bandwidth) + cast * m * k / bandwidth`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GemmCurve {
    /// Fixed time of a call.
    #[serde(deserialize_with = "quantity::seconds_field")]
    pub launch: Seconds,
    /// Rate of a large product.
    #[serde(deserialize_with = "quantity::flops_per_second_field")]
    pub rate: FlopsPerSecond,
    /// Inner size at which half the rate is reached (0 for no loss).
    #[serde(default)]
    pub k_half: f64,
    /// Bytes per element of A spent on quantising it inside the call.
    #[serde(default)]
    pub cast_bytes: f64,
    /// Where these come from.
    pub provenance: Provenance,
}

/// Fused causal attention, forward: `time = launch + flops / (rate * r(head_dim) * s/(s + s_half))`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionCurve {
    /// Fixed time of a call.
    #[serde(deserialize_with = "quantity::seconds_field")]
    pub launch: Seconds,
    /// Rate at a head width of 128 on a long sequence.
    #[serde(deserialize_with = "quantity::flops_per_second_field")]
    pub rate: FlopsPerSecond,
    /// Sequence length at which half the rate is reached.
    pub s_half: f64,
    /// Rate at a head width of 64 relative to 128.
    pub head_64_ratio: f64,
    /// Where these come from.
    pub provenance: Provenance,
}

/// Collectives inside one NVLink (or PCIe) domain, `v` bytes on the wire:
/// `time = latency * (1 + 0.1 (n - 1)) + v/bandwidth + sqrt(transition * v/bandwidth)`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollectiveCurve {
    /// Latency of two ranks.
    #[serde(deserialize_with = "quantity::seconds_field")]
    pub latency: Seconds,
    /// Bus bandwidth of all_gather, reduce_scatter, all_to_all, per GPU per direction.
    #[serde(deserialize_with = "quantity::bytes_per_second_field")]
    pub gather_bandwidth: BytesPerSecond,
    /// Bus bandwidth of all_reduce.
    #[serde(deserialize_with = "quantity::bytes_per_second_field")]
    pub reduce_bandwidth: BytesPerSecond,
    /// Width of the transition between the small-message and the large-message protocols.
    #[serde(deserialize_with = "quantity::seconds_field")]
    pub transition: Seconds,
    /// Where these come from.
    pub provenance: Provenance,
}

/// Everything known of a GPU kind's kernels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelCurves {
    /// 16-bit matrix products.
    pub gemm_16bit: GemmCurve,
    /// 8-bit matrix products, where the GPU has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gemm_8bit: Option<GemmCurve>,
    /// Fused attention.
    pub attention: AttentionCurve,
    /// Collectives inside the NVLink (or PCIe) domain.
    pub collective: CollectiveCurve,
    /// Memory traffic of permutation and activation in a grouped expert layer, relative to the minimum.
    pub expert_traffic: f64,
    /// Sustained clock of 16-bit work in training, relative to the short bursts the curves were measured in.
    pub sustained_16bit: f64,
    /// The same for 8-bit work. May exceed 1 where the measured 8-bit curve is slower than training kernels are.
    pub sustained_8bit: f64,
    /// The same for attention, where it differs from [`sustained_16bit`](Self::sustained_16bit): attention draws less
    /// power, so a power-limited GPU slows it down less. Read it with [`attention_clock`](Self::attention_clock).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sustained_attention: Option<f64>,
    /// Memory bandwidth that streaming kernels reach.
    #[serde(deserialize_with = "quantity::bytes_per_second_field")]
    pub stream_bandwidth: BytesPerSecond,
    /// Where the figures of this table itself come from.
    pub provenance: Provenance,
}

impl KernelCurves {
    /// Sustained clock of fused attention: its own where the profile has one, else that of 16-bit work.
    #[must_use]
    pub fn attention_clock(&self) -> f64 {
        self.sustained_attention.unwrap_or(self.sustained_16bit)
    }
}
