//! The token mixer of a block: projections, core attention, context-parallel exchange.

use super::context::LayerContext;
use super::linear::{linear, replicated_linear};
use super::passes::{PassCost, Passes};
use crate::comm::Collective;
use crate::compute::{
    AttentionShape, ForwardBackward, fused_attention, linear_attention, stream, unfused_attention,
};
use crate::model::Attention;
use crate::runtime::ContextExchange;
use cluster_profiles::{Bytes, Seconds};

/// Share of a context-parallel exchange that is paid even where attention hides it.
const RING_INTERFERENCE: f64 = 0.15;
/// Bytes per element of queries and keys that the rotary kernel moves.
const ROTARY_BYTES: f64 = 4.0;

/// Forward and backward of the mixer, norms and tensor-parallel traffic apart.
pub(super) fn mixer(context: &LayerContext, attention: &Attention) -> Passes {
    let core = core(context, attention);
    let mut passes = projections(context, attention) + rotary(context, attention);
    passes.forward.attention += core.forward;
    passes.input_gradient.attention += core.backward;
    passes.forward.cp += exchange(context, attention, core.forward, 1.0);
    passes.input_gradient.cp += exchange(context, attention, core.backward, 2.0);
    passes
}

/// What selective recompute repeats with an unfused kernel: the core's forward.
pub(super) fn core_forward(context: &LayerContext, attention: &Attention) -> PassCost {
    PassCost { attention: core(context, attention).forward, ..PassCost::default() }
}

/// The up projections of latent attention, which may be recomputed by themselves.
pub(super) fn latent_up(context: &LayerContext, attention: &Attention) -> Passes {
    let Attention::Latent { heads, q_rank, kv_rank, qk_nope_dim, qk_rope_dim, v_dim, .. } = *attention else {
        return Passes::default();
    };
    let local = heads as f64 / context.tp;
    let q_width = local * (qk_nope_dim + qk_rope_dim) as f64;
    let q_input = q_rank.unwrap_or(context.model.hidden) as f64;
    linear(context, context.tokens, q_width, q_input)
        + linear(context, context.tokens, local * (qk_nope_dim + v_dim) as f64, kv_rank as f64)
}

fn projections(context: &LayerContext, attention: &Attention) -> Passes {
    let (tokens, hidden, tp) = (context.tokens, context.hidden(), context.tp);
    match *attention {
        Attention::Standard { heads, kv_heads, head_dim, v_head_dim, output_gate, shared_kv, .. } => {
            let width = heads as f64 * head_dim as f64 / tp;
            let output = heads as f64 * v_head_dim as f64 / tp;
            let values = if shared_kv { 0.0 } else { kv_width(context, kv_heads, v_head_dim) };
            let kv = kv_width(context, kv_heads, head_dim) + values;
            let gate = if output_gate { output } else { 0.0 };
            linear(context, tokens, width + kv + gate, hidden) + linear(context, tokens, hidden, output)
        }
        Attention::Latent { heads, q_rank, kv_rank, qk_rope_dim, v_dim, index_heads, index_dim, .. } => {
            let down = (q_rank.unwrap_or(0) + kv_rank + qk_rope_dim) as f64;
            let index = (index_heads * index_dim + index_dim) as f64;
            replicated_linear(context, down + index, hidden)
                + latent_up(context, attention)
                + linear(context, tokens, hidden, (heads * v_dim) as f64 / tp)
        }
        Attention::Linear { k_heads, v_heads, k_dim, v_dim, .. } => {
            let values = (v_heads * v_dim) as f64 / tp;
            let keys = 2.0 * (k_heads * k_dim) as f64 / tp;
            linear(context, tokens, keys + 2.0 * values, hidden) + linear(context, tokens, hidden, values)
        }
    }
}

/// Width of the keys on a rank: with fewer heads than ranks, every rank keeps one.
fn kv_width(context: &LayerContext, kv_heads: u64, head_dim: u64) -> f64 {
    (kv_heads as f64 / context.tp).max(1.0) * head_dim as f64
}

fn core(context: &LayerContext, attention: &Attention) -> ForwardBackward {
    let (gpu, shared) = (context.gpu, context.shared());
    let shape = |heads: u64, kv_heads: u64, qk_dim: f64, v_dim: f64, keys: f64| AttentionShape {
        batch: context.batch / context.cp,
        seq: context.seq,
        calls: if context.context_exchange() == ContextExchange::Ring { context.cp } else { 1.0 },
        keys,
        heads: (heads as f64 / context.tp).max(1.0),
        kv_heads: (kv_heads as f64 / context.tp).max(1.0),
        qk_dim,
        v_dim,
    };
    let cost = |shape: &AttentionShape| {
        let kernel = context.runtime.attention;
        if kernel.stores_scores() {
            unfused_attention(gpu, shared, kernel, shape)
        } else {
            fused_attention(gpu, shared, kernel, context.runtime.time.flash_speed, shape)
        }
    };
    let softmax = |shape: &AttentionShape| match context.memo {
        Some(memo) => memo.attention(*shape, || cost(shape)),
        None => cost(shape),
    };
    let keys = attention.visible_keys(context.seq as u64, true);
    match *attention {
        Attention::Standard { heads, kv_heads, head_dim, v_head_dim, .. } => {
            softmax(&shape(heads, kv_heads, head_dim as f64, v_head_dim as f64, keys))
        }
        Attention::Latent {
            heads,
            qk_nope_dim,
            qk_rope_dim,
            v_dim,
            sparse_topk,
            index_heads,
            index_dim,
            ..
        } => {
            let main = softmax(&shape(heads, heads, (qk_nope_dim + qk_rope_dim) as f64, v_dim as f64, keys));
            if sparse_topk.is_none() || index_heads == 0 {
                return main;
            }
            let index = softmax(&shape(index_heads, 1, index_dim as f64, 0.0, context.seq * 0.5));
            ForwardBackward {
                forward: main.forward + index.forward,
                backward: main.backward + index.backward,
            }
        }
        Attention::Linear { v_heads, k_dim, v_dim, .. } => {
            let heads = v_heads as f64 / context.tp;
            linear_attention(gpu, context.tokens, heads, k_dim as f64, v_dim as f64)
        }
    }
}

fn rotary(context: &LayerContext, attention: &Attention) -> Passes {
    let width = match *attention {
        Attention::Standard { heads, kv_heads, head_dim, .. } => {
            heads as f64 * head_dim as f64 / context.tp + kv_width(context, kv_heads, head_dim)
        }
        Attention::Latent { heads, qk_rope_dim, .. } => (heads * qk_rope_dim) as f64 / context.tp,
        Attention::Linear { .. } => 0.0,
    };
    let rotary = stream(context.gpu, Bytes(ROTARY_BYTES * context.tokens * width));
    Passes::kernels(rotary, rotary)
}

/// Exposed time of bringing keys and values (or heads) to the queries; `volumes` is 1 for a forward and 2 for a
/// backward, which moves keys, values and their gradients.
fn exchange(context: &LayerContext, attention: &Attention, core: Seconds, volumes: f64) -> Seconds {
    if context.cp <= 1.0 {
        return Seconds::ZERO;
    }
    let (queries, keys_values) = exchanged_widths(context, attention);
    let fabric = context.cp_fabric();
    let group = context.cp_group;
    match context.context_exchange() {
        ContextExchange::AllToAll => {
            let widths = 2.0 * queries + keys_values;
            fabric.time_in_buckets(
                Collective::AllToAll,
                Bytes(context.element_bytes() * context.tokens * widths),
                group,
                4.0,
            )
        }
        ContextExchange::Gather => {
            let bytes = Bytes(context.element_bytes() * context.cp * context.tokens * keys_values);
            fabric.time(Collective::AllGather, bytes, group) * volumes
        }
        ContextExchange::Ring => {
            let step = fabric
                .ring_step(Bytes(context.element_bytes() * context.tokens * keys_values * volumes), group);
            let exposed = (step - core / context.cp).max(Seconds::ZERO);
            (exposed + step * RING_INTERFERENCE) * (context.cp - 1.0)
        }
    }
}

/// Width of queries and of keys and values on a rank. Linear attention passes its state instead, which is small.
fn exchanged_widths(context: &LayerContext, attention: &Attention) -> (f64, f64) {
    match *attention {
        Attention::Standard { heads, kv_heads, head_dim, v_head_dim, .. } => {
            let keys_values = kv_width(context, kv_heads, head_dim) + kv_width(context, kv_heads, v_head_dim);
            (heads as f64 * head_dim as f64 / context.tp, keys_values)
        }
        Attention::Latent { heads, qk_nope_dim, qk_rope_dim, v_dim, .. } => {
            let local = heads as f64 / context.tp;
            let qk = (qk_nope_dim + qk_rope_dim) as f64;
            (local * qk, local * (qk + v_dim as f64))
        }
        Attention::Linear { .. } => (0.0, 0.0),
    }
}
