//! Building blocks of models, for readers of configurations and for tests.

use super::{Activation, Attention, Block, Layer, Mlp, ModelSpec};

impl Attention {
    /// Plain full causal attention: no window, no biases, no norms on queries and keys.
    #[must_use]
    pub const fn standard(heads: u64, kv_heads: u64, head_dim: u64) -> Self {
        Self::Standard {
            heads,
            kv_heads,
            head_dim,
            v_head_dim: head_dim,
            window: None,
            chunked: false,
            qk_norm: false,
            qk_norm_parameters: 0,
            qkv_bias: false,
            output_bias: false,
            sinks: false,
            output_gate: false,
            shared_kv: false,
        }
    }

    /// With a sliding window or, if `is_chunk`, a fixed chunk. Softmax attention only, as the other `with_*`.
    #[must_use]
    pub const fn with_window(mut self, tokens: Option<u64>, is_chunk: bool) -> Self {
        if let Self::Standard { window, chunked, .. } = &mut self {
            *window = tokens;
            *chunked = is_chunk && tokens.is_some();
        }
        self
    }

    /// With biases on query, key and value projections, and on the output projection.
    #[must_use]
    pub const fn with_biases(mut self, qkv: bool, output: bool) -> Self {
        if let Self::Standard { qkv_bias, output_bias, .. } = &mut self {
            *qkv_bias = qkv;
            *output_bias = output;
        }
        self
    }

    /// With norms of `parameters` on queries and keys, if `present`.
    #[must_use]
    pub const fn with_qk_norm(mut self, present: bool, parameters: u64) -> Self {
        if let Self::Standard { qk_norm, qk_norm_parameters, .. } = &mut self {
            *qk_norm = present;
            *qk_norm_parameters = if present { parameters } else { 0 };
        }
        self
    }

    /// With a norm of one weight per channel of a head, on queries and on keys, if `present`.
    #[must_use]
    pub const fn with_head_norms(self, present: bool) -> Self {
        match self {
            Self::Standard { head_dim, .. } => self.with_qk_norm(present, 2 * head_dim),
            _ => self,
        }
    }

    /// With norms over all query heads and over all key heads, if `present`.
    #[must_use]
    pub const fn with_full_norms(self, present: bool) -> Self {
        match self {
            Self::Standard { heads, kv_heads, head_dim, .. } => {
                self.with_qk_norm(present, (heads + kv_heads) * head_dim)
            }
            _ => self,
        }
    }

    /// With values of another width than keys.
    #[must_use]
    pub const fn with_value_width(mut self, width: u64) -> Self {
        if let Self::Standard { v_head_dim, .. } = &mut self {
            *v_head_dim = width;
        }
        self
    }

    /// With one learned sink logit per head, if `present`.
    #[must_use]
    pub const fn with_sinks(mut self, present: bool) -> Self {
        if let Self::Standard { sinks, .. } = &mut self {
            *sinks = present;
        }
        self
    }

    /// With a gate on the output, if `present`.
    #[must_use]
    pub const fn with_output_gate(mut self, present: bool) -> Self {
        if let Self::Standard { output_gate, .. } = &mut self {
            *output_gate = present;
        }
        self
    }

    /// With keys that serve as values, if `present`.
    #[must_use]
    pub const fn with_shared_kv(mut self, present: bool) -> Self {
        if let Self::Standard { shared_kv, .. } = &mut self {
            *shared_kv = present;
        }
        self
    }
}

impl Mlp {
    /// A dense gated MLP with SiLU.
    #[must_use]
    pub const fn swiglu(ffn: u64) -> Self {
        Self::Dense { ffn, activation: Activation::Swiglu }
    }

    /// SwiGLU experts behind a softmax router, no shared expert, no biases.
    #[must_use]
    pub const fn routed(experts: u64, topk: u64, ffn: u64) -> Self {
        Self::Moe {
            experts,
            topk,
            ffn,
            shared_ffn: 0,
            shared_gate: false,
            activation: Activation::Swiglu,
            expert_bias: false,
            router_bias: false,
            group_limit: None,
            sigmoid_router: false,
            dense_ffn: 0,
        }
    }

    /// With another activation.
    #[must_use]
    pub const fn with_activation(mut self, new: Activation) -> Self {
        match &mut self {
            Self::Dense { activation, .. } | Self::Moe { activation, .. } => *activation = new,
        }
        self
    }

    /// With shared experts of total inner width `width`, gated or not. Routed experts only, as the other `with_*`.
    #[must_use]
    pub const fn with_shared(mut self, width: u64, gate: bool) -> Self {
        if let Self::Moe { shared_ffn, shared_gate, .. } = &mut self {
            *shared_ffn = width;
            *shared_gate = gate && width > 0;
        }
        self
    }

    /// With biases inside the experts, if `present`.
    #[must_use]
    pub const fn with_expert_bias(mut self, present: bool) -> Self {
        if let Self::Moe { expert_bias, .. } = &mut self {
            *expert_bias = present;
        }
        self
    }

    /// With a bias per expert in the router, and scores that are sigmoids.
    #[must_use]
    pub const fn with_router(mut self, bias: bool, sigmoid: bool) -> Self {
        if let Self::Moe { router_bias, sigmoid_router, .. } = &mut self {
            *router_bias = bias;
            *sigmoid_router = sigmoid;
        }
        self
    }

    /// With a token's experts limited to this many groups.
    #[must_use]
    pub const fn with_group_limit(mut self, groups: Option<u64>) -> Self {
        if let Self::Moe { group_limit, .. } = &mut self {
            *group_limit = groups;
        }
        self
    }

    /// With a dense MLP of this inner width beside the experts.
    #[must_use]
    pub const fn with_dense(mut self, width: u64) -> Self {
        if let Self::Moe { dense_ffn, .. } = &mut self {
            *dense_ffn = width;
        }
        self
    }
}

impl ModelSpec {
    /// With these blocks between embedding and final norm, and these MTP blocks before the head.
    #[must_use]
    pub fn with_blocks(mut self, blocks: Vec<Block>, mtp: Vec<Block>) -> Self {
        self.layers = std::iter::once(Layer::Embedding)
            .chain(blocks.into_iter().map(Layer::Block))
            .chain([Layer::FinalNorm])
            .chain(mtp.into_iter().map(Layer::Mtp))
            .chain([Layer::Head])
            .collect();
        self
    }
}
