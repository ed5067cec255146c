//! What is trained: every layer of a model, with its sizes.
//!
//! Layers stand in the order of the forward pass: the embedding first, the blocks, the final norm, the multi-token
//! prediction (MTP) blocks, the head last. A layer's position in [`ModelSpec::layers`] is its index in a plan's stages.
//!
//! A model comes from the [`catalog`], or from a text that [`load`] reads: a Hugging Face `config.json` (one file per
//! family in `family/`), or a model file of our own.

mod build;
pub mod catalog;
mod compact;
mod error;
mod family;
mod fields;
mod file;
mod flops;
mod hugging_face;
mod json;
mod load;
mod runs;
mod strict;
mod validate;
mod weights;

pub use error::ModelError;
pub use flops::FlopsPerToken;
pub use load::load;
pub use strict::Strict;
pub use weights::{Role, Sharding, Weight};

use serde::{Deserialize, Serialize};

/// A model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelSpec {
    /// Catalogue name, or the name of the file it was read from.
    pub name: String,
    /// Architecture family, such as `llama` or `deepseek_v3`.
    pub family: String,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Vocabulary entries, not padded.
    pub vocab: u64,
    /// Whether head and embedding share one matrix.
    pub tied_embeddings: bool,
    /// Rows of a learned position table; none for rotary or ALiBi positions.
    pub learned_positions: Option<u64>,
    /// Longest sequence the configuration was made for.
    pub max_positions: Option<u64>,
    /// Base of the rotary position frequencies; none where it is not stated or positions are not rotary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotary_base: Option<u64>,
    /// Kind of the norms.
    pub norm: Norm,
    /// A norm between the embedding and the first block (BLOOM).
    pub embedding_norm: bool,
    /// A bias per vocabulary entry on the head (Phi, GPT-J).
    pub head_bias: bool,
    /// Every layer, in forward order. A document counts equal neighbours.
    #[serde(with = "runs")]
    pub layers: Vec<Layer>,
    /// Parts of the configuration that are not planned, such as a vision tower.
    pub left_out: Vec<String>,
}

/// A layer of the model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    /// Token (and learned position) embedding.
    Embedding,
    /// A transformer block.
    Block(Block),
    /// The norm before the head.
    FinalNorm,
    /// A multi-token-prediction block: a block, a projection of 2h to h, three norms; it reuses embedding and head.
    Mtp(Block),
    /// The projection to the vocabulary, and the loss.
    Head,
    /// A layer given by its measured or stated costs.
    Custom(CustomLayer),
}

impl Layer {
    /// Whether its activations can be recomputed: blocks and layers of stated cost.
    #[must_use]
    pub const fn can_recompute(&self) -> bool {
        matches!(self, Self::Block(_) | Self::Mtp(_) | Self::Custom(_))
    }

    /// Whether its saved activations can wait in host memory.
    #[must_use]
    pub const fn can_move(&self) -> bool {
        matches!(self, Self::Block(_) | Self::Custom(_))
    }
}

/// A transformer block.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Block {
    /// The token mixer.
    pub attention: Attention,
    /// The channel mixer.
    pub mlp: Mlp,
    /// Norms over the full hidden width: 2 in most models, 4 with norms after both parts, 1 where both parts share it.
    pub norms: u32,
    /// Biases on the projections of a dense MLP (and of shared experts).
    pub mlp_bias: bool,
}

/// The token mixer of a block.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attention {
    /// Softmax attention with `heads` query heads and `kv_heads` key-value heads.
    Standard {
        /// Query heads.
        heads: u64,
        /// Key-value heads.
        kv_heads: u64,
        /// Width of a head's queries and keys.
        head_dim: u64,
        /// Width of a head's values and output, equal to `head_dim` in most models.
        v_head_dim: u64,
        /// Tokens each query sees at most (sliding window or chunk); none for full causal attention.
        window: Option<u64>,
        /// Whether the window is a fixed chunk that starts afresh (Llama 4), not one that slides.
        chunked: bool,
        /// Norms on queries and keys.
        qk_norm: bool,
        /// Parameters of those norms: twice the head width in most models, 0 for norms without weights.
        qk_norm_parameters: u64,
        /// Biases on the query, key and value projections.
        qkv_bias: bool,
        /// A bias on the output projection.
        output_bias: bool,
        /// One learned sink logit per head.
        sinks: bool,
        /// A gate of the output's width computed from the input.
        output_gate: bool,
        /// Keys serve as values too (no value projection).
        shared_kv: bool,
    },
    /// Multi-head latent attention (DeepSeek).
    Latent {
        /// Heads.
        heads: u64,
        /// Width of the query latent; none if queries are not compressed.
        q_rank: Option<u64>,
        /// Width of the key-value latent.
        kv_rank: u64,
        /// Head width without position.
        qk_nope_dim: u64,
        /// Rotary head width.
        qk_rope_dim: u64,
        /// Value head width.
        v_dim: u64,
        /// Sparse attention: keys each query selects through an indexer.
        sparse_topk: Option<u64>,
        /// Heads of the indexer; 0 where the layer reuses an earlier layer's selection.
        index_heads: u64,
        /// Head width of the indexer.
        index_dim: u64,
    },
    /// Linear attention (gated delta net and its kin).
    Linear {
        /// Which recurrence.
        kind: LinearKind,
        /// Key heads.
        k_heads: u64,
        /// Value heads.
        v_heads: u64,
        /// Key head width.
        k_dim: u64,
        /// Value head width.
        v_dim: u64,
        /// Width of the causal convolution.
        conv: u64,
    },
}

/// The recurrence of a linear attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinearKind {
    /// Gated delta net: a causal convolution, a decay and a write strength per value head (Qwen3-Next, Qwen3.5).
    GatedDelta,
    /// Lightning attention: fixed decay, no convolution, an output gate (MiniMax-01, M1).
    Lightning,
}

/// The channel mixer of a block.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mlp {
    /// One dense MLP.
    Dense {
        /// Inner width.
        ffn: u64,
        /// Activation.
        activation: Activation,
    },
    /// Routed experts.
    Moe {
        /// Experts of the layer.
        experts: u64,
        /// Experts a token visits.
        topk: u64,
        /// Inner width of a routed expert.
        ffn: u64,
        /// Total inner width of the shared experts (0 for none).
        shared_ffn: u64,
        /// A gate on the shared expert's output.
        shared_gate: bool,
        /// Activation.
        activation: Activation,
        /// Biases inside the experts.
        expert_bias: bool,
        /// A bias (or correction bias) per expert in the router.
        router_bias: bool,
        /// Node groups a token's experts are limited to.
        group_limit: Option<u64>,
        /// Whether routing scores are sigmoids (softmax otherwise).
        sigmoid_router: bool,
        /// Inner width of a dense MLP that runs beside the experts (0 for none).
        dense_ffn: u64,
    },
}

/// Activation of an MLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activation {
    /// Gated, three matrices.
    Swiglu,
    /// Gated with a GELU, three matrices.
    Geglu,
    /// Gated, clamped and biased (gpt-oss).
    ClampedSwiglu,
    /// Plain GELU, two matrices.
    Gelu,
    /// Plain ReLU, two matrices.
    Relu,
    /// Squared ReLU, two matrices.
    SquaredRelu,
}

impl Activation {
    /// 2 for a gated MLP (gate and up projection), 1 otherwise.
    #[must_use]
    pub const fn up_projections(self) -> u64 {
        match self {
            Self::Swiglu | Self::Geglu | Self::ClampedSwiglu => 2,
            Self::Gelu | Self::Relu | Self::SquaredRelu => 1,
        }
    }
}

/// Kind of norm.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Norm {
    /// One weight per channel.
    #[default]
    Rms,
    /// A weight and a bias per channel.
    Layer,
    /// Layer norm with a weight only (Command-R, DBRX).
    LayerWithoutBias,
    /// Layer norm without parameters (OLMo).
    LayerWithoutWeights,
}

impl Norm {
    /// Parameters per channel.
    #[must_use]
    pub const fn parameters_per_channel(self) -> u64 {
        match self {
            Self::Rms | Self::LayerWithoutBias => 1,
            Self::Layer => 2,
            Self::LayerWithoutWeights => 0,
        }
    }
}

/// A layer given by its costs for one microbatch on one tensor-parallel rank, not by its sizes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CustomLayer {
    /// Parameters.
    pub parameters: u64,
    /// Forward seconds of a microbatch of one sequence.
    pub forward_seconds: f64,
    /// Input-gradient seconds.
    pub input_gradient_seconds: f64,
    /// Weight-gradient seconds.
    pub weight_gradient_seconds: f64,
    /// Bytes saved for the backward, per sequence.
    pub activation_bytes: f64,
    /// Bytes sent to the next layer, per sequence.
    pub output_bytes: f64,
}

impl ModelSpec {
    /// Transformer blocks, in order, with their layer index (MTP blocks apart).
    pub fn blocks(&self) -> impl Iterator<Item = (usize, &Block)> {
        self.layers.iter().enumerate().filter_map(|(index, layer)| match layer {
            Layer::Block(block) => Some((index, block)),
            _ => None,
        })
    }

    /// MTP blocks.
    pub fn mtp_blocks(&self) -> impl Iterator<Item = &Block> {
        self.layers.iter().filter_map(|layer| match layer {
            Layer::Mtp(block) => Some(block),
            _ => None,
        })
    }

    /// Whether any block routes tokens to experts.
    #[must_use]
    pub fn is_moe(&self) -> bool {
        self.experts() > 0
    }

    /// Routed experts of the widest layer; 0 for a dense model.
    #[must_use]
    pub fn experts(&self) -> u64 {
        self.layers
            .iter()
            .filter_map(|layer| match layer {
                Layer::Block(Block { mlp: Mlp::Moe { experts, .. }, .. }) => Some(*experts),
                _ => None,
            })
            .max()
            .unwrap_or(0)
    }

    /// The vocabulary padded as Megatron does, to a multiple of 128 per tensor-parallel rank.
    #[must_use]
    pub fn padded_vocab(&self, tp: u32) -> u64 {
        self.vocab.next_multiple_of(128 * u64::from(tp))
    }
}
