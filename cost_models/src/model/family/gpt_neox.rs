//! GPT-NeoX and Pythia: rotary positions, biases everywhere, separate head.

use super::common::*;

pub(super) const FAMILY: Family = Family { model_types: &["gpt_neox"], read };

fn read(f: &Fields) -> ModelSpec {
    let bias = f.flag("attention_bias", true);
    let block = Block {
        attention: attention_of(f, heads(f)).with_biases(bias, bias),
        mlp: Mlp::Dense { ffn: ffn(f), activation: plain(f, "gelu") },
        norms: 2,
        mlp_bias: true,
    };
    uniform(f, Norm::Layer, false, block)
}
