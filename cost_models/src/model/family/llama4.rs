//! Llama 4: chunked attention in three of four blocks, experts in all or every other block, one shared expert.

use super::common::*;

pub(super) const FAMILY: Family = Family { model_types: &["llama4", "llama4_text"], read };

fn read(f: &Fields) -> ModelSpec {
    let bias = f.flag("attention_bias", false);
    let attention = grouped_attention(f).with_biases(bias, bias);
    let normed = f.flag("use_qk_norm", true);
    let routes = moe_blocks(f);
    let block = |(index, span): (u64, Span)| {
        let rotary = span != Span::Full;
        let window = if span == Span::Chunked { chunk(f) } else { None };
        let attention = attention.with_window(window, true).with_qk_norm(normed && rotary, 0);
        plain_block(attention, if routes.contains(&index) { experts(f) } else { dense(f) })
    };
    model(f, Norm::Rms, false, (0..).zip(block_spans(f)).map(block).collect())
}

fn experts(f: &Fields) -> Mlp {
    routed(f, "num_local_experts|num_experts", "intermediate_size").with_shared(ffn(f), false).with_router(false, true)
}

fn dense(f: &Fields) -> Mlp {
    Mlp::Dense { ffn: f.size("intermediate_size_mlp", FFN), activation: gated(f) }
}

/// Blocks with rotary positions attend to a chunk, the others (0 in `no_rope_layers`, by default every fourth) to all.
fn block_spans(f: &Fields) -> Vec<Span> {
    let every = f.size_or("no_rope_layer_interval", LAYERS, 4);
    let chunked = chunk(f).is_some();
    let stated = f.list("no_rope_layers").filter(|list| !list.is_empty());
    if let Some(list) = stated {
        check_length(f, "no_rope_layers", list);
    }
    spans(f, |index| {
        let rotary = match stated {
            Some(list) => list.get(index as usize).and_then(serde_json::Value::as_u64) != Some(0),
            None => !(index + 1).is_multiple_of(every),
        };
        if rotary && chunked { Span::Chunked } else { Span::Full }
    })
}

/// 8,192 tokens where `attention_chunk_size` is not stated; no chunks where it is null.
fn chunk(f: &Fields) -> Option<u64> {
    let stated = f.optional_size("attention_chunk_size", TOKENS);
    if f.states("attention_chunk_size") { stated } else { Some(8192) }
}

/// `moe_layers`, or every `interleave_moe_layer_step`-th block.
fn moe_blocks(f: &Fields) -> Vec<u64> {
    let step = f.size_or("interleave_moe_layer_step", LAYERS, 1);
    indices(f, "moe_layers")
        .unwrap_or_else(|| (0..layer_count(f)).filter(|index| (index + 1).is_multiple_of(step)).collect())
}
