//! GPT-2 and GPT-BigCode: learned positions, biases everywhere; one key-value head in BigCode.

use super::common::*;

pub(super) const FAMILY: Family = Family { model_types: &["gpt2", "gpt_bigcode", "gpt-sw3"], read };

fn read(f: &Fields) -> ModelSpec {
    let one_head = f.text("model_type") == Some("gpt_bigcode") && f.flag("multi_query", true);
    let kv_heads = if one_head { 1 } else { heads(f) };
    let block = Block {
        attention: attention_of(f, kv_heads).with_biases(true, true),
        mlp: inner_mlp(f, "gelu_new"),
        norms: 2,
        mlp_bias: true,
    };
    let positions = f.size("n_positions|max_position_embeddings|n_ctx", Limit(1 << 30));
    ModelSpec { learned_positions: Some(positions), ..uniform(f, Norm::Layer, true, block) }
}

/// Inner width `n_inner`, four times the hidden width if not stated.
pub(super) fn inner_mlp(f: &Fields, activation: &str) -> Mlp {
    let ffn = f.size_or("n_inner|intermediate_size|ffn_hidden_size", FFN, 4 * hidden(f));
    Mlp::Dense { ffn, activation: plain(f, activation) }
}
