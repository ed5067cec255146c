//! Granite and Granite-MoE: Llama's block, experts and shared experts in the MoE models.

use super::common::*;

pub(super) const FAMILY: Family =
    Family { model_types: &["granite", "granitemoe", "granitemoeshared"], read };

fn read(f: &Fields) -> ModelSpec {
    let bias = f.flag("attention_bias", false);
    let routes = f.text("model_type").is_some_and(|name| name.starts_with("granitemoe"));
    let mlp = if routes {
        routed(f, "num_local_experts", "intermediate_size")
            .with_shared(f.count("shared_intermediate_size", FFN), false)
    } else {
        gated_mlp(f)
    };
    let attention = attention(f).with_biases(bias, bias);
    let block = Block { mlp_bias: f.flag("mlp_bias", false), ..plain_block(attention, mlp) };
    uniform(f, Norm::Rms, false, block)
}
