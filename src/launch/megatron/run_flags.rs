//! Precision, optimizer and the rest of a run as Megatron-LM flags.

use super::Flag;
use crate::offload::is_used;
use crate::plan::Plan;
use cluster_profiles::Precision;
use cost_models::runtime::AttentionKernel;
use cost_models::{Dtype, Optimizer};

/// The flags; what Megatron-LM cannot run is added to `reasons`.
pub fn flags(plan: &Plan, reasons: &mut Vec<String>) -> Vec<Flag> {
    let mut flags = precision(plan.inputs.workload.precision, reasons);
    let optimizer_state = plan.inputs.workload.optimizer;
    if optimizer_state == Optimizer::AdamwBf16 && plan.parallel.zero_stage == 0 {
        reasons.push("16-bit optimizer state without the distributed optimizer (ZeRO-1)".to_owned());
    }
    if is_used(&plan.inputs) && plan.parallel.zero_stage == 0 {
        reasons.push("optimizer state in host memory without the distributed optimizer (ZeRO-1)".to_owned());
    }
    if optimizer_state == Optimizer::Muon && plan.parallel.zero_stage >= 2 {
        reasons.push("muon with megatron-fsdp".to_owned());
    }
    flags.extend(optimizer(plan));
    flags.extend([
        Flag::value("--attention-backend", attention(plan)),
        Flag::switch("--no-create-attention-mask-in-dataloader"),
        Flag::value("--train-iters", 100),
        Flag::value("--lr", "3e-4"),
        Flag::value("--min-lr", "3e-5"),
        Flag::value("--lr-decay-style", "cosine"),
        Flag::value("--clip-grad", "1.0"),
        Flag::value("--weight-decay", "0.1"),
        Flag::value("--eval-iters", 0),
        Flag::value("--log-interval", 1),
        Flag::switch("--log-throughput"),
    ]);
    flags
}

/// The kernel that the plan's time counts on; left to itself, Transformer Engine picks by GPU and installation.
fn attention(plan: &Plan) -> &'static str {
    match plan.inputs.runtime.attention {
        AttentionKernel::Cudnn => "fused",
        AttentionKernel::Flash1 | AttentionKernel::Flash2 => "flash",
        AttentionKernel::Unfused | AttentionKernel::FusedSoftmax => "unfused",
    }
}

/// The flags of a format.
pub fn precision(precision: Precision, reasons: &mut Vec<String>) -> Vec<Flag> {
    let bf16 = Flag::switch("--bf16");
    match precision {
        Precision::Bf16 => vec![bf16],
        Precision::Fp16 => vec![Flag::switch("--fp16")],
        Precision::Fp8 => {
            vec![bf16, Flag::value("--fp8-format", "hybrid"), Flag::value("--fp8-recipe", "tensorwise")]
        }
        Precision::Mxfp8 => {
            vec![bf16, Flag::value("--fp8-format", "e4m3"), Flag::value("--fp8-recipe", "mxfp8")]
        }
        Precision::Nvfp4 => {
            vec![bf16, Flag::value("--fp4-format", "e2m1"), Flag::value("--fp4-recipe", "nvfp4")]
        }
        Precision::Fp32 => {
            reasons.push("fp32 training".to_owned());
            Vec::new()
        }
    }
}

fn optimizer(plan: &Plan) -> Vec<Flag> {
    let workload = &plan.inputs.workload;
    let reduced = workload.gradient_dtype.unwrap_or(plan.inputs.runtime.gradient_reduction);
    let mut flags = match workload.optimizer {
        Optimizer::Adamw => vec![Flag::value("--optimizer", "adam")],
        Optimizer::AdamwBf16 => vec![
            Flag::value("--optimizer", "adam"),
            Flag::switch("--use-precision-aware-optimizer"),
            Flag::value("--exp-avg-dtype", "bf16"),
            Flag::value("--exp-avg-sq-dtype", "bf16"),
        ],
        Optimizer::Sgd => vec![Flag::value("--optimizer", "sgd")],
        Optimizer::Muon => vec![Flag::value("--optimizer", "muon")],
    };
    let offloaded = plan.inputs.runtime.memory.state.optimizer_offload;
    if offloaded > 0.0 {
        if workload.optimizer != Optimizer::AdamwBf16 {
            flags.push(Flag::switch("--use-precision-aware-optimizer"));
        }
        flags.push(Flag::switch("--optimizer-cpu-offload"));
        flags.push(Flag::value("--optimizer-offload-fraction", offloaded));
    }
    if reduced == Dtype::Bf16 && workload.precision != Precision::Fp16 {
        flags.push(Flag::switch("--grad-reduce-in-bf16"));
    }
    flags
}
