//! Parameters of a layer that one rank computes with.

use super::context::LayerContext;
use crate::model::{Layer, Sharding, Weight};

/// Parameters on one rank before any sharding over data-parallel ranks.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RankParameters {
    /// Replicated over the data-parallel (and context-parallel) ranks.
    pub dense: f64,
    /// Of routed experts, replicated over the expert data-parallel ranks.
    pub expert: f64,
}

impl RankParameters {
    /// Those of `layer`.
    #[must_use]
    pub fn of(context: &LayerContext, layer: &Layer) -> Self {
        let mut sum = Self::default();
        for weight in layer.weights(context.model) {
            let local = local(context, &weight);
            if weight.is_expert() {
                sum.expert += local;
            } else {
                sum.dense += local;
            }
        }
        sum
    }

    /// Both.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.dense + self.expert
    }
}

impl std::ops::AddAssign for RankParameters {
    fn add_assign(&mut self, other: Self) {
        self.dense += other.dense;
        self.expert += other.expert;
    }
}

fn local(context: &LayerContext, weight: &Weight) -> f64 {
    let whole = weight.parameters() as f64;
    match weight.sharding {
        Sharding::Replicated | Sharding::Positions => whole,
        Sharding::Tensor => whole / context.tp,
        Sharding::TensorKv { kv_heads } => whole / context.tp.min(kv_heads.max(1) as f64),
        Sharding::Expert => whole / (context.ep * context.etp),
        Sharding::ExpertReplicated => whole / context.ep,
        Sharding::Vocabulary => {
            let padded = context.model.padded_vocab(context.tp as u32) as f64;
            whole / context.model.vocab.max(1) as f64 * padded / context.tp
        }
    }
}
