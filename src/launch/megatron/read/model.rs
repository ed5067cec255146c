//! The model that Megatron-LM flags describe.

use super::flags::FlagSet;
use cost_models::ModelSpec;
use cost_models::model::{Activation, Attention, Block, Layer, Mlp, Norm};

/// Entries of the GPT-2 tokenizer, Megatron-LM's default.
const GPT2_VOCAB: u64 = 50_257;

/// The model.
pub(super) fn model(flags: &FlagSet) -> ModelSpec {
    let layers = flags.required("--num-layers").min(1 << 16);
    let hidden = flags.required("--hidden-size");
    let learned = matches!(flags.text("--position-embedding-type"), None | Some("learned_absolute"));
    let positions = flags.count("--max-position-embeddings");
    let mtp = flags.count("--mtp-num-layers").unwrap_or(0).min(16);
    let blocks: Vec<Block> = (0..layers).map(|index| block(flags, hidden, index, layers)).collect();
    let last = blocks.last().copied();
    let mut model = ModelSpec {
        name: "megatron-flags".to_owned(),
        family: "megatron".to_owned(),
        hidden,
        vocab: vocab(flags),
        tied_embeddings: !flags.has("--untie-embeddings-and-output-weights"),
        learned_positions: learned.then_some(positions).flatten(),
        max_positions: positions,
        norm: norm(flags),
        ..ModelSpec::default()
    };
    model.layers.push(Layer::Embedding);
    model.layers.extend(blocks.into_iter().map(Layer::Block));
    model.layers.push(Layer::FinalNorm);
    model.layers.extend(last.into_iter().cycle().take(mtp as usize).map(Layer::Mtp));
    model.layers.push(Layer::Head);
    model
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

fn block(flags: &FlagSet, hidden: u64, index: u64, layers: u64) -> Block {
    let bias = !flags.has("--disable-bias-linear");
    let dense = Mlp::Dense { ffn: ffn(flags, hidden), activation: activation(flags) };
    let experts = flags.count("--num-experts").filter(|_| has_experts(flags, index, layers));
    let mlp = experts.map_or(dense, |experts| moe(flags, hidden, experts));
    Block { attention: attention(flags, hidden, bias), mlp, norms: 2, mlp_bias: bias }
}

/// Inner width: four times the hidden width, two thirds of that (rounded to 64) with SwiGLU.
fn ffn(flags: &FlagSet, hidden: u64) -> u64 {
    let default = if flags.has("--swiglu") { hidden * 4 * 2 / 3 / 64 * 64 } else { 4 * hidden };
    flags.count("--ffn-hidden-size").unwrap_or(default).max(1)
}

fn activation(flags: &FlagSet) -> Activation {
    match (flags.has("--swiglu"), flags.has("--squared-relu")) {
        (true, _) => Activation::Swiglu,
        (_, true) => Activation::SquaredRelu,
        _ => Activation::Gelu,
    }
}

fn attention(flags: &FlagSet, hidden: u64, bias: bool) -> Attention {
    let heads = flags.required("--num-attention-heads");
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
        sinks: false,
        output_gate: false,
        shared_kv: false,
    }
}

fn moe(flags: &FlagSet, hidden: u64, experts: u64) -> Mlp {
    let bias = !flags.has("--disable-bias-linear") && !flags.has("--moe-grouped-gemm");
    Mlp::Moe {
        experts,
        topk: flags.count("--moe-router-topk").unwrap_or(2),
        ffn: flags.count("--moe-ffn-hidden-size").unwrap_or_else(|| ffn(flags, hidden)),
        shared_ffn: flags.count("--moe-shared-expert-intermediate-size").unwrap_or(0),
        shared_gate: flags.has("--moe-shared-expert-gate"),
        activation: activation(flags),
        expert_bias: bias,
        router_bias: flags.has("--moe-router-enable-expert-bias"),
        group_limit: None,
        sigmoid_router: flags.text("--moe-router-score-function") == Some("sigmoid"),
        dense_ffn: 0,
    }
}

/// `--moe-layer-freq`: every n-th block, or a Python list expression such as `([0]*3+[1]*5)`.
fn has_experts(flags: &FlagSet, index: u64, layers: u64) -> bool {
    let Some(text) = flags.text("--moe-layer-freq") else { return true };
    if let Ok(every) = text.parse::<u64>() {
        return every > 0 && index.is_multiple_of(every);
    }
    let pattern = pattern(text).filter(|pattern| pattern.len() as u64 == layers);
    if pattern.is_none() {
        flags.fault("--moe-layer-freq", text, "a number, or a list with one 0 or 1 for each layer");
    }
    pattern.is_none_or(|pattern| pattern[index as usize])
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
        all.extend(items.iter().copied().cycle().take(items.len() * times));
    }
    Some(all)
}
