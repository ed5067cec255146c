//! `meshwright catalog`: what meshwright knows.

use super::{Ending, Format, output};
use crate::error::AppError;
use crate::fit::committed;
use crate::launch;
use crate::report::number::{grouped, parameters, significant};
use crate::report::table::Table;
use clap::{Args, ValueEnum};
use cluster_profiles::catalog;
use cost_models::schedule::ScheduleKind;
use cost_models::{Runtime, model, runtime};
use serde_json::{Value, json};

/// List what meshwright knows.
#[derive(Debug, Args)]
pub struct CatalogArgs {
    /// What to list.
    #[arg(value_enum)]
    kind: Kind,
    /// How to print the answer.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Models,
    Gpus,
    Clusters,
    Runtimes,
    Schedules,
    Launchers,
    Parameters,
}

/// Runs the verb.
///
/// # Errors
/// An embedded entry cannot be read.
pub fn run(args: &CatalogArgs) -> Result<Ending, AppError> {
    let (table, document) = match args.kind {
        Kind::Models => models()?,
        Kind::Gpus => gpus()?,
        Kind::Clusters => clusters()?,
        Kind::Runtimes => runtimes()?,
        Kind::Schedules => schedules(),
        Kind::Launchers => launchers(),
        Kind::Parameters => fitted()?,
    };
    match args.format {
        Format::Human => output::say(&table.text()),
        Format::Json => output::say(&output::json(&document)?),
    }
    Ok(Ending::Done)
}

fn models() -> Result<(Table, Value), AppError> {
    let mut table = Table::new(&["model", "family", "layers", "hidden", "parameters", "active"]);
    let mut list = Vec::new();
    for name in model::catalog::names() {
        let model = model::catalog::get(name)?;
        let (total, active, blocks) =
            (model.parameters_total(), model.parameters_active(), model.blocks().count());
        table.row([
            model.name.clone(),
            model.family.clone(),
            blocks.to_string(),
            grouped(model.hidden),
            parameters(total),
            parameters(active),
        ]);
        list.push(json!({
            "name": model.name, "family": model.family, "blocks": blocks, "hidden": model.hidden,
            "parameters_total": total, "parameters_mtp": model.parameters_mtp(), "parameters_active": active,
        }));
    }
    Ok((table, Value::Array(list)))
}

fn gpus() -> Result<(Table, Value), AppError> {
    let mut table =
        Table::new(&["gpu", "memory GiB", "bandwidth TB/s", "bf16 TFLOP/s", "fp8 TFLOP/s", "power W"]);
    let mut list = Vec::new();
    for name in catalog::gpu_names() {
        let gpu = catalog::gpu(&name)?;
        let teraflops = |precision| gpu.peak_rate(precision).get() / 1e12;
        let fp8 = gpu.supports(cluster_profiles::Precision::Fp8);
        table.row([
            gpu.name.clone(),
            significant(gpu.memory.as_gib()),
            significant(gpu.memory_bandwidth.get() / 1e12),
            significant(teraflops(cluster_profiles::Precision::Bf16)),
            if fp8 { significant(teraflops(cluster_profiles::Precision::Fp8)) } else { "-".to_owned() },
            significant(gpu.power_watts),
        ]);
        list.push(serde_json::to_value(&gpu).unwrap_or(Value::Null));
    }
    Ok((table, Value::Array(list)))
}

fn clusters() -> Result<(Table, Value), AppError> {
    let mut table =
        Table::new(&["cluster", "gpu", "per node", "domain", "inside GB/s", "outside GB/s", "$/GPU-hour"]);
    let mut list = Vec::new();
    for name in catalog::cluster_names() {
        let cluster = catalog::cluster(&name)?;
        let group = cluster.main();
        table.row([
            cluster.name.clone(),
            group.gpu.name.clone(),
            group.node.gpus.to_string(),
            group.node.domain.to_string(),
            significant(group.node.intra.bandwidth.get() / 1e9),
            significant(group.node.inter.bandwidth.get() / 1e9),
            group.dollars_per_gpu_hour.map_or_else(|| "-".to_owned(), |price| format!("{price:.2}")),
        ]);
        list.push(serde_json::to_value(&cluster).unwrap_or(Value::Null));
    }
    Ok((table, Value::Array(list)))
}

fn runtimes() -> Result<(Table, Value), AppError> {
    let mut table = Table::new(&["runtime", "what it is"]);
    let mut list = Vec::new();
    for name in runtime::names() {
        let runtime = Runtime::named(&name)?;
        table.row([runtime.name.clone(), runtime.title.clone()]);
        list.push(serde_json::to_value(&runtime).unwrap_or(Value::Null));
    }
    Ok((table, Value::Array(list)))
}

fn schedules() -> (Table, Value) {
    let mut table = Table::new(&["schedule", "what it is"]);
    let mut list = Vec::new();
    for kind in ScheduleKind::ALL {
        let definition = kind.definition();
        table.row([definition.name.to_owned(), definition.summary.to_owned()]);
        list.push(json!({
            "name": definition.name, "summary": definition.summary, "source": definition.source,
            "splits_backward": definition.splits_backward, "synchronous": definition.synchronous,
        }));
    }
    (table, Value::Array(list))
}

/// Every fitted number, what it was fitted to, and how well.
fn fitted() -> Result<(Table, Value), AppError> {
    let list = committed().map_err(|message| AppError::Other { message, hint: None })?;
    let mut table = Table::new(&["number", "value", "basis", "error", "from"]);
    for number in &list {
        let error = number.median_error.map_or(String::new(), |error| format!("{:.1} %", 100.0 * error));
        let basis = number.basis.to_owned();
        table.row([number.name.clone(), number.value.clone(), basis, error, number.from.clone()]);
    }
    Ok((table, serde_json::to_value(&list).unwrap_or(Value::Null)))
}

fn launchers() -> (Table, Value) {
    let mut table = Table::new(&["launcher", "runtime", "what it writes"]);
    let mut list = Vec::new();
    for launcher in launch::ALL {
        table.row([launcher.name().to_owned(), launcher.runtime().to_owned(), launcher.summary().to_owned()]);
        list.push(json!({
            "name": launcher.name(), "runtime": launcher.runtime(), "summary": launcher.summary(),
        }));
    }
    (table, Value::Array(list))
}
