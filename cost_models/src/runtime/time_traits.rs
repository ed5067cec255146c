//! What an engine costs in time.

use super::facts::{ContextExchange, ExpertDispatcher};
use cluster_profiles::{Provenance, Seconds, quantity};
use serde::{Deserialize, Serialize};

/// The time switches and numbers of an engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeTraits {
    /// Bytes moved per token and hidden channel by norms, residuals and dropout in the forward of a block.
    pub hidden_bytes: f64,
    /// The same where these are not fused kernels.
    pub hidden_bytes_unfused: f64,
    /// Share of tensor-parallel traffic that is exposed without any special overlap.
    pub tp_exposed: f64,
    /// Share of data-parallel traffic that can hide behind the last backward or the first forward.
    pub dp_overlap: f64,
    /// Fixed time of a step: loss synchronisation, gradient-norm check, data loading, logging.
    #[serde(deserialize_with = "quantity::seconds_field", serialize_with = "quantity::seconds_text")]
    pub step: Seconds,
    /// Host time to launch one layer's forward.
    #[serde(deserialize_with = "quantity::seconds_field", serialize_with = "quantity::seconds_text")]
    pub host: Seconds,
    /// Host time that tensor parallelism adds to it.
    #[serde(
        default,
        deserialize_with = "quantity::seconds_field",
        serialize_with = "quantity::seconds_text"
    )]
    pub host_tp: Seconds,
    /// Host time that each tensor-parallel rank adds to it where there is a pipeline as well.
    #[serde(
        default,
        deserialize_with = "quantity::seconds_field",
        serialize_with = "quantity::seconds_text"
    )]
    pub host_tp_pipeline: Seconds,
    /// Host time of a dropless expert layer's forward, which reads token counts back from the GPU.
    #[serde(deserialize_with = "quantity::seconds_field", serialize_with = "quantity::seconds_text")]
    pub host_experts: Seconds,
    /// What 8-bit experts add to it.
    #[serde(
        default,
        deserialize_with = "quantity::seconds_field",
        serialize_with = "quantity::seconds_text"
    )]
    pub host_experts_8bit: Seconds,
    /// Speed of the engine's flash attention relative to FlashAttention-2 on Ampere, where its source names a family of
    /// kernels and not one.
    #[serde(default = "one")]
    pub flash_speed: f64,
    /// First release whose `scaled_dot_product_attention` picks cuDNN's kernel where it picked FlashAttention-2.
    #[serde(default)]
    pub cudnn_from: Option<(u16, u8)>,
    /// First release that fuses permutation and activation around the experts.
    #[serde(default)]
    pub fused_experts_from: Option<(u16, u8)>,
    /// Traffic of the fused kernels relative to the separate ones.
    #[serde(default = "one")]
    pub fused_expert_traffic: f64,
    /// Whether a compiler fuses the chain of a clamped, biased activation into one kernel, which otherwise runs as many.
    #[serde(default)]
    pub fused_clamped_activation: bool,
    /// Time that each rank of the optimizer's shard group adds to a step, where every one of them broadcasts the parameters
    /// it has updated in calls of its own; 0 for gathers that all ranks join.
    #[serde(
        default,
        deserialize_with = "quantity::seconds_field",
        serialize_with = "quantity::seconds_text"
    )]
    pub shard_broadcast: Seconds,
    /// Bytes moved per element of a weight gradient: 8 for a fused fp32 accumulation, 10 where a 16-bit gradient is
    /// added to an fp32 buffer afterwards, 2 where it is only written.
    pub weight_gradient_bytes: f64,
    /// Bytes moved per logit by the loss, forward and backward.
    pub loss_bytes: f64,
    /// What the engine's selective recompute repeats.
    pub selective: SelectiveRecompute,
    /// How many parameters share one gradient reduction: at least `parameters`, and `per_rank` for each
    /// data-parallel rank.
    pub bucket: Bucket,
    /// Whether all ranks meet before the optimizer step, so that no schedule lets the next step start early.
    #[serde(default)]
    pub synchronous_steps: bool,
    /// How keys and values meet the queries of other context-parallel ranks.
    pub context_exchange: ContextExchange,
    /// How tokens travel to their experts.
    pub dispatcher: ExpertDispatcher,
    /// Where the numbers come from.
    pub provenance: Provenance,
}

/// Size of a gradient bucket.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bucket {
    /// Parameters at least.
    pub parameters: f64,
    /// Parameters per data-parallel rank at least.
    pub per_rank: f64,
    /// Calls that gather the updated parameters, where their number is fixed; as many as reductions otherwise.
    #[serde(default)]
    pub gathers: Option<f64>,
}

/// What an engine's selective recompute repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SelectiveRecompute {
    /// Core attention where it stores its scores; nothing with a fused kernel (Megatron).
    CoreAttention,
    /// Everything but every second matrix product (torchtitan's per-operator policy).
    PerOperator,
}

impl TimeTraits {
    /// Traffic of permutation and activation around the experts in `release`, relative to separate kernels.
    #[must_use]
    pub fn expert_traffic(&self, release: Option<(u16, u8)>) -> f64 {
        match (self.fused_experts_from, release) {
            (Some(from), Some(release)) if release >= from => self.fused_expert_traffic,
            _ => 1.0,
        }
    }
}

const fn one() -> f64 {
    1.0
}

impl Bucket {
    /// Number of buckets of `parameters` over `dp` ranks, at least 1.
    #[must_use]
    pub fn count(&self, parameters: f64, dp: f64) -> f64 {
        let size = self.parameters.max(self.per_rank * dp).max(1.0);
        (parameters / size).ceil().max(1.0)
    }
}
