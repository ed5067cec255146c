//! Qwen3, Qwen3-MoE and the text part of Qwen3-VL: norms on the heads of queries and keys.

use super::common::*;
use super::qwen2::{qwen_mlp, window_spans};

pub(super) const FAMILY: Family = Family {
    model_types: &[
        "qwen3",
        "qwen3_moe",
        "qwen3_vl",
        "qwen3_vl_text",
        "qwen3_vl_moe",
        "qwen3_vl_moe_text",
        "qwen3_omni_moe_text",
        "qwen3_omni_moe_talker_text",
    ],
    read,
};

fn read(f: &Fields) -> ModelSpec {
    let bias = f.flag("attention_bias", false);
    let head_dim = f.size_or("head_dim", WIDTH, 128);
    let attention = checked_attention(f, f.size(KV_HEAD_KEYS, HEADS), head_dim)
        .with_biases(bias, bias)
        .with_head_norms(true);
    let block = |(index, span)| plain_block(windowed(f, attention, span), qwen_mlp(f, index));
    model(f, Norm::Rms, false, (0..).zip(window_spans(f)).map(block).collect())
}
