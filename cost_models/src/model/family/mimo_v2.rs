//! MiMo-V2: most blocks slide with sinks and heads of their own; values narrower than keys; routed experts.

use super::common::*;

pub(super) const FAMILY: Family = Family { model_types: &["mimo_v2_flash", "mimo_v2"], read };

fn read(f: &Fields) -> ModelSpec {
    let dense = dense_blocks(f);
    let mlp = |index: usize| if dense.get(index) == Some(&true) { gated_mlp(f) } else { experts(f) };
    let block = |(index, span)| plain_block(attention_in(f, span), mlp(index));
    let blocks: Vec<Block> = block_spans(f).into_iter().enumerate().map(block).collect();
    let mtp = mtp_blocks(f, MTP_KEYS, &blocks);
    model_with_mtp(f, Norm::Rms, false, blocks, mtp)
}

fn attention_in(f: &Fields, span: Span) -> Attention {
    let bias = f.flag("attention_bias", false);
    let kv_heads = f.size(KV_HEAD_KEYS, HEADS);
    let head_dim = f.size_or("head_dim", WIDTH, 192);
    let value = f.size_or("v_head_dim", WIDTH, 128);
    if span == Span::Full {
        let sinks = f.flag("add_full_attention_sink_bias", false);
        return checked_attention(f, kv_heads, head_dim).with_value_width(value).with_biases(bias, false).with_sinks(sinks);
    }
    let kv_heads = f.size_or("swa_num_key_value_heads", HEADS, 2 * kv_heads);
    let attention = checked_attention(f, kv_heads, f.size_or("swa_head_dim", WIDTH, head_dim))
        .with_value_width(f.size_or("swa_v_head_dim", WIDTH, value))
        .with_biases(bias, false)
        .with_sinks(f.flag("add_swa_attention_sink_bias", true));
    attention.with_window(Some(f.size("sliding_window|sliding_window_size", TOKENS)), false)
}

/// `layer_types`, or `hybrid_layer_pattern` (1 slides), or full in the first and every sixth block.
fn block_spans(f: &Fields) -> Vec<Span> {
    if let Some(list) = f.list("hybrid_layer_pattern") {
        check_length(f, "hybrid_layer_pattern", list);
        return list.iter().map(|kind| if kind.as_u64() == Some(1) { Span::Sliding } else { Span::Full }).collect();
    }
    let rule = every_nth_full(6);
    spans(f, |index| if index == 0 { Span::Full } else { rule(index) })
}

/// `mlp_layer_types`, or the list `moe_layer_freq` (1 has experts), or only the first block.
fn dense_blocks(f: &Fields) -> Vec<bool> {
    if f.value("moe_layer_freq").is_some_and(serde_json::Value::is_array) {
        let list = f.list("moe_layer_freq").unwrap_or_default();
        check_length(f, "moe_layer_freq", list);
        return list.iter().map(|routes| routes.as_u64() == Some(0)).collect();
    }
    named_layers(f, "mlp_layer_types", &[("dense", true), ("sparse", false)])
        .unwrap_or_else(|| (0..layer_count(f)).map(|index| index == 0).collect())
}

fn experts(f: &Fields) -> Mlp {
    routed(f, "n_routed_experts|num_local_experts", "moe_intermediate_size")
        .with_router(true, true)
        .with_group_limit(group_limit(f))
}
