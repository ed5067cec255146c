//! DeepSeek-V2, V3, R1 and V3.2, Kimi-K2, GLM-5: latent attention, leading dense blocks, shared and routed experts,
//! multi-token prediction; in the later ones an indexer that selects keys.

use super::common::*;

pub(super) const FAMILY: Family = Family {
    model_types: &[
        "deepseek_v3",
        "deepseek_v2",
        "deepseek_v32",
        "kimi_k2",
        "kimi_k25",
        "glm_moe_dsa",
        "glm4_moe_lite",
    ],
    read,
};

fn read(f: &Fields) -> ModelSpec {
    let sparse = f.has("index_topk") || matches!(f.text("model_type"), Some("deepseek_v32" | "glm_moe_dsa"));
    let indexers = if sparse { indexers(f) } else { vec![true; layer_count(f) as usize] };
    let dense = dense_blocks(f);
    let block = |(own, dense): (&bool, &bool)| Block {
        attention: if sparse { indexed(f, *own) } else { latent(f) },
        mlp: if *dense { gated_mlp(f) } else { experts(f) },
        norms: 2,
        mlp_bias: false,
    };
    let blocks: Vec<Block> = indexers.iter().zip(&dense).map(block).collect();
    let mtp = mtp_blocks(f, MTP_KEYS, &blocks);
    model_with_mtp(f, Norm::Rms, false, blocks, mtp)
}

/// Which blocks have a dense MLP: `mlp_layer_types`, or the first ones, and those that `moe_layer_freq` skips.
fn dense_blocks(f: &Fields) -> Vec<bool> {
    if let Some(stated) = named_layers(f, "mlp_layer_types", &[("dense", true), ("sparse", false)]) {
        return stated;
    }
    let (leading, layers) = (leading_dense(f), layer_count(f));
    let every = f.size_or("moe_layer_freq", LAYERS, 1);
    (0..layers).map(|index| index < leading || !index.is_multiple_of(every)).collect()
}

fn experts(f: &Fields) -> Mlp {
    let later = f.text("model_type") != Some("deepseek_v2");
    let corrects = f.text("topk_method").map_or(later, |method| method == "noaux_tc");
    let sigmoid = f.text("scoring_func").map_or(later, |function| function == "sigmoid");
    routed(f, "n_routed_experts|num_experts|num_local_experts", "moe_intermediate_size")
        .with_shared(shared_width(f), false)
        .with_router(corrects, sigmoid)
        .with_group_limit(group_limit(f))
}

/// Latent attention over selected keys, by an indexer of its own or by an earlier block's selection.
fn indexed(f: &Fields, own: bool) -> Attention {
    let mut attention = latent(f);
    if let Attention::Latent { sparse_topk, index_heads, index_dim, .. } = &mut attention {
        *sparse_topk = Some(f.size("index_topk", TOKENS));
        if own {
            *index_heads = f.size("index_n_heads", HEADS);
            *index_dim = f.size("index_head_dim", WIDTH);
        }
    }
    attention
}

/// Which blocks run an indexer: `indexer_types`, else every `index_topk_freq`-th from `index_skip_topk_offset` on.
fn indexers(f: &Fields) -> Vec<bool> {
    if let Some(stated) = named_layers(f, "indexer_types", &[("full", true), ("shared", false)]) {
        return stated;
    }
    let every = f.size_or("index_topk_freq", LAYERS, 1);
    let offset = if f.has("index_skip_topk_offset") { f.count("index_skip_topk_offset", LAYERS) } else { 2 };
    (0..layer_count(f)).map(|index| (index + 1).saturating_sub(offset).is_multiple_of(every)).collect()
}
