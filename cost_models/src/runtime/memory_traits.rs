//! What an engine keeps in memory: the physical switches that make the same layout larger in one engine than in
//! another. A runtime profile states those in which it differs from Megatron-Core; a run's own flags (recompute
//! modules, dropout, capacity factor ...) are set on a copy of its runtime's profile.
//!
//! T is the number of tokens of a microbatch on a rank, h the width of the residual stream, t the tensor-parallel
//! degree.

use crate::workload::Dtype;
use serde::{Deserialize, Serialize};

/// The memory switches of an engine, by what they concern.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MemoryTraits {
    /// Parameters, gradients, optimizer state.
    pub state: StateTraits,
    /// Saved activations of a layer.
    pub activations: ActivationTraits,
    /// Saved activations of routed experts.
    pub experts: ExpertTraits,
    /// Logits and loss.
    pub loss: LossTraits,
    /// Library workspaces and other buffers.
    pub workspace: WorkspaceTraits,
    /// Pipeline buffers and the split of the layers.
    pub pipeline: PipelineTraits,
    /// What is reserved beyond what is allocated.
    pub reserve: ReserveTraits,
}

/// Formats and copies of parameters, gradients and optimizer state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StateTraits {
    /// Format of the resident gradients; the runtime's accumulation format if none.
    pub gradients: Option<Dtype>,
    /// Format of the optimizer's master copy where it is not the parameters themselves (`fp32_parameters`).
    pub master: Dtype,
    /// Whether the parameters are kept in fp32 and serve as the master copy.
    pub fp32_parameters: bool,
    /// Whether the optimizer works on the parameters in the format they are computed with: no master copy, moments in that format
    /// (`torch.optim` on a module of bf16).
    pub state_as_parameters: bool,
    /// Format of the first moment.
    pub first_moment: Dtype,
    /// Format of the second moment.
    pub second_moment: Dtype,
    /// Whether context-parallel ranks share the sharding of the optimizer.
    pub shard_over_context: bool,
    /// Format of a second copy of all gradients that data parallelism reduces (DDP buckets); only with dp > 1, and where the
    /// accumulators are wider.
    pub reduction_copy: Option<Dtype>,
    /// Bytes per parameter of gradients that exist only at the end of the backward.
    pub late_gradient_bytes: f64,
    /// Bytes per parameter that exist only in the step of a sharded optimizer, not divided by data parallelism.
    pub step_bytes: f64,
    /// Bytes per parameter that exist only in the step of a sharded optimizer, divided as its state is.
    pub step_sharded_bytes: f64,
    /// Bytes per parameter of fp32 gradient copies in the step of an fp16 run, divided as the optimizer state is.
    pub fp16_step_bytes: f64,
    /// Bytes per matrix parameter of 8-bit copies kept beside the parameters, in 8-bit runs.
    pub fp8_weight_copies: f64,
    /// Fully sharded parameters: largest units whose gathered parameters exist at once.
    pub gathered_units: f64,
    /// Fully sharded parameters: largest units whose full gradients (in the reduction format) exist at once.
    pub gathered_gradient_units: f64,
    /// Fully sharded parameters that stay gathered for their next use, as many as there are up to this (DeepSpeed's
    /// `stage3_max_live_parameters`).
    pub live_parameters: f64,
    /// Share of the optimizer state kept in host memory.
    pub optimizer_offload: f64,
    /// Share of the gradients kept in host memory.
    pub gradient_offload: f64,
    /// Share of the parameters kept in host memory between their uses.
    pub parameter_offload: f64,
    /// Vocabularies are padded to a multiple of this times tp (1: not padded).
    pub vocab_multiple: u64,
    /// Every layer is a unit of its own whose gradients add up whole over the microbatches and are reduced once, after the
    /// last backward (torch FSDP's `no_sync`); fully sharded parameters are gathered anew for every microbatch, in a pipeline
    /// too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub whole_gradients: bool,
}

impl Default for StateTraits {
    fn default() -> Self {
        Self {
            gradients: None,
            master: Dtype::Fp32,
            fp32_parameters: false,
            state_as_parameters: false,
            first_moment: Dtype::Fp32,
            second_moment: Dtype::Fp32,
            shard_over_context: true,
            reduction_copy: None,
            late_gradient_bytes: 0.0,
            step_bytes: 0.0,
            step_sharded_bytes: 0.0,
            fp16_step_bytes: 4.0,
            fp8_weight_copies: 0.0,
            gathered_units: 2.0,
            gathered_gradient_units: 1.0,
            live_parameters: 0.0,
            optimizer_offload: 0.0,
            gradient_offload: 0.0,
            parameter_offload: 0.0,
            vocab_multiple: 128,
            whole_gradients: false,
        }
    }
}

/// What a layer keeps for its backward.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ActivationTraits {
    /// Dropout on the residual stream: one byte per element and mask.
    pub hidden_dropout: bool,
    /// Dropout on attention probabilities; costs memory only where the scores are stored.
    pub attention_dropout: bool,
    /// FlashAttention's saved output and the projection's saved input are two tensors.
    pub flash_output_copy: bool,
    /// Context parallelism keeps one more copy of the attention output.
    pub context_output_copy: bool,
    /// Whether the gated activation is one kernel; separate kernels also save the activated gate.
    pub fused_gated_activation: bool,
    /// Bytes per element that an unfused norm saves beside its input and output.
    pub unfused_norm_bytes: f64,
    /// Tensors of T h 16-bit elements a layer keeps undivided by tensor parallelism (gathered inputs).
    pub gathered_inputs: f64,
    /// Norms on the latents of latent attention (Megatron: with `qk-layernorm`).
    pub latent_norms: bool,
    /// Whether 8-bit linear layers save their inputs in 8 bits.
    pub fp8_saved_inputs: bool,
    /// What `recompute = selective` recomputes.
    pub selective: Vec<RecomputeModule>,
    /// Saved bytes of per-operator selective recompute without a graph compiler over those with it.
    pub eager_ratio: f64,
    /// Attention score buffer that exists once beside the saved tensors (unfused attention of Megatron's own kernels).
    pub score_buffer: bool,
    /// Whether layers are plain torch modules that save what those of the probe save: measured bytes hold for them.
    pub as_probed: bool,
}

impl Default for ActivationTraits {
    fn default() -> Self {
        Self {
            hidden_dropout: false,
            attention_dropout: false,
            flash_output_copy: true,
            context_output_copy: true,
            fused_gated_activation: true,
            unfused_norm_bytes: 8.0,
            gathered_inputs: 0.0,
            latent_norms: true,
            fp8_saved_inputs: true,
            selective: vec![RecomputeModule::CoreAttention],
            eager_ratio: 1.0,
            score_buffer: false,
            as_probed: false,
        }
    }
}

/// A part of a layer that selective recompute drops and computes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecomputeModule {
    /// Scores, softmax and their product with the values.
    CoreAttention,
    /// Outputs of the norms.
    Layernorm,
    /// The activation's output, dense or experts' (Megatron's `moe_act`).
    Activation,
    /// Dropout masks.
    Dropout,
    /// The up projections of latent attention.
    MlaUpProjection,
    /// The whole dense MLP.
    Mlp,
    /// The whole MoE layer.
    Moe,
    /// The shared experts.
    SharedExperts,
    /// torchtitan's per-operator policy: keeps attention outputs and every second matrix product.
    PerOperator,
}

/// What routed experts keep for their backward.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExpertTraits {
    /// All local experts in one grouped matrix product.
    pub grouped_gemm: bool,
    /// Routing probabilities are multiplied inside the activation kernel; apart, the activation is saved twice.
    pub fused_probabilities: bool,
    /// The combine keeps the experts' output (index-add in deterministic mode without fused permutation).
    pub saves_output: bool,
    /// Fused permutation kernels and their row map.
    pub fused_permutation: bool,
    /// Format of the router.
    pub router: Dtype,
    /// Whether a balancing loss is computed.
    pub balancing_loss: bool,
    /// Dispatched rows, the all-to-all's result and the experts' output stay alive during the combine.
    pub dispatch_buffers: bool,
}

impl Default for ExpertTraits {
    fn default() -> Self {
        Self {
            grouped_gemm: true,
            fused_probabilities: true,
            saves_output: false,
            fused_permutation: true,
            router: Dtype::Fp32,
            balancing_loss: true,
            dispatch_buffers: true,
        }
    }
}

/// What the head and the loss need.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LossTraits {
    /// Bytes per logit at the loss's peak.
    pub bytes_per_logit: f64,
    /// The loss of later releases, where the model is compiled.
    pub compiled: Option<CompiledLoss>,
    /// Head and loss in pieces of the sequence, in later releases.
    pub chunked: Option<ChunkedLoss>,
    /// Logits are gathered over tensor parallelism before the loss.
    pub gathered_logits: bool,
    /// Microbatches whose head weight gradient is deferred, with their inputs kept.
    pub deferred_weight_gradients: u32,
}

impl Default for LossTraits {
    fn default() -> Self {
        Self {
            bytes_per_logit: 6.0,
            compiled: None,
            chunked: None,
            gathered_logits: false,
            deferred_weight_gradients: 0,
        }
    }
}

/// A loss that a graph compiler fuses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompiledLoss {
    /// First release (year, month) that compiles the loss.
    pub from: (u16, u8),
    /// Bytes per logit at its peak.
    pub bytes_per_logit: f64,
}

/// A loss that takes the sequence in pieces, the head's product with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChunkedLoss {
    /// First release (year, month) that does so.
    pub from: (u16, u8),
    /// Pieces.
    pub chunks: u32,
}

/// Workspaces of libraries and other fixed buffers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkspaceTraits {
    /// cuBLAS handles with a workspace: the forward's and the autograd thread's.
    pub cublas_handles: u32,
    /// Bytes of a cuBLAS workspace; the library's default for the GPU if none.
    pub cublas_bytes: Option<f64>,
    /// Transformer Engine's own matrix-product workspace (and one per stream for grouped products).
    pub transformer_engine: bool,
    /// One dummy weight gradient per distinct weight shape (gradient accumulation fused into the product).
    pub shared_weight_gradients: bool,
    /// A persistent all-gather buffer for sequence parallelism.
    pub gather_buffer: bool,
    /// The data loader makes an attention mask of b s^2 bytes.
    pub attention_mask: bool,
    /// Fixed bytes of other buffers, such as user buffers of overlapped tensor parallelism.
    pub other_bytes: f64,
}

impl Default for WorkspaceTraits {
    fn default() -> Self {
        Self {
            cublas_handles: 2,
            cublas_bytes: None,
            transformer_engine: true,
            shared_weight_gradients: true,
            gather_buffer: true,
            attention_mask: false,
            other_bytes: 0.0,
        }
    }
}

/// What pipelining adds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PipelineTraits {
    /// Boundary tensors of T h 16-bit elements that exist beside the saved ones.
    pub boundary_tensors: f64,
    /// How the blocks are split over the stages unless a run says otherwise.
    pub split: SplitPolicy,
    /// Microbatches per group of an interleaved schedule; pp if none.
    pub group_size: Option<u32>,
    /// Tensors of T h 16-bit elements each microbatch in flight keeps beside its saved ones under vocabulary passes.
    pub vocabulary_pass_tensors: f64,
    /// Bytes per logit under vocabulary passes.
    pub vocabulary_pass_bytes: f64,
}

impl Default for PipelineTraits {
    fn default() -> Self {
        Self {
            boundary_tensors: 1.0,
            split: SplitPolicy::Even,
            group_size: None,
            vocabulary_pass_tensors: 2.0,
            vocabulary_pass_bytes: 7.0,
        }
    }
}

/// How an engine splits blocks over stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SplitPolicy {
    /// Equally many blocks; the first stages take the remainder.
    Even,
    /// Embedding and head count as one block each (Megatron's account-for-embedding and -loss, torchtitan).
    CountEnds,
    /// The first and last stage hold one block less.
    EndsOneLess,
    /// nanotron: a stage ends once the running cost (blocks by parameters, the head by hidden x vocabulary) exceeds its share.
    RunningCost,
}

/// Memory beyond what the framework allocates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReserveTraits {
    /// Reserved over allocated memory.
    pub ratio: f64,
    /// Reserved bytes on top.
    pub bytes: f64,
    /// Bytes of the CUDA context, NCCL and other libraries, outside the framework's allocator.
    pub context_bytes: f64,
    /// Scatter of the reserved estimate: the share of it that one standard deviation is.
    pub scatter: f64,
    /// Bytes of the device below its capacity that a plan leaves free by default, on the reserved estimate.
    pub margin_bytes: f64,
}

impl Default for ReserveTraits {
    fn default() -> Self {
        Self { ratio: 1.045, bytes: 0.0, context_bytes: 1.0e9, scatter: 0.025, margin_bytes: 5.0 * GIB }
    }
}

const GIB: f64 = 1_073_741_824.0;
