//! gpt-oss: attention sinks, every other block slides, biased experts with a clamped activation.

use super::common::*;

pub(super) const FAMILY: Family = Family { model_types: &["gpt_oss"], read };

fn read(f: &Fields) -> ModelSpec {
    let bias = f.flag("attention_bias", true);
    let head_dim = f.size("head_dim", WIDTH);
    let attention = checked_attention(f, f.size(KV_HEAD_KEYS, HEADS), head_dim)
       .with_biases(bias, bias).with_sinks(true);
    let mlp = routed(f, "num_local_experts|num_experts", "intermediate_size")
        .with_activation(Activation::ClampedSwiglu)
        .with_expert_bias(true)
        .with_router(true, false);
    let block = |span| plain_block(windowed(f, attention, span), mlp);
    model(f, Norm::Rms, false, spans(f, every_nth_full(2)).into_iter().map(block).collect())
}
