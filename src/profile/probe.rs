//! The probe: the script that `profile script` writes.

use crate::error::AppError;
use cost_models::ModelSpec;
use cost_models::model::{Attention, Block, Layer, Mlp};
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
    /// Degrees above 1 that experts are split by, where the model has some.
    eps: Vec<u32>,
    /// Layers that are timed in a row, and blocks that the optimizer updates.
    chain: u32,
    largest_message: u64,
}

/// Degrees that the script splits a layer by, one at a time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Degrees {
    /// Tensor parallelism.
    pub tp: Vec<u32>,
    /// Context parallelism.
    pub cp: Vec<u32>,
    /// Expert parallelism.
    pub ep: Vec<u32>,
}

/// Sizes of the model's usual block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sizes {
    pub(super) name: String,
    pub(super) hidden: u32,
    pub(super) heads: u32,
    pub(super) kv_heads: u32,
    pub(super) head_dim: u32,
    /// Width of the MLP, or of an expert.
    pub(super) ffn: u32,
    /// Routed experts; 0 for a dense MLP.
    #[serde(default)]
    pub(super) experts: u32,
    /// Experts a token visits.
    #[serde(default)]
    pub(super) topk: u32,
    /// Width of the shared expert.
    #[serde(default)]
    pub(super) shared_ffn: u32,
    pub(super) gated: bool,
    pub(super) vocab: u32,
    pub(super) layers: u32,
}

impl Plan {
    /// What to measure for `model`: its most frequent kind of block, split by each of these degrees alone.
    ///
    /// # Errors
    /// The model has no block with plain attention and a dense MLP or routed experts.
    pub fn new(
        model: &ModelSpec,
        seq_lens: &[u32],
        micro_batches: &[u32],
        degrees: &Degrees,
    ) -> Result<Self, AppError> {
        let (sizes, blocks) = usual_block(model).ok_or_else(|| AppError::Other {
            message: format!(
                "{} has no block with plain attention, of which the probe times one with a dense MLP or routed experts",
                model.name
            ),
            hint: Some(
                "probe a dense model of the same width: its links and kernels serve as well".to_owned(),
            ),
        })?;
        let whole = |tp: &&u32| {
            let split = if sizes.experts > 0 { sizes.shared_ffn } else { sizes.ffn };
            // Tensor parallelism of experts is no part of the probe.
            **tp == 1 || sizes.experts == 0 && sizes.heads.is_multiple_of(**tp) && split.is_multiple_of(**tp)
        };
        let mut splits: Vec<(u32, u32)> = degrees.tp.iter().filter(whole).map(|tp| (*tp, 1)).collect();
        splits.extend(degrees.cp.iter().filter(|cp| **cp > 1).map(|cp| (1, *cp)));
        splits.sort_unstable();
        splits.dedup();
        let divides = |ep: &&u32| **ep > 1 && sizes.experts > 0 && sizes.experts.is_multiple_of(**ep);
        let mut eps: Vec<u32> = degrees.ep.iter().filter(divides).copied().collect();
        eps.sort_unstable();
        eps.dedup();
        Ok(Self {
            model: sizes,
            seq_lens: seq_lens.to_vec(),
            micro_batches: micro_batches.to_vec(),
            splits,
            eps,
            chain: blocks.clamp(1, 4),
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

/// The sizes of the most frequent kind of block that the probe can build, and the number of blocks.
fn usual_block(model: &ModelSpec) -> Option<(Sizes, u32)> {
    let blocks = model.layers.iter().filter_map(|layer| match layer {
        Layer::Block(block) => Some(block),
        _ => None,
    });
    let count = blocks.clone().count() as u32;
    let mut kinds: Vec<(Sizes, u32)> = Vec::new();
    for sizes in blocks.filter_map(|block| sizes(model, block, count)) {
        match kinds.iter_mut().find(|(known, _)| *known == sizes) {
            Some((_, times)) => *times += 1,
            None => kinds.push((sizes, 1)),
        }
    }
    // The first of equally frequent ones.
    let usual = kinds.into_iter().rev().max_by_key(|(_, times)| *times)?;
    Some((usual.0, count))
}

fn sizes(model: &ModelSpec, block: &Block, layers: u32) -> Option<Sizes> {
    let Attention::Standard { heads, kv_heads, head_dim, .. } = block.attention else { return None };
    let small = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    let (ffn, gates, experts, topk, shared_ffn) = match block.mlp {
        Mlp::Dense { ffn, activation } => (ffn, activation, 0, 0, 0),
        Mlp::Moe { experts, topk, ffn, shared_ffn, activation, dense_ffn: 0, .. } => {
            (ffn, activation, experts, topk, shared_ffn)
        }
        Mlp::Moe { .. } => return None,
    };
    Some(Sizes {
        name: model.name.clone(),
        hidden: small(model.hidden),
        heads: small(heads),
        kv_heads: small(kv_heads),
        head_dim: small(head_dim),
        ffn: small(ffn),
        experts: small(experts),
        topk: small(topk),
        shared_ffn: small(shared_ffn),
        gated: gates.up_projections() == 2,
        vocab: small(model.vocab),
        layers,
    })
}
