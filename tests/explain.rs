//! `explain` of two plans, and why there is no plan on several kinds of GPU.

#![allow(clippy::expect_used)]

mod program;

use program::{json, meshwright, text};
use serde_json::Value;
use std::path::Path;

fn run(folder: &Path, line: &str) -> std::process::Output {
    meshwright(&line.split_whitespace().collect::<Vec<_>>(), folder)
}

fn names(document: &Value) -> Vec<&str> {
    let inputs = document["inputs"].as_array().expect("a list");
    inputs.iter().map(|input| input["name"].as_str().expect("a name")).collect()
}

#[test]
fn plans_of_different_jobs_are_told_apart_by_the_inputs_that_differ() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let layout = "--tp 2 --format json --out";
    let same = "--model llama-3.1-8b --cluster dgx-h100 --gpus 16 --seq-len 4096 --global-batch 64";
    let of = |name: &str, line: &str| {
        let output = run(folder, &format!("estimate {line} {layout} {name}"));
        assert!(output.status.success(), "{}", text(&output.stderr));
    };
    of("a.json", same);
    let changes: [(&str, &str, &[&str]); 7] = [
        ("llama-3.1-8b", "mistral-7b-v0.1", &["model"]),
        ("dgx-h100", "dgx-h200", &["cluster", "memory_limit"]),
        ("--gpus 16", "--gpus 32", &["cluster"]),
        ("--seq-len 4096", "--seq-len 2048", &["seq_len"]),
        ("--global-batch 64", "--global-batch 128 --precision fp8", &["global_batch", "precision"]),
        ("--model", "--optimizer sgd --gradient-dtype bf16 --model", &["optimizer", "gradient_dtype"]),
        ("--model", "--runtime fsdp2 --memory-limit 60GiB --model", &["runtime", "memory_limit"]),
    ];
    for (old, new, expected) in changes {
        of("b.json", &same.replace(old, new));
        let document = json(&run(folder, "explain a.json b.json --format json"));
        assert_eq!(names(&document), expected, "{new}");
        let said = text(&run(folder, "explain a.json b.json").stdout);
        assert!(said.starts_with("The plans are of different jobs:\n  "), "{said}");
        let head = said.split("\n\n").next().expect("a part");
        assert!(expected.iter().all(|name| head.contains(&format!("  {name} "))), "{said}");
        assert!(said.contains("Tokens a second and GPU: "), "{said}");
    }
    let same_job = run(folder, "explain a.json a.json");
    assert!(!text(&same_job.stdout).contains("different jobs"));
    assert!(names(&json(&run(folder, "explain a.json a.json --format json"))).is_empty());
    let mut edited: Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("a.json")).expect("a plan")).expect("JSON");
    edited["inputs"]["cluster"]["groups"][0]["node"]["inter"]["bandwidth"] = 10e9.into();
    std::fs::write(folder.join("b.json"), edited.to_string()).expect("written");
    let said = text(&run(folder, "explain a.json b.json").stdout);
    assert!(said.contains("of the same name and size, with other figures"), "{said}");
}

/// All kinds together hold more than the first alone.
#[test]
fn the_leanest_layout_of_a_mixed_cluster_is_the_one_that_lacks_least() {
    let folder = tempfile::tempdir().expect("a folder");
    let cluster = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/clusters/two-kinds.toml");
    let line = |gpus: &str, cluster: &str, runtime: &str| {
        format!(
            "plan --model llama-3.1-405b --cluster {cluster} {gpus} --seq-len 8192 --global-batch 48 --offload never \
             --runtime {runtime} --format json"
        )
    };
    let why = |line: &str| {
        let output = run(folder.path(), line);
        assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).expect("a document")["infeasible"].take()
    };
    let number = |why: &Value, path: &str| why.pointer(path).and_then(Value::as_f64).expect("a number");
    for runtime in ["megatron-core", "fsdp1", "galvatron"] {
        let mixed = why(&line("", cluster, runtime));
        let all = number(&mixed, "/shortfall_bytes");
        if runtime != "galvatron" {
            let alone = why(&line("--gpus 16", "dgx-h100", runtime));
            let first = number(&alone, "/shortfall_bytes");
            assert!(all <= first, "{runtime}: {all} and {first}");
        }
        let lacking = number(&mixed, "/leanest/memory/peak_bytes") - number(&mixed, "/leanest/limit_bytes");
        assert_eq!(lacking, all, "{runtime}");
        let parallel = &mixed["leanest"]["parallel"];
        let ranks: f64 = ["tp", "pp", "cp", "dp_replicate", "dp_shard"]
            .iter()
            .map(|axis| parallel[axis].as_f64().expect("a degree"))
            .product();
        let reason = mixed["reason"].as_str().expect("words");
        assert!(reason.starts_with(&format!("the leanest layout on {ranks} GPUs ")), "{reason}");
        assert_eq!(reason.ends_with("only layouts with layers alike were searched"), runtime == "galvatron");
    }
}

#[test]
fn a_batch_that_several_kinds_cannot_share_names_the_rule() {
    let folder = tempfile::tempdir().expect("a folder");
    let cluster = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/clusters/two-kinds.toml");
    let line = format!(
        "plan --model llama-3.1-8b --cluster {cluster} --gpus 16 --seq-len 8192 --global-batch 7 --runtime fsdp1"
    );
    let output = run(folder.path(), &line);
    assert_eq!(output.status.code(), Some(3));
    let said = text(&output.stderr);
    assert!(
        said.starts_with("no feasible plan: no layout on 16 GPUs is legal: micro_batch_size x "),
        "{said}"
    );
}
