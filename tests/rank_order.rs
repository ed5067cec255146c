//! The order of the ranks through the command line: given, planned, placed, checked, exported, read back, explained.

#![allow(clippy::expect_used, clippy::panic)]

use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output, Stdio};

const INPUTS: &str = "--model llama-3.1-8b --cluster dgx-h100 --gpus 16 --seq-len 4096 --global-batch 64";
const INSIDE: &str = "tp-cp-ep-pp-dp";
const DEFAULT: &str = "tp-cp-ep-dp-pp";

fn run(folder: &Path, line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_meshwright"))
        .args(line.split_whitespace())
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs")
}

fn done(folder: &Path, line: &str) -> String {
    let output = run(folder, line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn document(folder: &Path, line: &str) -> Value {
    serde_json::from_str(&done(folder, &format!("{line} --format json"))).expect("one JSON document")
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).expect("a file")
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// The ids of the rules that `check` finds broken.
fn broken(folder: &Path, line: &str) -> Vec<String> {
    let output = run(folder, &format!("{line} --format json"));
    let check: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    let rules = check["broken_rules"].as_array().expect("a list").clone();
    rules.iter().map(|rule| rule["id"].as_str().expect("an id").to_owned()).collect()
}

#[test]
fn an_estimate_places_its_ranks_in_the_order_it_is_given() {
    let folder = folder();
    let layout = format!("estimate {INPUTS} --pp 2 --dp-replicate 1");
    let default = done(folder.path(), &format!("{layout} --format json"));
    assert_eq!(default, done(folder.path(), &format!("{layout} --rank-order {DEFAULT} --format json")));
    assert!(!default.contains(INSIDE));
    let inside = document(folder.path(), &format!("{layout} --rank-order {INSIDE}"));
    assert_eq!(inside["placement"]["rank_order"], INSIDE);
    assert_eq!(inside["parallel"]["rank_order"], INSIDE);
    let ranks = inside["placement"]["ranks"].as_array().expect("ranks");
    for (rank, seat) in ranks.iter().enumerate() {
        let expected = json!({"rank": rank, "host": rank / 8, "gpu": rank % 8, "tp": 0, "pp": rank % 2,
            "cp": 0, "dp": rank / 2, "ep": 0});
        assert_eq!(seat, &expected);
    }
    let default: Value = serde_json::from_str(&default).expect("JSON");
    assert_ne!(default["step_time_seconds"], inside["step_time_seconds"]);
    let refused = run(folder.path(), &format!("{layout} --rank-order tp-pp-dp"));
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains(INSIDE));
}

#[test]
fn a_plan_in_the_other_order_is_estimated_checked_exported_and_read_back() {
    let folder = folder();
    let folder = folder.path();
    let plan = document(folder, &format!("plan {INPUTS} --out plan.json"));
    assert_eq!(plan["placement"]["rank_order"], INSIDE, "{}", plan["parallel"]);
    let again = document(folder, "estimate plan.json");
    assert_eq!(again["step_time_seconds"], plan["step_time_seconds"]);
    assert_eq!(again["placement"], plan["placement"]);
    assert!(broken(folder, "check plan.json").is_empty());
    done(folder, "export plan.json --to megatron --out megatron");
    assert!(read(folder, "megatron/megatron.args").lines().any(|line| line == "--use-tp-pp-dp-mapping"));
    let cluster = "--world-size 16 --cluster dgx-h100";
    let read_back =
        document(folder, &format!("check --launcher megatron --args megatron/megatron.args {cluster}"));
    assert_eq!(read_back["valid"], true, "{read_back}");
    let default = document(folder, &format!("plan {INPUTS} --forbid rank_order={INSIDE} --out default.json"));
    assert_eq!(default["placement"]["rank_order"], DEFAULT);
    done(folder, "export default.json --to megatron --out plain");
    assert!(!read(folder, "plain/megatron.args").contains("mapping"));
    done(folder, "export plan.json --to megatron-bridge --out bridge");
    assert!(read(folder, "bridge/overrides.txt").contains("dist.use_tp_pp_dp_mapping=True"));
    let overrides = "--launcher megatron-bridge --args bridge/overrides.txt --model llama-3.1-8b";
    let bridge = document(folder, &format!("check {overrides} {cluster}"));
    assert_eq!(bridge["step_time_seconds"], read_back["step_time_seconds"]);
    let explained = done(folder, "explain default.json plan.json");
    assert!(explained.contains(&format!("{DEFAULT} -> {INSIDE}")), "{explained}");
    assert!(
        explained.contains("ranks in the order tp-cp-ep-pp-dp instead of tp-cp-ep-dp-pp: "),
        "{explained}"
    );
    for launcher in ["nanotron", "galvatron", "torchtitan"] {
        let refused = run(folder, &format!("export plan.json --to {launcher} --out {launcher}"));
        assert_eq!(refused.status.code(), Some(1), "{launcher}");
        let reasons = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            reasons.contains("ranks in the order tp-cp-ep-pp-dp (it numbers them tp-cp-ep-dp-pp)"),
            "{reasons}"
        );
    }
}

/// `check` knows the order among the single changes that make a step faster.
#[test]
fn the_other_order_is_proposed_where_it_is_faster() {
    let folder = folder();
    let inputs = "--model llama-3.1-8b --cluster dgx-h100 --gpus 16 --seq-len 8192 --global-batch 64";
    done(folder.path(), &format!("estimate {inputs} --pp 2 --vpp 8 --recompute full:1 --out plan.json"));
    let check = document(folder.path(), "check plan.json");
    let changes = check["faster"].as_array().expect("a list");
    let order = format!("rank_order {DEFAULT} -> {INSIDE}");
    assert!(changes.iter().any(|change| change["change"] == order.as_str()), "{changes:?}");
}

/// What the order alone costs is the difference of two estimates.
#[test]
fn the_price_of_an_order_is_the_difference_of_two_estimates() {
    let folder = folder();
    let folder = folder.path();
    let step = |order: &str| {
        let line = format!("estimate {INPUTS} --pp 2 --vpp 8 --rank-order {order} --out {order}.json");
        document(folder, &line)["step_time_seconds"].as_f64().expect("a number")
    };
    let (default, inside) = (step(DEFAULT), step(INSIDE));
    let explained = document(folder, &format!("explain {DEFAULT}.json {INSIDE}.json"));
    let price = explained["rank_order"]["step_seconds"].as_f64().expect("a number");
    assert!((price - (inside - default)).abs() < 1e-12, "{price} {inside} {default}");
    let same = document(folder, &format!("explain {DEFAULT}.json {DEFAULT}.json"));
    assert!(same.get("rank_order").is_none());
}

#[test]
fn a_plan_whose_placement_contradicts_its_order_is_found_out() {
    let folder = folder();
    let folder = folder.path();
    let line = format!("estimate {INPUTS} --pp 2 --rank-order {INSIDE} --out plan.json");
    let plan = document(folder, &line);
    let changed = |edit: &dyn Fn(&mut Value)| {
        let mut plan = plan.clone();
        edit(&mut plan);
        std::fs::write(folder.join("changed.json"), plan.to_string()).expect("written");
        broken(folder, "check changed.json")
    };
    assert!(changed(&|_| ()).is_empty());
    assert_eq!(changed(&|plan| plan["placement"]["rank_order"] = json!(DEFAULT)), ["placement-order"]);
    assert_eq!(changed(&|plan| plan["placement"]["ranks"][5]["pp"] = json!(0)), ["placement-axes"]);
    let other = changed(&|plan| plan["parallel"]["rank_order"] = json!(DEFAULT));
    assert_eq!(other, ["placement-order", "placement-axes"]);
    assert_eq!(changed(&|plan| plan["inputs"]["runtime"]["name"] = json!("vocabulary-parallel")), ["E12"]);
}

/// `ColossalAI` puts data parallelism outside the pipeline unless it is told otherwise: both orders are written.
#[test]
fn colossalai_is_told_which_axis_is_outside() {
    let folder = folder();
    let folder = folder.path();
    for (order, outside) in [(DEFAULT, "dp_outside=False,"), (INSIDE, "dp_outside=True,")] {
        let layout =
            format!("estimate {INPUTS} --runtime colossalai --pp 2 --rank-order {order} --out plan.json");
        done(folder, &layout);
        done(folder, "export plan.json --to colossalai --out launch --force");
        assert!(read(folder, "launch/plugin.py").contains(outside), "{order}");
    }
}

/// Stages over GPUs of several kinds are planned in one order (only all 24 GPUs make three stages): a wish for the other has
/// no plan.
#[test]
fn stages_over_several_kinds_are_planned_in_the_default_order() {
    let folder = folder();
    let profile = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/clusters/two-kinds.toml");
    let inputs = format!("plan --model llama-3.1-8b --cluster {profile} --seq-len 4096 --global-batch 96");
    let fixed = format!("{inputs} --fix schedule=1f1b,recompute=none,pp=3");
    let plan = document(folder.path(), &fixed);
    assert_eq!(plan["placement"]["rank_order"], DEFAULT);
    assert_eq!(plan["placement"]["hosts"].as_array().map(Vec::len), Some(3));
    let refused = run(folder.path(), &format!("{fixed},rank_order={INSIDE}"));
    assert_eq!(refused.status.code(), Some(3));
    let said = String::from_utf8_lossy(&refused.stderr) + String::from_utf8_lossy(&refused.stdout);
    assert!(said.contains("no legal layout keeps") && said.contains(INSIDE), "{said}");
}
