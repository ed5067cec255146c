//! SmolLM3: Llama's block, every fourth without rotary positions, one matrix for embedding and head.

use super::common::*;

pub(super) const FAMILY: Family = Family { model_types: &["smollm3"], read };

fn read(f: &Fields) -> ModelSpec {
    let bias = f.flag("attention_bias", false);
    let attention = grouped_attention(f).with_biases(bias, bias);
    let mlp_bias = f.flag("mlp_bias", false);
    let block = |span| Block { mlp_bias, ..plain_block(windowed(f, attention, span), gated_mlp(f)) };
    model(f, Norm::Rms, true, spans(f, |_| Span::Full).into_iter().map(block).collect())
}
