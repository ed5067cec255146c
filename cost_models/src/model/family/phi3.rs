//! Phi-3 and Phi-4: Llama's block with an optional sliding window.

use super::common::*;

pub(super) const FAMILY: Family = Family { model_types: &["phi3"], read };

fn read(f: &Fields) -> ModelSpec {
    let window = f.optional_size("sliding_window", TOKENS);
    let bias = f.flag("attention_bias", false);
    let attention = attention(f).with_window(window, false).with_biases(bias, bias);
    uniform(f, Norm::Rms, false, plain_block(attention, gated_mlp(f)))
}
