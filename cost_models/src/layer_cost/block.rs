//! A transformer block: mixer, channel mixer, norms, tensor-parallel traffic, host floor, recompute.

use super::LayerCost;
use super::channel::{activation_forward, channel, shared_forward};
use super::context::LayerContext;
use super::ends;
use super::linear::linear;
use super::mixer::{core_forward, latent_up, mixer};
use super::passes::{PassCost, Passes};
use crate::comm::Collective;
use crate::compute::stream;
use crate::model::{Attention, Block, Mlp};
use crate::modules::{Module, ModuleSet};
use crate::parallel::Recompute;
use crate::runtime::SelectiveRecompute;
use cluster_profiles::{Bytes, Seconds};

/// Norms of the usual block, which the engine's bytes per hidden channel stand for.
const USUAL_NORMS: f64 = 2.0;
/// Exponent that joins GPU and host time of an expert layer: they wait for each other once per layer, so that times of
/// similar size do not hide one another.
const HOST_EXPONENT: f64 = 6.0;

/// A block, under each of several recomputes.
pub(super) fn block<const N: usize>(
    context: &LayerContext,
    block: &Block,
    recomputes: [Recompute; N],
    cost: impl Fn(Passes) -> LayerCost,
) -> [LayerCost; N] {
    let linears = mixer(context, &block.attention) + channel(context, &block.mlp);
    let passes = linears + elementwise(context, block) + tensor_traffic(context, block);
    let cost = cost(passes);
    recomputes.map(|recompute| {
        let recompute = repeated(context, block, recompute, &passes);
        with_host(context, block, LayerCost { recompute, ..cost })
    })
}

/// A multi-token-prediction block: a projection of twice the width, the block, and another pass through the head.
pub(super) fn mtp<const N: usize>(
    context: &LayerContext,
    inner: &Block,
    recomputes: [Recompute; N],
    cost: impl Fn(Passes) -> LayerCost,
) -> [LayerCost; N] {
    let hidden = context.hidden();
    let around = linear(context, context.tokens, hidden / context.tp, 2.0 * hidden)
        + ends::final_norm(context)
        + ends::final_norm(context)
        + ends::head(context);
    let mut costs = block(context, inner, recomputes, cost);
    for whole in &mut costs {
        whole.forward += around.forward;
        whole.input_gradient += around.input_gradient;
        whole.weight_gradient += around.weight_gradient;
    }
    costs
}

/// Norms, residuals, dropout: divided by tp only where the sequence is.
fn elementwise(context: &LayerContext, block: &Block) -> Passes {
    let forward = norms_forward(context, block);
    Passes::kernels(forward, forward * context.shared().elementwise_backward)
}

fn norms_forward(context: &LayerContext, block: &Block) -> Seconds {
    let bytes = context.runtime.hidden_bytes() * f64::from(block.norms) / USUAL_NORMS;
    stream(context.gpu, Bytes(bytes * context.tokens / context.sequence_shards * context.hidden()))
}

/// Collectives around the mixer and around a dense MLP: gather and scatter with sequence parallelism (plus half a
/// repeated gather in the backward, the other half hides behind a product), an all_reduce each without.
fn tensor_traffic(context: &LayerContext, block: &Block) -> Passes {
    let parts = if matches!(block.mlp, Mlp::Dense { .. }) { 2.0 } else { 1.0 };
    let bytes = Bytes(context.element_bytes() * context.tokens * context.hidden());
    let time = |collective| context.tp_fabric().time(collective, bytes, context.tp_group);
    let (forward, backward) = if context.sequence_shards > 1.0 {
        let (gather, scatter) = (time(Collective::AllGather), time(Collective::ReduceScatter));
        (gather + scatter, gather * 1.5 + scatter)
    } else {
        let reduce = time(Collective::AllReduce);
        (reduce, reduce)
    };
    let exposed = context.tp_exposed() * parts;
    Passes::traffic(forward * exposed, backward * exposed)
}

/// What the backward repeats first.
fn repeated(context: &LayerContext, block: &Block, recompute: Recompute, passes: &Passes) -> PassCost {
    let modules = context.runtime.facts.recompute_modules;
    let share = context.runtime.facts.recompute_every.map_or(1.0, |every| 1.0 / f64::from(every.max(1)));
    match recompute {
        Recompute::None | Recompute::Offload { .. } => PassCost::default(),
        Recompute::Modules(choice) => repeated_choice(context, block, choice.repeated),
        Recompute::Full { .. } => passes.forward * share,
        Recompute::Selective if share < 1.0 => passes.forward * share,
        Recompute::Selective if modules.any() => repeated_modules(context, block),
        Recompute::Selective => match context.runtime.time.selective {
            SelectiveRecompute::CoreAttention if context.runtime.attention.stores_scores() => {
                core_forward(context, &block.attention)
            }
            SelectiveRecompute::CoreAttention => PassCost::default(),
            SelectiveRecompute::PerOperator => PassCost {
                matmul: passes.forward.matmul * context.shared().per_operator_recompute,
                other_kernels: passes.forward.other_kernels,
                ..PassCost::default()
            },
        },
    }
}

/// Share of a block's norm traffic that recomputing the norms alone repeats.
const NORM_SHARE: f64 = 0.3;

fn repeated_modules(context: &LayerContext, block: &Block) -> PassCost {
    let modules = context.runtime.facts.recompute_modules;
    let mut kernels = Seconds::ZERO;
    if modules.norms {
        kernels += norms_forward(context, block) * NORM_SHARE;
    }
    if modules.expert_activation {
        kernels += activation_forward(context, &block.mlp);
    }
    let latent = if modules.latent_up_projection {
        latent_up(context, &block.attention).forward
    } else {
        PassCost::default()
    };
    PassCost::of_kernels(kernels) + latent
}

/// What repeating modules of a block costs, each by its own kernels.
fn repeated_choice(context: &LayerContext, block: &Block, modules: ModuleSet) -> PassCost {
    let routed = matches!(block.mlp, Mlp::Moe { .. });
    let latent = matches!(block.attention, Attention::Latent { .. });
    let norm = norms_forward(context, block) * (NORM_SHARE / f64::from(block.norms.max(1)));
    let none = PassCost::default();
    let cost = |module: Module| match module {
        Module::Layernorm => PassCost::of_kernels(norm * f64::from(u8::from(routed) + u8::from(latent))),
        Module::CoreAttn => core_forward(context, &block.attention),
        Module::MlaUpProj => latent_up(context, &block.attention).forward,
        Module::Mlp if !routed => channel(context, &block.mlp).forward + PassCost::of_kernels(norm),
        Module::Moe if routed => channel(context, &block.mlp).forward,
        Module::MoeAct if routed => PassCost::of_kernels(activation_forward(context, &block.mlp)),
        Module::SharedExperts => shared_forward(context, &block.mlp),
        _ => none,
    };
    modules.iter().map(cost).fold(none, |sum, cost| sum + cost)
}

/// Adds the time the GPU waits for its host, in forward and backward.
fn with_host(context: &LayerContext, block: &Block, mut cost: LayerCost) -> LayerCost {
    let forward = cost.forward.gpu();
    let gradients = cost.input_gradient.gpu() + cost.weight_gradient.gpu();
    let repeated = cost.recompute.gpu();
    let (host, wait): (Seconds, fn(Seconds, Seconds) -> Seconds) = match block.mlp {
        Mlp::Dense { .. } => (context.dense_host(), |gpu, host| (host - gpu).max(Seconds::ZERO)),
        Mlp::Moe { .. } => (context.expert_host(), joined_wait),
    };
    cost.forward.host = wait(forward, host);
    cost.input_gradient.host = wait(gradients, host * context.shared().host_backward);
    if repeated >= forward * 0.5 {
        cost.recompute.host = cost.forward.host * (repeated / forward);
    }
    cost
}

/// `(gpu^6 + host^6)^(1/6) - gpu`.
fn joined_wait(gpu: Seconds, host: Seconds) -> Seconds {
    let (longer, shorter) = (gpu.max(host).get(), gpu.min(host).get());
    if longer <= 0.0 {
        return Seconds::ZERO;
    }
    let joined = longer * (1.0 + (shorter / longer).powf(HOST_EXPONENT)).powf(1.0 / HOST_EXPONENT);
    Seconds(joined) - gpu
}
