//! MiMo-7B: Qwen2's block with multi-token prediction.

use super::common::*;
use super::qwen2::window_spans;

pub(super) const FAMILY: Family = Family { model_types: &["mimo"], read };

fn read(f: &Fields) -> ModelSpec {
    let attention = grouped_attention(f).with_biases(f.flag("attention_bias", true), false);
    let block = |span| plain_block(windowed(f, attention, span), gated_mlp(f));
    let blocks: Vec<Block> = window_spans(f).into_iter().map(block).collect();
    let mtp = mtp_blocks(f, MTP_KEYS, &blocks);
    model_with_mtp(f, Norm::Rms, false, blocks, mtp)
}
