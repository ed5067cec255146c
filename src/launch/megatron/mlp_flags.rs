//! The MLPs of the blocks, dense or with experts, as Megatron-LM flags.

use super::Flag;
use super::model_flags::{has_bias, run_lengths};
use crate::plan::Plan;
use cost_models::model::{Activation, Block, Mlp};
use cost_models::runtime::ExpertDispatcher;

/// The flags; what Megatron-LM cannot build is added to `reasons`.
pub fn flags(blocks: &[Block], dispatcher: Vec<Flag>, reasons: &mut Vec<String>) -> Vec<Flag> {
    let dense = blocks.iter().find_map(|block| match block.mlp {
        Mlp::Dense { ffn, activation } => Some((ffn, activation)),
        Mlp::Moe { .. } => None,
    });
    let moe: Vec<Mlp> =
        blocks.iter().map(|block| block.mlp).filter(|mlp| matches!(mlp, Mlp::Moe { .. })).collect();
    if moe.iter().any(|mlp| *mlp != moe[0]) {
        reasons.push("expert layers of different sizes".to_owned());
    }
    let uneven = |block: &Block| matches!((block.mlp, dense), (Mlp::Dense { ffn, .. }, Some((width, _))) if ffn != width);
    if blocks.iter().any(uneven) {
        reasons.push("dense MLPs of different widths".to_owned());
    }
    let mut flags = Vec::new();
    let activations = blocks.iter().map(|block| match block.mlp {
        Mlp::Dense { activation, .. } | Mlp::Moe { activation, .. } => activation,
    });
    if activations.into_iter().any(|activation| activation == Activation::Relu) {
        reasons.push("ReLU".to_owned());
    }
    if let Some((ffn, activation)) = dense {
        flags.push(Flag::value("--ffn-hidden-size", ffn));
        flags.extend(activation_flags(activation));
    }
    if let Some(Mlp::Moe {
        experts,
        topk,
        ffn,
        shared_ffn,
        shared_gate,
        activation,
        router_bias,
        sigmoid_router,
        group_limit,
        dense_ffn,
        ..
    }) = moe.first().copied()
    {
        if dense.is_none() {
            flags.push(Flag::value("--ffn-hidden-size", ffn));
            flags.extend(activation_flags(activation));
        }
        if dense_ffn > 0 {
            reasons.push("a dense MLP beside the experts".to_owned());
        }
        flags.extend([
            Flag::value("--num-experts", experts),
            Flag::value("--moe-router-topk", topk),
            Flag::value("--moe-ffn-hidden-size", ffn),
            Flag::switch("--moe-grouped-gemm"),
            Flag::switch("--moe-permute-fusion"),
            Flag::value("--moe-router-dtype", "fp32"),
            Flag::value("--moe-router-load-balancing-type", "aux_loss"),
            Flag::value("--moe-aux-loss-coeff", "1e-2"),
        ]);
        if blocks.iter().any(has_bias) {
            flags.push(Flag::switch("--no-bias-dropout-fusion"));
        }
        flags.extend(dispatcher);
        let pattern: Vec<u8> = blocks.iter().map(|b| u8::from(matches!(b.mlp, Mlp::Moe { .. }))).collect();
        if pattern.contains(&0) {
            flags.push(Flag::value("--moe-layer-freq", run_lengths(&pattern)));
        }
        if shared_ffn > 0 {
            flags.push(Flag::value("--moe-shared-expert-intermediate-size", shared_ffn));
            if shared_gate {
                flags.push(Flag::switch("--moe-shared-expert-gate"));
            }
        }
        if sigmoid_router {
            flags.push(Flag::value("--moe-router-score-function", "sigmoid"));
        }
        if router_bias && sigmoid_router {
            flags.push(Flag::switch("--moe-router-enable-expert-bias"));
        }
        if let Some(groups) = group_limit {
            flags.push(Flag::value("--moe-router-num-groups", 2 * groups));
            flags.push(Flag::value("--moe-router-group-topk", groups));
        }
    }
    flags
}

/// The dispatcher the plan counted on; those of DeepEP need more than one rank of experts.
pub fn dispatcher(plan: &Plan) -> Vec<Flag> {
    let flex = |backend| {
        vec![
            Flag::value("--moe-token-dispatcher-type", "flex"),
            Flag::value("--moe-flex-dispatcher-backend", backend),
        ]
    };
    let alone = plan.parallel.ep * plan.parallel.etp == 1;
    match plan.inputs.runtime.dispatcher() {
        ExpertDispatcher::DeepEp if !alone => flex("deepep"),
        ExpertDispatcher::HybridEp if !alone => flex("hybridep"),
        _ => vec![Flag::value("--moe-token-dispatcher-type", "alltoall")],
    }
}

fn activation_flags(activation: Activation) -> Vec<Flag> {
    match activation {
        Activation::Swiglu => vec![Flag::switch("--swiglu")],
        Activation::Geglu => vec![Flag::switch("--quick-geglu")],
        Activation::ClampedSwiglu => vec![
            Flag::switch("--quick-geglu"),
            Flag::value("--activation-func-clamp-value", "7.0"),
            Flag::value("--glu-linear-offset", "1.0"),
        ],
        Activation::SquaredRelu => {
            vec![Flag::switch("--squared-relu"), Flag::switch("--no-bias-gelu-fusion")]
        }
        Activation::Gelu | Activation::Relu => Vec::new(),
    }
}
