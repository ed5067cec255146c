//! The JSON of nccl-tests (`-J`).

use super::findings::{Findings, Origin};
use super::nccl_names::{Ranks, test_named, test_of_file};
use super::nccl_tests::{FASTEST, TOLERANCE};
use super::source::Input;
use crate::error::AppError;
use serde::Deserialize;

/// The document of `-J`: JSON file version 1 and 2.
#[derive(Deserialize)]
struct Document {
    start_time: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    config: Option<Config>,
    #[serde(default)]
    results: Vec<Row>,
    #[serde(default)]
    average_bus_bandwidth: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    devices: Vec<Device>,
}

#[derive(Deserialize)]
struct Device {
    rank: u32,
    #[serde(default)]
    group: u32,
    hostname: String,
    #[serde(default)]
    device_info: String,
}

#[derive(Deserialize)]
struct Row {
    size: u64,
    #[serde(default)]
    out_of_place: Option<Timing>,
    #[serde(default)]
    in_place: Option<Timing>,
    #[serde(default)]
    experiment_name: Option<String>,
}

#[derive(Deserialize)]
struct Timing {
    #[serde(alias = "cpu_time")]
    time: serde_json::Value,
    alg_bw: serde_json::Value,
    #[serde(default)]
    nwrong: Option<serde_json::Value>,
}

pub(super) fn json(tool: &str, input: &Input, found: &mut Findings) -> Result<(), AppError> {
    let text = input.text()?;
    let document: Document = serde_json::from_str(&text).map_err(|error| input.json(&error))?;
    let devices = document.config.map(|config| config.devices).unwrap_or_default();
    if document.results.is_empty() || devices.is_empty() {
        let hint = super::other_tool(input, tool);
        return Err(input.whole("no JSON of nccl-tests: `config.devices` and `results` are missing", hint));
    }
    let mut ranks = Ranks::default();
    devices.iter().for_each(|d| ranks.add(d.rank, d.group, &d.hostname, &d.device_info));
    let named = document.args.iter().find_map(|arg| test_named(arg));
    let last = text.lines().count() as u64;
    let origin = Origin {
        tool: tool.to_owned(),
        file: input.name(),
        lines: Some((1, last)),
        date: document.start_time.clone(),
    };
    for (index, row) in document.results.iter().enumerate() {
        let test = row.experiment_name.as_deref().and_then(test_named).or(named);
        let Some((_, op)) = test.or_else(|| test_of_file(&input.name())) else {
            return Err(input.whole(
                "which test is it? Neither `args` nor the file's name says",
                "name the file after its test, such as all_gather.json",
            ));
        };
        let (Some(op), Some(timing)) = (op, row.out_of_place.as_ref().or(row.in_place.as_ref())) else {
            continue;
        };
        let wrong = timing.nwrong.as_ref().and_then(serde_json::Value::as_f64).unwrap_or(0.0);
        if row.size == 0 || wrong > 0.0 {
            continue;
        }
        let fault = |what: &str| input.whole(format!("results[{index}].{what}"), "run the test again");
        let value = |value: &serde_json::Value| value.as_f64().filter(|v| v.is_finite() && *v > 0.0);
        let Some(time) = value(&timing.time) else {
            return Err(fault(&format!("time is {}: no measurement", timing.time)));
        };
        let exact = row.size as f64 / time / 1e3;
        if timing.alg_bw.as_f64().is_some_and(|bw| (exact - bw).abs() > exact.max(bw) * TOLERANCE + 0.011) {
            return Err(fault(&format!("alg_bw is {} where size and time give {exact:.2}", timing.alg_bw)));
        }
        if let Some(group) = ranks.group(op).filter(|group| group.ranks > 1) {
            let busbw = exact * op.wire_factor(group.ranks);
            if busbw > FASTEST {
                return Err(fault(&format!("bus_bw is {busbw:.0} GB/s, more than any GPU's links have")));
            }
            found.time(group, &origin, row.size, time * 1e-6);
        }
    }
    ranks.tell(found, &origin);
    if document.average_bus_bandwidth.is_none() {
        found.note(format!("{}: has no average_bus_bandwidth: the test may have been cut", input.name()));
    }
    Ok(())
}
