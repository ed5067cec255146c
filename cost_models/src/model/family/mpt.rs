//! MPT: ALiBi positions, no biases, one matrix for embedding and head.

use super::common::*;

pub(super) const FAMILY: Family = Family { model_types: &["mpt"], read };

fn read(f: &Fields) -> ModelSpec {
    let ffn = hidden(f).saturating_mul(f.size_or("expansion_ratio", Limit(64), 4));
    let mlp = Mlp::Dense { ffn, activation: Activation::Gelu };
    let own_heads = |part: &Fields| part.optional_size("kv_n_heads", HEADS);
    let kv_heads = if f.has("attn_config") { f.part("attn_config", own_heads).flatten() } else { None };
    let attention = attention_of(f, kv_heads.unwrap_or_else(|| heads(f)));
    uniform(f, Norm::LayerWithoutBias, true, plain_block(attention, mlp))
}
