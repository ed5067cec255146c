//! Numbers that belong to no engine and no GPU kind: they describe kernels and protocols that all of them use.

use cluster_profiles::{Provenance, Seconds, quantity};
use serde::{Deserialize, Serialize};

/// Engine-independent numbers of the time model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedTraits {
    /// Rate of a matrix product for each halving of the alignment of n and k below 64 elements.
    pub alignment: f64,
    /// The same for the batched products of unfused attention, by the head width.
    pub attention_alignment: f64,
    /// Bytes per activation element and matrix product spent on quantising it in training.
    pub cast_bytes: f64,
    /// That cost with scales per row and column, relative.
    pub cast_rowwise: f64,
    /// That cost in 4-bit training, relative.
    pub cast_4bit: f64,
    /// Rate of 4-bit products relative to 8-bit ones.
    pub rate_4bit: f64,
    /// Backward over forward of fused attention on a long sequence: cuDNN's kernel.
    pub attention_backward: f64,
    /// The same of the FlashAttention kernels.
    pub flash_backward: f64,
    /// Sequence length that adds to the backward's factor as `length / (s + 512)`: cuDNN's kernel.
    pub attention_backward_length: f64,
    /// The same of the FlashAttention kernels.
    pub flash_backward_length: f64,
    /// Speed of FlashAttention-2 relative to cuDNN's kernel on Hopper, which it was not written for.
    pub flash2_hopper: f64,
    /// The same on Blackwell.
    pub flash2_blackwell: f64,
    /// Speed of FlashAttention-1 relative to 2 on Ampere.
    pub flash1: f64,
    /// Rate of the batched products of unfused attention relative to a large matrix product.
    pub unfused_attention_rate: f64,
    /// Bytes moved per score by a fused softmax.
    pub fused_softmax_bytes: f64,
    /// Bytes moved per score by separate scale, mask, softmax and dropout kernels.
    pub unfused_softmax_bytes: f64,
    /// Bytes per activation element of the MLP, relative to the bytes per hidden channel.
    pub ffn_bytes_ratio: f64,
    /// Backward over forward of element-wise kernels.
    pub elementwise_backward: f64,
    /// Tensor-parallel traffic left exposed by Transformer Engine's user buffers.
    pub user_buffers_exposed: f64,
    /// Tensor-parallel traffic left exposed by async TP, relative to the engine's own share.
    pub async_tp_exposed: f64,
    /// Cost of overlapped traffic: the share of it that slows the computation it hides behind.
    pub interference: f64,
    /// Rate a network interface reaches.
    pub nic_efficiency: f64,
    /// Latency of a step of a ring inside a domain that is part of a collective across domains.
    #[serde(deserialize_with = "quantity::seconds_field", serialize_with = "quantity::seconds_text")]
    pub intra_hop: Seconds,
    /// Fixed time of a send between pipeline ranks.
    #[serde(deserialize_with = "quantity::seconds_field", serialize_with = "quantity::seconds_text")]
    pub pipeline_hop: Seconds,
    /// Expert products: share of the sustained matrix rate.
    pub expert_rate: f64,
    /// Expert products: width of the smaller side at which half the rate is reached.
    pub expert_half_width: f64,
    /// Traffic of permutation and activation around the experts over its minimum.
    pub expert_traffic: f64,
    /// Bytes per routed inner element that a clamped, biased activation adds.
    pub clamped_activation_bytes: f64,
    /// Fixed time of a dispatch or a combine.
    #[serde(deserialize_with = "quantity::seconds_field", serialize_with = "quantity::seconds_text")]
    pub dispatch_latency: Seconds,
    /// Dispatch and combine left exposed when another microbatch is computed beside them.
    pub expert_overlap_exposed: f64,
    /// Backward over forward host time.
    pub host_backward: f64,
    /// Host time left by a partial CUDA graph in dense layers.
    pub partial_graph: f64,
    /// Host time left by a full-iteration CUDA graph.
    pub full_graph: f64,
    /// Host time of an expert layer with a fixed capacity, relative to dropless routing.
    pub capacity_host: f64,
    /// Optimizer traffic per owned parameter, in bytes.
    pub optimizer_bytes: f64,
    /// Gradient-norm and zeroing traffic per resident parameter, in bytes.
    pub gradient_pass_bytes: f64,
    /// Share of the linear layers' forward that torchtitan's per-operator policy repeats.
    pub per_operator_recompute: f64,
    /// Where the numbers come from.
    pub provenance: Provenance,
}
