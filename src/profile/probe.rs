//! The probe: the script that `profile script` writes, and the JSON file it leaves.

use super::assemble::known_gpu;
use super::findings::{Findings, Group, Origin, Pair};
use super::source::Input;
use crate::error::AppError;
use cluster_profiles::{
    AttentionCurve, Basis, Bytes, BytesPerSecond, Collective, CollectiveCurve, Figure, FlopsPerSecond,
    GemmCurve, Gpu, KernelCurves, LayerKind, MeasuredLayer, MeasuredOptimizer, Provenance, Rates, Seconds,
};
use cost_models::ModelSpec;
use cost_models::model::{Attention, Layer, Mlp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const SCRIPT: &str = include_str!("probe.py");
const SCHEMA: &str = "meshwright-probe-1";
/// Longest time of one call that is believed, in seconds.
const LONGEST: f64 = 3600.0;

/// What the script varies.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    model: Sizes,
    seq_lens: Vec<u32>,
    micro_batches: Vec<u32>,
    /// Pairs of tp and cp.
    splits: Vec<(u32, u32)>,
    optimizer_blocks: u32,
    largest_message: u64,
}

/// Sizes of the model's usual block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Sizes {
    name: String,
    hidden: u32,
    heads: u32,
    kv_heads: u32,
    head_dim: u32,
    ffn: u32,
    gated: bool,
    vocab: u32,
    layers: u32,
}

impl Plan {
    /// What to measure for `model`.
    ///
    /// # Errors
    /// The model has no block with plain attention and a dense MLP.
    pub fn new(
        model: &ModelSpec,
        seq_lens: &[u32],
        micro_batches: &[u32],
        tps: &[u32],
        cps: &[u32],
    ) -> Result<Self, AppError> {
        let blocks: Vec<_> = model
            .layers
            .iter()
            .filter_map(|l| match l {
                Layer::Block(b) => Some(b),
                _ => None,
            })
            .collect();
        let usual = blocks.iter().find_map(|block| match (&block.attention, &block.mlp) {
            (Attention::Standard { heads, kv_heads, head_dim, .. }, Mlp::Dense { ffn, activation }) => {
                Some((*heads, *kv_heads, *head_dim, *ffn, activation.up_projections() == 2))
            }
            _ => None,
        });
        let (heads, kv_heads, head_dim, ffn, gated) = usual.ok_or_else(|| AppError::Other {
            message: format!(
                "{} has no block with plain attention and a dense MLP, which the probe times",
                model.name
            ),
            hint: Some(
                "probe a dense model of the same width: its links and kernels serve as well".to_owned(),
            ),
        })?;
        let small = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        let sizes = Sizes {
            name: model.name.clone(),
            hidden: small(model.hidden),
            heads: small(heads),
            kv_heads: small(kv_heads),
            head_dim: small(head_dim),
            ffn: small(ffn),
            gated,
            vocab: small(model.vocab),
            layers: blocks.len() as u32,
        };
        let mut splits: Vec<(u32, u32)> = tps
            .iter()
            .filter(|tp| heads.is_multiple_of(u64::from(**tp)) && ffn.is_multiple_of(u64::from(**tp)))
            .map(|tp| (*tp, 1))
            .collect();
        splits.extend(cps.iter().filter(|cp| **cp > 1).map(|cp| (1, *cp)));
        splits.sort_unstable();
        splits.dedup();
        Ok(Self {
            model: sizes,
            seq_lens: seq_lens.to_vec(),
            micro_batches: micro_batches.to_vec(),
            splits,
            optimizer_blocks: (blocks.len() as u32).clamp(1, 4),
            largest_message: 1 << 30,
        })
    }

    /// The script.
    ///
    /// # Errors
    /// The sizes cannot be written as JSON.
    pub fn script(&self) -> Result<String, AppError> {
        let spec = serde_json::to_string(self)
            .map_err(|e| AppError::Other { message: e.to_string(), hint: None })?;
        Ok(SCRIPT.replace("@SPEC@", &spec))
    }
}

#[derive(Deserialize)]
struct Report {
    schema: String,
    date: String,
    torch: String,
    backend: String,
    device: Device,
    dtype: String,
    hosts: Vec<String>,
    model: Sizes,
    gemm: Vec<Gemm>,
    attention: Vec<Core>,
    norm: Vec<Norm>,
    layers: Vec<LayerEntry>,
    optimizer: Vec<OptimizerEntry>,
    collectives: Vec<CurveEntry>,
    pairs: Vec<Round>,
    complete: bool,
}

#[derive(Deserialize)]
struct Device {
    #[serde(rename = "type")]
    kind: String,
    name: String,
    memory_bytes: f64,
    multiprocessors: u32,
}

#[derive(Deserialize)]
struct Gemm {
    m: f64,
    n: f64,
    k: f64,
    seconds: f64,
}

#[derive(Deserialize)]
struct Core {
    seq_len: f64,
    batch: f64,
    heads: f64,
    head_dim: f64,
    seconds: f64,
}

#[derive(Deserialize)]
struct Norm {
    tokens: f64,
    hidden: f64,
    seconds: f64,
}

#[derive(Deserialize)]
struct LayerEntry {
    kind: String,
    seq_len: u32,
    micro_batch: u32,
    tp: u32,
    cp: u32,
    forward_seconds: f64,
    input_gradient_seconds: f64,
    weight_gradient_seconds: f64,
    spread: f64,
    #[serde(default)]
    saved_bytes: Option<f64>,
}

#[derive(Deserialize)]
struct OptimizerEntry {
    name: String,
    parameters: f64,
    seconds: f64,
}

#[derive(Deserialize)]
struct CurveEntry {
    op: String,
    ranks: u32,
    stride: u32,
    per_host: u32,
    all_groups: bool,
    points: Vec<Point>,
}

#[derive(Deserialize)]
struct Point {
    bytes: u64,
    seconds: f64,
    spread: f64,
}

#[derive(Deserialize)]
struct Round {
    rates: Vec<Rate>,
}

#[derive(Deserialize)]
struct Rate {
    from: String,
    to: String,
    rail: u32,
    bytes: f64,
    seconds: f64,
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
    if known_gpu(&report.device.name).is_none() {
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
        if l.tp == 0 || l.cp == 0 || l.seq_len == 0 || l.micro_batch == 0 {
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
            vocab: (!block).then_some(model.vocab),
            seq_len: entry.seq_len,
            micro_batch: entry.micro_batch,
            tp: entry.tp,
            cp: entry.cp,
            precision: report.dtype.clone(),
            forward: Seconds(entry.forward_seconds),
            input_gradient: Seconds(entry.input_gradient_seconds),
            weight_gradient: Seconds(entry.weight_gradient_seconds),
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

/// A device that no catalogue has: its rates are the best that the probe saw.
fn gpu(report: &Report, origin: &Origin) -> Gpu {
    let source = origin.to_string();
    let provenance = Provenance { basis: Basis::Measured, from: source.clone(), median_error: None };
    let best = |values: Vec<f64>, least: f64| values.into_iter().fold(least, f64::max);
    let rate = best(report.gemm.iter().map(|g| 2.0 * g.m * g.n * g.k / g.seconds).collect(), 1e9).min(1e18);
    let core = best(
        report
            .attention
            .iter()
            .map(|a| 2.0 * a.batch * a.heads * a.seq_len * a.seq_len * a.head_dim / a.seconds)
            .collect(),
        rate * 0.05,
    );
    let bytes = if report.dtype == "fp32" { 4.0 } else { 2.0 };
    let stream =
        best(report.norm.iter().map(|n| 2.0 * bytes * n.tokens * n.hidden / n.seconds).collect(), 1e9);
    let launch = report.gemm.iter().map(|g| g.seconds).fold(1e-3, f64::min) * 0.2;
    let figure = || Figure { value: FlopsPerSecond(rate), source: format!("largest product of {source}") };
    let name: String = report.device.name.trim().chars().take(60).collect();
    let slug: String =
        name.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    Gpu {
        name: format!("measured-{}", slug.trim_matches('-')),
        aliases: Vec::new(),
        title: format!("{name} ({})", report.device.kind),
        vendor: report.device.kind.clone(),
        compute_capability: None,
        memory: Bytes(report.device.memory_bytes.clamp(1e9, 1e13)),
        memory_source: format!("memory a process has: {source}"),
        memory_bandwidth: BytesPerSecond(stream.clamp(1e9, 1e15)),
        memory_bandwidth_source: format!("norms of {source}"),
        multiprocessors: report.device.multiprocessors.clamp(1, 10_000),
        power_watts: 100.0,
        power_source: "assumed: not measured".to_owned(),
        rates: Rates { fp32: Some(figure()), fp16: figure(), bf16: Some(figure()), fp8: None, fp4: None },
        kernels: KernelCurves {
            gemm_16bit: GemmCurve {
                launch: Seconds(launch),
                rate: FlopsPerSecond(rate),
                k_half: 0.0,
                cast_bytes: 0.0,
                rate_decay: 0.0,
                provenance: provenance.clone(),
            },
            gemm_8bit: None,
            attention: AttentionCurve {
                launch: Seconds(launch),
                rate: FlopsPerSecond(core),
                s_half: 0.0,
                head_64_ratio: 1.0,
                provenance: provenance.clone(),
            },
            collective: collective(report, provenance.clone()),
            expert_traffic: 2.0,
            expert_token_traffic: 0.0,
            sustained_16bit: 1.0,
            sustained_8bit: 1.0,
            sustained_attention: None,
            stream_bandwidth: BytesPerSecond(stream.clamp(1e9, 1e15)),
            provenance,
        },
    }
}

fn collective(report: &Report, provenance: Provenance) -> CollectiveCurve {
    let of = |op: &str| report.collectives.iter().find(|c| c.op == op && c.ranks == 2);
    let points = |op: &str| of(op).map(|c| c.points.as_slice()).unwrap_or_default();
    let latency = points("all_reduce").first().map_or(1e-4, |p| p.seconds).clamp(1e-7, 0.5);
    let rate = |op: &str, wire: f64| {
        let largest = points(op).last().map(|p| wire * p.bytes as f64 / p.seconds);
        BytesPerSecond(largest.unwrap_or(1e9).clamp(1e7, 1e15))
    };
    CollectiveCurve {
        latency: Seconds(latency / 1.5),
        gather_bandwidth: rate("all_gather", 0.5),
        reduce_bandwidth: rate("all_reduce", 1.0),
        transition: Seconds::ZERO,
        provenance,
    }
}
