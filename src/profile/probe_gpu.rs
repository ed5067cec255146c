//! A GPU made of what the probe measured.

use super::findings::Origin;
use super::probe_report::Report;
use cluster_profiles::{
    AttentionCurve, Basis, Bytes, BytesPerSecond, CollectiveCurve, Figure, FlopsPerSecond, GemmCurve, Gpu,
    KernelCurves, Provenance, Rates, Seconds,
};

/// Lowest rate that a profile may state, in FLOP/s: that of a kernel which a probe that was stopped has not measured.
const LEAST_RATE: f64 = 1e8;

/// A device that no catalogue has: its rates are the best that the probe saw.
pub(super) fn gpu(report: &Report, origin: &Origin) -> Gpu {
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
        (rate * 0.05).max(LEAST_RATE),
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
