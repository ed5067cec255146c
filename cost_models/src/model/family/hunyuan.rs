//! Hunyuan dense and MoE: norms on query and key heads; per-block lists for the experts.

use super::common::*;
use serde_json::Value;

pub(super) const FAMILY: Family = Family { model_types: &["hunyuan_v1_dense", "hunyuan_v1_moe", "hunyuan"], read };

fn read(f: &Fields) -> ModelSpec {
    let bias = f.flag("attention_bias", false);
    let attention = attention(f).with_biases(bias, bias).with_head_norms(f.flag("use_qk_norm", true));
    let routes = f.text("model_type") == Some("hunyuan_v1_moe") || f.count("num_experts", EXPERTS) > 1;
    let block = |index| plain_block(attention, if routes { experts(f, index) } else { gated_mlp(f) });
    model(f, Norm::Rms, false, (0..layer_count(f)).map(block).collect())
}

fn experts(f: &Fields, index: u64) -> Mlp {
    let experts = f.size("num_experts|num_local_experts", EXPERTS);
    let topk = per_block(f, "moe_topk|num_experts_per_tok", index, HEADS).unwrap_or(1);
    if topk > experts {
        f.fault(format!("moe_topk is {topk}, more than num_experts {experts}"));
    }
    let width = per_block(f, "moe_intermediate_size", index, FFN).unwrap_or_else(|| ffn(f));
    let shared = per_block(f, "num_shared_expert", index, EXPERTS).unwrap_or(1);
    Mlp::routed(experts, topk, width).with_shared(shared.saturating_mul(ffn(f)), false)
}

/// A number, or a list with one number per block.
fn per_block(f: &Fields, key: &str, index: u64, limit: Limit) -> Option<u64> {
    match f.value(key)? {
        Value::Array(list) => {
            check_length(f, f.key(key), list);
            list.get(index as usize).map(|value| f.item(key, value, limit))
        }
        _ => f.optional_size(key, limit),
    }
}
