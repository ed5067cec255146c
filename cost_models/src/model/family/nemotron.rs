//! Nemotron-3 and 4: squared ReLU without a gate, layer norms.

use super::common::*;

pub(super) const FAMILY: Family = Family { model_types: &["nemotron"], read };

fn read(f: &Fields) -> ModelSpec {
    let bias = f.flag("attention_bias", false);
    let block = Block {
        attention: attention(f).with_biases(bias, bias),
        mlp: Mlp::Dense { ffn: ffn(f), activation: plain(f, "relu2") },
        norms: 2,
        mlp_bias: f.flag("mlp_bias", false),
    };
    uniform(f, Norm::Layer, false, block)
}
