//! Laws every model obeys, however it was read.

use super::fields::{EXPERTS, FFN, HEADS, LAYERS, Limit, TOKENS, VOCAB, WIDTH};
use super::{Attention, Block, CustomLayer, Layer, Mlp, ModelSpec};

/// More parameters than any model will have for a while.
const PARAMETERS: u64 = 1_000_000_000_000_000;

/// Collects the faults of one layer, each naming the layer.
struct Faults<'a> {
    prefix: String,
    found: &'a mut Vec<String>,
}

impl Faults<'_> {
    fn range(&mut self, name: &str, value: u64, low: u64, Limit(high): Limit) {
        if !(low..=high).contains(&value) {
            self.found.push(format!("{}{name} is {value}, expected {low} to {high}", self.prefix));
        }
    }

    fn unless(&mut self, holds: bool, message: impl FnOnce() -> String) {
        if !holds {
            self.found.push(format!("{}{}", self.prefix, message()));
        }
    }
}

impl ModelSpec {
    /// Everything that makes the sizes no model; empty for a sound one. Sums and products over a sound model's sizes
    /// stay within `u64`.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut model = Faults { prefix: String::new(), found: &mut found };
        let sized = self.layers.iter().any(|layer| !matches!(layer, Layer::Custom(_)));
        model.range("hidden", self.hidden, u64::from(sized), WIDTH);
        model.range("vocab", self.vocab, u64::from(sized), VOCAB);
        model.range("learned_positions", self.learned_positions.unwrap_or(1), 1, Limit(1 << 30));
        model.range("number of layers", self.layers.len() as u64, 1, Limit(LAYERS.0 + 64));
        for (index, layer) in self.layers.iter().enumerate() {
            let mut faults = Faults { prefix: format!("layer {index}: "), found: &mut found };
            match layer {
                Layer::Block(block) | Layer::Mtp(block) => block.push_faults(&mut faults),
                Layer::Custom(custom) => custom.push_faults(&mut faults),
                Layer::Embedding | Layer::FinalNorm | Layer::Head => {}
            }
            if found.len() > 32 {
                break;
            }
        }
        if found.is_empty() {
            found.extend(self.size_fault());
        }
        found
    }

    fn size_fault(&self) -> Option<String> {
        let total = self.parameters_total().saturating_add(self.parameters_mtp());
        (total > PARAMETERS)
            .then(|| format!("the sizes make {total} parameters, expected at most {PARAMETERS}"))
    }
}

impl Block {
    fn push_faults(&self, faults: &mut Faults) {
        faults.range("norms", u64::from(self.norms), 0, Limit(16));
        self.attention.push_faults(faults);
        match self.mlp {
            Mlp::Dense { ffn, .. } => faults.range("ffn", ffn, 1, FFN),
            Mlp::Moe { experts, topk, ffn, shared_ffn, dense_ffn, .. } => {
                faults.range("experts", experts, 1, EXPERTS);
                faults.range("topk", topk, 1, HEADS);
                faults.range("expert ffn", ffn, 1, FFN);
                faults.range("shared expert ffn", shared_ffn, 0, FFN);
                faults.range("dense ffn", dense_ffn, 0, FFN);
                faults.unless(topk <= experts, || format!("topk is {topk}, more than the {experts} experts"));
            }
        }
    }
}

impl Attention {
    fn push_faults(&self, faults: &mut Faults) {
        match *self {
            Self::Standard { heads, kv_heads, head_dim, v_head_dim, window, qk_norm_parameters, .. } => {
                faults.range("heads", heads, 1, HEADS);
                faults.range("kv_heads", kv_heads, 1, HEADS);
                faults.range("head_dim", head_dim, 1, WIDTH);
                faults.range("v_head_dim", v_head_dim, 1, WIDTH);
                faults.range("window", window.unwrap_or(1), 1, TOKENS);
                faults.range("qk_norm_parameters", qk_norm_parameters, 0, Limit(1 << 30));
                faults.unless(kv_heads > 0 && heads.is_multiple_of(kv_heads), || {
                    format!("kv_heads is {kv_heads}, which does not divide the {heads} heads")
                });
            }
            Self::Latent { heads, q_rank, kv_rank, qk_nope_dim, qk_rope_dim, v_dim, .. } => {
                faults.range("heads", heads, 1, HEADS);
                let widths = [("q_rank", q_rank.unwrap_or(1)), ("kv_rank", kv_rank), ("v_dim", v_dim)];
                for (name, width) in widths {
                    faults.range(name, width, 1, WIDTH);
                }
                faults.range("qk_nope_dim", qk_nope_dim, 0, WIDTH);
                faults.range("qk_rope_dim", qk_rope_dim, 0, WIDTH);
                self.push_index_faults(faults);
            }
            Self::Linear { k_heads, v_heads, k_dim, v_dim, conv, .. } => {
                faults.range("k_heads", k_heads, 1, HEADS);
                faults.range("v_heads", v_heads, 1, HEADS);
                faults.range("k_dim", k_dim, 1, WIDTH);
                faults.range("v_dim", v_dim, 1, WIDTH);
                faults.range("conv", conv, 0, HEADS);
                faults.unless(k_heads > 0 && v_heads.is_multiple_of(k_heads), || {
                    format!("k_heads is {k_heads}, which does not divide the {v_heads} value heads")
                });
            }
        }
    }

    fn push_index_faults(&self, faults: &mut Faults) {
        if let Self::Latent { sparse_topk: Some(topk), index_heads, index_dim, .. } = *self {
            faults.range("sparse_topk", topk, 1, TOKENS);
            faults.range("index_heads", index_heads, 0, HEADS);
            faults.range("index_dim", index_dim, 0, WIDTH);
        }
    }
}

impl CustomLayer {
    fn push_faults(&self, faults: &mut Faults) {
        faults.range("parameters", self.parameters, 0, Limit(PARAMETERS));
        let quantities = [
            ("forward_seconds", self.forward_seconds, 1e6),
            ("input_gradient_seconds", self.input_gradient_seconds, 1e6),
            ("weight_gradient_seconds", self.weight_gradient_seconds, 1e6),
            ("activation_bytes", self.activation_bytes, 1e18),
            ("output_bytes", self.output_bytes, 1e18),
        ];
        for (name, value, high) in quantities {
            faults.unless((0.0..=high).contains(&value), || {
                format!("{name} is {value}, expected 0 to {high:e}")
            });
        }
    }
}
