//! A row of a study describes its plan wholly: `estimate` makes the same plan of its columns.

mod study;

use std::collections::BTreeMap;
use std::path::Path;
use study::{assert_same_results, done, folder, meshwright, table, write};

/// Uneven stages, modules in host memory, unequal micro batches, uneven state, strategies of blocks, the optimizer on hosts.
const STUDY: &str = r#"
name = "rows"
[base]
gap = "3%"

[[axes]]
[axes.zip]
model = ["llama-3.1-8b", "llama-3.1-8b", "llama-3.1-8b", "llama-3.1-70b", "llama-3.1-8b", "llama-3.1-8b"]
seq_len = [8192, 8192, 4096, 2048, 8192, 8192]
cluster = ["dgx-h100", "gb200-nvl72", "TWO_KINDS", "TWO_KINDS", "dgx-h100", "dgx-h100"]
gpus = [16, 8, 24, 24, 16, 8]
global_batch = [64, 64, 168, 96, 64, 64]
runtime = ["megatron-core", "megatron-core", "fsdp1", "uneven.toml", "galvatron", "megatron-core"]
fix = ["pp=4,rank_order=tp-cp-ep-pp-dp", "pp=2", "", "uneven-state", "pp=1", "pp=1"]
offload = ["never", "any", "never", "never", "never", "optimizer"]
memory_limit = ["70 GiB", "22 GiB", "70 GiB", "70 GiB", "24 GiB", "70 GiB"]
"#;

fn prepared(folder: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let two_kinds = root.join("tests/data/clusters/two-kinds.toml");
    let profile = std::fs::read_to_string(root.join("cost_models/runtimes/fsdp1.toml")).expect("a profile");
    write(folder, "uneven.toml", &profile.replacen("fused_norm", "uneven_shards = true\nfused_norm", 1));
    write(folder, "study.toml", &STUDY.replace("TWO_KINDS", two_kinds.to_str().expect("UTF-8")));
}

/// The cells of a row that hold something, by column.
fn cells(header: &[String], row: &[String]) -> BTreeMap<String, String> {
    let pairs = header.iter().cloned().zip(row.iter().cloned());
    pairs.filter(|(_, cell)| !cell.is_empty()).collect()
}

/// Blocks of every stage: its layers without embedding, final norm and head.
fn blocks(stages: &str) -> Vec<String> {
    let ranges = stages.split(',').map(|range| range.split_once('-').expect("first and last layer"));
    let ranges: Vec<(usize, usize)> = ranges
        .map(|(first, last)| (first.parse().expect("a layer"), last.parse().expect("a layer")))
        .collect();
    let last = ranges.last().expect("a stage").1;
    let block = |layer: &usize| (1..last - 1).contains(layer);
    ranges.iter().map(|(first, last)| (*first..=*last).filter(block).count().to_string()).collect()
}

/// The flags that a row's columns are.
fn flags(row: &BTreeMap<String, String>) -> Vec<String> {
    let names = [
        ("--model", "model"),
        ("--seq-len", "seq_len"),
        ("--cluster", "cluster"),
        ("--gpus", "gpu_count"),
        ("--global-batch", "global_batch"),
        ("--runtime", "runtime"),
        ("--tp", "tp"),
        ("--pp", "pp"),
        ("--vpp", "vpp"),
        ("--cp", "cp"),
        ("--ep", "ep"),
        ("--etp", "etp"),
        ("--dp-replicate", "dp_replicate"),
        ("--zero", "zero_stage"),
        ("--recompute", "recompute"),
        ("--rank-order", "rank_order"),
        ("--layer-strategies", "layer_strategies"),
        ("--micro-batches", "micro_batches"),
        ("--state-shares", "state_shares"),
    ];
    let mut flags = Vec::new();
    let mut add = |flag: &str, value: &str| flags.extend([flag.to_owned(), value.to_owned()]);
    for (flag, column) in names {
        if let Some(value) = row.get(column) {
            add(flag, value);
        }
    }
    add("--stages", &blocks(&row["stages"]).join(","));
    if !row.contains_key("micro_batches") {
        add("--micro-batch", &row["micro_batch_size"]);
    }
    if row["schedule"] != "none" {
        add("--schedule", &row["schedule"]);
    }
    if row["optimizer_offload"] != "0" {
        add("--offload", "optimizer");
    }
    add("--sequence-parallel", if row["sequence_parallel"] == "1" { "true" } else { "false" });
    add("--memory-limit", &format!("{}B", row["memory_limit_bytes"]));
    flags
}

#[test]
fn a_row_is_its_plan_and_shards_of_such_rows_merge_to_the_same_bytes() {
    let folder = folder();
    let path = folder.path();
    prepared(path);
    done(&meshwright(&["study", "study.toml", "--out", "whole"], path));
    let (header, rows) = table(&path.join("whole/results.csv"));
    assert_eq!(rows.len(), 6);
    let mut said = BTreeMap::new();
    for row in &rows {
        let row = cells(&header, row);
        assert_eq!(row["status"], "ok", "{row:?}");
        assert!(!row.contains_key("stage_recomputes"), "{row:?}");
        let flags = flags(&row);
        let mut arguments = vec!["estimate", "--format", "json"];
        arguments.extend(flags.iter().map(String::as_str));
        let output = meshwright(&arguments, path);
        done(&output);
        let plan: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a plan");
        let number = |name: &str| row[name].parse::<f64>().expect("a number");
        assert_eq!(plan["step_time_seconds"].as_f64(), Some(number("step_time_seconds")), "{flags:?}");
        let ranks = plan["memory"].as_array().expect("ranks").iter();
        let peak = ranks.map(|rank| rank["peak_bytes"].as_f64().expect("bytes")).fold(0.0, f64::max);
        assert_eq!(peak, number("peak_bytes"), "{flags:?}");
        for column in ["layer_strategies", "micro_batches", "state_shares", "host_bytes", "host_memory_bytes"]
        {
            *said.entry(column).or_insert(0) += usize::from(row.contains_key(column));
        }
        let blocks = blocks(&row["stages"]);
        *said.entry("uneven stages").or_insert(0) += usize::from(blocks.iter().any(|own| *own != blocks[0]));
    }
    assert!(said.values().all(|rows| *rows > 0), "a kind of plan is not in the study: {said:?}");
    for shard in ["1/2", "2/2"] {
        let out = shard.replace('/', "-");
        meshwright(&["study", "study.toml", "--out", &out, "--shard", shard], path);
    }
    done(&meshwright(&["study", "merge", "1-2", "2-2", "--out", "merged"], path));
    assert_same_results(&path.join("whole"), &path.join("merged"));
}

#[test]
fn a_limit_of_money_is_not_kept_without_a_price() {
    let folder = folder();
    let base =
        "name = \"price\"\n[base]\nmodel = \"llama-3.1-8b\"\ngpus = 8\nseq_len = 4096\nglobal_batch = 16\n";
    let rest = "[[axes]]\nkey = \"cluster\"\nvalues = [\"gb200-nvl72\", \"dgx-h100\"]\n[constraints]\ndollars_per_hour = 1e6\n";
    write(folder.path(), "study.toml", &format!("{base}{rest}"));
    done(&meshwright(&["study", "study.toml", "--out", "out"], folder.path()));
    let (header, rows) = table(&folder.path().join("out/results.csv"));
    let [unpriced, priced] = [0, 1].map(|row| cells(&header, &rows[row]));
    assert_eq!([&unpriced["status"], &unpriced["binding"]], ["excluded", "price"]);
    assert!(unpriced["reason"].contains("gb200-nvl72 has no public price"), "{unpriced:?}");
    assert_eq!(priced["status"], "ok");
}
