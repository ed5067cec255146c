//! The model as Megatron-LM flags.

use super::{Flag, mlp_flags};
use cost_models::ModelSpec;
use cost_models::model::{Attention, Block, Layer, Mlp, Norm};

/// The flags of a model trained on sequences of `seq_len` tokens, whose experts are reached by `dispatcher`; what
/// Megatron-LM cannot build is added to `reasons`.
pub fn flags(model: &ModelSpec, seq_len: u64, dispatcher: Vec<Flag>, reasons: &mut Vec<String>) -> Vec<Flag> {
    let blocks: Vec<Block> = model.blocks().map(|(_, block)| *block).collect();
    if model.layers.iter().any(|layer| matches!(layer, Layer::Custom(_))) {
        reasons.push("the model has layers given by their costs, not by their sizes".to_owned());
    }
    let Some(first) = blocks.first() else {
        reasons.push("the model has no transformer blocks".to_owned());
        return Vec::new();
    };
    let mut flags = common(model, seq_len, blocks.len());
    unlike(model, &blocks, reasons);
    flags.extend(attention(&blocks, reasons));
    flags.extend(mlp_flags::flags(&blocks, dispatcher, reasons));
    flags.extend(extras(model, first));
    flags
}

/// Parts that Megatron-LM has no flag for.
fn unlike(model: &ModelSpec, blocks: &[Block], reasons: &mut Vec<String>) {
    let mixed = |block: &Block| match block.attention {
        Attention::Standard { qkv_bias, output_bias, .. } => {
            output_bias && !qkv_bias || output_bias != has_bias(block)
        }
        Attention::Latent { .. } | Attention::Linear { .. } => false,
    };
    let full_width = |block: &Block| match block.attention {
        Attention::Standard { qk_norm: true, qk_norm_parameters, head_dim, .. } => {
            qk_norm_parameters != 2 * head_dim
        }
        _ => false,
    };
    for (wrong, what) in [
        (
            matches!(model.norm, Norm::LayerWithoutBias | Norm::LayerWithoutWeights),
            "layer norms without biases or weights",
        ),
        (model.embedding_norm, "a norm behind the embedding"),
        (model.head_bias, "a bias on the head"),
        (blocks.iter().any(|block| block.norms != 2), "blocks with one norm, or with norms after both parts"),
        (blocks.iter().any(mixed), "biases on the attention or the MLP alone"),
        (blocks.iter().any(full_width), "norms on queries and keys that are not of a head's width"),
    ] {
        if wrong {
            reasons.push(what.to_owned());
        }
    }
}

/// Whether the linear layers of the block's MLP have biases.
pub(super) fn has_bias(block: &Block) -> bool {
    block.mlp_bias || matches!(block.mlp, Mlp::Moe { expert_bias: true, .. })
}

fn common(model: &ModelSpec, seq_len: u64, blocks: usize) -> Vec<Flag> {
    let positions = seq_len.max(model.learned_positions.unwrap_or(0));
    vec![
        Flag::value("--num-layers", blocks),
        Flag::value("--hidden-size", model.hidden),
        Flag::value("--seq-length", seq_len),
        Flag::value("--max-position-embeddings", positions),
        Flag::value("--vocab-size", model.vocab),
        Flag::value("--make-vocab-size-divisible-by", 128),
        Flag::value("--tokenizer-type", "NullTokenizer"),
        Flag::switch("--mock-data"),
        Flag::value("--transformer-impl", "transformer_engine"),
        Flag::value("--attention-dropout", "0.0"),
        Flag::value("--hidden-dropout", "0.0"),
    ]
}

fn extras(model: &ModelSpec, first: &Block) -> Vec<Flag> {
    let mut flags = Vec::new();
    if model.learned_positions.is_none() {
        flags.push(Flag::value("--position-embedding-type", "rope"));
        flags.extend(model.rotary_base.map(|base| Flag::value("--rotary-base", base)));
    }
    if model.norm == Norm::Rms {
        flags.push(Flag::value("--normalization", "RMSNorm"));
    }
    if !has_bias(first) {
        flags.push(Flag::switch("--disable-bias-linear"));
    }
    if !model.tied_embeddings {
        flags.push(Flag::switch("--untie-embeddings-and-output-weights"));
    }
    let depths = model.mtp_blocks().count();
    if depths > 0 {
        flags.push(Flag::value("--mtp-num-layers", depths));
    }
    flags
}

fn attention(blocks: &[Block], reasons: &mut Vec<String>) -> Vec<Flag> {
    let kinds: Vec<Attention> = blocks.iter().map(|block| without_window(block.attention)).collect();
    if kinds.iter().any(|kind| *kind != kinds[0]) {
        reasons.push("blocks with attention of different kinds or head counts".to_owned());
    }
    let mut flags = match kinds[0] {
        Attention::Standard {
            heads,
            kv_heads,
            head_dim,
            v_head_dim,
            chunked,
            qk_norm,
            qkv_bias,
            sinks,
            output_gate,
            shared_kv,
            ..
        } => {
            for (wrong, what) in [
                (chunked, "chunked attention"),
                (v_head_dim != head_dim, "values of another width than keys"),
                (shared_kv, "keys that serve as values"),
            ] {
                if wrong {
                    reasons.push(what.to_owned());
                }
            }
            let mut flags =
                vec![Flag::value("--num-attention-heads", heads), Flag::value("--kv-channels", head_dim)];
            if kv_heads != heads {
                flags.push(Flag::switch("--group-query-attention"));
                flags.push(Flag::value("--num-query-groups", kv_heads));
            }
            let switches = [
                (qk_norm, "--qk-layernorm"),
                (qkv_bias, "--add-qkv-bias"),
                (output_gate, "--attention-output-gate"),
            ];
            flags.extend(switches.into_iter().filter(|(on, _)| *on).map(|(_, name)| Flag::switch(name)));
            if sinks {
                flags.push(Flag::value("--softmax-type", "learnable"));
            }
            flags
        }
        Attention::Latent {
            heads, q_rank, kv_rank, qk_nope_dim, qk_rope_dim, v_dim, sparse_topk, ..
        } => {
            if sparse_topk.is_some() {
                reasons.push("sparse latent attention with an indexer".to_owned());
            }
            let mut flags = vec![
                Flag::value("--num-attention-heads", heads),
                Flag::switch("--multi-latent-attention"),
                Flag::value("--kv-lora-rank", kv_rank),
                Flag::value("--qk-head-dim", qk_nope_dim),
                Flag::value("--qk-pos-emb-head-dim", qk_rope_dim),
                Flag::value("--v-head-dim", v_dim),
                Flag::switch("--qk-layernorm"),
            ];
            if let Some(rank) = q_rank {
                flags.push(Flag::value("--q-lora-rank", rank));
            }
            flags
        }
        Attention::Linear { .. } => {
            reasons.push("linear attention".to_owned());
            Vec::new()
        }
    };
    flags.extend(windows(blocks));
    flags
}

fn window(attention: Attention) -> Option<u64> {
    match attention {
        Attention::Standard { window, .. } => window,
        _ => None,
    }
}

fn without_window(mut attention: Attention) -> Attention {
    if let Attention::Standard { window, .. } = &mut attention {
        *window = None;
    }
    attention
}

/// Sliding windows: Megatron counts the tokens to the left, and takes a pattern with 1 for a windowed block.
fn windows(blocks: &[Block]) -> Vec<Flag> {
    let Some(width) = blocks.iter().find_map(|block| window(block.attention)) else {
        return Vec::new();
    };
    let pattern: Vec<u8> = blocks.iter().map(|block| u8::from(window(block.attention).is_some())).collect();
    let mut flags = vec![Flag::value("--window-size", format!("{},0", width.saturating_sub(1)))];
    if pattern.contains(&0) {
        flags.push(Flag::value("--window-attn-skip-freq", run_lengths(&pattern)));
    }
    flags
}

/// A list of zeros and ones as the Python expression Megatron evaluates: `([0]*3+[1]*58)`.
pub(super) fn run_lengths(pattern: &[u8]) -> String {
    let mut runs: Vec<(u8, usize)> = Vec::new();
    for &value in pattern {
        match runs.last_mut() {
            Some((last, count)) if *last == value => *count += 1,
            _ => runs.push((value, 1)),
        }
    }
    let terms: Vec<String> = runs.iter().map(|(value, count)| format!("[{value}]*{count}")).collect();
    format!("({})", terms.join("+"))
}
