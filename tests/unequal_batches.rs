//! Micro batches of different sizes by kind of GPU, from outside.

#![allow(clippy::expect_used, clippy::unwrap_used)]

mod program;

use program::{json, meshwright, text};
use serde_json::Value;
use std::path::Path;

fn cluster() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/clusters/two-kinds.toml");
    path.to_str().expect("UTF-8").to_owned()
}

const INPUTS: [&str; 8] =
    ["--model", "llama-3.1-8b", "--seq-len", "4096", "--global-batch", "168", "--runtime", "fsdp1"];

/// A verb on the two kinds.
fn answer(verb: &str, more: &[&str], folder: &Path) -> std::process::Output {
    let cluster = cluster();
    meshwright(&[&[verb, "--cluster", &cluster][..], &INPUTS, more].concat(), folder)
}

fn planned(more: &[&str], folder: &Path) -> Value {
    json(&answer("plan", &[&["--format", "json"][..], more].concat(), folder))
}

fn step(plan: &Value) -> f64 {
    plan["step_time_seconds"].as_f64().expect("a step time")
}

#[test]
fn a_plan_tells_every_rank_its_micro_batch_and_is_estimated_to_the_bit() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let plan = planned(&["--out", "plan.json", "--html", "plan.html"], folder);
    let equal = planned(&["--forbid", "unequal-micro-batches"], folder);
    assert!(step(&plan) < step(&equal), "{} and {}", step(&plan), step(&equal));
    assert!(equal["parallel"].get("shares").is_none() && equal.get("kinds").is_none());
    assert!(equal["placement"]["ranks"][0].get("micro_batch_size").is_none());

    let ranks = plan["placement"]["ranks"].as_array().expect("ranks");
    let sizes = ranks.iter().map(|rank| rank["micro_batch_size"].as_u64().expect("a size"));
    let microbatches = plan["parallel"]["num_microbatches"].as_u64().expect("a number");
    assert_eq!(sizes.sum::<u64>() * microbatches, 168);
    let [fast, slow] = [0, 1].map(|kind| plan["kinds"][kind]["micro_batch_size"].as_u64().expect("a size"));
    assert!(fast > slow, "{fast} and {slow}");

    let again = json(&meshwright(&["estimate", "plan.json", "--format", "json"], folder));
    for key in
        ["step_time_seconds", "time_seconds", "memory", "kinds", "parallel", "placement", "fits", "warnings"]
    {
        assert_eq!(plan[key], again[key], "{key}");
    }
    let zero = plan["parallel"]["zero_stage"].to_string();
    let replicas = plan["parallel"]["dp_replicate"].to_string();
    let shares = format!("h100={fast},a100-sxm-80gb={slow}");
    let recompute = plan["parallel"]["recompute"].as_str().expect("a word");
    let flags =
        ["--micro-batches", &shares, "--zero", &zero, "--recompute", recompute, "--dp-replicate", &replicas];
    let stated = json(&answer("estimate", &[&flags[..], &["--format", "json"]].concat(), folder));
    for key in ["step_time_seconds", "memory", "kinds", "parallel", "placement"] {
        assert_eq!(plan[key], stated[key], "{key}");
    }

    let check = meshwright(&["check", "plan.json"], folder);
    assert_eq!(check.status.code(), Some(0), "{}", text(&check.stdout));
    for verb in ["estimate", "explain"] {
        let shown = text(&meshwright(&[verb, "plan.json"], folder).stdout);
        assert!(shown.contains(&format!("H100-SXM-80GB: {fast} sequences")), "{shown}");
    }
    std::fs::write(folder.join("equal.json"), equal.to_string()).expect("written");
    for pair in [["equal.json", "plan.json"], ["plan.json", "equal.json"]] {
        let shown = text(&meshwright(&[&["explain"][..], &pair].concat(), folder).stdout);
        assert!(shown.contains(&format!("h100-sxm-80gb 16 {fast}, a100-sxm-80gb 8 {slow}")), "{shown}");
    }
    let page = std::fs::read_to_string(folder.join("plan.html")).expect("a page");
    assert!(page.contains("Shares by kind of GPU") && page.contains("weighted by tokens"));
}

#[test]
fn launchers_with_one_size_for_all_ranks_refuse_it_and_plan_without() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let made = answer("plan", &["--out", "plan.json"], folder);
    assert!(text(&made.stdout).contains("`placement.ranks` has the micro batch of every rank"));
    for launcher in ["torchtitan", "accelerate", "megatron"] {
        let refused = meshwright(&["export", "plan.json", "--to", launcher, "--out", "launch"], folder);
        let why = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{launcher}");
        assert!(why.contains("one size for all ranks"), "{why}");
    }
    let cluster = cluster();
    let inputs = ["plan", "--cluster", &cluster, "--model", "llama-3.1-8b", "--seq-len", "4096"];
    let more = ["--global-batch", "168", "--launcher", "accelerate", "--format", "json"];
    let plan = json(&meshwright(&[&inputs[..], &more].concat(), folder));
    assert!(plan["parallel"].get("shares").is_none());
}

#[test]
fn a_plan_whose_ranks_are_told_something_else_is_invalid() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let plan = planned(&["--out", "plan.json"], folder);
    let swapped = |edit: &dyn Fn(&mut Value)| {
        let mut other = plan.clone();
        edit(&mut other);
        std::fs::write(folder.join("other.json"), other.to_string()).expect("written");
        let check = meshwright(&["check", "other.json", "--format", "json"], folder);
        let verdict: Value = serde_json::from_slice(&check.stdout).expect("a document");
        verdict["broken_rules"].to_string()
    };
    let refused = |edit: &dyn Fn(&mut Value)| {
        let mut other = plan.clone();
        edit(&mut other);
        std::fs::write(folder.join("other.json"), other.to_string()).expect("written");
        text(&meshwright(&["check", "other.json"], folder).stderr)
    };
    assert_eq!(swapped(&|_| {}), "[]");
    assert!(
        swapped(&|p| p["placement"]["ranks"][0]["micro_batch_size"] = 1.into()).contains("placement-batch")
    );
    assert!(swapped(&|p| p["parallel"]["shares"][0]["ranks"] = 7.into()).contains("S1"));
    let huge = |p: &mut Value| p["parallel"]["shares"][0]["micro_batch_size"] = u64::MAX.into();
    assert!(refused(&huge).contains("parallel.shares.micro_batch_size"));
    assert!(swapped(&|p| p["parallel"]["num_microbatches"] = 1.into()).contains("M12"));
    let none = |p: &mut Value| drop(p["parallel"].as_object_mut().expect("degrees").remove("shares"));
    assert!(swapped(&none).contains("placement-batch"));
}

#[test]
fn wrong_shares_are_told_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let cases = [
        ("h100=3", "does not say what a100-sxm-80gb takes"),
        ("h100=3,l40s=1", "no kind of h100-sxm-80gb, a100-sxm-80gb begins so"),
        ("h100=3,h100-sxm-80gb=2,a100=1", "names h100-sxm-80gb twice"),
        ("h100=3,a100", "is not GPU=NUMBER"),
        ("h100=0,a100=1", "is not GPU=NUMBER"),
        ("h100=5,a100=1", "no multiple of the 88 sequences"),
    ];
    for (shares, fault) in cases {
        let refused = answer("estimate", &["--zero", "3", "--micro-batches", shares], folder.path());
        let why = text(&refused.stderr);
        assert!(!refused.status.success() && why.contains(fault), "{shares}: {why}");
    }
    let cluster = cluster();
    let megatron = ["estimate", "--cluster", &cluster, "--model", "llama-3.1-8b", "--seq-len", "4096"];
    let shares = ["--global-batch", "168", "--micro-batches", "h100=3,a100=1"];
    let refused = meshwright(&[&megatron[..], &shares].concat(), folder.path());
    let why = text(&refused.stderr);
    assert!(why.contains("megatron-core has no micro batches of different sizes"), "{why}");
    let equal = answer("estimate", &["--zero", "3", "--micro-batches", "h100=7,a100=7"], folder.path());
    let one = answer("estimate", &["--zero", "3", "--micro-batch", "7"], folder.path());
    assert_eq!(text(&equal.stdout), text(&one.stdout), "equal shares are one micro batch");
}

/// A profile of an engine that shards unevenly; those of the catalogue do not.
#[test]
fn state_lies_apart_from_compute_where_the_engine_can() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let profile =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/cost_models/runtimes/fsdp1.toml"));
    let uneven = profile.expect("a profile").replacen("fused_norm", "uneven_shards = true\nfused_norm", 1);
    std::fs::write(folder.join("uneven.toml"), uneven).expect("written");
    let cluster = cluster();
    let inputs =
        ["--cluster", &cluster, "--model", "llama-3.1-70b", "--seq-len", "2048", "--global-batch", "96"];
    let ask = |verb: &str, runtime: &str, more: &[&str]| {
        let flags = ["--runtime", runtime, "--format", "json"];
        meshwright(&[&[verb][..], &inputs, &flags, more].concat(), folder)
    };
    let layout = ["--zero", "3", "--recompute", "full", "--micro-batches", "h100=4,a100=4"];
    let shared = |weights: &str| {
        json(&ask("estimate", "uneven.toml", &[&layout[..], &["--state-shares", weights]].concat()))
    };
    let (even, most) = (shared("h100=1,a100=1"), shared("h100=3,a100=2"));
    assert!(even.get("kinds").is_none() && even["parallel"].get("shares").is_none());
    let of = |kind: usize| most["kinds"][kind]["memory"]["static_bytes"].as_f64().expect("bytes");
    let state = even["memory"][0]["static_bytes"].as_f64().expect("bytes");
    // Sixteen ranks with weight 3 and eight with weight 2: 64 parts, of which an even share is 8/3.
    assert!((of(0) / state / (3.0 * 24.0 / 64.0) - 1.0).abs() < 1e-9);
    assert!((of(1) / state / (2.0 * 24.0 / 64.0) - 1.0).abs() < 1e-9);
    let shares = [0, 1].map(|kind| most["kinds"][kind]["state_share"].as_f64().expect("a share"));
    assert!((16.0 * shares[0] + 8.0 * shares[1] - 1.0).abs() < 1e-12, "{shares:?}");
    assert!(step(&most) > step(&even), "the largest shard makes the collectives");
    assert!(most["placement"]["ranks"][0].get("micro_batch_size").is_none());

    let refused = ask("estimate", "fsdp1", &[&layout[..], &["--state-shares", "h100=3,a100=2"]].concat());
    assert!(text(&refused.stderr).contains("fsdp1 shards state evenly"), "{}", text(&refused.stderr));

    let plan = json(&ask("plan", "uneven.toml", &["--fix", "uneven-state", "--out", "plan.json"]));
    assert!(plan["kinds"][0]["state_share"] != plan["kinds"][1]["state_share"]);
    let again = json(&meshwright(&["estimate", "plan.json", "--format", "json"], folder));
    for key in ["step_time_seconds", "memory", "kinds", "parallel", "placement", "fits"] {
        assert_eq!(plan[key], again[key], "{key}");
    }
    assert_eq!(meshwright(&["check", "plan.json"], folder).status.code(), Some(0));
    let export = meshwright(&["export", "plan.json", "--to", "torchtitan", "--out", "launch"], folder);
    assert!(text(&export.stderr).contains("uneven shards of state"), "{}", text(&export.stderr));
}
