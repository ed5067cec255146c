//! Cluster and GPU profiles: the whole format, every fault at once, hostile input.

use cluster_profiles::{Cluster, Gpu, ProfileError, catalog};
use proptest::prelude::*;
use std::time::{Duration, Instant};

const FULL: &str = r#"
name = "lab"
aliases = ["our-lab"]
title = "Four nodes of two kinds"
source = "imported from nccl-tests logs"
oversubscription = 2
nodes_per_leaf = 2

[[groups]]
gpu = "h100-sxm-80gb"
nodes = 3
hosts = ["a0", "a1", "b0"]
dollars_per_gpu_hour = 2.5
price_source = "contract"

[groups.node]
gpus = 8
domain = 8
nics = 8
intra = { kind = "nvlink", latency = "3 us", bandwidth = "450 GB/s", source = "datasheet" }
inter = { kind = "infiniband", latency = "9.4 us", bandwidth = "400 Gb/s", source = "datasheet" }
host = { kind = "pcie", latency = "10 us", bandwidth = "52 GB/s", source = "measured" }

[[groups]]
gpu = "./mine.toml"
nodes = 1
hosts = ["b1"]

[groups.node]
gpus = 4
domain = 4
nics = 4
intra = { kind = "pcie", latency = "5 us", bandwidth = "32 GB/s", source = "datasheet" }
inter = { kind = "ethernet", latency = "20 us", bandwidth = "100 Gb/s", source = "datasheet" }
host = { kind = "pcie", latency = "10 us", bandwidth = "26 GB/s", source = "measured" }

[[leaves]]
name = "rack-a"
hosts = ["a0", "a1"]

[[leaves]]
name = "rack-b"
hosts = ["b0", "b1"]

[[links]]
between = ["a1", "rack-a"]
rail = 3
broken = true
source = "ibdiagnet"

[[links]]
between = ["a0", "b1"]
bandwidth = "5 GB/s"
latency = "30 us"
source = "ib_write_bw"

[matrix]
hosts = ["a0", "a1"]
bandwidth_gb_per_second = [[0, 47.5], [48.1, 0]]
latency_us = [[0, 8], [8.5, 0]]
source = "pairwise send_recv"

[measured]
all_reduce = "280 GB/s"
all_gather = "270 GB/s"
reduce_scatter = "271 GB/s"
source = "start-up test"

[[collectives]]
op = "all_reduce"
ranks = 16
per_domain = 8
latency = "40 us"
bandwidth = "360 GB/s"
points = [["1 KiB", "39 us"], ["1 GiB", "5.9 ms"]]
provenance = { basis = "measured", from = "log.txt" }
"#;

fn mine(path: &str) -> Result<String, String> {
    assert_eq!(path, "./mine.toml");
    let mut gpu = catalog::gpu("l40s").map_err(|error| error.to_string())?;
    gpu.name = "mine".to_owned();
    gpu.aliases.clear();
    gpu.to_toml().map_err(|error| error.to_string())
}

fn full() -> Result<Cluster, ProfileError> {
    Cluster::from_toml("lab.toml", FULL, &mine)
}

#[test]
fn the_whole_format_is_read_and_written_back() -> Result<(), ProfileError> {
    let cluster = full()?;
    assert_eq!(cluster.gpu_count(), 28);
    assert_eq!(cluster.groups[1].gpu.name, "mine");
    // Written with the GPU inside, so no file is asked for.
    assert_eq!(catalog::cluster_from_toml("again", &cluster.to_toml()?)?, cluster);
    Ok(())
}

#[test]
fn a_link_joins_what_lies_next_to_each_other() {
    for ends in [["a1", "rack-b"], ["rack-a", "rack-b"], ["a1", "spine"], ["a1", "a1"], ["spine", "spine"]] {
        let text = FULL.replace(r#"["a1", "rack-a"]"#, &format!("{ends:?}"));
        let error = Cluster::from_toml("lab.toml", &text, &mine).unwrap_err().to_string();
        assert!(error.contains(&format!("`{}` and `{}`, which no link joins", ends[0], ends[1])), "{error}");
    }
    for ends in [["rack-a", "spine"], ["spine", "rack-b"], ["rack-a", "a0"], ["a0", "b0"]] {
        let text = FULL.replace(r#"["a1", "rack-a"]"#, &format!("{ends:?}"));
        Cluster::from_toml("lab.toml", &text, &mine).unwrap();
    }
}

#[test]
fn every_fault_is_reported_with_its_place() {
    let text = FULL
        .replace("nodes = 3", "nodes = 0")
        .replace("bandwidth = \"450 GB/s\"", "bandwidth = 450")
        .replace("latency = \"9.4 us\"", "latency = \"9.4 Gb\"")
        .replace("oversubscription = 2", "oversubscripton = 2")
        .replace("op = \"all_reduce\"", "op = \"allreduce\"")
        .replace("[\"a1\", \"rack-a\"]", "[\"a1\", \"rack-c\"]")
        .replace("gpu = \"h100-sxm-80gb\"", "gpu = \"h100-smx-80gb\"")
        .replace("kind = \"infiniband\", ", "");
    let Err(ProfileError::Faults { faults, .. }) = Cluster::from_toml("lab.toml", &text, &mine) else {
        panic!("accepted");
    };
    let all = faults.join("\n");
    for part in [
        "line 6, column 1: oversubscripton is not a key of a profile: did you mean `oversubscription`?",
        "groups[0].gpu is wrong: the catalogue has no GPU named `h100-smx-80gb`: did you mean h100-sxm-80gb",
        "groups[0].nodes is 0, expected a whole number from 1 to 2097152",
        "line 20, column 58: groups[0].node.intra.bandwidth is 450, expected a string with its unit",
        "groups[0].node.inter.latency is wrong: `9.4 Gb` has no known unit",
        "line 21, column 9: groups[0].node.inter.kind is missing",
        "collectives[0].op is wrong: unknown collective, use one of all_reduce",
        "links name `rack-c`, which the profile does not have, did you mean `rack-a`?",
    ] {
        assert!(all.contains(part), "no `{part}` in\n{all}");
    }
    assert_eq!(faults.len(), 8, "{all}");
}

#[test]
fn names_that_contradict_each_other_are_refused() {
    for (from, to, expected) in [
        ("\"a0\", \"a1\", \"b0\"]\ndollars", "\"a0\", \"a0\", \"b0\"]\ndollars", "name the host `a0` twice"),
        ("\"a0\", \"a1\", \"b0\"]\ndollars", "\"a0\", \"a1\"]\ndollars", "has 2 names for 3 nodes"),
        ("hosts = [\"b0\", \"b1\"]", "hosts = [\"b0\", \"a1\"]", "hold the host `a1` twice"),
        ("name = \"rack-b\"", "name = \"rack-a\"", "use the name `rack-a` twice"),
        ("name = \"rack-b\"", "name = \"b0\"", "name a host `b0` like a switch"),
        ("[[0, 47.5], [48.1, 0]]", "[[0, 47.5]]", "must be 2 rows of 2 numbers"),
        ("[\"1 GiB\", \"5.9 ms\"]", "[\"1 B\", \"5.9 ms\"]", "ascending"),
        ("domain = 4", "domain = 6", "no whole number of 4-GPU nodes"),
        ("per_domain = 8", "per_domain = 17", "expected a whole number from 1 to 16"),
        ("price_source = \"contract\"", "", "needs a price_source"),
    ] {
        let text = FULL.replacen(from, to, 1);
        assert_ne!(text, FULL, "{from}");
        let error = Cluster::from_toml("lab.toml", &text, &mine).map(drop);
        assert!(error.as_ref().is_err_and(|e| e.to_string().contains(expected)), "{expected}: {error:?}");
    }
}

#[test]
fn a_path_needs_a_loader() {
    let error = catalog::cluster_from_toml("lab.toml", FULL).map(drop);
    assert!(error.is_err_and(|e| e.to_string().contains("`./mine.toml` is a path")));
}

#[test]
fn syntax_errors_have_a_place() {
    for (text, place) in
        [("name = \"a\"\nname = \"b\"", "line 2, column 1"), ("name = ", "line 1"), ("x = 1e", "line 1")]
    {
        let error = Gpu::from_toml("g.toml", text).map(drop);
        assert!(
            error.as_ref().is_err_and(|e| e.to_string().starts_with(&format!("g.toml: {place}"))),
            "{error:?}"
        );
    }
}

#[test]
fn absurd_numbers_are_refused() -> Result<(), ProfileError> {
    let text = catalog::gpu("h100")?.to_toml()?;
    for value in [
        "nan",
        "inf",
        "-inf",
        "-1",
        "1e400",
        "99999999999999999999999999",
        "0x10",
        "true",
        "\"7\"",
        "[]",
        "{}",
    ] {
        let bad = text.replace("power_watts = 700", &format!("power_watts = {value}"));
        assert!(Gpu::from_toml("g", &bad).is_err(), "power_watts = {value}");
        let bad = text.replace("multiprocessors = 132", &format!("multiprocessors = {value}"));
        assert!(value == "0x10" || Gpu::from_toml("g", &bad).is_err(), "multiprocessors = {value}");
    }
    for value in ["80", "NaN GiB", "inf GB", "-1 GiB", "1e400 GB", "0 B", "80 GB/s", "80  GiB x", ""] {
        let bad = text.replace("\"79.1 GiB\"", &format!("\"{value}\""));
        assert!(Gpu::from_toml("g", &bad).is_err(), "memory = {value}");
    }
    Ok(())
}

#[test]
fn megabytes_of_anything_are_refused_soon() {
    let started = Instant::now();
    for (piece, megabytes) in [
        ("[", 10),
        ("a", 10),
        ("[[groups]]\n", 10),
        ("\"", 10),
        ("#", 10),
        ("=", 1),
        ("a=1\n", 1),
        ("\n", 1),
        ("{", 1),
        ("\0", 1),
        ("é", 1),
        ("[a.", 1),
        ("x=[[[[\n", 1),
        ("[groups]\n", 1),
    ] {
        let text = piece.repeat(megabytes * 1_000_000 / piece.len());
        let error = catalog::cluster_from_toml("big", &text).map(drop).err().map(|e| e.to_string());
        assert!(error.is_some_and(|message| message.len() < 20_000), "{piece:?}");
    }
    let huge = "#".repeat(100 << 20);
    assert!(catalog::cluster_from_toml("huge", &huge).is_err_and(|e| e.to_string().contains("at most")));
    assert!(started.elapsed() < Duration::from_secs(60));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() })]

    #[test]
    fn damaged_profiles_never_panic(at in 0..FULL.len(), cut in 0..40_usize, put in "\\PC{0,6}") {
        let mut text = FULL.to_owned();
        text.replace_range(at..(at + cut).min(FULL.len()), &put);
        // Either it is refused with a message, or what was read is written and read back.
        match Cluster::from_toml("lab.toml", &text, &|_| mine("./mine.toml")) {
            Ok(cluster) => prop_assert!(cluster.to_toml().is_ok()),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn any_figures_and_texts_are_written_and_read_unchanged(
        memory in 1e9..1e13_f64,
        rate in 1e12..1e17_f64,
        launch in 0.0..1.0_f64,
        number in 0.05..2.0_f64,
        source in "\\PC{1,30}[a-z]",
        control in "[\\x00-\\x1f\"\\\\]{0,4}x",
    ) {
        let mut cluster = full().map_err(|e| TestCaseError::fail(e.to_string()))?;
        let gpu = &mut cluster.groups[1].gpu;
        gpu.memory.0 = memory;
        gpu.rates.fp16.value.0 = rate;
        gpu.rates.fp16.source = source.clone();
        gpu.kernels.gemm_16bit.launch.0 = launch;
        gpu.kernels.sustained_attention = Some(number);
        cluster.title = control;
        cluster.collectives[0].bandwidth.0 = rate / 1e3;
        let text = cluster.to_toml().map_err(|e| TestCaseError::fail(e.to_string()))?;
        let again = catalog::cluster_from_toml("again", &text);
        prop_assert_eq!(again.as_ref(), Ok(&cluster));
    }
}
