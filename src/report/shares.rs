//! What the ranks on every kind of GPU take, where that differs.

use super::number::{gib, seconds, significant};
use crate::plan::Plan;
use cost_models::RankMemory;
use cost_models::estimate::KindEstimate;
use std::fmt::Write;

/// Header of [`rows`].
pub const HEADER: [&str; 7] = ["GPU", "ranks", "sequences", "state", "busy", "peak GiB", "of GiB"];

/// One row for every kind; none where all ranks have equal shares.
#[must_use]
pub fn rows(plan: &Plan) -> Vec<Vec<String>> {
    let run = plan.run();
    let row = |kind: &KindEstimate| {
        let [capacity, _] = kind.room(&run, plan.inputs.memory_limit_bytes);
        vec![
            title(plan, kind),
            kind.share.ranks.to_string(),
            kind.share.micro_batch_size.to_string(),
            format!("{} %", significant(kind.state_share * 100.0)),
            seconds(kind.busy_seconds),
            gib(kind.memory.peak_bytes),
            gib(capacity),
        ]
    };
    plan.estimate.kinds.iter().map(row).collect()
}

/// The memory of a rank on every kind; none where all ranks have equal shares.
#[must_use]
pub fn memories(plan: &Plan) -> Vec<(String, RankMemory)> {
    plan.estimate.kinds.iter().map(|kind| (title(plan, kind), kind.memory)).collect()
}

/// Lines of the summary; nothing where all ranks have equal shares.
#[must_use]
pub fn lines(plan: &Plan) -> String {
    let mut text = String::new();
    for (index, row) in rows(plan).iter().enumerate() {
        let lead = if index == 0 { "shares" } else { "" };
        let [gpu, ranks, sequences, state, busy, peak, capacity] = row.as_slice() else { continue };
        let plural = if sequences == "1" { "" } else { "s" };
        let _ = writeln!(
            text,
            "  {lead:<7} {gpu}: {sequences} sequence{plural}, {state} of the state, busy {busy}, peak {peak} of {capacity} GiB ({ranks} ranks)"
        );
    }
    text
}

fn title(plan: &Plan, kind: &KindEstimate) -> String {
    let mut groups = plan.inputs.cluster.groups.iter();
    let group = groups.find(|group| group.gpu.name == kind.share.gpu);
    group.map_or_else(|| kind.share.gpu.clone(), |group| group.gpu.title.clone())
}
