//! Why a plan is what it is: where the step goes, what fills the memory, what lost, what it rests on.

use super::number::{gib, seconds, signed, significant};
use super::rank_order::{self, OrderCost, order_cost};
use super::summary::{degrees, heaviest, strategies};
use crate::plan::Plan;
use crate::replan::{Moved, movement};
use crate::room::tightest;
use cluster_profiles::{Bytes, Seconds};
use cost_models::{Assumption, ParallelConfig};
use serde::Serialize;
use std::fmt::Write;

/// The parts of an explanation, for programs.
#[derive(Debug, Serialize)]
pub struct Explanation {
    /// Kinds of time with their share of the step, largest first.
    pub time: Vec<Share>,
    /// Terms of memory on the heaviest rank with their share of the peak, largest first.
    pub memory: Vec<Share>,
    /// The heaviest pipeline rank.
    pub heaviest_rank: u32,
    /// Bytes left below the limit there.
    pub headroom_bytes: Bytes,
    /// The limit there.
    pub limit_bytes: Bytes,
    /// What the numbers rest on.
    pub assumptions: Vec<Assumption>,
}

/// A part of a whole.
#[derive(Debug, Serialize)]
pub struct Share {
    /// Its name.
    pub name: &'static str,
    /// Its amount, in seconds or bytes.
    pub amount: f64,
    /// Its share of the whole.
    pub share: f64,
}

/// One difference between two plans.
#[derive(Debug, Serialize)]
pub struct Difference {
    /// Axis, kind of time or term of memory.
    pub name: String,
    /// In the first plan.
    pub first: String,
    /// In the second plan.
    pub second: String,
}

/// What sets two plans apart.
#[derive(Debug, Serialize)]
pub struct Differences {
    /// Axes that differ.
    pub parallel: Vec<Difference>,
    /// Step time of the second over that of the first, less one.
    pub slower: f64,
    /// What the order of the ranks alone costs, where they differ in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank_order: Option<OrderCost>,
    /// Seconds by kind: second less first, largest change first.
    pub time: Vec<(&'static str, Seconds)>,
    /// Bytes by term on the heaviest rank: second less first, largest change first.
    pub memory: Vec<(&'static str, Bytes)>,
    /// What moves from the first to the second, where both train the same model.
    pub moved: Option<Moved>,
}

fn shares(parts: impl IntoIterator<Item = (&'static str, f64)>) -> Vec<Share> {
    let parts: Vec<(&'static str, f64)> = parts.into_iter().collect();
    let whole: f64 = parts.iter().map(|(_, amount)| amount).sum();
    let mut shares: Vec<Share> = parts
        .into_iter()
        .filter(|(_, amount)| *amount > 0.0)
        .map(|(name, amount)| Share { name, amount, share: amount / whole })
        .collect();
    shares.sort_by(|a, b| b.amount.total_cmp(&a.amount));
    shares
}

/// The explanation of one plan.
#[must_use]
pub fn document(plan: &Plan) -> Explanation {
    let room = tightest(&plan.run(), &plan.estimate, plan.inputs.memory_limit_bytes);
    let rank = room.memory;
    Explanation {
        time: shares(plan.estimate.time_seconds.parts().map(|(name, time)| (name, time.get()))),
        memory: shares(rank.terms().map(|(name, bytes)| (name, bytes.get()))),
        heaviest_rank: rank.rank,
        headroom_bytes: room.left(),
        limit_bytes: room.limit,
        assumptions: plan.estimate.assumptions.clone(),
    }
}

/// The explanation of one plan, for people.
#[must_use]
pub fn text(plan: &Plan) -> String {
    let explanation = document(plan);
    let lines = format!("{}{}", strategies(plan), super::shares::lines(plan));
    let mut out = format!("{}\n{lines}\n", degrees(&plan.parallel));
    let _ = writeln!(out, "Step of {}:", seconds(plan.estimate.step_time_seconds));
    for part in &explanation.time {
        let _ = writeln!(
            out,
            "  {:<14} {:>10}  {:>5.1} %",
            part.name.replace('_', " "),
            seconds(Seconds(part.amount)),
            part.share * 100.0
        );
    }
    let _ = writeln!(
        out,
        "\nMemory of pipeline rank {}, {} GiB below the limit of {} GiB:",
        explanation.heaviest_rank,
        gib(explanation.headroom_bytes),
        gib(explanation.limit_bytes)
    );
    for part in &explanation.memory {
        let _ = writeln!(
            out,
            "  {:<14} {:>6} GiB  {:>5.1} %",
            part.name,
            gib(Bytes(part.amount)),
            part.share * 100.0
        );
    }
    out.push_str(&alternatives(plan));
    out.push_str(&proof(plan));
    let _ = writeln!(out, "\nWhat the numbers rest on:");
    for assumption in &explanation.assumptions {
        let _ = writeln!(out, "  {:<13} {}", assumption.basis, assumption.what);
    }
    out
}

fn alternatives(plan: &Plan) -> String {
    let mut out = String::new();
    if !plan.alternatives.is_empty() {
        out.push_str("\nWhat lost, and why:\n");
    }
    for alternative in &plan.alternatives {
        let slower = (alternative.step_time_seconds / plan.estimate.step_time_seconds - 1.0) * 100.0;
        let _ = writeln!(
            out,
            "  {} %  {}\n          {}",
            signed(slower),
            degrees(&alternative.parallel),
            alternative.why
        );
    }
    out
}

fn proof(plan: &Plan) -> String {
    let Some(certificate) = &plan.certificate else { return String::new() };
    let mut out = format!("\n{}\n", super::summary::certificate_sentence(certificate));
    if let Some(sentence) = super::summary::unbalanced_sentence(certificate) {
        let _ = writeln!(out, "{sentence}");
    }
    for (rule, count) in &certificate.pruned {
        let _ = writeln!(out, "  {:>14}  excluded by {rule}", super::number::grouped(*count));
    }
    out
}

/// What sets `second` apart from `first`.
#[must_use]
pub fn difference(first: &Plan, second: &Plan) -> Differences {
    let times = first.estimate.time_seconds.parts().into_iter().zip(second.estimate.time_seconds.parts());
    let mut time: Vec<(&'static str, Seconds)> = times.map(|((name, a), (_, b))| (name, b - a)).collect();
    time.sort_by(|a, b| b.1.get().abs().total_cmp(&a.1.get().abs()));
    let (a, b) = (heaviest(&first.estimate.memory), heaviest(&second.estimate.memory));
    let mut memory: Vec<(&'static str, Bytes)> =
        a.terms().into_iter().zip(b.terms()).map(|((name, a), (_, b))| (name, b - a)).collect();
    memory.sort_by(|a, b| b.1.get().abs().total_cmp(&a.1.get().abs()));
    Differences {
        parallel: all_axes(first, second),
        slower: second.estimate.step_time_seconds / first.estimate.step_time_seconds - 1.0,
        rank_order: order_cost(first, second),
        time,
        memory,
        moved: moved(first, second),
    }
}

/// Hosts that the second plan does not know of are gone.
fn moved(first: &Plan, second: &Plan) -> Option<Moved> {
    let by_layer = first.layer_strategies.is_some() || second.layer_strategies.is_some();
    if by_layer || first.inputs.model.layers != second.inputs.model.layers {
        return None;
    }
    let place = &second.placement;
    let stays = |host: &String| place.hosts.contains(host) || place.spare.contains(host);
    let lost: Vec<String> = first.placement.hosts.iter().filter(|host| !stays(host)).cloned().collect();
    Some(movement(first, second, &lost))
}

/// The axes of two plans that differ, the strategies of their blocks with them.
fn all_axes(first: &Plan, second: &Plan) -> Vec<Difference> {
    let mut axes = axes(&first.parallel, &second.parallel);
    let text = |plan: &Plan| plan.layer_strategies.as_ref().map_or("alike".to_owned(), ToString::to_string);
    let (first, second) = (text(first), text(second));
    if first != second {
        axes.push(Difference { name: "layer_strategies".to_owned(), first, second });
    }
    axes
}

/// The axes of two layouts that differ.
#[must_use]
pub fn axes(first: &ParallelConfig, second: &ParallelConfig) -> Vec<Difference> {
    let values = |parallel: &ParallelConfig| match serde_json::to_value(parallel) {
        Ok(serde_json::Value::Object(mut map)) => {
            map.insert("rank_order".to_owned(), parallel.rank_order.name().into());
            map
        }
        _ => serde_json::Map::new(),
    };
    let (first, second) = (values(first), values(second));
    let plain = |value: Option<&serde_json::Value>| match value {
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(serde_json::Value::Array(list)) => records(list),
        Some(value) => value.to_string(),
        None => String::new(),
    };
    let only_second = second.keys().filter(|name| !first.contains_key(*name));
    first
        .keys()
        .chain(only_second)
        .filter(|name| first.get(*name) != second.get(*name))
        .map(|name| Difference {
            name: name.clone(),
            first: plain(first.get(name)),
            second: plain(second.get(name)),
        })
        .collect()
}

/// A list of records as the values of each.
fn records(list: &[serde_json::Value]) -> String {
    let record = |value: &serde_json::Value| {
        let values = value.as_object().into_iter().flat_map(|map| map.values());
        values.map(|value| value.to_string().trim_matches('"').to_owned()).collect::<Vec<_>>().join(" ")
    };
    list.iter().map(record).collect::<Vec<_>>().join(", ")
}

/// What sets two plans apart, for people.
#[must_use]
pub fn difference_text(first: &Plan, second: &Plan) -> String {
    let differences = difference(first, second);
    let mut out = format!(
        "first   {}  {}\nsecond  {}  {}\n\n",
        seconds(first.estimate.step_time_seconds),
        degrees(&first.parallel),
        seconds(second.estimate.step_time_seconds),
        degrees(&second.parallel)
    );
    let verdict = if differences.slower > 0.0 { "slower" } else { "faster" };
    let _ = writeln!(out, "The second is {} % {verdict}.", significant(differences.slower.abs() * 100.0));
    for axis in &differences.parallel {
        let _ = writeln!(out, "  {:<18} {} -> {}", axis.name, axis.first, axis.second);
    }
    out.extend(differences.rank_order.as_ref().map(rank_order::line));
    out.push_str("\nTime, second less first:\n");
    for (name, time) in differences.time.iter().filter(|(_, time)| time.get() != 0.0) {
        let sign = if time.get() < 0.0 { '-' } else { '+' };
        let _ =
            writeln!(out, "  {:<14} {sign}{}", name.replace('_', " "), seconds(Seconds(time.get().abs())));
    }
    out.push_str("\nMemory of the heaviest rank, second less first:\n");
    for (name, bytes) in differences.memory.iter().filter(|(_, bytes)| bytes.get() != 0.0) {
        let _ = writeln!(out, "  {:<14} {:+.1} GiB", name, bytes.as_gib());
    }
    if let Some(moved) = &differences.moved {
        let _ =
            write!(out, "\nMoving from the first to the second:\n  {}\n", super::hosts::moved_line(moved));
    }
    out
}
