//! The model that Megatron-LM flags describe.

use super::FlagSet;
use cost_models::ModelSpec;
use cost_models::model::{Activation, Attention, Block, Mlp, Norm};

/// Most layers of a model.
const MOST_LAYERS: u64 = 10_000;

/// Entries of the GPT-2 tokenizer, Megatron-LM's default.
const GPT2_VOCAB: u64 = 50_257;

/// The model.
pub(super) fn model(flags: &FlagSet) -> ModelSpec {
    let layers = flags.required("--num-layers", MOST_LAYERS);
    let hidden = flags.required("--hidden-size", 1 << 20);
    let learned = matches!(flags.text("--position-embedding-type"), None | Some("learned_absolute"))
        && !flags.has("--use-rotary-position-embeddings");
    let positions = flags.count("--max-position-embeddings");
    let mtp = flags.at_most("--mtp-num-layers", 16).unwrap_or(0);
    let blocks = blocks(flags, hidden, layers);
    let last = blocks.last().copied();
    ModelSpec {
        name: "megatron-flags".to_owned(),
        family: "megatron".to_owned(),
        hidden,
        vocab: vocab(flags),
        tied_embeddings: !flags.has("--untie-embeddings-and-output-weights"),
        learned_positions: learned.then_some(positions).flatten(),
        max_positions: positions,
        rotary_base: flags.count("--rotary-base"),
        norm: norm(flags),
        ..ModelSpec::default()
    }
    .with_blocks(blocks, last.into_iter().cycle().take(mtp as usize).collect())
}

/// Every block: dense or with experts, with a window or without.
fn blocks(flags: &FlagSet, hidden: u64, layers: u64) -> Vec<Block> {
    let bias = !flags.has("--disable-bias-linear");
    let full = attention(flags, hidden, bias);
    let windowed = full.with_window(window(flags), false);
    let dense = Mlp::Dense { ffn: ffn(flags, hidden), activation: activation(flags) };
    let routed = flags.count("--num-experts").map(|experts| moe(flags, hidden, experts));
    let experts =
        routed.map(|_| frequency(flags, "--moe-layer-freq", layers, |index, every| index % every == 0));
    let windows =
        frequency(flags, "--window-attn-skip-freq", layers, |index, every| (index + 1) % every != 0);
    let block = |index: usize| Block {
        attention: if windows.get(index).copied().unwrap_or(true) { windowed } else { full },
        mlp: match (routed, &experts) {
            (Some(routed), Some(pattern)) if pattern.get(index).copied().unwrap_or(true) => routed,
            _ => dense,
        },
        norms: 2,
        mlp_bias: bias,
    };
    (0..layers as usize).map(block).collect()
}

/// Tokens each query sees: Megatron counts those to the left of it.
fn window(flags: &FlagSet) -> Option<u64> {
    let text = flags.text("--window-size")?;
    let left =
        text.trim_matches(['(', ')']).split(',').next().and_then(|left| left.trim().parse::<u64>().ok());
    if left.is_none() {
        flags.fault("--window-size", text, "two numbers such as 4095,0");
    }
    left.map(|left| left.saturating_add(1))
}

/// Which blocks a frequency picks: every n-th by `rule`, or a Python list expression such as `([0]*3+[1]*5)`.
fn frequency(flags: &FlagSet, flag: &str, layers: u64, rule: fn(usize, usize) -> bool) -> Vec<bool> {
    let Some(text) = flags.text(flag) else { return Vec::new() };
    if let Ok(every) = text.parse::<usize>() {
        return (0..layers as usize).map(|index| rule(index, every.max(1))).collect();
    }
    let pattern = pattern(text).filter(|pattern| pattern.len() as u64 == layers);
    if pattern.is_none() {
        flags.fault(flag, text, "a number, or a list with one 0 or 1 for each layer");
    }
    pattern.unwrap_or_default()
}

fn vocab(flags: &FlagSet) -> u64 {
    flags.count("--padded-vocab-size").or_else(|| flags.count("--vocab-size")).unwrap_or(GPT2_VOCAB)
}

fn norm(flags: &FlagSet) -> Norm {
    match flags.text("--normalization") {
        Some("RMSNorm") => Norm::Rms,
        None | Some("LayerNorm") => Norm::Layer,
        Some(other) => {
            flags.fault("--normalization", other, "LayerNorm or RMSNorm");
            Norm::Layer
        }
    }
}

/// Inner width: four times the hidden width, two thirds of that (rounded to 64) with SwiGLU.
fn ffn(flags: &FlagSet, hidden: u64) -> u64 {
    let default = if flags.has("--swiglu") { hidden * 4 * 2 / 3 / 64 * 64 } else { 4 * hidden };
    flags.count("--ffn-hidden-size").unwrap_or(default).max(1)
}

fn activation(flags: &FlagSet) -> Activation {
    let clamped = flags.text("--activation-func-clamp-value").is_some();
    match (flags.has("--swiglu"), flags.has("--squared-relu"), flags.has("--quick-geglu")) {
        (true, ..) => Activation::Swiglu,
        (_, true, _) => Activation::SquaredRelu,
        (.., true) if clamped => Activation::ClampedSwiglu,
        (.., true) => Activation::Geglu,
        _ => Activation::Gelu,
    }
}

fn attention(flags: &FlagSet, hidden: u64, bias: bool) -> Attention {
    let heads = flags.required("--num-attention-heads", 1 << 16);
    let qk_norm = flags.has("--qk-layernorm");
    if flags.has("--multi-latent-attention") {
        return Attention::Latent {
            heads,
            q_rank: flags.count("--q-lora-rank"),
            kv_rank: flags.count("--kv-lora-rank").unwrap_or(32),
            qk_nope_dim: flags.count("--qk-head-dim").unwrap_or(128),
            qk_rope_dim: flags.count("--qk-pos-emb-head-dim").unwrap_or(64),
            v_dim: flags.count("--v-head-dim").unwrap_or(128),
            sparse_topk: None,
            index_heads: 0,
            index_dim: 0,
        };
    }
    let grouped = flags.has("--group-query-attention");
    let groups = flags.count("--num-query-groups").filter(|_| grouped);
    let head_dim = flags.count("--kv-channels").unwrap_or((hidden / heads).max(1));
    let width = match norm(flags) {
        Norm::Rms => 2 * head_dim,
        _ => 4 * head_dim,
    };
    Attention::Standard {
        heads,
        kv_heads: groups.unwrap_or(heads),
        head_dim,
        v_head_dim: head_dim,
        window: None,
        chunked: false,
        qk_norm,
        qk_norm_parameters: if qk_norm { width } else { 0 },
        qkv_bias: bias || flags.has("--add-qkv-bias"),
        output_bias: bias,
        sinks: flags.text("--softmax-type") == Some("learnable"),
        output_gate: flags.has("--attention-output-gate"),
        shared_kv: false,
    }
}

fn moe(flags: &FlagSet, hidden: u64, experts: u64) -> Mlp {
    let bias = !flags.has("--disable-bias-linear");
    Mlp::Moe {
        experts,
        topk: flags.count("--moe-router-topk").unwrap_or(2),
        ffn: flags.count("--moe-ffn-hidden-size").unwrap_or_else(|| ffn(flags, hidden)),
        shared_ffn: flags.count("--moe-shared-expert-intermediate-size").unwrap_or(0),
        shared_gate: flags.has("--moe-shared-expert-gate"),
        activation: activation(flags),
        expert_bias: bias,
        router_bias: bias || flags.has("--moe-router-enable-expert-bias"),
        group_limit: flags.count("--moe-router-group-topk"),
        sigmoid_router: flags.text("--moe-router-score-function") == Some("sigmoid"),
        dense_ffn: 0,
    }
}

/// Sums of lists of 0 and 1, each with an optional repetition.
fn pattern(text: &str) -> Option<Vec<bool>> {
    let mut all = Vec::new();
    let plain: String = text.chars().filter(|c| !c.is_whitespace() && !"()".contains(*c)).collect();
    for term in plain.split('+') {
        let (list, times) = term.split_once('*').unwrap_or((term, "1"));
        let items = list.strip_prefix('[')?.strip_suffix(']')?;
        let items: Vec<bool> = items.split(',').map(|item| item == "1").collect();
        let times: usize = times.parse().ok().filter(|n| *n <= 1 << 16)?;
        if all.len() + items.len().saturating_mul(times) > MOST_LAYERS as usize {
            return None;
        }
        all.extend(items.iter().copied().cycle().take(items.len() * times));
    }
    Some(all)
}
