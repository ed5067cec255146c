//! Conditions that go with an order of the ranks.

use super::facts::Facts;
use super::rule::{Axis, Rule};
use crate::order::RankOrder;
use crate::parallel::ParallelConfig;

/// The rules of this file: they look at degrees and the order only.
pub(super) const IDS: [&str; 2] = ["M3", "C1"];

/// Whether whole pipelines of several ranks have consecutive numbers.
fn pipelines_inside(p: &ParallelConfig) -> bool {
    p.rank_order == RankOrder::PpInside && p.pp > 1
}

/// Ranks of an expert grid's inner axes. Without experts Megatron-LM gives that grid the tensor parallel degree.
fn inner_experts(f: &Facts, p: &ParallelConfig) -> u64 {
    if f.is_moe() { u64::from(p.etp) * u64::from(p.ep) } else { p.tp.into() }
}

fn clash(f: &Facts, p: &ParallelConfig) -> String {
    let experts = if f.is_moe() {
        format!("etp {} x ep {}", p.etp, p.ep)
    } else {
        format!("etp {} (that of tp, without experts)", p.tp)
    };
    format!("{} with {experts} and tp {} x cp {}", p.rank_order, p.tp, p.cp)
}

/// Dense layers and experts number their pipelines alike: "the data parallel size of the attention and moe layers must be
/// the same" (NVIDIA/Megatron-LM `megatron/core/parallel_state.py`, `initialize_model_parallel`).
pub const EXPERTS_BESIDE_PIPELINE: Rule = Rule {
    id: "M3",
    statement: "with pp inside dp and above 1 etp x ep is tp x cp, so that experts have as many data-parallel ranks as other layers",
    axis: Axis::Cp,
    holds: |f, p| !pipelines_inside(p) || inner_experts(f, p) == u64::from(p.tp) * u64::from(p.cp),
    clash,
};

/// `ColossalAI` keeps a group of expert ranks inside the pipeline, and so splits the data-parallel ranks of dense layers in two
/// (`colossalai/booster/plugin/moe_hybrid_parallel_plugin.py`, `moe_dp_outside`): only the other order is planned with it.
pub const EXPERTS_INSIDE_PIPELINE: Rule = Rule {
    id: "C1",
    statement: "with pp inside dp and above 1 only ep 1 is planned",
    axis: Axis::Ep,
    holds: |_, p| !pipelines_inside(p) || p.ep == 1,
    clash: |_, p| format!("{} with ep {}", p.rank_order, p.ep),
};
