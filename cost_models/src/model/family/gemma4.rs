//! Gemma 4: wider heads and shared keys and values in full blocks, a dense MLP beside the experts.

use super::common::*;

pub(super) const FAMILY: Family = Family { model_types: &["gemma4_text", "gemma4"], read };

fn read(f: &Fields) -> ModelSpec {
    refuse_unplanned(f);
    let routes = f.flag("enable_moe_block", false);
    let (mlp, norms) = if routes { (experts(f), ROUTED_NORMS) } else { (dense(f), 4) };
    let block = |span| Block { norms, ..plain_block(attention_in(f, span), mlp) };
    let mut spans = spans(f, every_nth_full(6));
    if let Some(last) = spans.last_mut() {
        *last = Span::Full;
    }
    model(f, Norm::Rms, true, spans.into_iter().map(block).collect())
}

/// Four norms as in Gemma 3, three more around the experts, and the router's scale over the hidden width.
const ROUTED_NORMS: u32 = 8;

fn dense(f: &Fields) -> Mlp {
    Mlp::Dense { ffn: ffn(f), activation: Activation::Geglu }
}

/// The router also has one scale per expert.
fn experts(f: &Fields) -> Mlp {
    routed(f, "num_experts", "moe_intermediate_size")
        .with_activation(Activation::Geglu)
        .with_router(true, false)
        .with_dense(ffn(f))
}

fn attention_in(f: &Fields, span: Span) -> Attention {
    let (kv_heads, head_dim) = (f.size(KV_HEAD_KEYS, HEADS), f.size_or("head_dim", WIDTH, 256));
    let bias = f.flag("attention_bias", false);
    if span == Span::Sliding {
        let sliding = checked_attention(f, kv_heads, head_dim).with_biases(bias, bias).with_head_norms(true);
        return windowed(f, sliding, span);
    }
    let shared = f.flag("attention_k_eq_v", false);
    let kv_heads = if shared { f.size_or("num_global_key_value_heads", HEADS, kv_heads) } else { kv_heads };
    checked_attention(f, kv_heads, f.size_or("global_head_dim", WIDTH, 512))
        .with_biases(bias, bias)
        .with_head_norms(true)
        .with_shared_kv(shared)
}

/// Per-layer embeddings and keys shared across layers (the E2B and E4B models) have no place in a [`ModelSpec`].
fn refuse_unplanned(f: &Fields) {
    for key in ["hidden_size_per_layer_input", "num_kv_shared_layers"] {
        let count = f.count(key, WIDTH);
        if count > 0 {
            f.fault(format!("{key} is {count}: such models are not planned, expected 0"));
        }
    }
}
