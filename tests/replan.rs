//! Planning for what is left of a cluster: what moves, what pays back, and what is refused.

#![allow(clippy::expect_used, clippy::unwrap_used)]

mod program;

use meshwright::plan::Plan;
use meshwright::replan::movement;
use program::{json, meshwright, text};
use serde_json::Value;
use std::path::Path;

const JOB: [&str; 8] =
    ["--model", "llama-3.1-8b", "--cluster", "dgx-h100", "--seq-len", "4096", "--global-batch", "64"];

/// A folder with `plan.json`, a plan on 32 GPUs.
fn planned() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let args = [&["plan"], &JOB[..], &["--gpus", "32", "--out", "plan.json"]].concat();
    assert!(meshwright(&args, folder.path()).status.success());
    folder
}

fn read(folder: &Path, name: &str) -> Plan {
    let text = std::fs::read_to_string(folder.join(name)).expect("a plan");
    Plan::from_json(name, &text).expect("a plan")
}

#[test]
fn nothing_moves_from_a_plan_to_itself_and_all_of_it_to_other_hosts() {
    let folder = planned();
    let plan = read(folder.path(), "plan.json");
    let same = movement(&plan, &plan, &[]);
    assert_eq!((same.total_bytes.get(), same.ranks.len()), (0.0, 0));
    assert_eq!(same.from_checkpoint_bytes.get(), 0.0);
    let mut elsewhere = plan.clone();
    elsewhere.placement.hosts = (0..4).map(|host| format!("other{host}")).collect();
    let moved = movement(&plan, &elsewhere, &[]);
    assert_eq!(moved.ranks.len(), 32);
    let copies = f64::from(plan.parallel.dp() * plan.parallel.cp);
    let weights = plan.parameters_total as f64;
    let (parameters, optimizer) = moved.ranks.iter().fold((0.0, 0.0), |sum, rank| {
        (sum.0 + rank.parameters_bytes.get(), sum.1 + rank.optimizer_bytes.get())
    });
    let near = |value: f64, wanted: f64| (value / wanted - 1.0).abs() < 0.02;
    assert!(near(parameters, 2.0 * weights * copies), "{parameters} {}", 2.0 * weights * copies);
    let owners = if plan.parallel.zero_stage >= 1 { f64::from(plan.parallel.dp_replicate) } else { copies };
    assert!(near(optimizer, 12.0 * weights * owners), "{optimizer} {}", 12.0 * weights * owners);
    assert_eq!(movement(&plan, &elsewhere, &[]), moved);
}

#[test]
fn a_lost_host_is_planned_around_and_what_moves_is_said() {
    let folder = planned();
    let args = ["plan", "--from", "plan.json", "--lost", "node1", "--out", "new.json", "--format", "json"];
    let new = json(&meshwright(&args, folder.path()));
    let replan = &new["replan"];
    assert_eq!(replan["lost"][0], "node1");
    let hosts: Vec<&str> =
        new["placement"]["hosts"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(!hosts.contains(&"node1") && !hosts.is_empty(), "{hosts:?}");
    assert_eq!(new["inputs"]["workload"]["global_batch"], 64);
    let moved = &replan["moved"];
    assert!(moved["total_bytes"].as_f64().unwrap() > 0.0);
    assert!(moved["seconds"].as_f64().unwrap() > 0.0);
    let ranks = moved["ranks"].as_array().unwrap();
    let sum: f64 = ranks
        .iter()
        .map(|rank| rank["parameters_bytes"].as_f64().unwrap() + rank["optimizer_bytes"].as_f64().unwrap())
        .sum();
    assert!((sum / moved["total_bytes"].as_f64().unwrap() - 1.0).abs() < 1e-9);
    let again = json(&meshwright(&["estimate", "new.json", "--format", "json"], folder.path()));
    assert_eq!(again["step_time_seconds"], new["step_time_seconds"]);
    assert!(meshwright(&["check", "new.json"], folder.path()).status.success());
    let explained = meshwright(&["explain", "plan.json", "new.json", "--format", "json"], folder.path());
    assert_eq!(json(&explained)["moved"]["total_bytes"], moved["total_bytes"]);
    let human = text(&meshwright(&args[..5], folder.path()).stdout);
    assert!(human.contains("lost    node1") && human.contains("moves   "), "{human}");
}

#[test]
fn a_short_horizon_never_costs_more_than_the_fastest_plan_would() {
    let folder = planned();
    let replanned = |horizon: &[&str]| {
        let args =
            [&["plan", "--from", "plan.json", "--lost", "node0", "--format", "json"], horizon].concat();
        let plan = json(&meshwright(&args, folder.path()));
        let step = plan["step_time_seconds"].as_f64().unwrap();
        (step, plan["replan"]["moved"]["seconds"].as_f64().unwrap())
    };
    let fastest = replanned(&[]);
    let soon = replanned(&["--horizon", "1"]);
    let late = replanned(&["--horizon", "1000000"]);
    assert!(soon.1 + soon.0 <= fastest.1 + fastest.0 + 1e-12, "{soon:?} {fastest:?}");
    assert!(soon.1 <= late.1 + 1e-12, "{soon:?} {late:?}");
    assert!((late.0 / fastest.0 - 1.0).abs() < 1e-6, "{late:?} {fastest:?}");
}

#[test]
fn unknown_hosts_all_hosts_and_other_models_are_refused() {
    let folder = planned();
    let refused = |args: &[&str]| {
        let output = meshwright(args, folder.path());
        assert!(!output.status.success(), "{}", text(&output.stdout));
        text(&output.stderr)
    };
    let unknown = refused(&["plan", "--from", "plan.json", "--lost", "nod1"]);
    assert!(unknown.contains("no host named `nod1`") && unknown.contains("did you mean node1"), "{unknown}");
    let all = refused(&["plan", "--from", "plan.json", "--lost", "node0,node1,node2,node3"]);
    assert!(all.contains("every host is lost"), "{all}");
    let mut other = JOB;
    other[1] = "llama-3.2-1b";
    let args = [&["plan", "--from", "plan.json", "--gpus", "16"], &other[..]].concat();
    assert!(refused(&args).contains("--from is a plan of `llama-3.1-8b`"));
    assert!(refused(&["plan", "--horizon", "5"]).contains("--from"));
}

/// A part of a node is planned as it is where the inputs are named.
#[test]
fn a_plan_can_shrink_to_a_part_of_a_node() {
    let folder = tempfile::tempdir().expect("a folder");
    let plan =
        |args: &[&str]| json(&meshwright(&[&["plan"], args, &["--format", "json"]].concat(), folder.path()));
    plan(&[&JOB[..], &["--gpus", "8", "--out", "eight.json"]].concat());
    let named = plan(&[&JOB[..], &["--gpus", "4", "--from", "eight.json"]].concat());
    let again = plan(&["--gpus", "4", "--from", "eight.json"]);
    assert_eq!(again["placement"]["ranks"].as_array().unwrap().len(), 4);
    for key in ["parallel", "stages", "step_time_seconds", "placement", "replan"] {
        assert_eq!(again[key], named[key], "{key}");
    }
}

#[test]
fn hosts_that_were_left_out_stay_known_and_step_in() {
    let folder = planned();
    let cut = ["plan", "--from", "plan.json", "--gpus", "16", "--out", "cut.json", "--format", "json"];
    let small = json(&meshwright(&cut, folder.path()));
    let names = |plan: &Value, key: &str| -> Vec<String> {
        let hosts = plan["placement"][key].as_array().cloned().unwrap_or_default();
        hosts.iter().filter_map(|host| host.as_str().map(str::to_owned)).collect()
    };
    let (used, spare) = (names(&small, "hosts"), names(&small, "spare"));
    assert_eq!((used.len(), spare.len()), (2, 2), "{used:?} {spare:?}");
    let lost = ["plan", "--from", "cut.json", "--lost", &used[0], "--out", "new.json", "--format", "json"];
    let new = json(&meshwright(&lost, folder.path()));
    let now = names(&new, "hosts");
    assert_eq!(now.len(), 2, "a spare host takes the place of a lost one: {now:?}");
    assert!(now.contains(&used[1]) && now.iter().any(|host| spare.contains(host)), "{now:?}");
    assert_eq!(names(&new, "spare").len(), 1);
    assert!(new["replan"]["moved"]["total_bytes"].as_f64().unwrap() > 0.0);
    assert!(meshwright(&["check", "new.json"], folder.path()).status.success());
}

#[test]
fn a_front_after_a_plan_says_what_moves_to_each_of_its_plans() {
    let folder = planned();
    let args = ["plan", "--from", "plan.json", "--lost", "node1", "--pareto", "gpus"];
    let front = json(&meshwright(&[&args[..], &["--format", "json"]].concat(), folder.path()));
    let points = front["pareto"].as_array().expect("a front");
    assert!(!points.is_empty());
    for point in points {
        let replan = &point["plan"]["replan"];
        assert_eq!(replan["lost"][0], "node1");
        assert!(replan["moved"]["total_bytes"].as_f64().is_some(), "{replan}");
    }
    let human = text(&meshwright(&args, folder.path()).stdout);
    assert!(human.contains("moves GiB") && human.contains("moves   "), "{human}");
}
