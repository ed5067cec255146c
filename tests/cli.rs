//! The command line from outside: exit codes, and what goes to stdout and stderr.

mod program;

use program::{json, meshwright, text};
use serde_json::Value;
use std::process::Command;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

const SMALL: [&str; 10] = [
    "--model",
    "llama-3.1-8b",
    "--cluster",
    "dgx-h100",
    "--gpus",
    "8",
    "--seq-len",
    "4096",
    "--global-batch",
    "32",
];

fn with<'a>(verb: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&[verb], &SMALL[..], more].concat()
}

#[test]
fn a_plan_is_the_same_bytes_on_every_run_and_estimates_again_to_the_bit() {
    let folder = folder();
    let first = meshwright(&with("plan", &["--format", "json", "--out", "plan.json"]), folder.path());
    let plan = json(&first);
    let second = meshwright(&with("plan", &["--format", "json"]), folder.path());
    assert_eq!(first.stdout, second.stdout);
    let again = json(&meshwright(&["estimate", "plan.json", "--format", "json"], folder.path()));
    for key in
        ["step_time_seconds", "time_seconds", "memory", "parallel", "stages", "placement", "fits", "inputs"]
    {
        assert_eq!(plan[key], again[key], "{key}");
    }
}

#[test]
fn a_plan_fills_the_gpus_the_batch_and_the_memory_limit() {
    let folder = folder();
    let plan = json(&meshwright(&with("plan", &["--format", "json"]), folder.path()));
    let degree = |name: &str| plan["parallel"][name].as_u64().expect("a degree");
    let ranks: u64 = ["tp", "pp", "cp", "dp_replicate", "dp_shard"].iter().map(|name| degree(name)).product();
    assert_eq!(ranks, 8);
    assert_eq!(plan["placement"]["ranks"].as_array().map(Vec::len), Some(8));
    let replicas = degree("dp_replicate") * degree("dp_shard");
    assert_eq!(degree("micro_batch_size") * degree("num_microbatches") * replicas, 32);
    let limit = plan["inputs"]["memory_limit_bytes"].as_f64().expect("a limit");
    for rank in plan["memory"].as_array().expect("memory by rank") {
        assert!(rank["peak_bytes"].as_f64().expect("bytes") <= limit);
    }
    let parts = plan["time_seconds"].as_object().expect("time by kind");
    let sum: f64 = parts.values().filter_map(Value::as_f64).sum();
    let step = plan["step_time_seconds"].as_f64().expect("seconds");
    assert!((sum / step - 1.0).abs() < 1e-9);
}

#[test]
fn all_missing_flags_are_named_at_once() {
    let output = meshwright(&["plan", "--seq-len", "0"], folder().path());
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let message = text(&output.stderr);
    for part in [
        "--model is missing",
        "--cluster is missing",
        "--global-batch is missing",
        "--seq-len is 0",
        "hint: ",
    ] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_misspelt_name_gets_a_suggestion() {
    let args = [
        "plan",
        "--model",
        "llama-3.1-8b",
        "--cluster",
        "dgx-h10",
        "--seq-len",
        "4096",
        "--global-batch",
        "8",
    ];
    let output = meshwright(&args, folder().path());
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("dgx-h100"), "{}", text(&output.stderr));
}

#[test]
fn what_cannot_fit_exits_with_3_and_names_the_term_and_a_way_out() {
    let args = [
        "plan",
        "--model",
        "llama-3.1-405b",
        "--cluster",
        "dgx-h100",
        "--gpus",
        "8",
        "--seq-len",
        "8192",
        "--global-batch",
        "8",
        "--format",
        "json",
    ];
    let output = meshwright(&args, folder().path());
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let infeasible = &answer["infeasible"];
    assert!(infeasible["shortfall_bytes"].as_f64().expect("bytes") > 0.0);
    assert!(infeasible["binding_term"].is_string());
    assert!(!infeasible["nearest"].as_array().expect("ways out").is_empty());
}

#[test]
fn an_illegal_layout_exits_with_1_and_lists_every_broken_rule() {
    let output = meshwright(&with("estimate", &["--ep", "2", "--vpp", "2"]), folder().path());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    assert!(output.stdout.is_empty());
}

#[test]
fn a_layout_that_does_not_fit_is_still_an_estimate() {
    let output = meshwright(
        &with("estimate", &["--tp", "1", "--micro-batch", "4", "--format", "json"]),
        folder().path(),
    );
    assert_eq!(json(&output)["fits"], Value::Bool(false));
}

#[test]
fn export_overwrites_only_when_told_and_writes_scripts_that_parse() {
    let folder = folder();
    let plan = with("plan", &["--out", "plan.json", "--format", "json"]);
    assert!(meshwright(&plan, folder.path()).status.success());
    let export = ["export", "plan.json", "--to", "megatron", "--out", "launch"];
    assert!(meshwright(&export, folder.path()).status.success());
    let refused = meshwright(&export, folder.path());
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("--force"));
    for script in ["launch.sh", "job.sbatch"] {
        let parsed = Command::new("bash").arg("-n").arg(folder.path().join("launch").join(script)).status();
        assert!(parsed.expect("bash runs").success(), "{script}");
    }
}

#[test]
fn a_file_that_is_no_plan_is_refused_with_its_place() {
    let folder = folder();
    for (content, part) in
        [("{", "line 1"), ("[]", "not a plan"), ("{\"schema\": \"other\"}", "this version reads")]
    {
        std::fs::write(folder.path().join("plan.json"), content).expect("a file");
        let output = meshwright(&["estimate", "plan.json"], folder.path());
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains(part), "{}", text(&output.stderr));
    }
}

#[test]
fn catalogues_list_what_there_is() {
    for (kind, name) in [
        ("models", "deepseek-v3"),
        ("gpus", "h100-sxm-80gb"),
        ("clusters", "gb200-nvl72"),
        ("runtimes", "megatron-core"),
        ("schedules", "zb-v"),
        ("launchers", "megatron"),
    ] {
        let list = json(&meshwright(&["catalog", kind, "--format", "json"], folder().path()));
        let names: Vec<&str> =
            list.as_array().expect("a list").iter().filter_map(|e| e["name"].as_str()).collect();
        assert!(names.contains(&name), "{kind}: {names:?}");
        let human = meshwright(&["catalog", kind], folder().path());
        assert!(text(&human.stdout).contains(name));
    }
}
