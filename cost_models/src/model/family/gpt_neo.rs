//! GPT-Neo: learned positions, every other block sees 256 tokens, no biases on queries, keys and values.

use super::common::*;
use super::gpt2::inner_mlp;

pub(super) const FAMILY: Family = Family { model_types: &["gpt_neo"], read };

fn read(f: &Fields) -> ModelSpec {
    let window = f.size_or("window_size", TOKENS, 256);
    let local = locals(f);
    let block = |index: u64| {
        let is_local = local[index as usize % local.len()];
        let attention = attention_of(f, heads(f)).with_biases(false, true).with_window(is_local.then_some(window), false);
        Block { attention, mlp: inner_mlp(f, "gelu_new"), norms: 2, mlp_bias: true }
    };
    let positions = f.size("max_position_embeddings", Limit(1 << 30));
    let blocks = (0..layer_count(f)).map(block).collect();
    ModelSpec { learned_positions: Some(positions), ..model(f, Norm::Layer, true, blocks) }
}

/// The pattern of `attention_layers`, else global and local in turn.
fn locals(f: &Fields) -> Vec<bool> {
    match f.list("attention_layers") {
        Some(list) if !list.is_empty() => list.iter().map(|kind| kind.as_str() == Some("local")).collect(),
        _ => vec![false, true],
    }
}
