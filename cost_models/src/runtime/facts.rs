//! What a run states about its engine beyond the engine's name: release, kernels, overlap, graphs.
//!
//! Every fact is optional. A fact that is absent leaves the engine's profile as it is.

use super::AttentionKernel;
use crate::workload::Dtype;
use serde::{Deserialize, Serialize};

/// Stated facts that adapt a [`Runtime`](super::Runtime) through [`Runtime::for_run`](super::Runtime::for_run).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RuntimeFacts {
    /// The attention kernel.
    pub attention: Option<AttentionKernel>,
    /// Whether norms (and the element-wise chains around them) are fused kernels.
    pub fused_norm: Option<bool>,
    /// Which traffic is overlapped with computation. More than one may hold.
    pub overlap: Overlap,
    /// Format gradients are accumulated and reduced in.
    pub gradient_dtype: Option<Dtype>,
    /// Release as (year, month).
    pub release: Option<(u16, u8)>,
    /// Whether the blocks run through a graph compiler (`torch.compile`, XLA).
    pub compiled: Option<bool>,
    /// What is captured in a CUDA graph.
    pub cuda_graph: Option<CudaGraph>,
    /// How tokens travel to their experts.
    pub dispatcher: Option<ExpertDispatcher>,
    /// Tokens per expert are capped at this multiple of the mean and padded to it; none for dropless routing.
    pub capacity_factor: Option<f64>,
    /// How 8-bit scales are chosen.
    pub scaling: Option<Scaling>,
    /// Layers per rank whose activations are offloaded to the host.
    pub offloaded_layers: u32,
    /// Whether experts compute in the low precision of the workload (16 bits otherwise).
    pub low_precision_experts: Option<bool>,
    /// Whether the attention and dense linear layers do.
    pub low_precision_linears: Option<bool>,
    /// Whether only the norms and the expert activation are recomputed (Megatron's `layernorm`, `moe_act` modules).
    pub recompute_modules: RecomputeModules,
    /// How the key-value exchange of context parallelism travels.
    pub context_exchange: Option<ContextExchange>,
    /// Blocks between two recomputed ones (2: every second block), where the engine's selective recompute means that.
    pub recompute_every: Option<u32>,
}

/// Traffic that is overlapped. A field that is none leaves the engine's own behaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Overlap {
    /// Tensor-parallel collectives.
    pub tp: Option<TensorOverlap>,
    /// Gradient reduction and parameter gathering.
    pub dp: Option<bool>,
    /// Expert dispatch and combine, behind another microbatch.
    pub ep: Option<bool>,
    /// Sends between pipeline ranks.
    pub pp: Option<bool>,
}

/// How tensor-parallel collectives are overlapped with the matrix products around them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TensorOverlap {
    /// Not at all, beyond what the engine does by itself.
    None,
    /// Decomposed products with symmetric memory (torchtitan's async TP).
    AsyncTp,
    /// Transformer Engine's user buffers.
    UserBuffers,
}

/// What is captured in a CUDA graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CudaGraph {
    /// Nothing.
    None,
    /// Parts of a layer (attention, router).
    Partial,
    /// The whole iteration.
    Full,
}

/// How tokens travel to their experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExpertDispatcher {
    /// NCCL's all-to-all: one copy of a token per expert it visits.
    AllToAll,
    /// `DeepEP`: one copy per distinct rank inside a domain and per distinct node across.
    DeepEp,
    /// `HybridEP`: the same over an NVLink domain larger than a node.
    HybridEp,
}

/// How 8-bit scales are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scaling {
    /// One scale per tensor, from earlier steps.
    Delayed,
    /// One scale per tensor, from the tensor itself.
    Current,
    /// One scale per row and per column.
    Rowwise,
    /// One scale per 16 or 32 elements.
    Block,
}

/// How keys and values meet the queries of other context-parallel ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContextExchange {
    /// Passed round a ring behind the attention of the previous piece.
    Ring,
    /// Gathered before the attention.
    Gather,
    /// Heads exchanged for sequence by all-to-all (Ulysses).
    AllToAll,
}

/// Modules recomputed by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RecomputeModules {
    /// The norms.
    pub norms: bool,
    /// The experts' activation.
    pub expert_activation: bool,
    /// The up projections of latent attention.
    pub latent_up_projection: bool,
}

impl RecomputeModules {
    /// Whether any module is named.
    #[must_use]
    pub const fn any(self) -> bool {
        self.norms || self.expert_activation || self.latent_up_projection
    }
}
