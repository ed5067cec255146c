//! Floating-point operations a token costs in the forward pass, as model FLOPs utilization counts them.
//!
//! A matrix product is 2 FLOPs per weight and token, softmax attention two products of queries with keys and values
//! (Megatron-LM `megatron/training/training.py`, `num_floating_point_operations`). The backward of the model costs
//! twice the forward: once for the input gradient, once for the weight gradient.

use super::{Attention, Block, Layer, LinearKind, Mlp, ModelSpec, Role, Weight};
use serde::Serialize;

/// Forward FLOPs of one token, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct FlopsPerToken {
    /// Projections, MLPs and visited experts of the blocks.
    pub matmul: f64,
    /// Scores and weighted values of softmax attention, indexers, and the recurrences of linear attention.
    pub attention: f64,
    /// The head's logits.
    pub head: f64,
    /// Multi-token-prediction blocks, with their own pass through the head.
    pub mtp: f64,
}

impl FlopsPerToken {
    /// Forward FLOPs of one token, multi-token prediction included.
    #[must_use]
    pub fn forward(&self) -> f64 {
        self.matmul + self.attention + self.head + self.mtp
    }

    /// Forward and backward: three times [`Self::forward`]. Recompute is not model work and does not count.
    #[must_use]
    pub fn training(&self) -> f64 {
        3.0 * self.forward()
    }
}

impl ModelSpec {
    /// Forward FLOPs of one token in a sequence of `seq_len` tokens. `causal` counts only the pairs a causal mask
    /// leaves (`s/2` per query); without it every query counts all keys of its window, as older reports do.
    #[must_use]
    pub fn flops_per_token(&self, seq_len: u64, causal: bool) -> FlopsPerToken {
        let logits = 2.0 * self.hidden as f64 * self.vocab as f64;
        let mut flops = FlopsPerToken::default();
        for layer in &self.layers {
            match layer {
                Layer::Block(block) => {
                    flops.matmul += matmul(layer, self);
                    flops.attention += block.attention.core_flops(seq_len, causal);
                }
                Layer::Mtp(block) => {
                    flops.mtp += matmul(layer, self) + block.attention.core_flops(seq_len, causal) + logits;
                }
                Layer::Head => flops.head += logits,
                Layer::Embedding | Layer::FinalNorm | Layer::Custom(_) => {}
            }
        }
        flops
    }
}

/// 2 FLOPs per weight of every matrix that a token visits.
fn matmul(layer: &Layer, model: &ModelSpec) -> f64 {
    let topk = match layer {
        Layer::Block(Block { mlp: Mlp::Moe { topk, .. }, .. })
        | Layer::Mtp(Block { mlp: Mlp::Moe { topk, .. }, .. }) => *topk,
        _ => 0,
    };
    let visits = |weight: &Weight| if weight.is_expert() { topk.min(weight.count) } else { weight.count };
    layer
        .weights(model)
        .iter()
        .filter(|weight| weight.role == Role::Matrix)
        .map(|weight| 2.0 * weight.rows as f64 * weight.cols as f64 * visits(weight) as f64)
        .sum()
}

impl Attention {
    /// Forward FLOPs of the attention core for one token of a sequence of `seq_len`: all but the projections.
    ///
    /// Softmax attention over `v` visible keys: `2 a (d_qk + d_v) v`. The gated delta rule: four products with the
    /// `d_k x d_v` state per value head and token, and the convolution. Lightning attention: two products.
    #[must_use]
    pub fn core_flops(&self, seq_len: u64, causal: bool) -> f64 {
        let visible = self.visible_keys(seq_len, causal);
        match *self {
            Self::Standard { heads, head_dim, v_head_dim, .. } => {
                2.0 * (heads * (head_dim + v_head_dim)) as f64 * visible
            }
            Self::Latent {
                heads,
                qk_nope_dim,
                qk_rope_dim,
                v_dim,
                sparse_topk,
                index_heads,
                index_dim,
                ..
            } => {
                let core = 2.0 * (heads * (qk_nope_dim + qk_rope_dim + v_dim)) as f64 * visible;
                let index = 2.0 * (index_heads * index_dim) as f64 * full(seq_len, causal);
                core + if sparse_topk.is_some() { index } else { 0.0 }
            }
            Self::Linear { kind, k_heads, v_heads, k_dim, v_dim, conv } => {
                let state = (v_heads * k_dim * v_dim) as f64;
                match kind {
                    LinearKind::GatedDelta => {
                        let channels = 2 * k_heads * k_dim + v_heads * v_dim;
                        8.0 * state + 2.0 * (conv * channels) as f64
                    }
                    LinearKind::Lightning => 4.0 * state,
                }
            }
        }
    }

    /// Keys a query sees on average in a sequence of `seq_len` tokens (with the continuum `s/2` for a causal mask);
    /// 0 for linear attention.
    #[must_use]
    pub fn visible_keys(&self, seq_len: u64, causal: bool) -> f64 {
        match *self {
            Self::Standard { window: Some(window), chunked: true, .. } => chunked(seq_len, window, causal),
            Self::Standard { window: Some(window), .. } => sliding(seq_len, window, causal),
            Self::Standard { window: None, .. } | Self::Latent { sparse_topk: None, .. } => {
                full(seq_len, causal)
            }
            Self::Latent { sparse_topk: Some(topk), .. } => sliding(seq_len, topk, causal),
            Self::Linear { .. } => 0.0,
        }
    }
}

/// Every earlier token.
fn full(seq_len: u64, causal: bool) -> f64 {
    seq_len as f64 * if causal { 0.5 } else { 1.0 }
}

/// The latest `window` tokens: `w - w^2 / 2s` on average.
fn sliding(seq_len: u64, window: u64, causal: bool) -> f64 {
    let (seq, window) = (seq_len as f64, window.min(seq_len) as f64);
    if causal && seq > 0.0 { window - window * window / (2.0 * seq) } else { window }
}

/// The tokens of the same chunk; the last chunk may be short.
fn chunked(seq_len: u64, chunk: u64, causal: bool) -> f64 {
    let (whole, rest) = (seq_len / chunk.max(1), seq_len % chunk.max(1));
    let pairs = whole as f64 * (chunk as f64).powi(2) + (rest as f64).powi(2);
    pairs / (seq_len.max(1)) as f64 * if causal { 0.5 } else { 1.0 }
}
