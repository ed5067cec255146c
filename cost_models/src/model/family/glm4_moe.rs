//! GLM-4.5 to 4.7: leading dense blocks, shared and routed experts, multi-token prediction.

use super::common::*;

pub(super) const FAMILY: Family =
    Family { model_types: &["glm4_moe", "glm4v_moe", "glm4v_moe_text"], read };

fn read(f: &Fields) -> ModelSpec {
    let attention = grouped_attention(f)
        .with_biases(f.flag("attention_bias", false), false)
        .with_head_norms(f.flag("use_qk_norm", false));
    let leading = leading_dense(f);
    let block = |index| plain_block(attention, if index < leading { gated_mlp(f) } else { experts(f) });
    let blocks: Vec<Block> = (0..layer_count(f)).map(block).collect();
    let mtp = mtp_blocks(f, MTP_KEYS, &blocks);
    model_with_mtp(f, Norm::Rms, false, blocks, mtp)
}

fn experts(f: &Fields) -> Mlp {
    routed(f, "n_routed_experts|num_local_experts", "moe_intermediate_size")
        .with_shared(shared_width(f), false)
        .with_router(true, true)
        .with_group_limit(group_limit(f))
}
