//! What most families share.

pub(super) use super::Family;
pub(super) use crate::model::fields::{EXPERTS, FFN, Fields, HEADS, LAYERS, Limit, TOKENS, VOCAB, WIDTH};
pub(super) use crate::model::{Activation, Attention, Block, LinearKind, Mlp, ModelSpec, Norm};
use serde_json::Value;

/// Transformer blocks.
pub(super) const LAYER_KEYS: &str = "num_hidden_layers|n_layer|n_layers|num_layers";
/// Width of the residual stream.
pub(super) const HIDDEN_KEYS: &str = "hidden_size|n_embd|n_embed|d_model";
/// Query heads.
pub(super) const HEAD_KEYS: &str = "num_attention_heads|n_head|n_heads|num_heads";
/// Key-value heads.
pub(super) const KV_HEAD_KEYS: &str = "num_key_value_heads|num_kv_heads|n_head_kv";
/// Experts a token visits.
pub(super) const TOPK_KEYS: &str =
    "num_experts_per_tok|num_experts_per_token|experts_per_token|moe_topk|moe_k|moe_top_k|top_k_experts";

/// Multi-token-prediction blocks.
pub(super) const MTP_KEYS: &str = "num_nextn_predict_layers|num_mtp_layers|mtp_num_hidden_layers";

pub(super) fn hidden(f: &Fields) -> u64 {
    f.size(HIDDEN_KEYS, WIDTH)
}

pub(super) fn layer_count(f: &Fields) -> u64 {
    f.size(LAYER_KEYS, LAYERS)
}

/// Query heads, no more than channels.
pub(super) fn heads(f: &Fields) -> u64 {
    let (heads, hidden) = (f.size(HEAD_KEYS, HEADS), hidden(f));
    if heads > hidden {
        f.fault(format!("{} is {heads}, more than {} {hidden}", f.key(HEAD_KEYS), f.key(HIDDEN_KEYS)));
    }
    heads
}

/// `hidden / heads`, where nothing else is stated.
pub(super) fn even_head_dim(f: &Fields) -> u64 {
    let (heads, hidden) = (heads(f), hidden(f));
    if !hidden.is_multiple_of(heads) {
        f.fault(format!(
            "{} is {hidden}, no multiple of {} {heads}, and head_dim is missing",
            f.key(HIDDEN_KEYS),
            f.key(HEAD_KEYS)
        ));
    }
    (hidden / heads).max(1)
}

/// Softmax attention; a missing head width is `hidden / heads`, missing key-value heads are `heads`.
pub(super) fn attention(f: &Fields) -> Attention {
    let kv_heads = f.size_or(KV_HEAD_KEYS, HEADS, heads(f));
    attention_of(f, kv_heads)
}

/// As [`attention`], but `num_key_value_heads` must be stated: the family's configurations always do.
pub(super) fn grouped_attention(f: &Fields) -> Attention {
    attention_of(f, f.size(KV_HEAD_KEYS, HEADS))
}

/// Softmax attention with this many key-value heads.
pub(super) fn attention_of(f: &Fields, kv_heads: u64) -> Attention {
    let head_dim = f.optional_size("head_dim", WIDTH).unwrap_or_else(|| even_head_dim(f));
    checked_attention(f, kv_heads, head_dim)
}

/// Softmax attention whose key-value heads are checked against the query heads.
pub(super) fn checked_attention(f: &Fields, kv_heads: u64, head_dim: u64) -> Attention {
    check_groups(f, kv_heads);
    Attention::standard(heads(f), kv_heads, head_dim)
}

fn check_groups(f: &Fields, kv_heads: u64) {
    let heads = heads(f);
    if !heads.is_multiple_of(kv_heads) {
        let (kv_key, key) = (f.key(KV_HEAD_KEYS), f.key(HEAD_KEYS));
        f.fault(format!("{kv_key} is {kv_heads}, which does not divide {key} {heads}"));
    }
}

/// Inner width of the dense MLP.
pub(super) fn ffn(f: &Fields) -> u64 {
    f.size("intermediate_size", FFN)
}

const ACTIVATION_KEYS: &str = "hidden_act|hidden_activation|activation_function|activation|ffn_act_fn";

/// Activation of an MLP with a gate.
pub(super) fn gated(f: &Fields) -> Activation {
    match f.text(ACTIVATION_KEYS).unwrap_or("silu") {
        "silu" | "swish" | "swiglu" => Activation::Swiglu,
        name if name.starts_with("gelu") || name == "geglu" => Activation::Geglu,
        other => {
            f.fault(format!("{} is \"{other}\", expected silu or a gelu", f.key(ACTIVATION_KEYS)));
            Activation::Swiglu
        }
    }
}

/// Activation of an MLP without a gate.
pub(super) fn plain(f: &Fields, default: &str) -> Activation {
    match f.text(ACTIVATION_KEYS).unwrap_or(default) {
        "relu" => Activation::Relu,
        "relu2" => Activation::SquaredRelu,
        name if name.starts_with("gelu") => Activation::Gelu,
        other => {
            f.fault(format!("{} is \"{other}\", expected a gelu, relu or relu2", f.key(ACTIVATION_KEYS)));
            Activation::Gelu
        }
    }
}

/// The dense gated MLP.
pub(super) fn gated_mlp(f: &Fields) -> Mlp {
    Mlp::Dense { ffn: ffn(f), activation: gated(f) }
}

/// Routed experts.
pub(super) fn routed(f: &Fields, expert_keys: &str, ffn_keys: &str) -> Mlp {
    let (experts, topk) = (f.size(expert_keys, EXPERTS), f.size(TOPK_KEYS, HEADS));
    if topk > experts {
        f.fault(format!("{} is {topk}, more than {} {experts}", f.key(TOPK_KEYS), f.key(expert_keys)));
    }
    Mlp::routed(experts, topk, f.size(ffn_keys, FFN)).with_activation(gated(f))
}

/// A block without biases and with two norms.
pub(super) fn plain_block(attention: Attention, mlp: Mlp) -> Block {
    Block { attention, mlp, norms: 2, mlp_bias: false }
}

/// The model around its blocks.
pub(super) fn model(f: &Fields, norm: Norm, tied: bool, blocks: Vec<Block>) -> ModelSpec {
    model_with_mtp(f, norm, tied, blocks, Vec::new())
}

/// The model around its blocks and MTP blocks. `tied` holds where `tie_word_embeddings` is not stated.
pub(super) fn model_with_mtp(
    f: &Fields,
    norm: Norm,
    tied: bool,
    blocks: Vec<Block>,
    mtp: Vec<Block>,
) -> ModelSpec {
    let positions = "max_position_embeddings|n_positions|max_seq_len|model_max_length|seq_length|n_ctx";
    ModelSpec {
        hidden: hidden(f),
        vocab: f.size("vocab_size", VOCAB),
        tied_embeddings: f.flag("tie_word_embeddings", tied),
        max_positions: f.optional_size(positions, TOKENS),
        norm,
        ..ModelSpec::default()
    }
    .with_blocks(blocks, mtp)
}

/// A model whose blocks are all alike.
pub(super) fn uniform(f: &Fields, norm: Norm, tied: bool, block: Block) -> ModelSpec {
    model(f, norm, tied, vec![block; layer_count(f) as usize])
}

/// `count` MTP blocks like the last block, by the key that counts them.
pub(super) fn mtp_blocks(f: &Fields, key: &str, blocks: &[Block]) -> Vec<Block> {
    let count = f.count(key, Limit(64)) as usize;
    blocks.last().map(|block| vec![*block; count]).unwrap_or_default()
}

/// What a block attends to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Span {
    /// Every earlier token.
    Full,
    /// A sliding window.
    Sliding,
    /// The tokens of its chunk.
    Chunked,
    /// A linear recurrence.
    Linear,
}

/// The span of every block: `layer_types` where stated, else by the family's rule for block `i`.
pub(super) fn spans(f: &Fields, rule: impl Fn(u64) -> Span) -> Vec<Span> {
    let known = [
        ("full_attention", Span::Full),
        ("attention", Span::Full),
        ("global_attention", Span::Full),
        ("indexed_attention", Span::Full),
        ("sliding_attention", Span::Sliding),
        ("chunked_attention", Span::Chunked),
        ("linear_attention", Span::Linear),
    ];
    named_layers(f, "layer_types", &known).unwrap_or_else(|| (0..layer_count(f)).map(rule).collect())
}

/// A list with one name per block.
pub(super) fn named_layers<T: Copy>(f: &Fields, key: &str, known: &[(&str, T)]) -> Option<Vec<T>> {
    let list = f.list(key)?;
    check_length(f, key, list);
    let read = |(index, value): (usize, &Value)| {
        let found = known.iter().find(|(name, _)| value.as_str() == Some(name));
        if found.is_none() {
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            f.fault(format!("{key}[{index}] is {value}, expected one of {}", names.join(", ")));
        }
        found.or_else(|| known.first()).map(|(_, kind)| *kind)
    };
    list.iter().enumerate().take(LAYERS.0 as usize).map(read).collect()
}

/// A fault unless a list has one entry per block.
pub(super) fn check_length(f: &Fields, key: &str, list: &[Value]) {
    let layers = layer_count(f);
    if list.len() as u64 != layers {
        f.fault(format!("{key} has {} entries, expected {} {layers}", list.len(), f.key(LAYER_KEYS)));
    }
}

/// A list of block indices; a fault where one is no index.
pub(super) fn indices(f: &Fields, key: &str) -> Option<Vec<u64>> {
    let list = f.list(key)?;
    let layers = layer_count(f);
    let read = |value: &Value| {
        let index = value.as_u64().filter(|index| *index < layers);
        if index.is_none() {
            f.fault(format!("{key} holds {value}, expected indices below {} {layers}", f.key(LAYER_KEYS)));
        }
        index
    };
    Some(list.iter().filter_map(read).collect())
}

/// Full attention in every `every`-th block, sliding in the others.
pub(super) fn every_nth_full(every: u64) -> impl Fn(u64) -> Span {
    move |index| if (index + 1).is_multiple_of(every.max(1)) { Span::Full } else { Span::Sliding }
}

/// Attention with the window of its span; the window's size must be stated where a block needs it.
pub(super) fn windowed(f: &Fields, attention: Attention, span: Span) -> Attention {
    match span {
        Span::Sliding => attention.with_window(Some(f.size("sliding_window", TOKENS)), false),
        Span::Full => attention,
        Span::Chunked | Span::Linear => {
            f.fault(format!("layer_types has {span:?} attention, which this family does not have"));
            attention
        }
    }
}

/// Latent attention.
pub(super) fn latent(f: &Fields) -> Attention {
    let (nope, rope) = (f.size("qk_nope_head_dim", WIDTH), f.size("qk_rope_head_dim", WIDTH));
    if let Some(stated) = f.optional_size("qk_head_dim", WIDTH)
        && stated != nope + rope
    {
        f.fault(format!(
            "qk_head_dim is {stated}, but qk_nope_head_dim + qk_rope_head_dim is {}",
            nope + rope
        ));
    }
    if f.flag("attention_bias", false) {
        f.fault("attention_bias is true, which is not known for latent attention");
    }
    let q_rank = f.optional_size("q_lora_rank", WIDTH);
    if !f.states("q_lora_rank") {
        f.fault("q_lora_rank is missing, expected a width, or null where queries are not compressed");
    }
    if let Some(kv_heads) = f.optional_size(KV_HEAD_KEYS, HEADS) {
        check_groups(f, kv_heads);
    }
    Attention::Latent {
        heads: heads(f),
        q_rank,
        kv_rank: f.size("kv_lora_rank", WIDTH),
        qk_nope_dim: nope,
        qk_rope_dim: rope,
        v_dim: f.size("v_head_dim", WIDTH),
        sparse_topk: None,
        index_heads: 0,
        index_dim: 0,
    }
}

/// Leading blocks with a dense MLP: `first_k_dense_replace`.
pub(super) fn leading_dense(f: &Fields) -> u64 {
    let (leading, layers) = (f.stated_count("first_k_dense_replace", LAYERS), layer_count(f));
    if leading > layers {
        f.fault(format!("first_k_dense_replace is {leading}, more than {} {layers}", f.key(LAYER_KEYS)));
    }
    leading
}

/// Total inner width of the shared experts: `n_shared_experts` times `moe_intermediate_size`.
pub(super) fn shared_width(f: &Fields) -> u64 {
    f.stated_count("n_shared_experts", EXPERTS).saturating_mul(f.count("moe_intermediate_size", FFN))
}

/// The DeepSeek limit on expert groups: `topk_group` of `n_group`.
pub(super) fn group_limit(f: &Fields) -> Option<u64> {
    let (groups, chosen) = (f.optional_size("n_group", EXPERTS)?, f.optional_size("topk_group", EXPERTS)?);
    if chosen > groups {
        f.fault(format!("topk_group is {chosen}, more than n_group {groups}"));
    }
    (groups > 1).then_some(chosen)
}
