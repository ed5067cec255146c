//! Command-R: attention and MLP behind one norm without bias; three of four blocks slide in Command-R7B and A.

use super::common::*;

pub(super) const FAMILY: Family = Family { model_types: &["cohere", "cohere2"], read };

fn read(f: &Fields) -> ModelSpec {
    let bias = f.flag("attention_bias", false);
    let attention = attention(f).with_biases(bias, bias).with_full_norms(f.flag("use_qk_norm", false));
    let block = |span| Block { norms: 1, ..plain_block(windowed(f, attention, span), gated_mlp(f)) };
    let slides = f.text("model_type") == Some("cohere2");
    let every = if slides { f.size_or("sliding_window_pattern", LAYERS, 4) } else { 1 };
    let blocks = spans(f, every_nth_full(every)).into_iter().map(block).collect();
    model(f, Norm::LayerWithoutBias, true, blocks)
}
