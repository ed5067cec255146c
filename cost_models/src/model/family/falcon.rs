//! Falcon, old decoder (one key-value head, one norm) and new (grouped heads, a norm for each part).

use super::common::*;
use super::gpt2::inner_mlp;

pub(super) const FAMILY: Family =
    Family { model_types: &["falcon", "RefinedWebModel", "RefinedWeb"], read };

fn read(f: &Fields) -> ModelSpec {
    let new = f.flag("new_decoder_architecture", f.text("model_type") == Some("RefinedWeb"));
    let kv_heads = match (new, f.flag("multi_query", true)) {
        (true, _) => f.size_or(KV_HEAD_KEYS, HEADS, heads(f)),
        (false, true) => 1,
        (false, false) => heads(f),
    };
    let bias = f.flag("bias", false);
    let block = Block {
        attention: attention_of(f, kv_heads).with_biases(bias, bias),
        mlp: inner_mlp(f, "gelu"),
        norms: norms(f, new),
        mlp_bias: bias,
    };
    uniform(f, Norm::Layer, true, block)
}

/// Parallel parts share one norm in the old decoder, and by `num_ln_in_parallel_attn` in the new one.
fn norms(f: &Fields, new: bool) -> u32 {
    match (f.flag("parallel_attn", true), new) {
        (false, _) => 2,
        (true, false) => 1,
        (true, true) => f.size_or("num_ln_in_parallel_attn", Limit(2), 2) as u32,
    }
}
