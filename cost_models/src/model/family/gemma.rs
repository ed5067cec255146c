//! Gemma 1, 2 and 3: wide heads, GELU gates, one matrix for embedding and head; from Gemma 2 on norms before and after
//! both parts and sliding blocks; from Gemma 3 on norms on query and key heads.

use super::common::*;

pub(super) const FAMILY: Family =
    Family { model_types: &["gemma", "gemma2", "gemma3_text", "gemma3"], read };

/// Sizes a generation's configurations leave out where they equal the library's defaults.
struct Defaults {
    vocab: u64,
    heads: u64,
    kv_heads: u64,
    window: u64,
    full_every: u64,
    norms: u32,
}

const GEMMA_1: Defaults = Defaults { vocab: 256_000, heads: 16, kv_heads: 16, window: 0, full_every: 1, norms: 2 };
const GEMMA_2: Defaults = Defaults { heads: 8, kv_heads: 4, window: 4096, full_every: 2, norms: 4, ..GEMMA_1 };
const GEMMA_3: Defaults = Defaults { vocab: 262_208, full_every: 6, ..GEMMA_2 };

fn read(f: &Fields) -> ModelSpec {
    let defaults = match f.text("model_type") {
        Some("gemma") => GEMMA_1,
        Some("gemma2") => GEMMA_2,
        _ => GEMMA_3,
    };
    let head_norms = defaults.full_every == GEMMA_3.full_every;
    let rule = every_nth_full(f.size_or("sliding_window_pattern", LAYERS, defaults.full_every));
    let block = |span| Block {
        attention: attention_in(f, &defaults, span).with_head_norms(head_norms),
        norms: defaults.norms,
        ..plain_block(Attention::standard(1, 1, 1), mlp(f))
    };
    let blocks = spans(f, rule).into_iter().map(block).collect();
    ModelSpec { hidden: hidden(f), vocab: stated_or(f, "vocab_size", VOCAB, defaults.vocab), ..frame(f) }
        .with_blocks(blocks, Vec::new())
}

/// Text parts of multimodal configurations leave out what equals a default; plain configurations state their sizes.
fn stated_or(f: &Fields, keys: &str, limit: Limit, default: u64) -> u64 {
    if f.is_part() { f.size_or(keys, limit, default) } else { f.size(keys, limit) }
}

fn frame(f: &Fields) -> ModelSpec {
    ModelSpec {
        tied_embeddings: f.flag("tie_word_embeddings", true),
        max_positions: f.optional_size("max_position_embeddings", TOKENS),
        norm: Norm::Rms,
        ..ModelSpec::default()
    }
}

fn mlp(f: &Fields) -> Mlp {
    Mlp::Dense { ffn: ffn(f), activation: Activation::Geglu }
}

/// Heads where a text part leaves them to the defaults.
fn attention_in(f: &Fields, defaults: &Defaults, span: Span) -> Attention {
    let bias = f.flag("attention_bias", false);
    let heads = stated_or(f, HEAD_KEYS, HEADS, defaults.heads);
    let kv_heads = stated_or(f, KV_HEAD_KEYS, HEADS, defaults.kv_heads);
    if !heads.is_multiple_of(kv_heads) {
        f.fault(format!("num_key_value_heads is {kv_heads}, which does not divide num_attention_heads {heads}"));
    }
    let attention = Attention::standard(heads, kv_heads, f.size_or("head_dim", WIDTH, 256)).with_biases(bias, bias);
    match span {
        Span::Full => attention,
        _ => attention.with_window(Some(f.size_or("sliding_window", TOKENS, defaults.window)), false),
    }
}
