//! What pictures, traces and texts of a timeline share.

use cost_models::schedule::{Op, OpSpan, RankOrders, Timeline};

/// What a rank holds over time.
#[derive(Debug, Clone, Copy)]
pub enum Held<'a> {
    /// Microbatch-chunks, all alike.
    Chunks,
    /// Bytes: those of a microbatch (or slice) of every stage of a pipeline.
    Bytes(&'a [f64]),
}

impl Held<'_> {
    /// What is held on a rank from each moment on: chunks, or bytes.
    #[must_use]
    pub fn over_time(self, orders: &RankOrders, timeline: &Timeline, rank: usize) -> Vec<(f64, f64)> {
        let slice = 1.0 / f64::from(orders.slices());
        let of = |op: Op| match self {
            Held::Chunks => slice,
            Held::Bytes(bytes) => bytes.get(orders.depth_of(op.stage) as usize).copied().unwrap_or(0.0),
        };
        timeline.held_over_time(rank, of)
    }

    /// The most a rank ever holds.
    #[must_use]
    pub fn peak(self, orders: &RankOrders, timeline: &Timeline, rank: usize) -> f64 {
        let Some(line) = timeline.ranks.get(rank) else { return 0.0 };
        match self {
            Held::Chunks => f64::from(line.peak_activations) / f64::from(orders.slices()),
            Held::Bytes(_) => line.peak_activation_bytes,
        }
    }
}

/// Which of its rank's stages the operation belongs to.
pub(super) fn chunk(orders: &RankOrders, span: &OpSpan) -> u32 {
    u32::from(span.op.stage) / orders.ranks()
}
