//! Engines whose blocks may differ in tensor parallelism, sharding and recompute ([`cost_models::layerwise`]): Galvatron's
//! space (arXiv 2211.13878), searched exactly.
//!
//! 1. [`grid`] tabulates every kind of layer under every strategy for one set of degrees (pp, cp, microbatches). A grid is bounded
//!    by the least work of its layers.
//! 2. A [`node`] adds schedule, the layout of embedding and head, and how what is not fully sharded is sharded. [`bound`] knows the
//!    least step of all its splits and strategies, memory priced.
//! 3. [`stage`] is the dynamic program over the layers of a stage, [`pipeline`] that over the stages. Whole pipelines by rising
//!    bound are judged by [`cost_models::layerwise::estimate`], until none is below the best.
//!
//! Nodes with the smallest bound come first. One that a pipeline makes too large to close (its labels or simulations are
//! counted) stays open with its bound, which the certificate then shows as a gap. The certificate's layouts are nodes: each stands
//! for all strategies and splits of its degrees.

pub mod bound;
pub mod grid;
pub mod node;
pub mod pipeline;
pub mod price;
mod queue;
mod search;
pub mod stage;

pub use search::run;

use crate::objective::Objective;
use crate::problem::Problem;
use cost_models::model::Layer;
use cost_models::rules::engine;

/// Whether a problem is searched here: its engine can, its GPUs and links are equal, and nothing is asked that strategies by
/// layer are not known for (energy, multi-token prediction, shared weight-gradient buffers).
#[must_use]
pub fn applies(problem: &Problem) -> bool {
    let cluster = problem.cluster;
    let even = cluster.is_homogeneous() && cluster.is_even();
    let multi_token = problem.model.layers.iter().any(|layer| matches!(layer, Layer::Mtp(_)));
    let memory = &problem.runtime.memory;
    engine(&problem.runtime.name).layerwise
        && !problem.layers_alike
        && even
        && !multi_token
        && memory.state.whole_gradients
        && !memory.workspace.shared_weight_gradients
        && problem.objective != Objective::Energy
}
