//! The embedded GPUs and clusters: complete, within reason, written back unchanged.

use cluster_profiles::{Cluster, Gpu, ProfileError, catalog, summary};

type Outcome = Result<(), ProfileError>;

/// GPU kinds that published runs and kernel measurements name.
const GPUS: &[&str] = &[
    "v100-sxm2-16gb",
    "v100-sxm2-32gb",
    "v100-sxm3-32gb",
    "a100-sxm-40gb",
    "a100-sxm-80gb",
    "a100-pcie-40gb",
    "a100-pcie-80gb",
    "h100-sxm-80gb",
    "h100-pcie-80gb",
    "h100-96gb-500w",
    "h200",
    "h800",
    "b200",
    "b200-power-limited",
    "b300",
    "gb200",
    "gb300",
    "l4",
    "l40s",
    "rtx-4090",
    "rtx-pro-6000",
    "mi250x",
    "mi300x",
    "mi325x",
    "mi355x",
    "ascend-910b",
];

const CLUSTERS: &[&str] = &[
    "dgx-a100",
    "dgx-h100",
    "dgx-h200",
    "dgx-b200",
    "dgx-b300",
    "gb200-nvl72",
    "gb300-nvl72",
    "aws-p4d",
    "aws-p4de",
    "aws-p5",
    "aws-p5en",
    "aws-p6",
    "gcp-a3",
    "gcp-a4",
    "azure-ndv4",
    "azure-ndv5",
    "frontier",
    "8xmi300x",
    "8xl40s",
    "8x4090",
];

#[test]
fn everything_asked_for_is_there() -> Outcome {
    for name in GPUS {
        assert_eq!(catalog::gpu(name)?.name, *name);
    }
    for name in CLUSTERS {
        catalog::cluster(name)?;
    }
    Ok(())
}

#[test]
fn every_gpu_has_a_cluster() -> Outcome {
    let clusters = summary::clusters()?;
    let without: Vec<String> = catalog::gpu_names()
        .into_iter()
        .filter(|gpu| !clusters.iter().any(|cluster| cluster.gpu == *gpu))
        .collect();
    let expected = ["a100-pcie-40gb", "a100-pcie-80gb", "l4", "v100-sxm2-16gb", "v100-sxm2-32gb"];
    assert_eq!(without, expected);
    Ok(())
}

#[test]
fn gpu_figures_are_within_reason() -> Outcome {
    for gpu in catalog::gpus()? {
        let (rates, kernels, name) = (&gpu.rates, &gpu.kernels, &gpu.name);
        let fp16 = rates.fp16.value;
        let ratio = |figure: &Option<cluster_profiles::Figure>| figure.as_ref().map(|f| f.value / fp16);
        assert!(ratio(&rates.fp32).is_none_or(|r| (0.05..=0.51).contains(&r)), "{name}: fp32");
        assert!(ratio(&rates.bf16).is_none_or(|r| r == 1.0), "{name}: bf16");
        assert!(ratio(&rates.fp8).is_none_or(|r| (1.9..=2.1).contains(&r)), "{name}: fp8");
        assert!(ratio(&rates.fp4).is_none_or(|r| (3.8..=6.5).contains(&r)), "{name}: fp4");
        assert!(kernels.gemm_16bit.rate < fp16, "{name}: a product faster than the peak");
        assert!(kernels.attention.rate < fp16, "{name}: attention faster than the peak");
        let fp8 = rates.fp8.as_ref().map_or(fp16, |figure| figure.value);
        assert!(kernels.gemm_8bit.as_ref().is_none_or(|gemm| gemm.rate < fp8), "{name}: 8-bit product");
        assert_eq!(kernels.gemm_8bit.is_some(), rates.fp8.is_some(), "{name}: 8-bit curve and rate");
        assert!((0.5..1.0).contains(&(kernels.stream_bandwidth / gpu.memory_bandwidth)), "{name}: stream");
        assert!((0.5..=1.1).contains(&kernels.sustained_16bit), "{name}: sustained");
        assert!((0.5..=1.4).contains(&kernels.sustained_8bit), "{name}: sustained 8-bit");
        assert!(kernels.attention_clock() >= kernels.sustained_16bit, "{name}: attention draws less power");
    }
    Ok(())
}

/// The size in the name is the maker's GB; a process sees a little less, or the HBM of a part sold as less.
#[test]
fn memory_is_what_the_name_says_less_what_the_driver_keeps() -> Outcome {
    for gpu in catalog::gpus()? {
        let nominal =
            gpu.title.split(['-', ' ']).find_map(|word| word.strip_suffix("GB")?.parse::<f64>().ok());
        let nominal = nominal.unwrap_or_default();
        let share = gpu.memory.get() / (nominal * 1e9);
        assert!((0.98..=1.08).contains(&share), "{}: {share} of {nominal} GB", gpu.name);
    }
    Ok(())
}

#[test]
fn cluster_figures_are_within_reason() -> Outcome {
    for cluster in catalog::clusters()? {
        let (group, name) = (cluster.main(), &cluster.name);
        let node = &group.node;
        let collective = &group.gpu.kernels.collective;
        assert!(collective.gather_bandwidth < node.intra.bandwidth, "{name}: collectives above the wire");
        assert!(collective.reduce_bandwidth < node.intra.bandwidth, "{name}: collectives above the wire");
        assert!(node.inter.bandwidth < node.intra.bandwidth, "{name}: a network faster than the node");
        assert!((1.0..=400.0).contains(&(node.inter.bandwidth.get() / 1e9)), "{name}: network");
        assert!(node.inter.latency >= node.intra.latency, "{name}: latency");
        assert!(node.domain.is_multiple_of(node.gpus), "{name}: domain");
        assert!(group.dollars_per_gpu_hour.is_none_or(|price| (0.3..30.0).contains(&price)), "{name}: price");
        assert_eq!(
            group.dollars_per_gpu_hour.is_some(),
            group.price_source.is_some(),
            "{name}: price source"
        );
    }
    Ok(())
}

#[test]
fn every_profile_is_written_and_read_unchanged() -> Outcome {
    for gpu in catalog::gpus()? {
        assert_eq!(Gpu::from_toml(&gpu.name, &gpu.to_toml()?)?, *gpu);
    }
    for cluster in catalog::clusters()? {
        assert_eq!(catalog::cluster_from_toml(&cluster.name, &cluster.to_toml()?)?, *cluster);
    }
    Ok(())
}

#[test]
fn json_holds_plain_numbers_and_reads_back() -> Result<(), Box<dyn std::error::Error>> {
    for cluster in catalog::clusters()? {
        let text = serde_json::to_string(cluster)?;
        assert_eq!(serde_json::from_str::<Cluster>(&text)?, *cluster);
    }
    let gpu = serde_json::to_value(catalog::gpu("h100")?)?;
    assert_eq!(gpu["memory_bandwidth"], 3.35e12);
    Ok(())
}

#[test]
fn summaries_have_a_line_for_every_file() -> Outcome {
    let gpus: Vec<String> = summary::gpus()?.into_iter().map(|row| row.name).collect();
    assert_eq!(gpus, catalog::gpu_names());
    let clusters: Vec<String> = summary::clusters()?.into_iter().map(|row| row.name).collect();
    assert_eq!(clusters, catalog::cluster_names());
    Ok(())
}

#[test]
fn unknown_names_get_the_nearest() {
    let near = |result: Result<(), ProfileError>| match result {
        Err(ProfileError::Unknown { nearest, .. }) => nearest,
        other => panic!("{other:?}"),
    };
    assert_eq!(near(catalog::gpu("h100-sxm-80g").map(drop))[0], "h100-sxm-80gb");
    assert_eq!(near(catalog::cluster("dgx-h10").map(drop))[0], "dgx-h100");
    assert!(near(catalog::gpu(&"x".repeat(10_000_000)).map(drop)).is_empty());
}
