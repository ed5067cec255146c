//! Which layers every stage has, and the rules by which engines split a model.

mod split;

use crate::parallel::Recompute;
use serde::{Deserialize, Serialize};
pub use split::{SplitError, default_stages, layout_stages, stages_from_blocks, stages_from_layout};

/// A stage: contiguous layers with one forward.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// Pipeline rank that runs it.
    pub rank: u32,
    /// Which of the rank's chunks it is.
    pub chunk: u32,
    /// First and last layer, as indices into the model's layers, both included; none for an empty stage.
    pub layers: Option<[u32; 2]>,
    /// What its blocks recompute.
    pub recompute: Recompute,
}

/// All stages, in forward order. Together they hold every layer of the model once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StageMap(pub Vec<Stage>);

impl Stage {
    /// Indices of its layers.
    #[must_use]
    pub fn layer_range(&self) -> std::ops::Range<usize> {
        self.layers.map_or(0..0, |[first, last]| first as usize..last as usize + 1)
    }
}

impl StageMap {
    /// The stages of one pipeline rank, in chunk order.
    pub fn on_rank(&self, rank: u32) -> impl Iterator<Item = &Stage> {
        self.0.iter().filter(move |stage| stage.rank == rank)
    }

    /// The same stages, all recomputing `recompute`.
    #[must_use]
    pub fn with_recompute(mut self, recompute: Recompute) -> Self {
        self.0.iter_mut().for_each(|stage| stage.recompute = recompute);
        self
    }
}
