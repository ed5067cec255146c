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

/// A plan of the launcher, found or given, exported and read back: the same layout, time and memory.
#[test]
fn galvatrons_files_say_what_the_plan_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let eight = "--model llama-3.1-8b --cluster dgx-h100 --gpus 8 --seq-len 8192 --global-batch 64 --memory-limit 40GiB";
    let planned = json(&meshwright(
        &words(&format!("plan {eight} --launcher galvatron --format json --out found.json")),
        path,
    ));
    assert!(planned["layer_strategies"].is_array(), "memory binds: {}", planned["layer_strategies"]);
    assert_eq!(planned["inputs"]["runtime"]["name"], json!("galvatron"));
    let alike = format!(
        "estimate {eight} --runtime galvatron --tp 2 --pp 2 --zero 2 --recompute full:5 --format json --out alike.json"
    );
    json(&meshwright(&words(&alike), path));
    estimated(path);
    for (file, model, seq_len, gpus) in [
        ("found.json", "llama-3.1-8b", "8192", "8"),
        ("alike.json", "llama-3.1-8b", "8192", "8"),
        ("plan.json", "llama-3.1-70b", "4096", "64"),
    ] {
        let plan: Value =
            serde_json::from_str(&std::fs::read_to_string(path.join(file)).expect("a plan")).expect("JSON");
        let out = file.trim_end_matches(".json");
        let exported = meshwright(&["export", file, "--to", "galvatron", "--out", out], path);
        assert!(exported.status.success(), "{}", text(&exported.stderr));
        let script = std::fs::read_to_string(path.join(out).join("launch.sh")).expect("a script");
        assert!(
            script.contains("++runtime.parallel.galvatron_config_path=$PWD/galvatron_config.json"),
            "{script}"
        );
        let config = format!("{out}/galvatron_config.json");
        let line = format!(
            "check --launcher galvatron --args {config} --world-size {gpus} --cluster dgx-h100 --model {model} --seq-len {seq_len} --format json"
        );
        let check = json(&meshwright(&words(&line), path));
        assert_eq!(check["valid"], json!(true), "{check}");
        let close = |a: &Value, b: &Value| {
            let (a, b) = (a.as_f64().expect("a number"), b.as_f64().expect("a number"));
            assert!((a / b - 1.0).abs() < 1e-12, "{a} {b}");
        };
        close(&check["step_time_seconds"], &plan["step_time_seconds"]);
        let peaks = plan["memory"].as_array().expect("ranks").iter();
        let peak = peaks.map(|rank| rank["peak_bytes"].as_f64().expect("bytes")).fold(0.0, f64::max);
        close(&check["peak_bytes"], &json!(peak));
    }
}

#[test]
fn hostile_galvatron_files_are_told_and_nothing_panics() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    estimated(path);
    assert!(meshwright(&["export", "plan.json", "--to", "galvatron", "--out", "out"], path).status.success());
    let good: Value = serde_json::from_str(
        &std::fs::read_to_string(path.join("out/galvatron_config.json")).expect("a file"),
    )
    .expect("JSON");
    let long = "4,".repeat(200_000) + "4";
    let hostile = [
        ("tp_sizes_enc", json!("")),
        ("tp_sizes_enc", json!("0,0")),
        ("tp_sizes_enc", json!("4,x")),
        ("tp_sizes_enc", json!("-4")),
        ("tp_sizes_enc", json!("99999999999999999999")),
        ("tp_sizes_enc", json!(long)),
        ("tp_sizes_enc", json!([4, 4])),
        ("tp_sizes_enc", Value::Null),
        ("dp_types_enc", json!("2,2")),
        ("checkpoint", json!("1,0,7")),
        ("use_sp", json!("1,1")),
        ("cp_sizes_enc", json!("1,2,4")),
        ("pp_deg", json!(0)),
        ("pp_deg", json!(1_048_576)),
        ("pp_deg", json!("four")),
        ("pp_division", json!("80")),
        ("pp_division", json!("0,0,0,80")),
        ("pp_division", json!("1048576,1048576,1048576,1048576")),
        ("chunks", json!(0)),
        ("chunks", json!(7)),
        ("global_bsz", json!(-1)),
        ("global_bsz", json!(1e300)),
        ("default_dp_type", json!("zero9")),
        ("pipeline_type", json!("zb-v")),
        ("vtp", json!(0)),
        ("vtp", json!(1_048_576)),
        ("world_size", json!(63)),
        ("vsp", json!(1)),
    ];
    for (key, value) in hostile {
        let mut bad = good.clone();
        bad[key] = value.clone();
        std::fs::write(path.join("bad.json"), bad.to_string()).expect("written");
        let line = "check --launcher galvatron --args bad.json --world-size 64 --cluster dgx-h100 --model llama-3.1-70b --seq-len 4096";
        let output = meshwright(&words(line), path);
        let shown: String = value.to_string().chars().take(40).collect();
        let told = text(&output.stderr) + &text(&output.stdout);
        assert!(!told.contains("panicked"), "{key} {shown}: {told}");
        assert!(
            matches!(output.status.code(), Some(1 | 3)),
            "{key} {shown}: {:?} {told}",
            output.status.code()
        );
    }
}

#[test]
fn a_division_that_does_not_fit_the_model_is_a_broken_rule() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    estimated(path);
    assert!(meshwright(&["export", "plan.json", "--to", "galvatron", "--out", "out"], path).status.success());
    let config = std::fs::read_to_string(path.join("out/galvatron_config.json")).expect("a file");
    let good: Value = serde_json::from_str(&config).expect("JSON");
    let broken = |division: &str| {
        let mut changed = good.clone();
        changed["pp_division"] = json!(division);
        std::fs::write(path.join("changed.json"), changed.to_string()).expect("written");
        let line = "check --launcher galvatron --args changed.json --world-size 64 --cluster dgx-h100 --model llama-3.1-70b --seq-len 4096 --format json";
        let check: Value = serde_json::from_slice(&meshwright(&words(line), path).stdout).expect("a verdict");
        check["broken_rules"].clone()
    };
    assert_eq!(broken("20,20,20,20"), json!([]));
    let faults = [
        ("20,20,20,19", "pp_division adds up to 79 blocks, the model has 80"),
        ("20,20,20,19,1", "pp_division has 5 entries, pp_deg is 4: one for each stage"),
    ];
    for (division, message) in faults {
        let rules = broken(division);
        assert_eq!(rules[0]["id"], "GV5", "{division}: {rules}");
        assert_eq!(rules[0]["message"], message);
        assert_eq!(rules[0]["hint"], "\"20,20,20,20\" works");
    }
}

/// A search of layers alike does not claim that no strategies by layer are better.
#[test]
fn a_certificate_says_where_only_layers_alike_were_searched() {
    let folder = tempfile::tempdir().expect("a folder");
    let planned = |launcher: &str, objective: &str| {
        let line = format!(
            "plan --model llama-3.1-8b --cluster dgx-h100 --gpus 8 --seq-len 4096 --global-batch 16 --launcher {launcher} --objective {objective} --out {launcher}.json"
        );
        let output = meshwright(&words(&line), folder.path());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let file = std::fs::read_to_string(folder.path().join(format!("{launcher}.json"))).expect("a plan");
        let plan: Value = serde_json::from_str(&file).expect("JSON");
        (text(&output.stdout), plan["certificate"]["layers_alike"].clone())
    };
    let (shown, alike) = planned("galvatron", "energy");
    assert_eq!(alike, json!(true));
    assert!(shown.contains("layouts with layers alike"), "{shown}");
    assert!(shown.contains("joules a step; none with layers alike takes less than"), "{shown}");
    for (launcher, objective) in [("galvatron", "step-time"), ("megatron", "energy")] {
        let (shown, alike) = planned(launcher, objective);
        assert!(alike.is_null() && !shown.contains("layers alike"), "{launcher} {objective}: {shown}");
    }
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
