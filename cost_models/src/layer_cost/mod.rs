//! What one layer costs: seconds of its three passes by kind, what recompute repeats, and the bytes it sends on.
//!
//! [`layer_cost`] depends only on the layer, its recompute and the [`LayerContext`]; a search tabulates it once per
//! kind of layer and combination of tp, cp, ep, etp, sequence parallelism and micro batch.

mod block;
mod channel;
mod context;
mod ends;
mod linear;
pub mod measured;
mod memo;
mod mixer;
mod parameters;
mod passes;

pub use context::LayerContext;
pub use memo::Memo;
pub use parameters::RankParameters;
pub use passes::{PassCost, Passes};

use crate::model::{CustomLayer, Layer};
use crate::parallel::Recompute;
use cluster_profiles::{Bytes, Seconds};

/// The cost of one microbatch through one layer on one rank.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LayerCost {
    /// Forward.
    pub forward: PassCost,
    /// Gradient of the layer's input, recompute apart.
    pub input_gradient: PassCost,
    /// Gradient of the layer's weights.
    pub weight_gradient: PassCost,
    /// What is repeated before the backward.
    pub recompute: PassCost,
    /// Bytes sent to the next pipeline rank after this layer.
    pub output: Bytes,
    /// Parameters that one rank computes with.
    pub parameters: RankParameters,
}

impl LayerCost {
    /// The whole backward: recompute, input gradient, weight gradient.
    #[must_use]
    pub fn backward(&self) -> PassCost {
        self.recompute + self.input_gradient + self.weight_gradient
    }
}

/// The cost of `layer`, of which the backward repeats what `recompute` says (a number of layers counts as this one
/// being among them).
#[must_use]
pub fn layer_cost(context: &LayerContext, layer: &Layer, recompute: Recompute) -> LayerCost {
    let [cost] = layer_costs(context, layer, [recompute]);
    cost
}

/// The cost of `layer` under each of several recomputes.
#[must_use]
pub fn layer_costs<const N: usize>(
    context: &LayerContext,
    layer: &Layer,
    recomputes: [Recompute; N],
) -> [LayerCost; N] {
    let parameters = RankParameters::of(context, layer);
    measured::level(context, layer, modelled(context, layer, recomputes, parameters))
}

/// Seconds of one microbatch through `layer` and back, without recompute: what [`layer_cost`] adds up to.
#[must_use]
pub fn layer_seconds(context: &LayerContext, layer: &Layer) -> Seconds {
    let modelled = modelled(context, layer, [Recompute::None], RankParameters::default());
    let [cost] = measured::level(context, layer, modelled);
    (cost.forward + cost.backward()).total()
}

/// The same by the kernel curves alone.
fn modelled<const N: usize>(
    context: &LayerContext,
    layer: &Layer,
    recomputes: [Recompute; N],
    parameters: RankParameters,
) -> [LayerCost; N] {
    let output = Bytes(context.element_bytes() * context.tokens * context.hidden() / context.tp);
    let cost = |passes: Passes| LayerCost {
        forward: passes.forward,
        input_gradient: passes.input_gradient,
        weight_gradient: passes.weight_gradient,
        recompute: PassCost::default(),
        output,
        parameters,
    };
    match layer {
        Layer::Embedding => [cost(ends::embedding(context)); N],
        Layer::FinalNorm => [cost(ends::final_norm(context)); N],
        Layer::Head => [cost(ends::head(context)); N],
        Layer::Block(block) => block::block(context, block, recomputes, cost),
        Layer::Mtp(block) => block::mtp(context, block, recomputes, cost),
        Layer::Custom(layer) => recomputes.map(|recompute| custom(context, layer, recompute, parameters)),
    }
}

/// A layer with stated costs: times per sequence of a microbatch.
fn custom(
    context: &LayerContext,
    layer: &CustomLayer,
    recompute: Recompute,
    parameters: RankParameters,
) -> LayerCost {
    let sequences = context.batch / context.cp;
    let pass = |seconds: f64| PassCost::of_matmul(Seconds(seconds * sequences));
    let forward = pass(layer.forward_seconds);
    LayerCost {
        forward,
        input_gradient: pass(layer.input_gradient_seconds),
        weight_gradient: pass(layer.weight_gradient_seconds),
        recompute: if matches!(recompute, Recompute::Full { .. }) { forward } else { PassCost::default() },
        output: Bytes(layer.output_bytes * sequences),
        parameters,
    }
}
