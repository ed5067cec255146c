//! Llama and the models that only rename it (Yi, most of DeepSeek LLM and others use its type).

use super::common::*;

pub(super) const FAMILY: Family = Family { model_types: &["llama", "Yi", "yi", "aquila"], read };

fn read(f: &Fields) -> ModelSpec {
    let bias = f.flag("attention_bias", false);
    let block = Block {
        attention: attention(f).with_biases(bias, bias),
        mlp: gated_mlp(f),
        norms: 2,
        mlp_bias: f.flag("mlp_bias", false),
    };
    uniform(f, Norm::Rms, false, block)
}
