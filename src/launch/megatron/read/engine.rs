//! The workload, and what the engine keeps in memory, as Megatron-LM flags state them.

use super::FlagSet;
use crate::launch::flags::MOST_BATCH;
use cluster_profiles::{Gpu, Precision};
use cost_models::model::{Activation, Block, Mlp};
use cost_models::runtime::{
    AttentionKernel, CudaGraph, ExpertDispatcher, ExpertTraits, MemoryTraits, RecomputeModule, RuntimeFacts,
    TensorOverlap,
};
use cost_models::{Dtype, ModelSpec, Optimizer, ParallelConfig, Recompute, Runtime, RuntimeError, Workload};

/// One optimizer step.
pub(super) fn workload(flags: &FlagSet, parallel: &ParallelConfig) -> Workload {
    let optimizer = flags.text("--optimizer").unwrap_or("adam");
    Workload {
        global_batch: parallel.global_batch(),
        seq_len: flags.required("--seq-length", MOST_BATCH),
        precision: precision(flags),
        optimizer: match optimizer {
            "sgd" => Optimizer::Sgd,
            name if name.contains("muon") => Optimizer::Muon,
            _ => Optimizer::Adamw,
        },
        gradient_dtype: if flags.has("--grad-reduce-in-bf16") {
            Some(Dtype::Bf16)
        } else {
            dtype(flags, "--main-grads-dtype")
        },
        expert_imbalance: 1.0,
    }
}

fn precision(flags: &FlagSet) -> Precision {
    if flags.text("--fp4-format").is_some() {
        return Precision::Nvfp4;
    }
    let low = flags.text("--fp8-format").is_some();
    match (low, flags.text("--fp8-recipe"), flags.has("--bf16"), flags.has("--fp16")) {
        (true, Some("mxfp8"), ..) => Precision::Mxfp8,
        (true, ..) => Precision::Fp8,
        (_, _, true, _) => Precision::Bf16,
        (_, _, _, true) => Precision::Fp16,
        _ => Precision::Fp32,
    }
}

fn dtype(flags: &FlagSet, flag: &str) -> Option<Dtype> {
    match flags.text(flag)? {
        "fp32" => Some(Dtype::Fp32),
        "bf16" => Some(Dtype::Bf16),
        "fp16" => Some(Dtype::Fp16),
        "fp8" => Some(Dtype::Fp8),
        other => {
            flags.fault(flag, other, "fp32, bf16, fp16 or fp8");
            None
        }
    }
}

/// Megatron-Core with the switches of the flags.
pub(super) fn runtime(
    flags: &FlagSet,
    workload: &Workload,
    gpu: &Gpu,
    model: &ModelSpec,
    parallel: &ParallelConfig,
) -> Result<Runtime, RuntimeError> {
    let mut runtime = Runtime::named("megatron-core")?;
    runtime.attention = attention(flags, workload, gpu);
    runtime.facts.capacity_factor = flags
        .real("--moe-expert-capacity-factor")
        .filter(|_| flags.has("--moe-pad-expert-input-to-capacity"));
    if !matches!(parallel.recompute, Recompute::Offload { .. }) {
        runtime.facts.offloaded_layers = flags.count("--cpu-offloading-num-layers").map_or(0, |n| n as u32);
    }
    traffic(flags, &mut runtime.facts);
    let memory = &mut runtime.memory;
    state(flags, memory);
    activations(flags, memory);
    experts(flags, model, &mut memory.experts);
    buffers(flags, memory);
    Ok(runtime)
}

/// How traffic is overlapped, how tokens reach their experts, and what is captured in graphs; what the flags leave open
/// stays the profile's, and the overlap of expert traffic is the schedule's.
fn traffic(flags: &FlagSet, facts: &mut RuntimeFacts) {
    if !flags.has("--overlap-grad-reduce") {
        facts.overlap.dp = Some(false);
    }
    if flags.has("--tp-comm-overlap") {
        facts.overlap.tp = Some(TensorOverlap::UserBuffers);
    }
    if flags.has("--no-overlap-p2p-communication") {
        facts.overlap.pp = Some(false);
    }
    let backend = flags.text("--moe-flex-dispatcher-backend");
    facts.dispatcher = match (flags.text("--moe-token-dispatcher-type"), backend) {
        (None, _) => None,
        (Some("flex"), Some("hybridep")) => Some(ExpertDispatcher::HybridEp),
        (Some("flex"), _) => Some(ExpertDispatcher::DeepEp),
        (Some(_), _) => Some(ExpertDispatcher::AllToAll),
    };
    let whole = flags.words("--cuda-graph-scope").iter().any(|scope| scope.contains("full_iteration"));
    facts.cuda_graph = match flags.text("--cuda-graph-impl") {
        None | Some("none") => None,
        Some(_) if whole => Some(CudaGraph::Full),
        Some(_) => Some(CudaGraph::Partial),
    };
}

fn local(flags: &FlagSet) -> bool {
    flags.text("--transformer-impl") == Some("local")
}

/// Transformer Engine takes cuDNN's kernel on Hopper and FlashAttention-2 elsewhere where the installation has both;
/// `local` layers and fp32 runs store the scores.
fn attention(flags: &FlagSet, workload: &Workload, gpu: &Gpu) -> AttentionKernel {
    let unfused = flags.text("--attention-backend") == Some("unfused");
    if local(flags) || unfused || workload.precision == Precision::Fp32 {
        let separate = flags.has("--no-masked-softmax-fusion");
        return if separate { AttentionKernel::Unfused } else { AttentionKernel::FusedSoftmax };
    }
    match (flags.text("--attention-backend"), gpu.compute_capability) {
        (Some("fused"), _) | (None | Some("auto"), Some(90)) => AttentionKernel::Cudnn,
        _ => AttentionKernel::Flash2,
    }
}

fn state(flags: &FlagSet, memory: &mut MemoryTraits) {
    let state = &mut memory.state;
    state.vocab_multiple = flags.count("--make-vocab-size-divisible-by").unwrap_or(128);
    if flags.has("--use-precision-aware-optimizer") {
        state.master = dtype(flags, "--main-params-dtype").unwrap_or(state.master);
        state.first_moment = dtype(flags, "--exp-avg-dtype").unwrap_or(state.first_moment);
        state.second_moment = dtype(flags, "--exp-avg-sq-dtype").unwrap_or(state.second_moment);
    }
    if flags.has("--optimizer-cpu-offload") {
        state.optimizer_offload = flags.real("--optimizer-offload-fraction").unwrap_or(1.0).clamp(0.0, 1.0);
    }
    state.fp8_weight_copies = if flags.has("--fp8-param-gather") { 0.0 } else { 2.0 };
}

fn activations(flags: &FlagSet, memory: &mut MemoryTraits) {
    let activations = &mut memory.activations;
    activations.hidden_dropout = flags.real("--hidden-dropout").unwrap_or(0.1) > 0.0;
    activations.attention_dropout = flags.real("--attention-dropout").unwrap_or(0.1) > 0.0;
    activations.latent_norms = flags.has("--qk-layernorm");
    activations.fused_gated_activation = !flags.has("--no-bias-swiglu-fusion");
    activations.score_buffer = local(flags);
    let modules = flags.words("--recompute-modules");
    if !modules.is_empty() {
        activations.selective = modules.into_iter().filter_map(|name| module(flags, name)).collect();
    }
}

fn module(flags: &FlagSet, name: &str) -> Option<RecomputeModule> {
    match name {
        "core_attn" => Some(RecomputeModule::CoreAttention),
        "moe_act" => Some(RecomputeModule::Activation),
        "layernorm" => Some(RecomputeModule::Layernorm),
        "mla_up_proj" => Some(RecomputeModule::MlaUpProjection),
        "mlp" => Some(RecomputeModule::Mlp),
        "moe" => Some(RecomputeModule::Moe),
        "shared_experts" => Some(RecomputeModule::SharedExperts),
        other => {
            let known = "core_attn, moe_act, layernorm, mla_up_proj, mlp, moe or shared_experts";
            flags.fault("--recompute-modules", other, known);
            None
        }
    }
}

/// Deterministic mode without fused permutation combines by index-add, which keeps its source.
fn experts(flags: &FlagSet, model: &ModelSpec, experts: &mut ExpertTraits) {
    // Gated activations with a kernel that takes the probabilities (`moe/experts.py`): SwiGLU and quick GEGLU.
    let fused = |block: &Block| {
        let (Mlp::Dense { activation, .. } | Mlp::Moe { activation, .. }) = block.mlp;
        matches!(activation, Activation::Swiglu | Activation::Geglu | Activation::ClampedSwiglu)
    };
    let gated = model.blocks().any(|(_, block)| fused(block)) && !flags.has("--no-bias-swiglu-fusion");
    experts.grouped_gemm = flags.has("--moe-grouped-gemm");
    experts.fused_permutation = flags.has("--moe-permute-fusion");
    experts.fused_probabilities = gated;
    experts.saves_output = flags.has("--deterministic-mode") && !experts.fused_permutation;
    experts.router = if flags.text("--moe-router-dtype") == Some("fp32") { Dtype::Fp32 } else { Dtype::Bf16 };
    let balanced = flags.text("--moe-router-load-balancing-type") != Some("none");
    experts.balancing_loss = balanced && flags.real("--moe-aux-loss-coeff").unwrap_or(0.0) > 0.0;
}

fn buffers(flags: &FlagSet, memory: &mut MemoryTraits) {
    if flags.has("--cross-entropy-loss-fusion") {
        let engine = flags.text("--cross-entropy-fusion-impl") == Some("te");
        memory.loss.bytes_per_logit = if engine { 2.0 } else { 10.0 };
    }
    if flags.has("--defer-embedding-wgrad-compute") {
        memory.loss.deferred_weight_gradients = flags.count("--wgrad-deferral-limit").map_or(0, |n| n as u32);
    }
    memory.pipeline.group_size =
        flags.count("--microbatch-group-size-per-virtual-pipeline-stage").map(|n| n as u32);
    let workspace = &mut memory.workspace;
    workspace.transformer_engine = !local(flags);
    workspace.shared_weight_gradients = !flags.has("--no-gradient-accumulation-fusion");
    workspace.attention_mask = !flags.has("--no-create-attention-mask-in-dataloader");
    if flags.variable("CUBLAS_WORKSPACE_CONFIG") == Some(":4096:8") {
        workspace.cublas_bytes = Some(32.0 * 1_048_576.0);
    }
}
