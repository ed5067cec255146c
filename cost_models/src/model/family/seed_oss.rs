//! Seed-OSS: biases on query, key and value, heads wider than the hidden width divides into.

use super::common::*;

pub(super) const FAMILY: Family = Family { model_types: &["seed_oss"], read };

fn read(f: &Fields) -> ModelSpec {
    let attention =
        checked_attention(f, f.size(KV_HEAD_KEYS, HEADS), f.size("head_dim", WIDTH)).with_biases(f.flag("attention_bias", true), f.flag("attention_out_bias", false));
    let block = Block { mlp_bias: f.flag("mlp_bias", false), ..plain_block(attention, gated_mlp(f)) };
    uniform(f, Norm::Rms, false, block)
}
