//! The probe: the script that `profile script` writes.

use crate::error::AppError;
use cost_models::ModelSpec;
use cost_models::model::{Attention, Layer, Mlp};
use serde::{Deserialize, Serialize};

const SCRIPT: &str = include_str!("probe.py");

/// What the script varies.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    model: Sizes,
    seq_lens: Vec<u32>,
    micro_batches: Vec<u32>,
    /// Pairs of tp and cp.
    splits: Vec<(u32, u32)>,
    /// Layers that are timed in a row, and blocks that the optimizer updates.
    chain: u32,
    largest_message: u64,
}

/// Sizes of the model's usual block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Sizes {
    pub(super) name: String,
    pub(super) hidden: u32,
    pub(super) heads: u32,
    pub(super) kv_heads: u32,
    pub(super) head_dim: u32,
    pub(super) ffn: u32,
    pub(super) gated: bool,
    pub(super) vocab: u32,
    pub(super) layers: u32,
}

impl Plan {
    /// What to measure for `model`.
    ///
    /// # Errors
    /// The model has no block with plain attention and a dense MLP.
    pub fn new(
        model: &ModelSpec,
        seq_lens: &[u32],
        micro_batches: &[u32],
        tps: &[u32],
        cps: &[u32],
    ) -> Result<Self, AppError> {
        let blocks: Vec<_> = model
            .layers
            .iter()
            .filter_map(|l| match l {
                Layer::Block(b) => Some(b),
                _ => None,
            })
            .collect();
        let usual = blocks.iter().find_map(|block| match (&block.attention, &block.mlp) {
            (Attention::Standard { heads, kv_heads, head_dim, .. }, Mlp::Dense { ffn, activation }) => {
                Some((*heads, *kv_heads, *head_dim, *ffn, activation.up_projections() == 2))
            }
            _ => None,
        });
        let (heads, kv_heads, head_dim, ffn, gated) = usual.ok_or_else(|| AppError::Other {
            message: format!(
                "{} has no block with plain attention and a dense MLP, which the probe times",
                model.name
            ),
            hint: Some(
                "probe a dense model of the same width: its links and kernels serve as well".to_owned(),
            ),
        })?;
        let small = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        let sizes = Sizes {
            name: model.name.clone(),
            hidden: small(model.hidden),
            heads: small(heads),
            kv_heads: small(kv_heads),
            head_dim: small(head_dim),
            ffn: small(ffn),
            gated,
            vocab: small(model.vocab),
            layers: blocks.len() as u32,
        };
        let mut splits: Vec<(u32, u32)> = tps
            .iter()
            .filter(|tp| heads.is_multiple_of(u64::from(**tp)) && ffn.is_multiple_of(u64::from(**tp)))
            .map(|tp| (*tp, 1))
            .collect();
        splits.extend(cps.iter().filter(|cp| **cp > 1).map(|cp| (1, *cp)));
        splits.sort_unstable();
        splits.dedup();
        Ok(Self {
            model: sizes,
            seq_lens: seq_lens.to_vec(),
            micro_batches: micro_batches.to_vec(),
            splits,
            chain: (blocks.len() as u32).clamp(1, 4),
            largest_message: 1 << 30,
        })
    }

    /// The script.
    ///
    /// # Errors
    /// The sizes cannot be written as JSON.
    pub fn script(&self) -> Result<String, AppError> {
        let spec = serde_json::to_string(self)
            .map_err(|e| AppError::Other { message: e.to_string(), hint: None })?;
        Ok(SCRIPT.replace("@SPEC@", &spec))
    }
}
