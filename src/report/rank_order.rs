//! What the order of the ranks costs, where two plans number them differently.

use super::number::seconds;
use crate::plan::Plan;
use cluster_profiles::Seconds;
use cost_models::rules::engine;
use cost_models::{ParallelConfig, RankOrder, TrainingRun, estimate};
use serde::Serialize;
use std::fmt::Write;

/// What the second plan's order costs it.
#[derive(Debug, Serialize)]
pub struct OrderCost {
    /// Order of the first plan.
    pub first: RankOrder,
    /// Order of the second plan.
    pub second: RankOrder,
    /// Step of the second plan as it is, less its step in the order of the first, on the same hosts.
    pub step_seconds: Seconds,
    /// The same by kind of time, those that change.
    pub time: Vec<(&'static str, Seconds)>,
}

/// What sets two plans apart by their orders alone; none where they have the same, or the second cannot run in the first's.
#[must_use]
pub fn order_cost(first: &Plan, second: &Plan) -> Option<OrderCost> {
    let (before, after) = (first.parallel.rank_order, second.parallel.rank_order);
    let able = engine(&second.inputs.runtime.name).rank_orders.contains(&before);
    if before == after || !able {
        return None;
    }
    let parallel = ParallelConfig { rank_order: before, ..second.parallel.clone() };
    let other = estimate(&TrainingRun { parallel: &parallel, ..second.run() }).ok()?;
    let kinds = second.estimate.time_seconds.parts().into_iter().zip(other.time_seconds.parts());
    let time = kinds.map(|((name, own), (_, other))| (name, own - other));
    Some(OrderCost {
        first: before,
        second: after,
        step_seconds: second.estimate.step_time_seconds - other.step_time_seconds,
        time: time.filter(|(_, change)| change.get() != 0.0).collect(),
    })
}

/// The same for people.
#[must_use]
pub fn line(cost: &OrderCost) -> String {
    let signed = |time: Seconds| {
        let sign = if time.get() < 0.0 { '-' } else { '+' };
        format!("{sign}{}", seconds(Seconds(time.get().abs())))
    };
    let mut out = format!(
        "Of this, ranks in the order {} instead of {}: {}",
        cost.second,
        cost.first,
        signed(cost.step_seconds)
    );
    let kinds: Vec<String> = cost
        .time
        .iter()
        .map(|(name, time)| format!("{} {}", name.replace('_', " "), signed(*time)))
        .collect();
    if !kinds.is_empty() {
        let _ = write!(out, " ({})", kinds.join(", "));
    }
    out + "\n"
}
