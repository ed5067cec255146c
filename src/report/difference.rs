//! What sets two plans apart: their inputs, their layouts, and what each difference costs.

use super::layout::degrees;
use super::number::{gib, grouped, parameters, seconds, significant};
use super::rank_order::{self, OrderCost, order_cost};
use super::summary::{hardware, heaviest, nodes};
use crate::inputs::Inputs;
use crate::plan::Plan;
use crate::replan::{Moved, movement};
use cluster_profiles::{Bytes, Seconds};
use cost_models::ParallelConfig;
use serde::Serialize;
use std::fmt::Write;

/// One difference between two plans.
#[derive(Debug, Serialize)]
pub struct Difference {
    /// Input or axis.
    pub name: String,
    /// In the first plan.
    pub first: String,
    /// In the second plan.
    pub second: String,
}

/// What sets two plans apart.
#[derive(Debug, Serialize)]
pub struct Differences {
    /// Inputs that differ: then the plans are of different jobs.
    pub inputs: Vec<Difference>,
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
    /// What moves from the first to the second, where both train the same model on the same cluster.
    pub moved: Option<Moved>,
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
        inputs: inputs(&first.inputs, &second.inputs),
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
    let elsewhere = first.inputs.cluster.name != second.inputs.cluster.name;
    let by_layer = first.layer_strategies.is_some() || second.layer_strategies.is_some();
    if elsewhere || by_layer || first.inputs.model.layers != second.inputs.model.layers {
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

/// A value without quotes.
fn plain(value: Option<&serde_json::Value>) -> String {
    match value {
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(serde_json::Value::Array(list)) => records(list),
        Some(value) => value.to_string(),
        None => String::new(),
    }
}

/// A list of records as the values of each.
fn records(list: &[serde_json::Value]) -> String {
    let record = |value: &serde_json::Value| {
        let values = value.as_object().into_iter().flat_map(|map| map.values());
        values.map(|value| value.to_string().trim_matches('"').to_owned()).collect::<Vec<_>>().join(" ")
    };
    list.iter().map(record).collect::<Vec<_>>().join(", ")
}

/// The inputs of two plans that differ. Of a model and a cluster of the same name and size it is said that their figures do.
fn inputs(first: &Inputs, second: &Inputs) -> Vec<Difference> {
    let (before, after) = (described(first), described(second));
    let pairs = before.into_iter().zip(after);
    let figures = [
        ("model", first.model.layers != second.model.layers),
        ("cluster", first.cluster.groups != second.cluster.groups),
    ];
    let other = |name: &str| figures.iter().any(|(known, differ)| *known == name && *differ);
    let difference = |((name, first), (_, second)): ((&str, String), (&str, String))| {
        let second = match (first == second, other(name)) {
            (false, _) => second,
            (true, true) => "of the same name and size, with other figures".to_owned(),
            (true, false) => return None,
        };
        Some(Difference { name: name.to_owned(), first, second })
    };
    pairs.filter_map(difference).collect()
}

/// The inputs of a plan in words.
fn described(inputs: &Inputs) -> [(&'static str, String); 12] {
    let Inputs { model, cluster, workload, runtime, .. } = inputs;
    let dtype = workload.gradient_dtype.and_then(|dtype| serde_json::to_value(dtype).ok());
    let offload = runtime.memory.state.optimizer_offload * 100.0;
    [
        ("model", format!("{} ({})", model.name, parameters(model.parameters_total()))),
        ("cluster", format!("{} ({}, {})", hardware(cluster), cluster.name, nodes(cluster))),
        ("global_batch", grouped(workload.global_batch)),
        ("seq_len", grouped(workload.seq_len)),
        ("precision", workload.precision.to_string()),
        ("optimizer", workload.optimizer.name().to_owned()),
        (
            "gradient_dtype",
            dtype.as_ref().map_or_else(|| "the runtime's".to_owned(), |dtype| plain(Some(dtype))),
        ),
        ("expert_imbalance", workload.expert_imbalance.to_string()),
        ("runtime", runtime.name.clone()),
        ("launcher", inputs.launcher.clone().unwrap_or_else(|| "none".to_owned())),
        ("memory_limit", format!("{} GiB", gib(inputs.memory_limit_bytes))),
        ("optimizer_offload", format!("{offload} %")),
    ]
}

/// That two plans are of different jobs, and in what; nothing where they are of one.
fn job_text(inputs: &[Difference]) -> String {
    if inputs.is_empty() {
        return String::new();
    }
    let mut out = "The plans are of different jobs:\n".to_owned();
    for input in inputs {
        let _ = writeln!(out, "  {:<18} {} -> {}", input.name, input.first, input.second);
    }
    out + "\n"
}

/// What sets two plans apart, for people.
#[must_use]
pub fn text(first: &Plan, second: &Plan) -> String {
    let differences = difference(first, second);
    let mut out = job_text(&differences.inputs);
    let _ = write!(
        out,
        "first   {}  {}\nsecond  {}  {}\n\n",
        seconds(first.estimate.step_time_seconds),
        degrees(&first.parallel),
        seconds(second.estimate.step_time_seconds),
        degrees(&second.parallel)
    );
    let verdict = if differences.slower > 0.0 { "slower" } else { "faster" };
    let _ = writeln!(out, "The second is {} % {verdict}.", significant(differences.slower.abs() * 100.0));
    if !differences.inputs.is_empty() {
        let rate = |plan: &Plan| grouped(plan.estimate.tokens_per_second_per_gpu.round() as u64);
        let _ = writeln!(out, "Tokens a second and GPU: {} -> {}", rate(first), rate(second));
    }
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
