//! What the token mixer of a block saves for its backward.
//!
//! T tokens, h residual width, a heads, g key-value heads, d head width, t tensor parallelism; 2 bytes an element.
//! Korthikanti et al. (arXiv 2205.05198, section 4.1), extended to grouped and latent attention by reading
//! Megatron-Core and Transformer Engine.

use super::context::MemoryContext;
use super::modules::Modules;
use crate::model::Attention;
use crate::runtime::{AttentionKernel, RecomputeModule};

/// Saved bytes by the part that selective recompute can drop.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct AttentionSaved {
    /// Inputs of the core attention: queries, keys, values.
    pub(super) query_key_value: f64,
    /// Latents of latent attention, before the up projections.
    pub(super) latents: f64,
    /// Normalised latents, which the up projections read.
    pub(super) latent_outputs: f64,
    /// The output, the projection's input, and the log-sum-exp.
    pub(super) output: f64,
    /// Scores and dropout mask.
    pub(super) scores: f64,
    /// Every second matrix product, which per-operator recompute keeps: query and value projections.
    pub(super) per_operator: f64,
}

impl AttentionSaved {
    /// What remains when the modules of `context`'s selective recompute are dropped.
    pub(super) fn kept(&self, modules: Modules) -> f64 {
        let dropped = |module| modules.contains(module);
        let scores = if dropped(RecomputeModule::CoreAttention) { 0.0 } else { self.scores };
        let projected = if dropped(RecomputeModule::MlaUpProjection) && self.latents > 0.0 {
            0.0
        } else {
            self.query_key_value + self.latent_outputs
        };
        projected + self.latents + self.output + scores
    }
}

/// Saved bytes of the token mixer.
pub(super) fn saved(context: &MemoryContext, attention: &Attention) -> AttentionSaved {
    match *attention {
        Attention::Standard {
            heads,
            kv_heads,
            head_dim,
            v_head_dim,
            qk_norm,
            output_gate,
            shared_kv,
            ..
        } => {
            let kv = kv_heads as f64 * if shared_kv { 0.5 } else { 1.0 };
            let shape =
                Heads { heads: heads as f64, kv_heads: kv, key: head_dim as f64, value: v_head_dim as f64 };
            let mut saved = standard(context, &shape);
            saved.query_key_value += norm_copy(context, &shape, qk_norm);
            saved.output += if output_gate { 2.0 * gate(context, &shape) } else { 0.0 };
            saved
        }
        Attention::Latent { heads, q_rank, kv_rank, qk_nope_dim, qk_rope_dim, v_dim, .. } => {
            let (key, value) = ((qk_nope_dim + qk_rope_dim) as f64, v_dim as f64);
            let shape = Heads { heads: heads as f64, kv_heads: heads as f64, key, value };
            let mut saved = standard(context, &shape);
            let ranks = (q_rank.unwrap_or(0) + kv_rank) as f64;
            let normed = context.traits().activations.latent_norms;
            saved.latents =
                if normed { context.element() * context.tokens * ranks / context.sp } else { 0.0 };
            saved.latent_outputs = context.input_element() * context.tokens * ranks / context.sp;
            saved
        }
        Attention::Linear { k_heads, v_heads, k_dim, v_dim, .. } => {
            let keys = (k_heads * k_dim) as f64;
            let values = (v_heads * v_dim) as f64;
            linear(context, keys, values)
        }
    }
}

/// Tensors that the core attention saves, one by one.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct CoreTensors {
    pub(super) query: f64,
    pub(super) key: f64,
    pub(super) value: f64,
    /// Also the input of the projection behind it.
    pub(super) output: f64,
    /// Copies of the output that the kernel makes.
    pub(super) kernel_copy: f64,
    /// Scores and dropout mask.
    pub(super) scores: f64,
    /// Inputs of norms on queries and keys.
    pub(super) norm_inputs: f64,
}

/// The tensors of the core attention; none of a linear one.
pub(super) fn core_tensors(context: &MemoryContext, attention: &Attention) -> CoreTensors {
    let (shape, qk_norm) = match *attention {
        Attention::Standard { heads, kv_heads, head_dim, v_head_dim, qk_norm, shared_kv, .. } => {
            let kv = kv_heads as f64 * if shared_kv { 0.5 } else { 1.0 };
            let (key, value) = (head_dim as f64, v_head_dim as f64);
            (Heads { heads: heads as f64, kv_heads: kv, key, value }, qk_norm)
        }
        Attention::Latent { heads, qk_nope_dim, qk_rope_dim, v_dim, .. } => {
            let (key, value) = ((qk_nope_dim + qk_rope_dim) as f64, v_dim as f64);
            (Heads { heads: heads as f64, kv_heads: heads as f64, key, value }, false)
        }
        Attention::Linear { .. } => return CoreTensors::default(),
    };
    let per_token = context.element() * context.tokens;
    let (heads, kv) = (shape.heads / context.tp, shape.local_kv(context.tp));
    let output = per_token * heads * shape.value;
    let statistics =
        if context.runtime.attention.stores_scores() { 0.0 } else { 4.0 * context.tokens * heads };
    CoreTensors {
        query: per_token * heads * shape.key,
        key: per_token * kv * shape.key,
        value: per_token * kv * shape.value,
        output,
        kernel_copy: output_extras(context, output, heads) - statistics,
        scores: scores(context, heads),
        norm_inputs: norm_copy(context, &shape, qk_norm),
    }
}

struct Heads {
    heads: f64,
    kv_heads: f64,
    key: f64,
    value: f64,
}

impl Heads {
    /// Key-value heads on a rank: at least one.
    fn local_kv(&self, tp: f64) -> f64 {
        (self.kv_heads / tp).max(1.0_f64.min(self.kv_heads))
    }
}

fn standard(context: &MemoryContext, shape: &Heads) -> AttentionSaved {
    let per_token = context.element() * context.tokens;
    let heads = shape.heads / context.tp;
    let kv = shape.local_kv(context.tp);
    let output = per_token * heads * shape.value;
    let query_key_value = per_token * (heads * shape.key + kv * (shape.key + shape.value));
    AttentionSaved {
        query_key_value,
        output: output + output_extras(context, output, heads),
        scores: scores(context, heads),
        per_operator: per_token * (heads * shape.key + kv * shape.value),
        ..AttentionSaved::default()
    }
}

/// Log-sum-exp (4 bytes per token and head), and the copies of the output some kernels make.
fn output_extras(context: &MemoryContext, output: f64, heads: f64) -> f64 {
    let traits = &context.traits().activations;
    let kernel = context.runtime.attention;
    if kernel.stores_scores() {
        return 0.0;
    }
    let flash = if kernel == AttentionKernel::Flash2 && traits.flash_output_copy { output } else { 0.0 };
    let ring = if context.parallel.cp > 1 && traits.context_output_copy { output } else { 0.0 };
    4.0 * context.tokens * heads + flash + ring
}

/// Bytes per score: the softmax's output, and with dropout its mask and product; an unfused softmax adds an fp32 copy.
fn scores(context: &MemoryContext, heads: f64) -> f64 {
    let dropout = context.traits().activations.attention_dropout;
    let bytes = match context.runtime.attention {
        AttentionKernel::Unfused => 7.0,
        AttentionKernel::FusedSoftmax if dropout => 5.0,
        AttentionKernel::FusedSoftmax => 2.0,
        _ => return 0.0,
    };
    bytes * heads * context.batch() * context.seq() * context.seq() / context.cp()
}

/// A norm on queries and keys saves its inputs beside its outputs.
fn norm_copy(context: &MemoryContext, shape: &Heads, qk_norm: bool) -> f64 {
    if !qk_norm {
        return 0.0;
    }
    context.element() * context.tokens * (shape.heads / context.tp + shape.local_kv(context.tp)) * shape.key
}

/// An output gate keeps the gate and the product.
fn gate(context: &MemoryContext, shape: &Heads) -> f64 {
    context.element() * context.tokens * shape.heads * shape.value / context.tp
}

/// Linear attention: the projections before and after the convolution, gate, output before and after its norm; states of
/// chunks of 64 tokens in fp32.
fn linear(context: &MemoryContext, keys: f64, values: f64) -> AttentionSaved {
    let per_token = context.element() * context.tokens / context.tp;
    AttentionSaved {
        query_key_value: per_token * 2.0 * (2.0 * keys + values),
        output: per_token * 4.0 * values,
        per_operator: per_token * (keys + values),
        ..AttentionSaved::default()
    }
}
