//! The numbers of a cluster that a step depends on: each can be scaled, for axes and for sensitivities.

use cluster_profiles::{BytesPerSecond, Cluster, Gpu, NodeGroup, Seconds};

/// A number of the hardware.
pub struct Number {
    /// Its name for people.
    pub name: &'static str,
    /// Multiplies it everywhere in a cluster.
    pub scale: fn(&mut Cluster, f64),
}

/// Every number a step depends on. Memory is not among them: it does not change the step of a layout that fits.
pub static NUMBERS: &[Number] = &[
    Number { name: "matrix rate", scale: |c, f| each_gpu(c, |gpu| scale_matrix(gpu, f)) },
    Number {
        name: "attention rate",
        scale: |c, f| each_gpu(c, |gpu| gpu.kernels.attention.rate = gpu.kernels.attention.rate * f),
    },
    Number { name: "memory bandwidth", scale: |c, f| each_gpu(c, |gpu| scale_memory_bandwidth(gpu, f)) },
    Number { name: "kernel launch time", scale: |c, f| each_gpu(c, |gpu| scale_launch(gpu, f)) },
    Number { name: "NVLink bandwidth", scale: |c, f| each_group(c, |group| scale_links_inside(group, f)) },
    Number { name: "NVLink latency", scale: |c, f| each_group(c, |group| scale_latency_inside(group, f)) },
    Number {
        name: "network bandwidth",
        scale: |c, f| each_group(c, |group| times(&mut group.node.inter.bandwidth, f)),
    },
    Number {
        name: "network latency",
        scale: |c, f| each_group(c, |group| group.node.inter.latency = group.node.inter.latency * f),
    },
    Number { name: "oversubscription", scale: |c, f| c.oversubscription = (c.oversubscription * f).max(1.0) },
    Number {
        name: "host link bandwidth",
        scale: |c, f| each_group(c, |group| times(&mut group.node.host.bandwidth, f)),
    },
];

fn each_group(cluster: &mut Cluster, change: impl Fn(&mut NodeGroup)) {
    cluster.groups.iter_mut().for_each(change);
}

fn each_gpu(cluster: &mut Cluster, change: impl Fn(&mut Gpu)) {
    cluster.groups.iter_mut().for_each(|group| change(&mut group.gpu));
}

fn times(rate: &mut BytesPerSecond, factor: f64) {
    *rate = *rate * factor;
}

fn time_by(time: &mut Seconds, factor: f64) {
    *time = *time * factor;
}

/// Multiplies every matrix rate, datasheet figures included.
fn scale_matrix(gpu: &mut Gpu, factor: f64) {
    let rates = &mut gpu.rates;
    let optional = [&mut rates.fp32, &mut rates.bf16, &mut rates.fp8, &mut rates.fp4];
    for figure in optional.into_iter().flatten().chain([&mut rates.fp16]) {
        figure.value = figure.value * factor;
    }
    let kernels = &mut gpu.kernels;
    for curve in kernels.gemm_8bit.iter_mut().chain([&mut kernels.gemm_16bit]) {
        curve.rate = curve.rate * factor;
    }
}

/// Multiplies matrix and attention rates.
pub fn speed_up(gpu: &mut Gpu, factor: f64) {
    scale_matrix(gpu, factor);
    gpu.kernels.attention.rate = gpu.kernels.attention.rate * factor;
}

/// Multiplies the peak memory bandwidth and what streaming kernels reach.
pub fn scale_memory_bandwidth(gpu: &mut Gpu, factor: f64) {
    times(&mut gpu.memory_bandwidth, factor);
    times(&mut gpu.kernels.stream_bandwidth, factor);
}

/// Multiplies the memory of every GPU.
pub fn scale_memory(cluster: &mut Cluster, factor: f64) {
    each_gpu(cluster, |gpu| gpu.memory = gpu.memory * factor);
}

fn scale_launch(gpu: &mut Gpu, factor: f64) {
    let kernels = &mut gpu.kernels;
    time_by(&mut kernels.attention.launch, factor);
    for curve in kernels.gemm_8bit.iter_mut().chain([&mut kernels.gemm_16bit]) {
        time_by(&mut curve.launch, factor);
    }
}

/// Multiplies the bandwidth inside a domain, nominal and as collectives reach it.
pub fn scale_links_inside(group: &mut NodeGroup, factor: f64) {
    times(&mut group.node.intra.bandwidth, factor);
    let curve = &mut group.gpu.kernels.collective;
    times(&mut curve.gather_bandwidth, factor);
    times(&mut curve.reduce_bandwidth, factor);
}

fn scale_latency_inside(group: &mut NodeGroup, factor: f64) {
    time_by(&mut group.node.intra.latency, factor);
    time_by(&mut group.gpu.kernels.collective.latency, factor);
}
