//! Linear layers: three products, and the casts of their inputs.

use super::context::LayerContext;
use super::passes::{PassCost, Passes};
use crate::compute::{Format, Product, cast, gemm};

/// A linear layer of local size `inputs x outputs` on `tokens` tokens.
pub(super) fn linear(context: &LayerContext, tokens: f64, outputs: f64, inputs: f64) -> Passes {
    linear_in(context, context.linear_format, tokens, outputs, inputs)
}

/// A linear layer that tensor parallelism leaves whole: every rank computes it for its own part of the sequence.
pub(super) fn replicated_linear(context: &LayerContext, outputs: f64, inputs: f64) -> Passes {
    linear(context, context.tokens / context.sequence_shards, outputs, inputs)
}

/// The same in a stated format; head and router stay in 16 bits whatever the workload's precision.
pub(super) fn linear_in(
    context: &LayerContext,
    format: Format,
    tokens: f64,
    outputs: f64,
    inputs: f64,
) -> Passes {
    let cost = || products(context, format, tokens, outputs, inputs);
    match context.memo {
        Some(memo) => memo.linear((format, tokens, outputs, inputs), cost),
        None => cost(),
    }
}

fn products(context: &LayerContext, format: Format, tokens: f64, outputs: f64, inputs: f64) -> Passes {
    let (gpu, shared) = (context.gpu, context.shared());
    let product = Product { m: tokens, n: outputs, k: inputs };
    let pass = |product: Product, quantised: f64, output_bytes: f64| PassCost {
        matmul: gemm(gpu, shared, format, product, output_bytes),
        other_kernels: cast(gpu, shared, format, quantised, context.cast_cost()),
        ..PassCost::default()
    };
    let accumulate = context.runtime.time.weight_gradient_bytes;
    Passes {
        forward: pass(product, tokens * inputs, 2.0),
        input_gradient: pass(product.input_gradient(), tokens * outputs, 2.0),
        weight_gradient: PassCost::of_matmul(gemm(
            gpu,
            shared,
            format,
            product.weight_gradient(),
            accumulate,
        )),
    }
}
