//! The compact description of a model: a few keys instead of a list of layers.

use super::fields::{EXPERTS, FFN, Fields, HEADS, LAYERS, Limit, TOKENS, VOCAB, WIDTH};
use super::{Activation, Attention, Block, LinearKind, Mlp, ModelError, ModelSpec, Norm};
use serde_json::Value;

/// Rows of a learned position table whose size is not stated: GPT-3's (arXiv 2005.14165, section 2.1).
const LEARNED_POSITIONS: u64 = 2048;

impl ModelSpec {
    /// Reads the compact description of a model: a few keys instead of a list of layers. The keys are those of published
    /// run tables, and serve in model files of our own ([`super::load`]) and in the catalogue. Other keys are ignored here.
    ///
    /// | key | meaning |
    /// |---|---|
    /// | `layers`, `hidden`, `vocab` | transformer blocks, width of the residual stream, vocabulary entries |
    /// | `heads`, `kv_heads`, `head_dim` | query heads; key-value heads (`heads` if missing); head width (`hidden / heads`) |
    /// | `ffn`, `activation` | inner width of a dense MLP; `swiglu` (default), `geglu`, `clamped-swiglu`, `gelu`, `relu`, `squared-relu` |
    /// | `tied_embeddings` | one matrix for embedding and head (default false) |
    /// | `pos`, `max_positions` | `rope` (default), `alibi`, `none`, or `learned`: a table of `max_positions` rows (2048 if missing) |
    /// | `rotary_base` | base of the rotary frequencies, such as 500000; costs nothing, but launchers need it |
    /// | `norm`, `norms` | `rmsnorm` (default), `layernorm`, `layernorm-no-bias`, `layernorm-no-weights`; norms per block (2) |
    /// | `bias` | biases of the linear layers: true, false (default), `"qkv"`, `"attention"` or `"mlp"` |
    /// | `experts`, `topk`, `moe_ffn`, `shared_expert_ffn` | routed experts, those a token visits, inner width of one, total width of the shared ones |
    /// | `dense_layers`, `moe_every` | leading blocks without experts; afterwards every n-th block has experts (1) |
    /// | `dense_ffn`, `shared_gate`, `expert_bias`, `router_bias`, `sigmoid_router`, `group_limit` | further traits of a block with experts, see [`Mlp::Moe`] |
    /// | `mtp_layers` | multi-token-prediction blocks, like the last block |
    /// | `attention = "MLA"` | latent attention, with `q_lora` (missing: no query latent), `kv_lora`, `qk_nope`, `qk_rope`, `v_head` |
    /// | `index_topk`, `index_heads`, `index_dim` | sparse selection of keys in latent attention |
    /// | `window`, `chunk`, `full_every` | sliding window or fixed chunk in tokens; every n-th block attends fully (default: none) |
    /// | `linear_k_heads`, `linear_v_heads`, `linear_k_dim`, `linear_v_dim`, `linear_conv`, `linear_kind` | linear attention in all but every `full_every`-th block; `gated-delta` (default) or `lightning` |
    /// | `qk_norm` | norms on queries and keys: `"none"` (default), `"head"`, `"full"` width, `"unweighted"` |
    /// | `sinks`, `output_gate`, `shared_kv` | further traits of softmax attention, see [`Attention::Standard`] |
    /// | `embedding_norm`, `head_bias` | a norm after the embedding, a bias on the head |
    /// | `family`, `title`, `source`, `aliases`, `note`, `params_total`, `params_active_excl_embed` | for people; not read |
    ///
    /// ```
    /// let value = serde_json::json!({"layers": 32, "hidden": 4096, "heads": 32, "ffn": 11008, "vocab": 32000});
    /// let model = cost_models::ModelSpec::from_compact("llama-2-7b", &value)?;
    /// assert_eq!(model.parameters_total(), 6_738_415_616);
    /// # Ok::<(), cost_models::model::ModelError>(())
    /// ```
    ///
    /// # Errors
    /// [`ModelError::Faults`] with every missing or senseless value.
    pub fn from_compact(name: &str, value: &Value) -> Result<Self, ModelError> {
        let faults = |faults| ModelError::Faults { origin: name.to_owned(), faults };
        let Value::Object(map) = value else {
            return Err(faults(vec![format!("is {}, expected an object", super::fields::shorten(value))]));
        };
        let fields = Fields::new(map, "");
        if !fields.has("layers") && fields.has("note") {
            let note = fields.text("note").unwrap_or_default();
            return Err(faults(vec![format!("has no sizes, only a note: {note}")]));
        }
        let model = read(name, &fields);
        model.checked(name, fields.into_faults())
    }

    /// The model, unless reading it or its sizes showed faults.
    pub(super) fn checked(self, origin: &str, mut faults: Vec<String>) -> Result<Self, ModelError> {
        if faults.is_empty() {
            faults = self.faults();
        }
        if faults.is_empty() {
            Ok(self)
        } else {
            Err(ModelError::Faults { origin: origin.to_owned(), faults })
        }
    }
}

fn read(name: &str, fields: &Fields) -> ModelSpec {
    let count = fields.size("layers", LAYERS);
    let blocks: Vec<Block> = (0..count).map(|index| block(fields, index)).collect();
    let mtp = vec![block(fields, count - 1); fields.count("mtp_layers", Limit(16)) as usize];
    frame(name, fields).with_blocks(blocks, mtp)
}

/// Everything but the layers.
pub(super) fn frame(name: &str, fields: &Fields) -> ModelSpec {
    let max_positions = fields.optional_size("max_positions", TOKENS);
    ModelSpec {
        name: name.to_owned(),
        family: fields.text("family").unwrap_or("compact").to_owned(),
        hidden: fields.size("hidden", WIDTH),
        vocab: fields.size("vocab", VOCAB),
        tied_embeddings: fields.flag("tied_embeddings", false),
        learned_positions: learned(fields).then_some(max_positions.unwrap_or(LEARNED_POSITIONS)),
        max_positions,
        rotary_base: fields.optional_size("rotary_base", TOKENS),
        norm: norm(fields),
        embedding_norm: fields.flag("embedding_norm", false),
        head_bias: fields.flag("head_bias", false),
        layers: Vec::new(),
        left_out: Vec::new(),
    }
}

/// `learned`, also as `learned(max_seq_len)`, but not `learned/alibi`, which leaves it open.
fn learned(fields: &Fields) -> bool {
    fields.text("pos").is_some_and(|pos| pos == "learned" || pos.starts_with("learned("))
}

fn norm(fields: &Fields) -> Norm {
    match fields.text("norm").unwrap_or("rmsnorm") {
        "rmsnorm" => Norm::Rms,
        "layernorm" | "layernorm1p" => Norm::Layer,
        "layernorm-no-bias" => Norm::LayerWithoutBias,
        "layernorm-no-weights" => Norm::LayerWithoutWeights,
        other => {
            fields.fault(format!(
                "norm is \"{other}\", expected rmsnorm, layernorm, layernorm-no-bias or layernorm-no-weights"
            ));
            Norm::Rms
        }
    }
}

/// Block `index` of the stack.
pub(super) fn block(fields: &Fields, index: u64) -> Block {
    let learned_norms = fields.count("norms", Limit(16));
    Block {
        attention: attention(fields, index),
        mlp: mlp(fields, index),
        norms: if fields.has("norms") { learned_norms as u32 } else { 2 },
        mlp_bias: biases(fields).mlp,
    }
}

/// Which linear layers have biases.
#[derive(Debug, Clone, Copy, Default)]
struct Biases {
    qkv: bool,
    output: bool,
    mlp: bool,
}

fn biases(fields: &Fields) -> Biases {
    match fields.value("bias") {
        None | Some(Value::Bool(false)) => Biases::default(),
        Some(Value::Bool(true)) => Biases { qkv: true, output: true, mlp: true },
        Some(Value::String(text)) if text == "qkv" => Biases { qkv: true, ..Biases::default() },
        Some(Value::String(text)) if text == "attention" => Biases { qkv: true, output: true, mlp: false },
        Some(Value::String(text)) if text == "mlp" => Biases { mlp: true, ..Biases::default() },
        Some(other) => {
            fields.fault(format!("bias is {other}, expected true, false, \"qkv\", \"attention\" or \"mlp\""));
            Biases::default()
        }
    }
}

fn attention(fields: &Fields, index: u64) -> Attention {
    let full = is_full(fields, index);
    if fields.has("linear_v_heads") && !full {
        return linear(fields);
    }
    match fields.text("attention").map(str::to_ascii_lowercase).as_deref() {
        Some("mla") => latent(fields),
        None | Some("standard" | "mha" | "gqa" | "mqa") => standard(fields, full),
        Some(other) => {
            fields.fault(format!("attention is \"{other}\", expected MLA, or nothing for softmax attention"));
            standard(fields, full)
        }
    }
}

/// Whether block `index` is one of those that attend to the whole sequence.
fn is_full(fields: &Fields, index: u64) -> bool {
    match fields.optional_size("full_every", LAYERS) {
        Some(every) => (index + 1).is_multiple_of(every),
        None => false,
    }
}

fn standard(fields: &Fields, full: bool) -> Attention {
    let heads = fields.size("heads", HEADS);
    let kv_heads = fields.size_or("kv_heads", HEADS, heads);
    let head_dim = head_dim(fields, heads);
    let bias = biases(fields);
    let chunk = fields.optional_size("chunk", TOKENS);
    let window = fields.optional_size("window", TOKENS);
    let norms = fields.text("qk_norm").unwrap_or("none");
    let qk_norm_parameters = match norms {
        "none" | "unweighted" => 0,
        "head" => 2 * head_dim,
        "full" => (heads + kv_heads) * head_dim,
        other => {
            fields.fault(format!("qk_norm is \"{other}\", expected none, head, full or unweighted"));
            0
        }
    };
    Attention::standard(heads, kv_heads, head_dim)
        .with_window(chunk.or(window).filter(|_| !full), chunk.is_some() && !full)
        .with_biases(bias.qkv, bias.output)
        .with_qk_norm(norms != "none", qk_norm_parameters)
        .with_sinks(fields.flag("sinks", false))
        .with_output_gate(fields.flag("output_gate", false))
        .with_shared_kv(fields.flag("shared_kv", false))
}

/// The stated head width, or hidden / heads.
fn head_dim(fields: &Fields, heads: u64) -> u64 {
    fields.optional_size("head_dim", WIDTH).unwrap_or_else(|| {
        let hidden = fields.size("hidden", WIDTH);
        if !hidden.is_multiple_of(heads) {
            fields.fault(format!("head_dim is missing, and hidden {hidden} is no multiple of heads {heads}"));
        }
        (hidden / heads).max(1)
    })
}

fn latent(fields: &Fields) -> Attention {
    let sparse_topk = fields.optional_size("index_topk", TOKENS);
    let index = |key| if sparse_topk.is_some() { fields.size(key, WIDTH) } else { 0 };
    Attention::Latent {
        heads: fields.size("heads", HEADS),
        q_rank: fields.optional_size("q_lora", WIDTH),
        kv_rank: fields.size("kv_lora", WIDTH),
        qk_nope_dim: fields.size("qk_nope", WIDTH),
        qk_rope_dim: fields.size("qk_rope", WIDTH),
        v_dim: fields.size("v_head", WIDTH),
        sparse_topk,
        index_heads: index("index_heads"),
        index_dim: index("index_dim"),
    }
}

fn linear(fields: &Fields) -> Attention {
    let kind = match fields.text("linear_kind").unwrap_or("gated-delta") {
        "gated-delta" => LinearKind::GatedDelta,
        "lightning" => LinearKind::Lightning,
        other => {
            fields.fault(format!("linear_kind is \"{other}\", expected gated-delta or lightning"));
            LinearKind::GatedDelta
        }
    };
    let v_heads = fields.size("linear_v_heads", HEADS);
    let v_dim = fields.size("linear_v_dim", WIDTH);
    Attention::Linear {
        kind,
        k_heads: fields.size_or("linear_k_heads", HEADS, v_heads),
        v_heads,
        k_dim: fields.size_or("linear_k_dim", WIDTH, v_dim),
        v_dim,
        conv: fields.count("linear_conv", HEADS),
    }
}

fn mlp(fields: &Fields, index: u64) -> Mlp {
    let activation = activation(fields);
    let dense_layers = fields.count("dense_layers", LAYERS);
    let every = fields.size_or("moe_every", LAYERS, 1);
    let routed = fields.count("experts", EXPERTS) > 0
        && index >= dense_layers
        && (index - dense_layers + 1).is_multiple_of(every);
    if !routed {
        return Mlp::Dense { ffn: fields.size("ffn", FFN), activation };
    }
    let (experts, topk) = (fields.size("experts", EXPERTS), fields.size("topk", HEADS));
    Mlp::routed(experts, topk, fields.size("moe_ffn|ffn", FFN))
        .with_activation(activation)
        .with_shared(fields.count("shared_expert_ffn", FFN), fields.flag("shared_gate", false))
        .with_expert_bias(fields.flag("expert_bias", false))
        .with_router(fields.flag("router_bias", false), fields.flag("sigmoid_router", false))
        .with_group_limit(fields.optional_size("group_limit", HEADS))
        .with_dense(fields.count("dense_ffn", FFN))
}

/// The first word of `activation`.
fn activation(fields: &Fields) -> Activation {
    let text = fields.text("activation").unwrap_or("swiglu");
    let word = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').next().unwrap_or_default();
    match word.to_ascii_lowercase().as_str() {
        "swiglu" => Activation::Swiglu,
        "geglu" => Activation::Geglu,
        "clamped-swiglu" => Activation::ClampedSwiglu,
        "gelu" => Activation::Gelu,
        "relu" => Activation::Relu,
        "squared-relu" | "relu2" => Activation::SquaredRelu,
        _ => {
            fields.fault(format!(
                "activation is \"{text}\", expected swiglu, geglu, clamped-swiglu, gelu, relu or squared-relu"
            ));
            Activation::Swiglu
        }
    }
}
