//! Every parameter tensor of a layer, and how tensor and expert parallelism split it.
//!
//! This is the single source of parameter counts: totals, memory on a rank and gradient volumes all sum over
//! [`Layer::weights`]. Which tensors tensor parallelism leaves whole follows Megatron-LM (`megatron/core/transformer`):
//! norms, routers, the down projections of latent attention, and the biases of row-parallel projections.

use super::{Activation, Attention, Block, Layer, LinearKind, Mlp, ModelSpec};

/// One parameter tensor, or `count` tensors of the same shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weight {
    /// What it is, such as `query` or `expert-gate-up`.
    pub name: &'static str,
    /// Input width (1 for a vector, entries for a table).
    pub rows: u64,
    /// Output width.
    pub cols: u64,
    /// Tensors of this shape: the experts of a layer, 1 elsewhere.
    pub count: u64,
    /// How it is split.
    pub sharding: Sharding,
    /// What it does.
    pub role: Role,
}

/// How the ranks of a pipeline stage hold a weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharding {
    /// Whole on every tensor-parallel rank.
    Replicated,
    /// Split over tp.
    Tensor,
    /// Keys and values: split over tp by heads; with fewer heads than ranks every rank keeps one head.
    TensorKv {
        /// Key-value heads.
        kv_heads: u64,
    },
    /// `count` experts spread over ep, each split over etp.
    Expert,
    /// `count` experts spread over ep, each whole on every etp rank (the bias of a row-parallel projection).
    ExpertReplicated,
    /// A vocabulary table: rows split over tp, after padding.
    Vocabulary,
    /// The learned position table: whole on every rank of the first stage.
    Positions,
}

/// What a weight does to a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A matrix product: 2 rows cols FLOPs per token that visits it.
    Matrix,
    /// Element-wise: norms, biases, short convolutions.
    Vector,
    /// Rows are looked up: embedding and positions.
    Lookup,
}

impl Weight {
    /// `rows x cols x count`, at most [`u64::MAX`].
    #[must_use]
    pub const fn parameters(&self) -> u64 {
        self.rows.saturating_mul(self.cols).saturating_mul(self.count)
    }

    /// Whether it belongs to a routed expert.
    #[must_use]
    pub const fn is_expert(&self) -> bool {
        matches!(self.sharding, Sharding::Expert | Sharding::ExpertReplicated)
    }

    const fn matrix(name: &'static str, rows: u64, cols: u64, sharding: Sharding) -> Self {
        Self { name, rows, cols, count: 1, sharding, role: Role::Matrix }
    }

    const fn vector(name: &'static str, cols: u64, sharding: Sharding) -> Self {
        Self { name, rows: 1, cols, count: 1, sharding, role: Role::Vector }
    }

    const fn times(mut self, count: u64) -> Self {
        self.count = count;
        self
    }
}

use Sharding::{Expert, ExpertReplicated, Positions, Replicated, Tensor, TensorKv, Vocabulary};

impl Layer {
    /// The parameter tensors of the layer, in forward order. A head that shares the embedding's matrix has none.
    ///
    /// ```
    /// use cost_models::model::{Activation, Attention, Block, Layer, Mlp};
    /// let block = Block { attention: Attention::standard(32, 8, 128), mlp: Mlp::swiglu(14336), norms: 2, mlp_bias: false };
    /// let model = cost_models::ModelSpec { hidden: 4096, ..Default::default() };
    /// let parameters: u64 = Layer::Block(block).weights(&model).iter().map(|w| w.parameters()).sum();
    /// assert_eq!(parameters, 218_112_000); // a layer of Llama-3.1-8B
    /// ```
    #[must_use]
    pub fn weights(&self, model: &ModelSpec) -> Vec<Weight> {
        match self {
            Self::Embedding => embedding(model),
            Self::Block(block) => block_weights(block, model),
            Self::FinalNorm => norm("final-norm", model, 1).into_iter().collect(),
            Self::Mtp(block) => mtp(block, model),
            Self::Head => head(model),
            Self::Custom(layer) => vec![Weight::matrix("custom", layer.parameters, 1, Replicated)],
        }
    }

    /// Parameters of the layer, every weight once.
    #[must_use]
    pub fn parameters(&self, model: &ModelSpec) -> u64 {
        self.weights(model).iter().fold(0, |sum: u64, weight| sum.saturating_add(weight.parameters()))
    }

    /// Parameters less the experts a token does not visit.
    #[must_use]
    pub fn parameters_active(&self, model: &ModelSpec) -> u64 {
        let topk = match self {
            Self::Block(Block { mlp: Mlp::Moe { topk, .. }, .. })
            | Self::Mtp(Block { mlp: Mlp::Moe { topk, .. }, .. }) => *topk,
            _ => 0,
        };
        self.weights(model)
            .iter()
            .map(|weight| if weight.is_expert() { weight.times(topk.min(weight.count)) } else { *weight })
            .fold(0, |sum: u64, weight| sum.saturating_add(weight.parameters()))
    }
}

impl ModelSpec {
    /// Every weight once; multi-token-prediction weights apart.
    #[must_use]
    pub fn parameters_total(&self) -> u64 {
        self.sum_layers(|layer| !matches!(layer, Layer::Mtp(_)), Layer::parameters)
    }

    /// Weights of the multi-token-prediction blocks.
    #[must_use]
    pub fn parameters_mtp(&self) -> u64 {
        self.sum_layers(|layer| matches!(layer, Layer::Mtp(_)), Layer::parameters)
    }

    /// [`Self::parameters_total`] less the experts a token does not visit. Embedding and head count.
    #[must_use]
    pub fn parameters_active(&self) -> u64 {
        self.sum_layers(|layer| !matches!(layer, Layer::Mtp(_)), Layer::parameters_active)
    }

    fn sum_layers(&self, keep: fn(&Layer) -> bool, count: fn(&Layer, &Self) -> u64) -> u64 {
        let layers = self.layers.iter().filter(|layer| keep(layer));
        layers.fold(0, |sum: u64, layer| sum.saturating_add(count(layer, self)))
    }
}

/// Norms over the hidden width; none where they have no parameters.
fn norm(name: &'static str, model: &ModelSpec, count: u64) -> Option<Weight> {
    let width = model.norm.parameters_per_channel() * model.hidden;
    (width * count > 0).then(|| Weight::vector(name, width, Replicated).times(count))
}

fn embedding(model: &ModelSpec) -> Vec<Weight> {
    let table = |name, rows, sharding| Weight {
        name,
        rows,
        cols: model.hidden,
        count: 1,
        sharding,
        role: Role::Lookup,
    };
    let mut weights = vec![table("embedding", model.vocab, Vocabulary)];
    weights.extend(model.learned_positions.map(|rows| table("positions", rows, Positions)));
    weights.extend(model.embedding_norm.then(|| norm("embedding-norm", model, 1)).flatten());
    weights
}

fn head(model: &ModelSpec) -> Vec<Weight> {
    let mut weights = Vec::new();
    if !model.tied_embeddings {
        weights.push(Weight::matrix("head", model.hidden, model.vocab, Vocabulary));
    }
    weights.extend(model.head_bias.then(|| Weight::vector("head-bias", model.vocab, Vocabulary)));
    weights
}

/// DeepSeek-V3 technical report (arXiv 2412.19437), equation 21: a projection of 2h to h and two norms before the
/// block, and a norm after it.
fn mtp(block: &Block, model: &ModelSpec) -> Vec<Weight> {
    let mut weights = vec![Weight::matrix("mtp-projection", 2 * model.hidden, model.hidden, Tensor)];
    weights.extend(norm("mtp-norms", model, 3));
    weights.extend(block_weights(block, model));
    weights
}

fn block_weights(block: &Block, model: &ModelSpec) -> Vec<Weight> {
    let mut weights: Vec<Weight> = norm("norms", model, u64::from(block.norms)).into_iter().collect();
    push_attention(&block.attention, model.hidden, &mut weights);
    push_mlp(block, model.hidden, &mut weights);
    weights.retain(|weight| weight.parameters() > 0);
    weights
}

fn push_attention(attention: &Attention, hidden: u64, weights: &mut Vec<Weight>) {
    match attention {
        Attention::Standard { .. } => push_standard(attention, hidden, weights),
        Attention::Latent { .. } => push_latent(attention, hidden, weights),
        Attention::Linear { .. } => push_linear(attention, hidden, weights),
    }
}

fn push_standard(attention: &Attention, hidden: u64, weights: &mut Vec<Weight>) {
    let &Attention::Standard { heads, kv_heads, head_dim, v_head_dim, .. } = attention else { return };
    let &Attention::Standard { qk_norm_parameters, qkv_bias, output_bias, .. } = attention else { return };
    let &Attention::Standard { sinks, output_gate, shared_kv, .. } = attention else { return };
    let (q, key, by_kv) = (heads * head_dim, kv_heads * head_dim, TensorKv { kv_heads });
    let (value, output) = (if shared_kv { 0 } else { kv_heads * v_head_dim }, heads * v_head_dim);
    weights.push(Weight::matrix("query", hidden, q, Tensor));
    weights.extend(output_gate.then(|| Weight::matrix("output-gate", hidden, output, Tensor)));
    weights.push(Weight::matrix("key", hidden, key, by_kv));
    weights.push(Weight::matrix("value", hidden, value, by_kv));
    if qkv_bias {
        weights.push(Weight::vector("query-bias", q, Tensor));
        weights.push(Weight::vector("key-value-bias", key + value, by_kv));
    }
    weights.push(Weight::vector("query-key-norm", qk_norm_parameters, Replicated));
    weights.extend(sinks.then(|| Weight::vector("sinks", heads, Tensor)));
    weights.push(Weight::matrix("attention-output", output, hidden, Tensor));
    weights.extend(output_bias.then(|| Weight::vector("attention-output-bias", hidden, Replicated)));
}

/// DeepSeek-V2 (arXiv 2405.04434), section 2.1; the indexer of sparse attention is DeepSeek-V3.2's.
fn push_latent(attention: &Attention, hidden: u64, weights: &mut Vec<Weight>) {
    let &Attention::Latent { heads, q_rank, kv_rank, qk_nope_dim, qk_rope_dim, v_dim, .. } = attention else {
        return;
    };
    let &Attention::Latent { sparse_topk, index_heads, index_dim, .. } = attention else { return };
    let q = heads * (qk_nope_dim + qk_rope_dim);
    if let Some(rank) = q_rank {
        weights.push(Weight::matrix("query-down", hidden, rank, Replicated));
        weights.push(Weight::vector("query-latent-norm", rank, Replicated));
    }
    weights.push(Weight::matrix("query-up", q_rank.unwrap_or(hidden), q, Tensor));
    weights.push(Weight::matrix("key-value-down", hidden, kv_rank + qk_rope_dim, Replicated));
    weights.push(Weight::vector("key-value-latent-norm", kv_rank, Replicated));
    weights.push(Weight::matrix("key-value-up", kv_rank, heads * (qk_nope_dim + v_dim), Tensor));
    if sparse_topk.is_some() && index_heads > 0 {
        let query_width = q_rank.unwrap_or(hidden);
        weights.push(Weight::matrix("index-query", query_width, index_heads * index_dim, Replicated));
        weights.push(Weight::matrix("index-key", hidden, index_dim, Replicated));
        weights.push(Weight::vector("index-key-norm", 2 * index_dim, Replicated));
        weights.push(Weight::matrix("index-weights", hidden, index_heads, Replicated));
    }
    weights.push(Weight::matrix("attention-output", heads * v_dim, hidden, Tensor));
}

/// Gated delta net (arXiv 2412.06464) as in Qwen3-Next; lightning attention (arXiv 2501.08313).
fn push_linear(attention: &Attention, hidden: u64, weights: &mut Vec<Weight>) {
    let &Attention::Linear { kind, k_heads, v_heads, k_dim, v_dim, conv } = attention else { return };
    let (keys, values) = (k_heads * k_dim, v_heads * v_dim);
    weights.push(Weight::matrix("query-key-value-gate", hidden, 2 * keys + 2 * values, Tensor));
    match kind {
        LinearKind::GatedDelta => {
            weights.push(Weight::matrix("write-strength-decay", hidden, 2 * v_heads, Tensor));
            weights.push(Weight::vector("convolution", conv * (2 * keys + values), Tensor));
            weights.push(Weight::vector("decay", 2 * v_heads, Tensor));
            weights.push(Weight::vector("output-norm", v_dim, Replicated));
        }
        LinearKind::Lightning => weights.push(Weight::vector("output-norm", values, Tensor)),
    }
    weights.push(Weight::matrix("attention-output", values, hidden, Tensor));
}

fn push_mlp(block: &Block, hidden: u64, weights: &mut Vec<Weight>) {
    match block.mlp {
        Mlp::Dense { ffn, activation } => {
            push_dense(["gate-up", "down"], [hidden, ffn], activation, block.mlp_bias, weights);
        }
        Mlp::Moe { .. } => push_moe(block, hidden, weights),
    }
}

fn push_dense(
    [up_name, down_name]: [&'static str; 2],
    [hidden, ffn]: [u64; 2],
    activation: Activation,
    bias: bool,
    weights: &mut Vec<Weight>,
) {
    let up = activation.up_projections() * ffn;
    weights.push(Weight::matrix(up_name, hidden, up, Tensor));
    weights.extend(bias.then(|| Weight::vector("up-bias", up, Tensor)));
    weights.push(Weight::matrix(down_name, ffn, hidden, Tensor));
    weights.extend(bias.then(|| Weight::vector("down-bias", hidden, Replicated)));
}

fn push_moe(block: &Block, hidden: u64, weights: &mut Vec<Weight>) {
    let Mlp::Moe { experts, ffn, activation, expert_bias, router_bias, .. } = block.mlp else { return };
    let Mlp::Moe { shared_ffn, shared_gate, dense_ffn, .. } = block.mlp else { return };
    let up = activation.up_projections() * ffn;
    weights.push(Weight::matrix("router", hidden, experts, Replicated));
    weights.extend(router_bias.then(|| Weight::vector("router-bias", experts, Replicated)));
    weights.push(Weight::matrix("expert-gate-up", hidden, up, Expert).times(experts));
    weights.push(Weight::matrix("expert-down", ffn, hidden, Expert).times(experts));
    if expert_bias {
        weights.push(Weight::vector("expert-up-bias", up, Expert).times(experts));
        weights.push(Weight::vector("expert-down-bias", hidden, ExpertReplicated).times(experts));
    }
    if shared_ffn > 0 {
        let names = ["shared-gate-up", "shared-down"];
        push_dense(names, [hidden, shared_ffn], activation, block.mlp_bias, weights);
        weights.extend(shared_gate.then(|| Weight::matrix("shared-gate", hidden, 1, Replicated)));
    }
    if dense_ffn > 0 {
        push_dense(["gate-up", "down"], [hidden, dense_ffn], activation, block.mlp_bias, weights);
    }
}
