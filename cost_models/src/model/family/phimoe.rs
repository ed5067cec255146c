//! Phi-3.5-MoE: sixteen experts, layer norms, biases on attention and head.

use super::common::*;

pub(super) const FAMILY: Family = Family { model_types: &["phimoe"], read };

fn read(f: &Fields) -> ModelSpec {
    let bias = f.flag("attention_bias", false);
    let attention = grouped_attention(f)
        .with_biases(bias, bias)
        .with_window(f.optional_size("sliding_window", TOKENS), false);
    let mlp = routed(f, "num_local_experts|num_experts", "intermediate_size");
    let head_bias = f.flag("lm_head_bias", false);
    ModelSpec { head_bias, ..uniform(f, Norm::Layer, false, plain_block(attention, mlp)) }
}
