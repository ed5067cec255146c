//! The channel mixer of a block: a dense MLP or routed experts.

use super::context::LayerContext;
use super::linear::{linear, linear_in};
use super::passes::{PassCost, Passes};
use crate::comm::{Collective, Dispatch};
use crate::compute::{ExpertShape, Format, cast, expert_products, stream};
use crate::model::{Activation, Mlp};
use cluster_profiles::{Bytes, Seconds};

/// Forward and backward of the channel mixer, norms apart.
pub(super) fn channel(context: &LayerContext, mlp: &Mlp) -> Passes {
    match *mlp {
        Mlp::Dense { ffn, activation } => dense(context, ffn as f64, activation),
        Mlp::Moe { .. } => experts(context, mlp),
    }
}

/// The element-wise kernels of the mixer's forward: what a recompute of the activation repeats.
pub(super) fn activation_forward(context: &LayerContext, mlp: &Mlp) -> Seconds {
    match *mlp {
        Mlp::Dense { ffn, activation } => activation_time(context, ffn as f64, activation),
        Mlp::Moe { topk, ffn, activation, .. } => {
            let rows = routed_rows(context, topk);
            let bytes = (12.0 + clamped_bytes(context, activation)) * rows * ffn as f64;
            stream(context.gpu, Bytes(expert_traffic(context) * bytes))
        }
    }
}

/// The forward of the shared experts alone.
pub(super) fn shared_forward(context: &LayerContext, mlp: &Mlp) -> PassCost {
    match *mlp {
        Mlp::Moe { shared_ffn, activation, .. } if shared_ffn > 0 => {
            (dense(context, shared_ffn as f64, activation) + gathered(context)).forward
        }
        _ => PassCost::default(),
    }
}

fn dense(context: &LayerContext, ffn: f64, activation: Activation) -> Passes {
    let local = ffn / context.tp;
    let gates = activation.up_projections() as f64;
    let forward = activation_time(context, ffn, activation);
    linear(context, context.tokens, gates * local, context.hidden())
        + linear(context, context.tokens, context.hidden(), local)
        + Passes::kernels(forward, forward * context.shared().elementwise_backward)
}

fn activation_time(context: &LayerContext, ffn: f64, activation: Activation) -> Seconds {
    let per_channel = context.shared().ffn_bytes_ratio * context.runtime.time.hidden_bytes;
    let gates = activation.up_projections() as f64;
    stream(context.gpu, Bytes(per_channel * gates * context.tokens * ffn / context.tp))
}

/// Token copies that one rank sends to experts: all of its tokens' visits, or the padded capacity.
fn routed_rows(context: &LayerContext, topk: u64) -> f64 {
    let capacity = context.runtime.facts.capacity_factor.unwrap_or(1.0).max(0.0);
    context.tokens / context.tp * topk as f64 * capacity
}

fn expert_traffic(context: &LayerContext) -> f64 {
    context.shared().expert_traffic * context.runtime.time.expert_traffic(context.runtime.release)
}

fn clamped_bytes(context: &LayerContext, activation: Activation) -> f64 {
    let unfused = activation == Activation::ClampedSwiglu && !context.runtime.time.fused_clamped_activation;
    if unfused { context.shared().clamped_activation_bytes } else { 0.0 }
}

fn experts(context: &LayerContext, mlp: &Mlp) -> Passes {
    let Mlp::Moe { experts, topk, ffn, shared_ffn, activation, group_limit, dense_ffn, .. } = *mlp else {
        return Passes::default();
    };
    let sent = routed_rows(context, topk);
    let shape = ExpertShape {
        rows: sent * context.imbalance * context.etp,
        hidden: context.hidden(),
        ffn: ffn as f64 / context.etp,
        matrices: (activation.up_projections() + 1) as f64,
        experts: (experts as f64 / context.ep).max(1.0),
    };
    let local_tokens = context.tokens / context.tp;
    let mut passes = products(context, &shape)
        + permutation(context, &shape, activation)
        + linear_in(context, Format::Bits16, local_tokens, experts as f64, context.hidden())
        + expert_tensor_traffic(context, &shape);
    for beside in [shared_ffn, dense_ffn] {
        if beside > 0 {
            passes += dense(context, beside as f64, activation) + gathered(context);
        }
    }
    let dispatch = dispatch(context, topk, group_limit) * context.imbalance;
    for pass in [&mut passes.forward, &mut passes.input_gradient] {
        pass.ep += dispatch * context.ep_exposed();
        if context.combined {
            pass.ep_hidden += dispatch * (1.0 - context.ep_exposed());
        }
    }
    passes
}

fn products(context: &LayerContext, shape: &ExpertShape) -> Passes {
    let (gpu, shared, format) = (context.gpu, context.shared(), context.expert_format);
    let elements = shape.rows * (shape.hidden + shape.ffn);
    let pass = PassCost {
        matmul: expert_products(gpu, shared, format, shape, format.bytes()),
        other_kernels: cast(gpu, shared, format, elements, context.cast_cost()),
        ..PassCost::default()
    };
    let accumulate = context.runtime.time.weight_gradient_bytes;
    Passes {
        forward: pass,
        input_gradient: pass,
        weight_gradient: PassCost::of_matmul(expert_products(gpu, shared, format, shape, accumulate)),
    }
}

/// Permutation, activation and probability kernels around the products: `10 r h + 12 r f` bytes where nothing is fused.
fn permutation(context: &LayerContext, shape: &ExpertShape, activation: Activation) -> Passes {
    let gates = activation.up_projections() as f64;
    let per_row = 10.0 * shape.hidden + (6.0 * gates + clamped_bytes(context, activation)) * shape.ffn;
    let forward = stream(context.gpu, Bytes(expert_traffic(context) * shape.rows * per_row));
    Passes::kernels(forward, forward * 1.5)
}

/// Gathering the routed rows over the expert tensor-parallel ranks, and scattering the results.
fn expert_tensor_traffic(context: &LayerContext, shape: &ExpertShape) -> Passes {
    let bytes = Bytes(2.0 * shape.rows * shape.hidden);
    let fabric = context.etp_fabric();
    let gather = fabric.time(Collective::AllGather, bytes, context.etp_group);
    let scatter = fabric.time(Collective::ReduceScatter, bytes, context.etp_group);
    let exposed = (gather + scatter) * context.tp_exposed();
    Passes::traffic(exposed, exposed)
}

/// Gather and scatter of the residual stream around a tensor-parallel MLP.
fn gathered(context: &LayerContext) -> Passes {
    let bytes = Bytes(2.0 * context.tokens * context.hidden());
    let fabric = context.tp_fabric();
    let gather = fabric.time(Collective::AllGather, bytes, context.tp_group);
    let scatter = fabric.time(Collective::ReduceScatter, bytes, context.tp_group);
    let exposed = (gather + scatter) * context.tp_exposed();
    Passes::traffic(exposed, exposed)
}

fn dispatch(context: &LayerContext, topk: u64, group_limit: Option<u64>) -> Seconds {
    let shared = context.shared();
    let dispatch = Dispatch {
        tokens: context.tokens / context.tp * context.runtime.facts.capacity_factor.unwrap_or(1.0),
        token_bytes: 2.0 * context.hidden(),
        topk: topk as f64,
        group_limit: group_limit.map(|groups| groups as f64),
        group: context.ep_group,
        dispatcher: context.dispatcher(),
    };
    dispatch.time(&context.ep_fabric(), context.gpu.is_blackwell_or_later(), shared.dispatch_latency)
}
