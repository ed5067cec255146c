//! Layouts whose blocks differ, through the command line.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic)]

mod program;

use program::{json, meshwright, text};
use serde_json::{Value, json};
use std::path::Path;

const INPUTS: &str = "--model llama-3.1-70b --cluster dgx-h100 --gpus 64 --seq-len 4096 --global-batch 128 --runtime galvatron";
const STRATEGIES: &str = "0-15:tp=8,zero=3;16-79:tp=4,zero=2,recompute=full";

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn estimated(folder: &Path) -> Value {
    let line = format!(
        "estimate {INPUTS} --tp 8 --zero 3 --pp 4 --micro-batch 4 --layer-strategies {STRATEGIES} --format json --out plan.json"
    );
    json(&meshwright(&words(&line), folder))
}

#[test]
fn a_plan_of_strategies_gives_its_own_numbers_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = estimated(folder.path());
    assert_eq!(first["layer_strategies"][1]["layers"], json!([16, 79]));
    let again = json(&meshwright(&["estimate", "plan.json", "--format", "json"], folder.path()));
    assert_eq!(first, again);
    let check = json(&meshwright(&["check", "plan.json", "--format", "json"], folder.path()));
    assert_eq!(check["valid"], json!(true));
    assert_eq!(check["step_time_seconds"], first["step_time_seconds"]);
    let shown = meshwright(&["simulate", "plan.json"], folder.path());
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    let explained = text(&meshwright(&["explain", "plan.json"], folder.path()).stdout);
    assert!(explained.contains("16 to 79: tp 4   dp 4 (ZeRO-2)   recompute full"), "{explained}");
    let refused = meshwright(&["export", "plan.json", "--to", "megatron", "--out", "launch"], folder.path());
    assert!(text(&refused.stderr).contains("strategies by layer"));
}

#[test]
fn strategies_that_are_all_alike_are_no_other_layout() {
    let folder = tempfile::tempdir().expect("a folder");
    let layout = format!("estimate {INPUTS} --tp 4 --zero 2 --pp 2 --format json");
    let plain = json(&meshwright(&words(&layout), folder.path()));
    let alike =
        json(&meshwright(&words(&format!("{layout} --layer-strategies 0-79:tp=4,zero=2")), folder.path()));
    for key in ["step_time_seconds", "time_seconds", "memory", "fits", "bubble_fraction"] {
        assert_eq!(plain[key], alike[key], "{key}");
    }
}

#[test]
fn faults_of_strategies_are_listed_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let line = format!("estimate {INPUTS} --tp 8 --zero 3 --layer-strategies 0-10:tp=3,zero=2");
    let refused = meshwright(&words(&line), folder.path());
    assert_eq!(refused.status.code(), Some(1));
    let message = text(&refused.stderr);
    assert!(message.contains("L2: ") && message.contains("L8: blocks 0 to 10: tp 3"), "{message}");
}

#[test]
fn hostile_strategies_in_a_plan_are_told_and_nothing_panics() {
    let folder = tempfile::tempdir().expect("a folder");
    let plan = estimated(folder.path());
    let strategy = |layers: Value, tp: Value, sharding: &str, recompute: &str| json!([{"layers": layers, "tp": tp, "sharding": sharding, "recompute": recompute}]);
    let most = json!([0, u32::MAX]);
    let hostile = [
        json!([]),
        json!({}),
        json!("0-79"),
        strategy(most.clone(), json!(4), "zero2", "none"),
        strategy(json!([79, 0]), json!(4), "zero2", "none"),
        strategy(json!([0, 79]), json!(0), "zero2", "none"),
        strategy(json!([0, 79]), json!(u32::MAX), "zero2", "none"),
        strategy(json!([0, 79]), json!(-1), "zero2", "none"),
        strategy(json!([0, 79]), json!(4), "zero9", "none"),
        strategy(json!([0, 79]), json!(4), "zero3", "full:4294967295"),
        strategy(json!([0, 79]), json!(4), "zero3", "offload:3"),
        strategy(json!([0]), json!(4), "zero3", "none"),
    ];
    for strategies in hostile {
        let mut bad = plan.clone();
        bad["layer_strategies"] = strategies.clone();
        std::fs::write(folder.path().join("bad.json"), bad.to_string()).expect("written");
        for verb in ["check", "estimate", "explain", "simulate"] {
            let output = meshwright(&[verb, "bad.json"], folder.path());
            let code = output.status.code();
            let faulty = code.is_some_and(|code| code == 1 || code == 3);
            assert!(faulty || verb == "explain", "{verb} of {strategies}: {code:?} {}", text(&output.stderr));
            assert!(!text(&output.stderr).contains("panicked"), "{verb} of {strategies}");
        }
    }
}
