//! A row of the results: one per point, the same columns for all.

mod cell;
mod economy;
mod layout;

use super::draft::{Draft, Ready};
use super::file::Study;
use super::key::kind_of;
use super::value::{Kind, Value};
use crate::plan::Plan;
pub use cell::{Cell, Column, ColumnKind};
use cluster_profiles::Cluster;
use economy::economy;
use layout::{layout, prediction};

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
        ("stages", Text),
        ("stage_recomputes", Text),
        ("layer_strategies", Text),
        ("micro_batches", Text),
        ("state_shares", Text),
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
        ("host_bytes", Number),
        ("host_memory_bytes", Number),
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

/// The column of a key, which says what was asked for where a plan has a column of that name.
#[must_use]
pub fn column_name(key: &str) -> String {
    let name = format!("{key}{}", kind_of(key).unwrap_or(Kind::Free).suffix());
    if FIXED.iter().any(|(fixed, _)| *fixed == name) { format!("asked.{name}") } else { name }
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
    let unpriced = broken.contains(&"price").then(|| {
        format!("{} has no public price: set cluster.dollars_per_gpu_hour", plan.inputs.cluster.name)
    });
    if let Some(why) = economy.never_finishes.or(unpriced) {
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

/// What most of the step is, communication and idle time alone: what a faster part would help.
fn fullest_kind(plan: &Plan) -> String {
    let parts = plan.estimate.time_seconds.parts();
    let most = parts.iter().max_by(|a, b| a.1.get().total_cmp(&b.1.get()));
    most.map_or_else(String::new, |(kind, _)| (*kind).to_owned())
}
