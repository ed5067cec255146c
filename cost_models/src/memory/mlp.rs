//! What the channel mixer of a block saves for its backward.
//!
//! T tokens, h residual width, f inner width, t tensor parallelism, k = 2 for gated activations else 1; x expert tensor
//! parallelism, R rows the local experts process, E experts, K experts per token. Dense part after Korthikanti et al.
//! (arXiv 2205.05198, section 4.1); routed experts by reading Megatron-Core `transformer/moe` and counting what
//! autograd keeps.

use super::context::MemoryContext;
use super::modules::Modules;
use crate::model::{Activation, Mlp};
use crate::runtime::RecomputeModule;
use crate::workload::Dtype;

/// Saved bytes by the part that selective recompute can drop.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct MlpSaved {
    /// Inputs of the activation.
    pub(super) up: f64,
    /// Outputs of the activation: inputs of the second product.
    pub(super) activated: f64,
    /// Rows gathered for the experts, and what the combine keeps.
    pub(super) rows: f64,
    /// Router and permutation map.
    pub(super) routing: f64,
    /// The shared experts.
    pub(super) shared: f64,
    /// What per-operator recompute keeps: every second matrix product of a dense mixer (the gate and the down projection); of
    /// routed experts only the rows that travelled, both ways, as torch lists no grouped product among the operations to save.
    pub(super) per_operator: f64,
}

impl MlpSaved {
    /// What remains when `modules` are recomputed.
    pub(super) fn kept(&self, modules: Modules) -> f64 {
        let dropped = |module| modules.contains(module);
        let whole = if self.rows > 0.0 { RecomputeModule::Moe } else { RecomputeModule::Mlp };
        if dropped(whole) {
            return 0.0;
        }
        let activated = if dropped(RecomputeModule::Activation) { 0.0 } else { self.activated };
        let shared = if dropped(RecomputeModule::SharedExperts) { 0.0 } else { self.shared };
        self.up + activated + self.rows + self.routing + shared
    }

    /// All of it.
    pub(super) fn total(&self) -> f64 {
        self.kept(Modules::NONE)
    }
}

/// Rows that go through a layer's routed experts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rows {
    /// Rows this rank sends, S.
    pub(super) sent: f64,
    /// Rows its local experts process, R.
    pub(super) local: f64,
}

/// Rows of a MoE layer: dropless (balanced times the workload's imbalance), or padded to the capacity.
pub(super) fn rows(context: &MemoryContext, experts: u64, topk: u64) -> Rows {
    let balanced = context.tokens / context.sp * topk as f64;
    let expert_tensor = f64::from(context.parallel.etp);
    if let Some(factor) = context.runtime.facts.capacity_factor {
        let experts = experts.max(1) as f64;
        let padded = (factor * balanced / experts).ceil() * experts;
        return Rows { sent: padded, local: padded * expert_tensor };
    }
    let bound = (experts as f64 / topk.max(1) as f64).min(f64::from(context.parallel.ep)).max(1.0);
    let imbalance = context.workload.expert_imbalance.clamp(1.0, bound);
    Rows { sent: balanced, local: balanced * expert_tensor * imbalance }
}

/// Saved bytes of the channel mixer.
pub(super) fn saved(context: &MemoryContext, mlp: &Mlp) -> MlpSaved {
    match *mlp {
        Mlp::Dense { ffn, activation } => dense(context, ffn as f64, activation),
        Mlp::Moe { dense_ffn, shared_ffn, activation, .. } => {
            let mut saved = routed(context, mlp);
            saved.shared = dense(context, shared_ffn as f64, activation).total();
            if dense_ffn > 0 {
                let beside = dense(context, dense_ffn as f64, activation);
                saved.up += beside.up;
                saved.activated += beside.activated;
                saved.per_operator += beside.per_operator;
            }
            saved
        }
    }
}

fn dense(context: &MemoryContext, ffn: f64, activation: Activation) -> MlpSaved {
    let inner = context.tokens * ffn / context.tp;
    let gates = activation.up_projections() as f64;
    MlpSaved {
        up: context.element() * gates * inner + unfused_gate(context, inner, activation),
        activated: context.input_element() * inner,
        per_operator: context.element() * inner + context.residual(),
        ..MlpSaved::default()
    }
}

/// Gate and product as separate kernels also keep the activated gate.
fn unfused_gate(context: &MemoryContext, inner: f64, activation: Activation) -> f64 {
    let separate = activation.up_projections() == 2 && !context.traits().activations.fused_gated_activation;
    if separate { context.element() * inner } else { 0.0 }
}

/// Rows that the experts' first product keeps.
pub(super) fn expert_rows(context: &MemoryContext, mlp: &Mlp) -> f64 {
    let &Mlp::Moe { experts, topk, .. } = mlp else { return 0.0 };
    context.input_element() * rows(context, experts, topk).local * context.hidden
}

/// Saved bytes of the routed experts, without what is beside them.
pub(super) fn routed(context: &MemoryContext, mlp: &Mlp) -> MlpSaved {
    let &Mlp::Moe { experts, topk, ffn, activation, sigmoid_router, .. } = mlp else {
        return MlpSaved::default();
    };
    let traits = &context.traits().experts;
    let rows = rows(context, experts, topk);
    let inner = rows.local * ffn as f64 / f64::from(context.parallel.etp);
    let gates = activation.up_projections() as f64;
    let fused = traits.fused_probabilities && gates > 1.0;
    let row_bytes = context.element() * rows.local * context.hidden;
    MlpSaved {
        up: context.element() * gates * inner + if fused { 0.0 } else { context.element() * inner },
        activated: context.input_element() * inner,
        rows: context.input_element() * rows.local * context.hidden
            + if traits.saves_output { row_bytes } else { 0.0 },
        routing: routing(context, [experts, topk].map(|n| n as f64), rows, sigmoid_router),
        shared: 0.0,
        per_operator: if context.parallel.ep > 1 { 2.0 * row_bytes } else { 0.0 },
    }
}

/// Router scores, the probabilities of the chosen experts and the permutation map.
fn routing(context: &MemoryContext, [experts, topk]: [f64; 2], rows: Rows, sigmoid: bool) -> f64 {
    let traits = &context.traits().experts;
    let tokens = context.tokens / context.sp;
    let wide = traits.router == Dtype::Fp32;
    let balanced = if traits.balancing_loss {
        0.0
    } else if sigmoid && !wide {
        2.0
    } else {
        4.0
    };
    let scores = match (sigmoid, wide) {
        (false, _) => 12.0,
        (true, false) => 11.0,
        (true, true) => 13.0,
    };
    let map = if traits.fused_permutation { 4.0 * tokens * (2.0 * experts + 1.0) } else { 8.0 * rows.sent };
    let probabilities = if wide { 4.0 } else { 2.0 };
    (scores - balanced) * experts * tokens + 12.0 * topk * tokens + probabilities * rows.local + map
}

/// What only the largest layer needs while it runs: in the backward the gradient of the inner activation, in a MoE
/// layer's forward the dispatched rows that are still referenced during the combine.
pub(super) fn transient(context: &MemoryContext, mlp: &Mlp) -> f64 {
    let residual = context.residual();
    let gathered = if context.sp > 1.0 { context.gathered_residual() } else { 0.0 };
    match *mlp {
        Mlp::Dense { ffn, activation } => {
            let gates = activation.up_projections() as f64;
            context.element() * gates * context.tokens * ffn as f64 / context.tp + residual + gathered
        }
        Mlp::Moe { experts, topk, ffn, activation, .. } => {
            let rows = rows(context, experts, topk);
            let width = context.hidden * context.element();
            let x = f64::from(context.parallel.etp);
            if !context.traits().experts.dispatch_buffers {
                let inner = activation.up_projections() as f64 * ffn as f64 / x;
                return rows.local * (width + context.element() * inner) + residual + gathered;
            }
            let combine = width * (2.0 * rows.sent + 2.0 * rows.local / x) + 2.0 * residual;
            let reduce = width * (rows.sent + rows.local / x + 2.0 * rows.local) + residual;
            combine.max(reduce)
        }
    }
}
