//! GLM-4: biases on query, key and value; norms before and after both parts in the 0414 models.

use super::common::*;

pub(super) const FAMILY: Family = Family { model_types: &["glm", "glm4"], read };

fn read(f: &Fields) -> ModelSpec {
    let head_dim = f.size_or("head_dim", WIDTH, 128);
    let attention = checked_attention(f, f.size(KV_HEAD_KEYS, HEADS), head_dim)
        .with_biases(f.flag("attention_bias", true), false);
    let norms = if f.text("model_type") == Some("glm4") { 4 } else { 2 };
    uniform(f, Norm::Rms, false, Block { norms, ..plain_block(attention, gated_mlp(f)) })
}
