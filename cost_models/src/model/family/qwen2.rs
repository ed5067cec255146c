//! Qwen2, Qwen2.5 and Qwen2-MoE: biases on query, key and value; shared and routed experts in the MoE models.

use super::common::*;

pub(super) const FAMILY: Family = Family {
    model_types: &[
        "qwen2",
        "qwen2_moe",
        "qwen2_vl",
        "qwen2_vl_text",
        "qwen2_5_vl",
        "qwen2_5_vl_text",
        "qwen2_audio",
        "qwen2_5_omni_text",
    ],
    read,
};

fn read(f: &Fields) -> ModelSpec {
    let attention = grouped_attention(f).with_biases(f.flag("qkv_bias", true), false);
    let block = |(index, span)| plain_block(windowed(f, attention, span), qwen_mlp(f, index));
    model(f, Norm::Rms, false, (0..).zip(window_spans(f)).map(block).collect())
}

/// With `use_sliding_window`, the blocks from `max_window_layers` on slide.
pub(super) fn window_spans(f: &Fields) -> Vec<Span> {
    let slides = f.flag("use_sliding_window", false) && f.has("sliding_window");
    let first = if slides { f.count("max_window_layers", LAYERS) } else { 0 };
    spans(f, |index| if slides && index >= first { Span::Sliding } else { Span::Full })
}

/// Experts in every `decoder_sparse_step`-th block that is not in `mlp_only_layers`; a dense MLP elsewhere.
pub(super) fn qwen_mlp(f: &Fields, index: u64) -> Mlp {
    const EXPERT_KEYS: &str = "num_experts|num_local_experts";
    const SHARING: [&str; 3] = ["qwen2_moe", "qwen3_next", "qwen3_5_moe"];
    const SHARED_KEY: &str = "shared_expert_intermediate_size";
    let step = f.size_or("decoder_sparse_step", LAYERS, 1);
    let dense = indices(f, "mlp_only_layers").unwrap_or_default();
    let sparse_type = f.text("model_type").is_some_and(|name| name.contains("_moe") || name.contains("_next"));
    let routes = sparse_type || f.count(EXPERT_KEYS, EXPERTS) > 0;
    if !routes || dense.contains(&index) || !(index + 1).is_multiple_of(step) {
        return gated_mlp(f);
    }
    let shares = f.text("model_type").is_some_and(|name| SHARING.iter().any(|start| name.starts_with(start)));
    let shared = if shares { f.stated_count(SHARED_KEY, FFN) } else { f.count(SHARED_KEY, FFN) };
    routed(f, EXPERT_KEYS, "moe_intermediate_size").with_shared(shared, true)
}
