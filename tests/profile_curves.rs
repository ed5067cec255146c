//! Collectives as nccl-tests prints them, fitted.

mod profiling;

use profiling::{Bench, nccl_tests, shared};
use std::collections::BTreeMap;
use std::path::Path;

/// Size and time of a protocol with two regimes and three percent of wobble.
fn synthetic(sizes: std::ops::Range<i32>) -> Vec<(f64, f64)> {
    let time = |size: f64| if size < 262_144.0 { 14e-6 + size / 9e9 } else { 38e-6 + size / 230e9 };
    let wobble = |power: i32| 1.0 + 0.03 * f64::from((power * 7) % 5 - 2) / 2.0;
    sizes.map(|power| (2f64.powi(power), time(2f64.powi(power)) * wobble(power))).collect()
}

#[test]
fn a_table_becomes_a_curve_of_the_profile_with_its_provenance() {
    let bench = Bench::new();
    let text = nccl_tests("all_reduce", 2, 8, "NVIDIA H100 80GB HBM3", &synthetic(10..33));
    bench.write("all_reduce.log", format!("run of 2025-03-01 12:00:01\n{text}"));
    let answer = bench.import("nccl-tests all_reduce.log");
    let curve = &answer["curves"][0];
    assert_eq!((curve["ranks"].as_u64(), curve["per_domain"].as_u64()), (Some(16), Some(8)));
    assert!(curve["median_error"].as_f64().unwrap() < 0.03, "{curve}");
    let from = curve["from"].as_str().unwrap();
    assert!(from.contains("all_reduce.log, lines 26-48, of 2025-03-01 12:00:01"), "{from}");
    let cluster = &answer["cluster"];
    assert_eq!(cluster["groups"][0]["hosts"], serde_json::json!(["node-0", "node-1"]));
    assert!(
        cluster["groups"][0]["node"]["inter"]["source"].as_str().unwrap().starts_with("catalogue dgx-h100: ")
    );
    assert!(
        answer["holes"].as_array().unwrap().iter().any(|hole| hole.as_str().unwrap().contains("all_to_all"))
    );
    // The profile plans, and its numbers are used.
    let words = "estimate --model llama-3.1-8b --cluster cluster.toml --gpus 16 --seq-len 4096 --global-batch 32 --tp 8";
    let estimate = bench.run(words);
    assert_eq!(estimate.code, 0, "{}", estimate.stderr);
}

#[test]
fn imports_merge_and_contradictions_are_shown() {
    let bench = Bench::new();
    let gpu = "NVIDIA H100 80GB HBM3";
    let fast = synthetic(12..30);
    let slow: Vec<(f64, f64)> = fast.iter().map(|(size, time)| (*size, time * 1.6)).collect();
    bench
        .write("a.log", nccl_tests("all_gather", 1, 8, gpu, &fast))
        .write("b.log", nccl_tests("all_gather", 1, 8, gpu, &slow))
        .write("c.log", nccl_tests("reduce_scatter", 1, 8, gpu, &fast));
    let answer = bench.import("nccl-tests a.log b.log c.log");
    assert_eq!(answer["curves"].as_array().unwrap().len(), 2);
    let contradiction = answer["contradictions"][0].as_str().unwrap();
    assert!(contradiction.contains("a.log") && contradiction.contains("b.log"), "{contradiction}");
    // A later import adds to an earlier profile.
    bench.write("d.log", nccl_tests("alltoall", 1, 8, gpu, &fast));
    let merged = bench.import("nccl-tests d.log --base cluster.toml");
    let ops: Vec<&str> = merged["cluster"]["collectives"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["op"].as_str().unwrap())
        .collect();
    assert_eq!(ops, ["all_gather", "reduce_scatter", "all_to_all"]);
    assert_eq!(merged["contradictions"], serde_json::json!([]));
    // One that measures the same anew and disagrees replaces it, and says so.
    bench.write("e.log", nccl_tests("alltoall", 1, 8, gpu, &slow));
    let replaced = bench.import("nccl-tests e.log --base cluster.toml");
    let contradiction = replaced["contradictions"][0].as_str().unwrap();
    assert!(contradiction.contains("e.log") && contradiction.contains("60 % slower"), "{contradiction}");
    assert!(
        contradiction.contains("d.log") && contradiction.contains("which the base has"),
        "{contradiction}"
    );
}

#[test]
fn links_that_were_measured_twice_are_shown_and_nominal_rates_never_replace_them() {
    let bench = Bench::new();
    let bandwidth = |rate: f64| {
        format!("# OSU MPI-CUDA Bandwidth Test v7.3\n# Size      Bandwidth (MB/s)\n1048576 {rate}\n")
    };
    let words = "--base dgx-h100 --per-node 1";
    bench.write("a.txt", bandwidth(48e3)).write("b.txt", bandwidth(47e3)).write("c.txt", bandwidth(20e3));
    let link = |answer: &serde_json::Value| {
        let link = &answer["cluster"]["groups"][0]["node"]["inter"];
        (link["bandwidth"].as_f64().unwrap(), link["source"].as_str().unwrap().to_owned())
    };
    let contradictions = |answer: &serde_json::Value| answer["contradictions"].as_array().unwrap().len();
    let alike = bench.import(&format!("osu a.txt b.txt {words}"));
    assert_eq!((contradictions(&alike), link(&alike).0), (0, 47.5e9));
    let odd = bench.import(&format!("osu a.txt b.txt c.txt {words}"));
    assert_eq!((contradictions(&odd), link(&odd).0), (1, 47e9), "{}", odd["contradictions"]);
    let text = odd["contradictions"][0].as_str().unwrap();
    assert!(text.contains("20.0 GB/s (osu: c.txt") && text.contains("48.0 GB/s (osu: a.txt"), "{text}");
    // A profile that has one, and another measurement on top.
    bench.import(&format!("osu a.txt {words}"));
    let later = bench.import("osu c.txt --base cluster.toml --per-node 1");
    let text = later["contradictions"][0].as_str().unwrap();
    assert!(text.contains("the base has 48.0 (measured: osu: a.txt"), "{text}");
    assert_eq!(link(&later).0, 20e9);
    // What the hardware should have is nominal: it is not called measured, and what was measured stays.
    let gpu =
        "<pci link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"><gpu dev=\"0\" sm=\"90\" rank=\"0\"/></pci>";
    let net = "<nic><net name=\"mlx5_0\" dev=\"0\" speed=\"400000\" gdr=\"1\"/></nic>";
    bench.write(
        "topo.xml",
        format!("<system version=\"1\">\n<cpu numaid=\"0\">{gpu}{net}</cpu>\n</system>\n"),
    );
    let nominal = bench.import("nccl-topology topo.xml --base dgx-h100");
    assert!(link(&nominal).1.starts_with("assumed, not measured: nominal"), "{}", link(&nominal).1);
    assert!(nominal["holes"].to_string().contains("link between domains"), "{}", nominal["holes"]);
    bench.import(&format!("osu c.txt {words}"));
    let kept = bench.import("nccl-topology topo.xml --base cluster.toml");
    assert_eq!(link(&kept).0, 20e9);
    assert!(kept["notes"].to_string().contains("stands above the nominal rate"), "{}", kept["notes"]);
}

/// A curve of the reference data: what it is of, ranks, hosts and points.
type Curves = BTreeMap<(String, String, usize, usize), Vec<(f64, f64)>>;

fn reference(folder: &Path) -> Curves {
    let mut curves = Curves::new();
    let ops = [("alltoall", "alltoall"), ("sendrecv", "sendrecv")];
    let name =
        |op: &str| ops.iter().find(|(from, _)| *from == op).map_or(op.to_owned(), |(_, to)| (*to).to_owned());
    let known = ["all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv"];
    let mut links = csv::Reader::from_path(folder.join("links/links.csv")).unwrap();
    for row in links.deserialize::<BTreeMap<String, String>>().map(Result::unwrap) {
        let number = |key: &str| row[key].parse::<f64>().ok();
        let (Some(bytes), Some(ranks)) = (number("bytes"), number("n_ranks")) else { continue };
        let time = number("time_us").or_else(|| Some(bytes / number("algbw_gbps")? / 1e3));
        let Some(time) = time.filter(|time| *time > 0.0 && bytes >= 1.0) else { continue };
        if !known.contains(&row["op"].as_str()) || ranks < 2.0 {
            continue;
        }
        let hosts = number("nodes").map_or(1, |n| n as usize).clamp(1, ranks as usize);
        let what = [&row["gpu"], &row["link"], &row["source"], &row["notes"]].map(String::as_str).join(" | ");
        let key = (what, name(&row["op"]), ranks as usize, hosts);
        curves.entry(key).or_default().push((bytes, time * 1e-6));
    }
    let mut kernels = csv::Reader::from_path(folder.join("kernels/collectives.csv")).unwrap();
    for row in kernels.deserialize::<BTreeMap<String, String>>().map(Result::unwrap) {
        let number = |key: &str| row[key].parse::<f64>().unwrap();
        let key =
            (format!("{} {}", row["gpu"], row["nccl"]), name(&row["op"]), number("num_gpus") as usize, 1);
        curves.entry(key).or_default().push((number("elements") * 2.0, number("latency_ms") * 1e-3));
    }
    curves
}

#[test]
fn every_curve_of_the_reference_data_fits() {
    let Some(folder) = shared() else { return };
    let bench = Bench::new();
    let (mut fitted, mut worst, mut failures) = (0, (0.0, 0.0), Vec::new());
    for ((what, op, ranks, hosts), points) in reference(&folder) {
        let sizes: std::collections::BTreeSet<u64> = points.iter().map(|(size, _)| *size as u64).collect();
        if sizes.len() < 4 || ranks % hosts != 0 {
            continue;
        }
        bench.write("curve.log", nccl_tests(&op, hosts, ranks / hosts, "NVIDIA H100 80GB HBM3", &points));
        let answer = bench.import("nccl-tests curve.log --base dgx-h100");
        let curve = &answer["curves"][0];
        let (median, small) =
            (curve["median_error"].as_f64().unwrap(), curve["small_error"].as_f64().unwrap_or(0.0));
        fitted += 1;
        worst = (f64::max(worst.0, median), f64::max(worst.1, small));
        if median > 0.08 || small > 0.12 {
            failures.push(format!("{what} {op} {ranks}: {median:.3} {small:.3}"));
        }
    }
    eprintln!("{fitted} curves, worst median error {:.4}, below 64 KiB {:.4}", worst.0, worst.1);
    assert!(failures.is_empty(), "{} of {fitted}: {failures:#?}", failures.len());
    assert!(fitted > 100, "{fitted}");
}
