//! MiniMax-M2: norms over all query and all key heads, sigmoid routing with a bias per expert.

use super::common::*;

pub(super) const FAMILY: Family = Family { model_types: &["minimax_m2"], read };

fn read(f: &Fields) -> ModelSpec {
    let head_dim = f.size("head_dim", WIDTH);
    let attention = checked_attention(f, f.size(KV_HEAD_KEYS, HEADS), head_dim)
       .with_full_norms(f.flag("use_qk_norm", true));
    let mlp = routed(f, "num_local_experts|num_experts", "intermediate_size")
        .with_shared(f.count("shared_intermediate_size", FFN), false)
        .with_router(f.flag("use_routing_bias", true), true);
    let blocks = vec![plain_block(attention, mlp); layer_count(f) as usize];
    let mtp = if f.flag("use_mtp", false) { mtp_stack(f, &blocks) } else { Vec::new() };
    model_with_mtp(f, Norm::Rms, false, blocks, mtp)
}

/// `num_mtp_modules` modules of `mtp_transformer_layers` blocks.
fn mtp_stack(f: &Fields, blocks: &[Block]) -> Vec<Block> {
    let per_module = f.size_or("mtp_transformer_layers", Limit(64), 1) as usize;
    let modules = mtp_blocks(f, "num_mtp_modules", blocks);
    modules.into_iter().flat_map(|block| vec![block; per_module]).collect()
}
