//! The layout of a plan and what it needs, as cells: all of it, in the words of the plan and of `estimate`'s flags.

use super::Filling;
use crate::host_memory::{by_host, fullest};
use crate::plan::Plan;
use crate::report::summary::heaviest;
use cluster_profiles::Bytes;
use cost_models::shares::KindShare;
use cost_models::{RankMemory, Recompute};

/// The layout: degrees, stages, and what stages, blocks or kinds of GPU have of their own.
pub(super) fn layout(row: &mut Filling, plan: &Plan) {
    let p = &plan.parallel;
    let degrees = [
        ("tp", p.tp),
        ("pp", p.pp),
        ("vpp", p.vpp),
        ("cp", p.cp),
        ("ep", p.ep),
        ("etp", p.etp),
        ("dp_replicate", p.dp_replicate),
        ("dp_shard", p.dp_shard),
        ("zero_stage", u32::from(p.zero_stage)),
        ("sequence_parallel", u32::from(p.sequence_parallel)),
    ];
    degrees.into_iter().for_each(|(name, degree)| row.integer(name, degree));
    row.integer("gpu_count", plan.inputs.cluster.gpu_count() as i64);
    row.integer("micro_batch_size", p.micro_batch_size as i64);
    row.integer("num_microbatches", p.num_microbatches as i64);
    row.text("schedule", if p.pp > 1 { p.schedule.as_str() } else { "none" });
    row.text("recompute", p.recompute.to_string());
    row.text("rank_order", p.rank_order.name());
    parts(row, plan);
    row.number("optimizer_offload", plan.inputs.runtime.memory.state.optimizer_offload);
    if let Some(certificate) = &plan.certificate {
        row.number("gap", certificate.gap);
        row.integer("layouts_considered", certificate.considered as i64);
    }
}

/// First and last layer of every stage; what not every stage, block or kind of GPU has alike, nothing where all do.
fn parts(row: &mut Filling, plan: &Plan) {
    let p = &plan.parallel;
    let layers = plan.stages.0.iter().map(|stage| stage.layers);
    row.text(
        "stages",
        joined(layers.map(|layers| layers.map_or_else(String::new, |[a, b]| format!("{a}-{b}")))),
    );
    let recomputes: Vec<Recompute> = plan.stages.0.iter().map(|stage| stage.recompute).collect();
    if recomputes.iter().any(|recompute| *recompute != p.recompute) {
        row.text("stage_recomputes", joined(recomputes));
    }
    if let Some(strategies) = &plan.layer_strategies {
        row.text("layer_strategies", strategies.to_string());
    }
    let by_kind = |number: fn(&KindShare) -> u64| {
        joined(p.shares.iter().map(|share| format!("{}={}", share.gpu, number(share))))
    };
    if p.has_unequal_micro_batches() {
        row.text("micro_batches", by_kind(|share| share.micro_batch_size));
    }
    if p.has_uneven_state() {
        row.text("state_shares", by_kind(|share| u64::from(share.state)));
    }
}

fn joined<T: ToString>(values: impl IntoIterator<Item = T>) -> String {
    values.into_iter().map(|value| value.to_string()).collect::<Vec<_>>().join(",")
}

/// Time by kind, memory of the fullest pipeline rank by term, and of the fullest host.
pub(super) fn prediction(row: &mut Filling, plan: &Plan) {
    let estimate = &plan.estimate;
    row.number("step_time_seconds", estimate.step_time_seconds.get());
    row.number("tokens_per_second_per_gpu", estimate.tokens_per_second_per_gpu);
    row.number("model_flops_utilization", estimate.model_flops_utilization);
    row.number("bubble_fraction", estimate.bubble_fraction);
    for (kind, seconds) in estimate.time_seconds.parts() {
        row.number(&format!("time_{kind}_seconds"), seconds.get());
    }
    let rank: RankMemory = heaviest(&estimate.memory);
    row.number("peak_bytes", rank.peak_bytes.get());
    row.number("memory_limit_bytes", plan.inputs.memory_limit_bytes.get());
    for (term, bytes) in rank.terms() {
        row.number(&format!("{term}_bytes"), bytes.get());
    }
    if let Some(host) = fullest(&by_host(plan)) {
        row.number("host_bytes", host.total().get());
        row.number("host_memory_bytes", host.capacity.map_or(f64::NAN, Bytes::get));
    }
}
