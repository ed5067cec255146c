//! StableLM: layer norms, optional biases on queries, keys and values, optional norms on their heads.

use super::common::*;

pub(super) const FAMILY: Family = Family { model_types: &["stablelm", "stablelm_epoch"], read };

fn read(f: &Fields) -> ModelSpec {
    let attention = attention(f)
        .with_biases(f.flag("use_qkv_bias", false), false)
        .with_full_norms(f.flag("qk_layernorm", false));
    let norms = if f.flag("use_parallel_residual", false) { 1 } else { 2 };
    uniform(f, Norm::Layer, false, Block { norms, ..plain_block(attention, gated_mlp(f)) })
}
