//! What a row says about its engine: the facts that adapt a runtime's profile to the run.

use super::inherit::Inherited;
use super::release::{self, release};
use super::row::RunRow;
use super::words::{CommOverlap, FlashAttention};
use cluster_profiles::{Gpu, Precision};
use cost_models::Dtype;
use cost_models::runtime::{
    AttentionKernel, ContextExchange, CudaGraph, ExpertDispatcher, Overlap, RecomputeModules, RuntimeFacts,
    Scaling, TensorOverlap,
};

/// The first release of torch with kernels for Blackwell is 2.7, of April 2025 (its release notes): what runs there on torch's
/// own engines is no older.
const BLACKWELL_FROM: (u16, u8) = (2025, 4);

/// The facts a row states, and those it inherits from an earlier release of the same configuration.
#[must_use]
pub fn facts(row: &RunRow, gpu: &Gpu, inherited: &Inherited) -> RuntimeFacts {
    let (experts, linears) = low_precision_parts(row);
    RuntimeFacts {
        attention: attention(row),
        fused_norm: (!row.kernel.is_empty()).then(|| row.kernel.contains("RMS")),
        overlap: overlap(row, inherited),
        gradient_dtype: gradient_dtype(row),
        release: released(row, gpu),
        compiled: compiled(row),
        cuda_graph: cuda_graph(&row.notes).or(inherited.cuda_graph),
        dispatcher: dispatcher(row),
        capacity_factor: capacity_factor(row),
        scaling: scaling(row),
        offloaded_layers: offloaded_layers(&row.offload).max(inherited.offloaded_layers),
        low_precision_experts: experts,
        low_precision_linears: linears,
        recompute_modules: recompute_modules(&row.recompute_detail),
        context_exchange: row.notes.contains("CP a2a").then_some(ContextExchange::AllToAll),
        recompute_every: recompute_every(&row.recompute_detail),
    }
}

/// The framework's release, or what must be later: the date in the name of the page that printed the run (`..._202506_...`),
/// the support of the GPU.
fn released(row: &RunRow, gpu: &Gpu) -> Option<(u16, u8)> {
    let stated = release(&row.framework).map(|(year, month, _)| (year, month));
    let stated = stated.map(|stated| release::page_date(&row.source).map_or(stated, |page| page.max(stated)));
    let blackwell = gpu.compute_capability.is_some_and(|capability| capability >= 100);
    if row.runtime == "fsdp2" && blackwell { stated.max(Some(BLACKWELL_FROM)) } else { stated }
}

/// Aleph-Alpha's kernel column is the more exact one where it is given; a fused kernel of unknown kind is taken for
/// FlashAttention 2, and so is Composer's "flash1", which names a family that went over to it.
fn attention(row: &RunRow) -> Option<AttentionKernel> {
    let kernel = row.kernel.as_str();
    let by_kernel = [
        ("flash_attentionv1", AttentionKernel::Flash1),
        ("flash_attention2", AttentionKernel::Flash2),
        ("fused", AttentionKernel::FusedSoftmax),
        ("torch", AttentionKernel::Unfused),
    ];
    let named = by_kernel.into_iter().find(|(name, _)| kernel.starts_with(name));
    if let Some((_, kind)) = named {
        return Some(kind);
    }
    match row.flash_attention? {
        FlashAttention::No => Some(AttentionKernel::FusedSoftmax),
        FlashAttention::Flash1 if row.runtime == "fsdp1" => Some(AttentionKernel::Flash2),
        FlashAttention::Flash1 => Some(AttentionKernel::Flash1),
        FlashAttention::Flash2 | FlashAttention::Yes => Some(AttentionKernel::Flash2),
        FlashAttention::Fused => Some(AttentionKernel::Cudnn),
    }
}

fn overlap(row: &RunRow, inherited: &Inherited) -> Overlap {
    let expert = row.notes.contains("moe_a2a_overlap") || inherited.expert_overlap;
    let stated = match row.comm_overlap {
        None if runs_nemo_recipes(row) => user_buffers(true),
        None => Overlap::default(),
        // Sources that say so mean collectives: of sends between stages they say nothing.
        Some(CommOverlap::None) => {
            Overlap { tp: Some(TensorOverlap::None), dp: Some(false), ep: Some(false), pp: None }
        }
        Some(CommOverlap::AsyncTp) => Overlap { tp: Some(TensorOverlap::AsyncTp), ..Overlap::default() },
        Some(CommOverlap::UserBuffers) => user_buffers(true),
        Some(CommOverlap::UserBuffersSome) => user_buffers(has_user_buffers(&row.model)),
        Some(CommOverlap::Expert) => Overlap { ep: Some(true), ..Overlap::default() },
    };
    Overlap { ep: if expert { Some(true) } else { stated.ep }, ..stated }
}

/// The stated type of gradients, or that of Megatron-Bridge's performance recipes: bf16 (`_benchmark_common` of its
/// `perf_recipes`), but for GLM-5's.
pub(super) fn gradient_dtype(row: &RunRow) -> Option<Dtype> {
    let recipes = (is_bridge(row) && !row.model.starts_with("glm")).then_some(Dtype::Bf16);
    row.gradient_dtype.or(recipes)
}

/// Whether Megatron-Bridge ran it.
pub(super) fn is_bridge(row: &RunRow) -> bool {
    row.framework.starts_with("Megatron-Bridge")
}

fn user_buffers(on: bool) -> Overlap {
    let tp = if on { TensorOverlap::UserBuffers } else { TensorOverlap::None };
    Overlap { tp: Some(tp), dp: Some(true), ..Overlap::default() }
}

/// NeMo's performance pages run its performance recipes, which switch the overlaps on; they need not say so.
fn runs_nemo_recipes(row: &RunRow) -> bool {
    row.runtime == "megatron-core" && row.framework.contains("NeMo")
}

/// The recipes that say `dp+tp-user-buffers-some` use them for Llama of 70B and more and for Nemotron-15B.
fn has_user_buffers(model: &str) -> bool {
    let size = model.split(['-', '_']).find_map(|word| word.strip_suffix('b')?.parse::<f64>().ok());
    (model.starts_with("llama") && size.is_some_and(|billions| billions >= 65.0))
        || (model.contains("nemotron") && model.contains("15b"))
}

/// torchtitan rows differ in `compile_graph` alone, so a blank means eager there; AutoModel builds on fused kernels.
fn compiled(row: &RunRow) -> Option<bool> {
    if row.compile_graph.contains("compile") {
        return Some(true);
    }
    (row.framework.starts_with("torchtitan") && row.compile_graph.is_empty()).then_some(false)
}

/// What `cuda_graph=IMPLEMENTATION:SCOPE` in the notes captures.
#[must_use]
pub fn cuda_graph(notes: &str) -> Option<CudaGraph> {
    let flag = notes.split_once("cuda_graph=")?.1;
    let flag = flag.split(';').next().unwrap_or(flag);
    if flag.starts_with("none") {
        return Some(CudaGraph::None);
    }
    Some(if flag.contains("full_iteration") { CudaGraph::Full } else { CudaGraph::Partial })
}

fn dispatcher(row: &RunRow) -> Option<ExpertDispatcher> {
    let known = [
        ("HybridEP", ExpertDispatcher::HybridEp),
        ("DeepEP", ExpertDispatcher::DeepEp),
        ("alltoall", ExpertDispatcher::AllToAll),
        ("tokendrop", ExpertDispatcher::AllToAll),
    ];
    let stated = |name: &str| row.notes.contains(name) || row.framework.contains(name);
    known.into_iter().find(|(name, _)| stated(name)).map(|(_, kind)| kind)
}

fn capacity_factor(row: &RunRow) -> Option<f64> {
    if row.notes.contains("tokendrop") {
        return Some(1.0);
    }
    [&row.notes, &row.flops_definition].into_iter().find_map(|text| {
        let number = text.split_once("capacity factor ")?.1.split([' ', ';', ',']).next()?;
        number.parse::<f64>().ok().filter(|factor| (0.1..100.0).contains(factor))
    })
}

fn scaling(row: &RunRow) -> Option<Scaling> {
    let notes = &row.notes;
    let said = |word: &str| notes.contains(word);
    match row.precision? {
        Precision::Mxfp8 | Precision::Nvfp4 => Some(Scaling::Block),
        Precision::Fp8 if said("rowwise") => Some(Scaling::Rowwise),
        Precision::Fp8 if said("delayed") => Some(Scaling::Delayed),
        Precision::Fp8 if said("fp8-cs") || said("FP8_CS") || said("tensorwise") => Some(Scaling::Current),
        Precision::Fp8 if said("fp8-mx") || said("FP8_MX") || said("fp8-sc") => Some(Scaling::Block),
        _ => None,
    }
}

/// Layers of `activation cpu-offload N layers`.
#[must_use]
pub fn offloaded_layers(offload: &str) -> u32 {
    let layers = offload.split_once("cpu-offload ").and_then(|(_, rest)| rest.split(' ').next());
    layers.and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// torchao's tables say which part computes in 8 bits: `mxfp8 linears`, `mxfp8 grouped gemm`, `mxfp8 linears+grouped`.
fn low_precision_parts(row: &RunRow) -> (Option<bool>, Option<bool>) {
    let (linears, experts) = (row.notes.contains("linears"), row.notes.contains("grouped"));
    let says = row.notes.contains("mxfp8 linears") || row.notes.contains("mxfp8 grouped");
    if says { (Some(experts), Some(linears)) } else { (None, None) }
}

fn recompute_modules(detail: &str) -> RecomputeModules {
    RecomputeModules {
        norms: detail.contains("layernorm"),
        expert_activation: detail.contains("moe_act"),
        latent_up_projection: detail.contains("mla_up_proj"),
    }
}

/// torchtitan's `selective layer` recomputes every second block.
fn recompute_every(detail: &str) -> Option<u32> {
    (detail.contains("selective layer") || detail.contains("n-th block")).then_some(2)
}
