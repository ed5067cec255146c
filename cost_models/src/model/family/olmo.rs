//! OLMo 1 (norms without weights), OLMo 2 and 3 (norms after both parts and over all query and key heads), OLMoE.

use super::common::*;

pub(super) const FAMILY: Family = Family { model_types: &["olmo", "olmo2", "olmo3", "olmoe"], read };

fn read(f: &Fields) -> ModelSpec {
    let bias = f.flag("attention_bias", false);
    let first = f.text("model_type") == Some("olmo");
    let attention = attention(f).with_biases(bias, bias).with_full_norms(!first);
    let mlp = if f.has("num_experts") || f.text("model_type") == Some("olmoe") {
        routed(f, "num_experts", "intermediate_size")
    } else {
        gated_mlp(f)
    };
    let block = |span| plain_block(windowed(f, attention, span), mlp);
    let slides = f.text("model_type") == Some("olmo3") && f.has("sliding_window");
    let rule = every_nth_full(if slides { 4 } else { 1 });
    let norm = if first { Norm::LayerWithoutWeights } else { Norm::Rms };
    model(f, norm, false, spans(f, rule).into_iter().map(block).collect())
}
