//! One line per GPU kind and per cluster of the catalogue, for a table.

use crate::catalog;
use crate::error::ProfileError;
use crate::kernels::Basis;
use crate::precision::Precision;
use crate::units::{Bytes, BytesPerSecond, FlopsPerSecond, Seconds};
use serde::Serialize;

/// A GPU kind in one line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GpuRow {
    /// Catalogue name.
    pub name: String,
    /// Other names.
    pub aliases: Vec<String>,
    /// Name for people.
    pub title: String,
    /// Maker.
    pub vendor: String,
    /// Memory that a process sees.
    pub memory_bytes: Bytes,
    /// Peak memory bandwidth.
    pub memory_bytes_per_second: BytesPerSecond,
    /// Dense 16-bit peak.
    pub bf16_flops_per_second: FlopsPerSecond,
    /// Dense 8-bit peak, where the GPU has 8-bit units.
    pub fp8_flops_per_second: Option<FlopsPerSecond>,
    /// Dense 4-bit peak, where the GPU has 4-bit units.
    pub fp4_flops_per_second: Option<FlopsPerSecond>,
    /// Board power.
    pub power_watts: f64,
    /// Softest basis among its kernel curves.
    pub kernels: Basis,
}

/// A cluster in one line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClusterRow {
    /// Catalogue name.
    pub name: String,
    /// Other names.
    pub aliases: Vec<String>,
    /// One line for people.
    pub title: String,
    /// GPU kind of the first group.
    pub gpu: String,
    /// Nodes at catalogue size.
    pub nodes: u64,
    /// GPUs of a node.
    pub gpus_per_node: u32,
    /// GPUs of an NVLink domain.
    pub domain: u32,
    /// Kind of the link inside the domain.
    pub intra: String,
    /// Its rate per GPU per direction.
    pub intra_bytes_per_second: BytesPerSecond,
    /// Kind of the link between domains.
    pub inter: String,
    /// Its rate per GPU per direction.
    pub inter_bytes_per_second: BytesPerSecond,
    /// Its latency.
    pub inter_latency_seconds: Seconds,
    /// Network interfaces of a node.
    pub nics: u32,
    /// Downlink over uplink capacity of the leaf switches.
    pub oversubscription: f64,
    /// Price, where public.
    pub dollars_per_gpu_hour: Option<f64>,
}

/// Every GPU kind, sorted by name.
///
/// # Errors
/// [`ProfileError`] if an embedded file is wrong, which the tests exclude.
pub fn gpus() -> Result<Vec<GpuRow>, ProfileError> {
    let row = |gpu: &crate::Gpu| GpuRow {
        name: gpu.name.clone(),
        aliases: gpu.aliases.clone(),
        title: gpu.title.clone(),
        vendor: gpu.vendor.clone(),
        memory_bytes: gpu.memory,
        memory_bytes_per_second: gpu.memory_bandwidth,
        bf16_flops_per_second: gpu.peak_rate(Precision::Bf16),
        fp8_flops_per_second: gpu.rates.fp8.as_ref().map(|figure| figure.value),
        fp4_flops_per_second: gpu.rates.fp4.as_ref().map(|figure| figure.value),
        power_watts: gpu.power_watts,
        kernels: gpu.kernels.softest_basis(),
    };
    Ok(catalog::gpus()?.iter().map(row).collect())
}

/// Every cluster, sorted by name.
///
/// # Errors
/// [`ProfileError`] if an embedded file is wrong, which the tests exclude.
pub fn clusters() -> Result<Vec<ClusterRow>, ProfileError> {
    let row = |cluster: &crate::Cluster| {
        let (group, node) = (cluster.main(), &cluster.main().node);
        ClusterRow {
            name: cluster.name.clone(),
            aliases: cluster.aliases.clone(),
            title: cluster.title.clone(),
            gpu: group.gpu.name.clone(),
            nodes: cluster.node_count(),
            gpus_per_node: node.gpus,
            domain: node.domain,
            intra: node.intra.kind.clone(),
            intra_bytes_per_second: node.intra.bandwidth,
            inter: node.inter.kind.clone(),
            inter_bytes_per_second: node.inter.bandwidth,
            inter_latency_seconds: node.inter.latency,
            nics: node.nics,
            oversubscription: cluster.oversubscription,
            dollars_per_gpu_hour: group.dollars_per_gpu_hour,
        }
    };
    Ok(catalog::clusters()?.iter().map(row).collect())
}
