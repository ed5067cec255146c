//! The JSON file that the probe leaves.

use super::base::known_gpu;
use super::findings::{Findings, Group, Origin, Pair};
use super::probe::Sizes;
use super::probe_gpu::gpu;
use super::source::Input;
use crate::error::AppError;
use cluster_profiles::{
    Basis, Bytes, BytesPerSecond, Collective, LayerKind, MeasuredLayer, MeasuredOptimizer, Provenance,
    Seconds,
};
use serde::Deserialize;
use std::collections::BTreeMap;

const SCHEMA: &str = "meshwright-probe-1";
/// Longest time of one call that is believed, in seconds.
const LONGEST: f64 = 3600.0;

#[derive(Deserialize)]
pub(super) struct Report {
    pub(super) schema: String,
    pub(super) date: String,
    pub(super) torch: String,
    pub(super) backend: String,
    pub(super) device: Device,
    pub(super) dtype: String,
    pub(super) hosts: Vec<String>,
    pub(super) model: Sizes,
    pub(super) gemm: Vec<Gemm>,
    pub(super) attention: Vec<Core>,
    pub(super) norm: Vec<Norm>,
    pub(super) layers: Vec<LayerEntry>,
    pub(super) optimizer: Vec<OptimizerEntry>,
    pub(super) collectives: Vec<CurveEntry>,
    pub(super) pairs: Vec<Round>,
    pub(super) complete: bool,
}

#[derive(Deserialize)]
pub(super) struct Device {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) memory_bytes: f64,
    pub(super) multiprocessors: u32,
}

#[derive(Deserialize)]
pub(super) struct Gemm {
    pub(super) m: f64,
    pub(super) n: f64,
    pub(super) k: f64,
    pub(super) seconds: f64,
}

#[derive(Deserialize)]
pub(super) struct Core {
    pub(super) seq_len: f64,
    pub(super) batch: f64,
    pub(super) heads: f64,
    pub(super) head_dim: f64,
    pub(super) seconds: f64,
}

#[derive(Deserialize)]
pub(super) struct Norm {
    pub(super) tokens: f64,
    pub(super) hidden: f64,
    pub(super) seconds: f64,
}

#[derive(Deserialize)]
pub(super) struct LayerEntry {
    pub(super) kind: String,
    pub(super) seq_len: u32,
    pub(super) micro_batch: u32,
    pub(super) tp: u32,
    pub(super) cp: u32,
    #[serde(default = "one")]
    pub(super) ep: u32,
    pub(super) forward_seconds: f64,
    pub(super) input_gradient_seconds: f64,
    pub(super) weight_gradient_seconds: f64,
    pub(super) spread: f64,
    #[serde(default)]
    pub(super) exposed_forward_seconds: Option<f64>,
    #[serde(default)]
    pub(super) exposed_backward_seconds: Option<f64>,
    #[serde(default)]
    pub(super) saved_bytes: Option<f64>,
}

#[derive(Deserialize)]
pub(super) struct OptimizerEntry {
    pub(super) name: String,
    pub(super) parameters: f64,
    pub(super) seconds: f64,
}

#[derive(Deserialize)]
pub(super) struct CurveEntry {
    pub(super) op: String,
    pub(super) ranks: u32,
    pub(super) stride: u32,
    pub(super) per_host: u32,
    pub(super) all_groups: bool,
    pub(super) points: Vec<Point>,
}

#[derive(Deserialize)]
pub(super) struct Point {
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    pub(super) spread: f64,
}

#[derive(Deserialize)]
pub(super) struct Round {
    pub(super) rates: Vec<Rate>,
}

#[derive(Deserialize)]
pub(super) struct Rate {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) rail: u32,
    pub(super) bytes: f64,
    pub(super) seconds: f64,
}

const fn one() -> u32 {
    1
}

/// Imports the probe's file.
///
/// # Errors
/// It is no such file, or holds a time that is none.
pub fn import(input: &Input, found: &mut Findings) -> Result<(), AppError> {
    let text = input.text()?;
    let report: Report = serde_json::from_str(&text).map_err(|error| input.json(&error))?;
    if report.schema != SCHEMA {
        let hint = "write it anew with `meshwright profile script`";
        return Err(input.whole(format!("schema is `{}`, expected `{SCHEMA}`", report.schema), hint));
    }
    check(input, &report)?;
    let origin = Origin {
        tool: format!("probe (torch {}, {})", report.torch, report.backend),
        file: input.name(),
        lines: Some((1, text.lines().count() as u64)),
        date: Some(report.date.clone()),
    };
    let mut gpus: BTreeMap<&str, u32> = BTreeMap::new();
    report.hosts.iter().for_each(|host| *gpus.entry(host).or_default() += 1);
    let mut hosts: Vec<&String> = report.hosts.iter().collect();
    hosts.dedup();
    hosts.iter().for_each(|host| found.host(host, gpus[host.as_str()], Some(&report.device.name), &origin));
    if !report.complete {
        found
            .note(format!("{}: the probe was stopped before its end; start it again to go on", input.name()));
    }
    take_curves(&report, &origin, found);
    take_pairs(&report, &origin, found);
    take_layers(&report, &origin, found);
    // Of several reports, the first: a later one may have left single kernels out.
    if known_gpu(&report.device.name).is_none() && found.gpu.is_none() {
        found.gpu = Some(gpu(&report, &origin));
    }
    Ok(())
}

/// Every time must be one.
fn check(input: &Input, report: &Report) -> Result<(), AppError> {
    let mut times: Vec<(String, f64, bool)> = Vec::new();
    for (i, l) in report.layers.iter().enumerate() {
        times.push((format!("layers[{i}].forward_seconds"), l.forward_seconds, false));
        times.push((format!("layers[{i}].input_gradient_seconds"), l.input_gradient_seconds, true));
        times.push((format!("layers[{i}].weight_gradient_seconds"), l.weight_gradient_seconds, true));
        let exposed = [("forward", l.exposed_forward_seconds), ("backward", l.exposed_backward_seconds)];
        times.extend(exposed.into_iter().filter_map(|(pass, seconds)| {
            Some((format!("layers[{i}].exposed_{pass}_seconds"), seconds?, true))
        }));
        if l.tp == 0 || l.cp == 0 || l.ep == 0 || l.seq_len == 0 || l.micro_batch == 0 {
            times.push((format!("layers[{i}] sizes"), 0.0, false));
        }
    }
    for (i, c) in report.collectives.iter().enumerate() {
        times.extend(c.points.iter().map(|p| (format!("collectives[{i}].points"), p.seconds, false)));
    }
    times.extend(report.gemm.iter().map(|g| ("gemm.seconds".to_owned(), g.seconds, false)));
    times.extend(report.attention.iter().map(|g| ("attention.seconds".to_owned(), g.seconds, false)));
    times.extend(report.norm.iter().map(|g| ("norm.seconds".to_owned(), g.seconds, false)));
    times.extend(report.optimizer.iter().map(|g| ("optimizer.seconds".to_owned(), g.seconds, false)));
    let wrong = times
        .iter()
        .find(|(_, t, zero)| !(t.is_finite() && *t <= LONGEST && (*t > 0.0 || (*zero && *t == 0.0))));
    wrong.map_or(Ok(()), |(what, time, _)| {
        Err(input.whole(format!("{what} is {time}: no measurement"), "run the probe again"))
    })
}

/// Groups that all ran at once stand for training; those that ran alone only where nothing else is there.
fn take_curves(report: &Report, origin: &Origin, found: &mut Findings) {
    let mut spreads = Vec::new();
    for entry in &report.collectives {
        let Ok(op) = entry.op.parse::<Collective>() else { continue };
        let same = |other: &&CurveEntry| {
            (&other.op, other.ranks, other.stride) == (&entry.op, entry.ranks, entry.stride)
        };
        if !entry.all_groups && report.collectives.iter().filter(same).any(|other| other.all_groups) {
            continue;
        }
        let group =
            Group { op, ranks: entry.ranks, per_host: Some(entry.per_host.clamp(1, entry.ranks.max(1))) };
        for point in entry.points.iter().filter(|_| entry.ranks > 1) {
            found.time(group, origin, point.bytes.max(1), point.seconds);
            spreads.push(point.spread);
        }
    }
    if let Some(spread) = cluster_profiles::fit::median(&spreads) {
        found.note(format!("collectives: samples spread by {:.1} % in the median", 100.0 * spread));
    }
}

fn take_pairs(report: &Report, origin: &Origin, found: &mut Findings) {
    let rates: Vec<&Rate> = report.pairs.iter().flat_map(|round| &round.rates).collect();
    if rates.is_empty() {
        return;
    }
    found.pairs.extend(rates.into_iter().filter(|r| r.seconds > 0.0).map(|r| Pair {
        from: r.from.clone(),
        to: r.to.clone(),
        rail: Some(r.rail.min(1023)),
        bandwidth: BytesPerSecond(r.bytes / r.seconds),
        latency: None,
    }));
    found.pair_origins.push(origin.clone());
}

fn take_layers(report: &Report, origin: &Origin, found: &mut Findings) {
    let provenance = |spread: Option<f64>| Provenance {
        basis: Basis::Measured,
        from: origin.to_string(),
        median_error: spread.map(|s| s.clamp(0.0, 10.0)),
    };
    let model = &report.model;
    for entry in &report.layers {
        let Ok(kind) = entry.kind.parse::<LayerKind>() else { continue };
        let block = kind == LayerKind::Block;
        found.layers.push(MeasuredLayer {
            kind,
            hidden: model.hidden,
            heads: block.then_some(model.heads),
            kv_heads: block.then_some(model.kv_heads),
            ffn: block.then_some(model.ffn),
            experts: (block && model.experts > 0).then_some(model.experts),
            topk: (block && model.experts > 0).then_some(model.topk),
            vocab: (!block).then_some(model.vocab),
            seq_len: entry.seq_len,
            micro_batch: entry.micro_batch,
            tp: entry.tp,
            cp: entry.cp,
            ep: entry.ep,
            precision: report.dtype.clone(),
            forward: Seconds(entry.forward_seconds),
            input_gradient: Seconds(entry.input_gradient_seconds),
            weight_gradient: Seconds(entry.weight_gradient_seconds),
            exposed_forward: entry.exposed_forward_seconds.map(Seconds),
            exposed_backward: entry.exposed_backward_seconds.map(Seconds),
            saved: entry.saved_bytes.filter(|b| b.is_finite() && *b >= 0.0).map(Bytes),
            provenance: provenance(Some(entry.spread)),
        });
    }
    found.optimizers.extend(report.optimizer.iter().map(|entry| MeasuredOptimizer {
        name: entry.name.clone(),
        parameters: entry.parameters,
        time: Seconds(entry.seconds),
        provenance: provenance(None),
    }));
}
