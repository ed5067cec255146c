//! A row of the results: one per point, the same columns for all.

use super::draft::{Draft, Ready};
use super::file::{Limits, Study};
use super::goodput::Job;
use super::key::kind_of;
use super::value::{Kind, Value};
use crate::plan::Plan;
use crate::report::summary::heaviest;
use cluster_profiles::Cluster;
use cost_models::{Optimizer, RankMemory};
use serde::{Deserialize, Serialize};

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ColumnKind {
    /// Text.
    Text,
    /// A whole number.
    Integer,
    /// A number.
    Number,
}

/// A column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Its name, with the unit.
    pub name: String,
    /// What it holds.
    pub kind: ColumnKind,
}

/// A cell; nothing where the point has none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    /// Nothing.
    None,
    /// A whole number.
    Integer(i64),
    /// A number.
    Number(f64),
    /// Text.
    Text(String),
}

impl Cell {
    /// The number it is, if it is one.
    #[must_use]
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Integer(count) => Some(*count as f64),
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// The text it is, if it is one.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl std::fmt::Display for Cell {
    fn fmt(&self, out: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::Integer(count) => write!(out, "{count}"),
            Self::Number(number) => write!(out, "{number}"),
            Self::Text(text) => out.write_str(text),
        }
    }
}

/// What every row has behind the values of the axes.
const FIXED: &[(&str, ColumnKind)] = {
    use ColumnKind::{Integer, Number, Text};
    &[
        ("status", Text),
        ("binding", Text),
        ("reason", Text),
        ("gpu_count", Integer),
        ("tp", Integer),
        ("pp", Integer),
        ("vpp", Integer),
        ("cp", Integer),
        ("ep", Integer),
        ("etp", Integer),
        ("dp_replicate", Integer),
        ("dp_shard", Integer),
        ("zero_stage", Integer),
        ("sequence_parallel", Integer),
        ("micro_batch_size", Integer),
        ("num_microbatches", Integer),
        ("schedule", Text),
        ("recompute", Text),
        ("rank_order", Text),
        ("optimizer_offload", Number),
        ("step_time_seconds", Number),
        ("tokens_per_second_per_gpu", Number),
        ("model_flops_utilization", Number),
        ("bubble_fraction", Number),
        ("time_matmul_seconds", Number),
        ("time_attention_seconds", Number),
        ("time_other_kernels_seconds", Number),
        ("time_tp_seconds", Number),
        ("time_cp_seconds", Number),
        ("time_ep_seconds", Number),
        ("time_pp_seconds", Number),
        ("time_bubble_seconds", Number),
        ("time_dp_seconds", Number),
        ("time_optimizer_seconds", Number),
        ("time_host_seconds", Number),
        ("peak_bytes", Number),
        ("memory_limit_bytes", Number),
        ("parameters_bytes", Number),
        ("gradients_bytes", Number),
        ("optimizer_bytes", Number),
        ("activations_bytes", Number),
        ("logits_bytes", Number),
        ("communication_bytes", Number),
        ("workspace_bytes", Number),
        ("reserve_bytes", Number),
        ("gap", Number),
        ("layouts_considered", Integer),
        ("power_watts", Number),
        ("cluster_dollars_per_hour", Number),
        ("joules_per_token", Number),
        ("dollars_per_billion_tokens", Number),
        ("goodput_fraction", Number),
        ("checkpoint_interval_seconds", Number),
        ("training_seconds", Number),
        ("training_dollars", Number),
        ("training_joules", Number),
    ]
};

/// The columns of a study.
#[must_use]
pub fn columns(study: &Study) -> Vec<Column> {
    let point = Column { name: "point".to_owned(), kind: ColumnKind::Integer };
    let axes =
        study.axes.iter().flat_map(|axis| axis.keys.iter().enumerate().map(move |(at, key)| (axis, at, key)));
    let axes = axes.map(|(axis, at, key)| {
        let kind = match kind_of(key).unwrap_or(Kind::Free) {
            Kind::Text | Kind::Flag => ColumnKind::Text,
            Kind::Count => ColumnKind::Integer,
            Kind::Free if axis.steps.iter().any(|step| step[at].number().is_none()) => ColumnKind::Text,
            _ => ColumnKind::Number,
        };
        Column { name: column_name(key), kind }
    });
    let fixed = FIXED.iter().map(|(name, kind)| Column { name: (*name).to_owned(), kind: *kind });
    std::iter::once(point).chain(axes).chain(fixed).collect()
}

/// The column of a key.
#[must_use]
pub fn column_name(key: &str) -> String {
    format!("{key}{}", kind_of(key).unwrap_or(Kind::Free).suffix())
}

/// A row being filled: the fixed cells, empty at first.
struct Filling {
    cells: Vec<Cell>,
    lead: usize,
}

impl Filling {
    fn new(study: &Study, columns: &[Column], index: u64) -> Self {
        let values = study.values(index);
        let mut cells = vec![Cell::Integer(index as i64)];
        for (key, column) in study.axis_keys().iter().zip(&columns[1..]) {
            cells.push(values.get(key).map_or(Cell::None, |value| cell(value, column.kind)));
        }
        let lead = cells.len();
        cells.resize(lead + FIXED.len(), Cell::None);
        Self { cells, lead }
    }

    fn set(&mut self, name: &str, cell: Cell) {
        if let Some(at) = FIXED.iter().position(|(known, _)| *known == name) {
            self.cells[self.lead + at] = cell;
        }
    }

    fn text(&mut self, name: &str, text: impl Into<String>) {
        self.set(name, Cell::Text(text.into()));
    }

    fn integer(&mut self, name: &str, value: impl Into<i64>) {
        self.set(name, Cell::Integer(value.into()));
    }

    fn number(&mut self, name: &str, value: f64) {
        if value.is_finite() {
            self.set(name, Cell::Number(value));
        }
    }
}

fn cell(value: &Value, kind: ColumnKind) -> Cell {
    match (value, kind) {
        (Value::Integer(count), ColumnKind::Integer) => Cell::Integer(*count),
        (value, ColumnKind::Number) => value.number().map_or(Cell::None, Cell::Number),
        (value, _) => Cell::Text(value.to_string()),
    }
}

/// The row of a point with a plan; prices and power are those of `cluster`.
#[must_use]
pub fn planned(
    study: &Study,
    columns: &[Column],
    index: u64,
    draft: &Draft,
    plan: &Plan,
    cluster: &Cluster,
) -> Vec<Cell> {
    let mut row = Filling::new(study, columns, index);
    layout(&mut row, plan);
    prediction(&mut row, plan);
    let economy = economy(&mut row, draft, plan, cluster);
    let broken = study.limits.broken(&economy);
    row.text("status", if broken.is_empty() { "ok" } else { "excluded" });
    row.text("binding", if broken.is_empty() { fullest_kind(plan) } else { broken.join(" ") });
    if let Some(why) = economy.never_finishes {
        row.text("reason", why);
    }
    row.cells
}

/// The row of a point that no layout fits: what binds, and the reason in words.
#[must_use]
pub fn infeasible(
    study: &Study,
    columns: &[Column],
    index: u64,
    ready: &Ready,
    binding: &str,
    reason: &str,
) -> Vec<Cell> {
    let mut row = Filling::new(study, columns, index);
    row.text("status", "infeasible");
    row.text("binding", binding);
    row.text("reason", reason);
    row.integer("gpu_count", ready.inputs.cluster.gpu_count() as i64);
    row.number("memory_limit_bytes", ready.inputs.memory_limit_bytes.get());
    row.cells
}

/// The row of a point that makes no sense.
#[must_use]
pub fn invalid(study: &Study, columns: &[Column], index: u64, reason: &str) -> Vec<Cell> {
    let mut row = Filling::new(study, columns, index);
    row.text("status", "invalid");
    row.text("reason", reason);
    row.cells
}

fn layout(row: &mut Filling, plan: &Plan) {
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
    row.number("optimizer_offload", plan.inputs.runtime.memory.state.optimizer_offload);
    if let Some(certificate) = &plan.certificate {
        row.number("gap", certificate.gap);
        row.integer("layouts_considered", certificate.considered as i64);
    }
}

fn prediction(row: &mut Filling, plan: &Plan) {
    let estimate = &plan.estimate;
    row.number("step_time_seconds", estimate.step_time_seconds.get());
    row.number("tokens_per_second_per_gpu", estimate.tokens_per_second_per_gpu);
    row.number("model_flops_utilization", estimate.model_flops_utilization);
    row.number("bubble_fraction", estimate.bubble_fraction);
    for (kind, seconds) in estimate.time_seconds.parts() {
        row.number(&format!("time_{kind}_seconds"), seconds.get());
    }
    let fullest: RankMemory = heaviest(&estimate.memory);
    row.number("peak_bytes", fullest.peak_bytes.get());
    row.number("memory_limit_bytes", plan.inputs.memory_limit_bytes.get());
    for (term, bytes) in fullest.terms() {
        row.number(&format!("{term}_bytes"), bytes.get());
    }
}

/// What most of the step is, communication and idle time alone: what a faster part would help.
fn fullest_kind(plan: &Plan) -> String {
    let parts = plan.estimate.time_seconds.parts();
    let most = parts.iter().max_by(|a, b| a.1.get().total_cmp(&b.1.get()));
    most.map_or_else(String::new, |(kind, _)| (*kind).to_owned())
}

/// What a point costs.
#[derive(Debug, Clone, Default)]
struct Economy {
    step: f64,
    watts: f64,
    dollars_per_hour: Option<f64>,
    training_seconds: Option<f64>,
    training_dollars: Option<f64>,
    /// Why failures leave no progress.
    never_finishes: Option<String>,
}

fn economy(row: &mut Filling, draft: &Draft, plan: &Plan, cluster: &Cluster) -> Economy {
    let estimate = &plan.estimate;
    let step = estimate.step_time_seconds.get();
    let rate = plan.inputs.workload.tokens() / step;
    let busy = step * (1.0 - estimate.bubble_fraction.clamp(0.0, 1.0));
    let joules =
        solver::Objective::Energy.value(cluster, estimate.step_time_seconds, cluster_profiles::Seconds(busy));
    let watts = joules / step;
    let dollars = cluster.groups.iter().map(|group| {
        let gpus = f64::from(group.nodes) * f64::from(group.node.gpus);
        group.dollars_per_gpu_hour.map(|price| price * gpus)
    });
    let dollars_per_hour: Option<f64> = dollars.sum();
    let failures = draft.failures.of_job(&job(plan));
    let goodput = failures.map(|failures| failures.goodput(draft.failures.interval));
    let fraction = goodput.map_or(1.0, |goodput| goodput.fraction);
    let seconds = draft.tokens.filter(|_| fraction > 0.0).map(|tokens| tokens / rate / fraction);
    row.number("power_watts", watts);
    row.number("joules_per_token", watts / rate);
    if let Some(goodput) = goodput {
        row.number("goodput_fraction", goodput.fraction);
        row.number("checkpoint_interval_seconds", goodput.interval);
    }
    if let Some(dollars) = dollars_per_hour {
        row.number("cluster_dollars_per_hour", dollars);
        row.number("dollars_per_billion_tokens", dollars / 3600.0 / rate / fraction * 1e9);
    }
    let training_dollars = seconds.zip(dollars_per_hour).map(|(seconds, dollars)| seconds / 3600.0 * dollars);
    if let Some(seconds) = seconds {
        row.number("training_seconds", seconds);
        row.number("training_joules", seconds * watts);
    }
    if let Some(dollars) = training_dollars {
        row.number("training_dollars", dollars);
    }
    let never_finishes = failures.zip(goodput).filter(|(_, goodput)| goodput.fraction <= 0.0);
    let never_finishes = never_finishes.map(|(failures, goodput)| failures.why_never(goodput.interval));
    Economy { step, watts, dollars_per_hour, training_seconds: seconds, training_dollars, never_finishes }
}

/// Bytes that a checkpoint holds of a parameter: 16-bit weights and the optimizer's state.
const fn checkpoint_bytes(optimizer: Optimizer) -> f64 {
    match optimizer {
        Optimizer::Adamw => 2.0 + 12.0,
        Optimizer::AdamwBf16 | Optimizer::Sgd | Optimizer::Muon => 2.0 + 8.0,
    }
}

fn job(plan: &Plan) -> Job {
    let cluster = &plan.inputs.cluster;
    let node = &cluster.main().node;
    Job {
        gpus: cluster.gpu_count() as f64,
        node_gpus: f64::from(node.gpus),
        parameters: (plan.parameters_total + plan.parameters_mtp) as f64,
        bytes_per_parameter: checkpoint_bytes(plan.inputs.workload.optimizer),
        host_bandwidth: node.host.bandwidth.get(),
    }
}

impl Limits {
    /// The limits a point does not keep.
    fn broken(&self, economy: &Economy) -> Vec<&'static str> {
        let over = |limit: Option<f64>, value: Option<f64>| {
            limit.zip(value).is_some_and(|(most, value)| value > most)
        };
        [
            ("goodput", economy.never_finishes.is_some()),
            ("step_time", over(self.step_time_seconds, Some(economy.step))),
            ("power", over(self.power_watts, Some(economy.watts))),
            ("dollars_per_hour", over(self.dollars_per_hour, economy.dollars_per_hour)),
            ("dollars", over(self.dollars, economy.training_dollars)),
            ("deadline", over(self.deadline_seconds, economy.training_seconds)),
        ]
        .into_iter()
        .filter_map(|(name, broken)| broken.then_some(name))
        .collect()
    }
}
