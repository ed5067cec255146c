//! Mistral, Ministral and Mixtral: grouped queries, an optional sliding window, experts in Mixtral.

use super::common::*;

pub(super) const FAMILY: Family =
    Family { model_types: &["mistral", "mixtral", "ministral", "ministral3", "mistral_text"], read };

fn read(f: &Fields) -> ModelSpec {
    let window = f.optional_size("sliding_window", TOKENS);
    let mlp = if f.has("num_local_experts") || f.text("model_type") == Some("mixtral") {
        routed(f, "num_local_experts|num_experts", "intermediate_size")
    } else {
        gated_mlp(f)
    };
    let block = |span| {
        let attention = grouped_attention(f);
        plain_block(if span == Span::Full { attention } else { attention.with_window(window, false) }, mlp)
    };
    let rule = |_| if window.is_some() { Span::Sliding } else { Span::Full };
    model(f, Norm::Rms, false, spans(f, rule).into_iter().map(block).collect())
}
