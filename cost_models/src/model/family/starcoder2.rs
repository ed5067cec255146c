//! StarCoder2: grouped queries, biases, an optional sliding window.

use super::common::*;

pub(super) const FAMILY: Family = Family { model_types: &["starcoder2"], read };

fn read(f: &Fields) -> ModelSpec {
    let bias = f.flag("use_bias", true);
    let window = f.optional_size("sliding_window", TOKENS);
    let block = Block {
        attention: grouped_attention(f).with_biases(bias, bias).with_window(window, false),
        mlp: Mlp::Dense { ffn: ffn(f), activation: plain(f, "gelu_pytorch_tanh") },
        norms: 2,
        mlp_bias: bias,
    };
    uniform(f, Norm::Layer, true, block)
}
