//! ERNIE 4.5, dense and MoE: leading dense blocks, shared and routed experts with a correction bias.

use super::common::*;

pub(super) const FAMILY: Family = Family { model_types: &["ernie4_5", "ernie4_5_moe"], read };

fn read(f: &Fields) -> ModelSpec {
    let bias = f.flag("use_bias", false);
    let attention = grouped_attention(f).with_biases(bias, bias);
    let routes = f.has("moe_num_experts") || f.text("model_type") == Some("ernie4_5_moe");
    let block = |index| Block {
        mlp_bias: bias,
        ..plain_block(attention, if routes && is_sparse(f, index) { experts(f) } else { gated_mlp(f) })
    };
    let blocks: Vec<Block> = (0..layer_count(f)).map(block).collect();
    let mtp = mtp_blocks(f, MTP_KEYS, &blocks);
    ModelSpec { head_bias: bias && routes, ..model_with_mtp(f, Norm::Rms, true, blocks, mtp) }
}

/// Blocks `moe_layer_start_index` to `moe_layer_end_index`, every `moe_layer_interval`-th.
fn is_sparse(f: &Fields, index: u64) -> bool {
    let first = if f.has("moe_layer_start_index") { f.count("moe_layer_start_index", LAYERS) } else { 1 };
    let last = match f.value("moe_layer_end_index").and_then(serde_json::Value::as_i64) {
        None | Some(-1) => layer_count(f) - 1,
        Some(_) => f.count("moe_layer_end_index", LAYERS),
    };
    let interval = f.size_or("moe_layer_interval", LAYERS, 1);
    (first..=last).contains(&index) && (index + 1).is_multiple_of(interval)
}

fn experts(f: &Fields) -> Mlp {
    let shared = f.count("moe_num_shared_experts", EXPERTS).saturating_mul(f.count("moe_intermediate_size", FFN));
    routed(f, "moe_num_experts|num_experts", "moe_intermediate_size")
        .with_shared(shared, false)
        .with_router(true, false)
}
