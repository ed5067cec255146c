//! Plans on clusters whose links are not all alike, from outside.

#![allow(clippy::expect_used, clippy::unwrap_used)]

mod program;

use program::{json, meshwright, text};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

fn profile(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/clusters").join(name);
    path.to_str().expect("UTF-8").to_owned()
}

fn names(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(|name| name.as_str().map(str::to_owned)).collect()
}

fn plan(model: &str, cluster: &str, more: &[&str], folder: &Path) -> Value {
    let inputs = ["plan", "--model", model, "--cluster", cluster, "--seq-len", "4096", "--format", "json"];
    json(&meshwright(&[&inputs[..], more].concat(), folder))
}

#[test]
fn a_spare_host_behind_a_slow_link_is_left_out_and_the_launcher_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let cluster = profile("slow-node.toml");
    let more = ["--gpus", "64", "--global-batch", "64", "--out", "plan.json"];
    let plan = plan("llama-3.1-8b", &cluster, &more, folder.path());
    assert_eq!(names(&plan["placement"]["spare"]), ["h3"]);
    let hosts = names(&plan["placement"]["hosts"]);
    assert_eq!(hosts.len(), 8);
    let again = json(&meshwright(&["estimate", "plan.json", "--format", "json"], folder.path()));
    for key in
        ["step_time_seconds", "time_seconds", "memory", "parallel", "stages", "placement", "fits", "inputs"]
    {
        assert_eq!(plan[key], again[key], "{key}");
    }
    let export = ["export", "plan.json", "--to", "megatron", "--out", "launch", "--format", "json"];
    assert!(meshwright(&export[..6], folder.path()).status.success());
    let listed = std::fs::read_to_string(folder.path().join("launch/hosts.txt")).expect("the list of hosts");
    assert_eq!(listed.lines().collect::<Vec<_>>(), hosts);
    assert!(meshwright(&["check", "plan.json"], folder.path()).status.success());
}

#[test]
fn a_slow_pair_of_hosts_shares_no_tensor_or_expert_group() {
    let folder = tempfile::tempdir().expect("a folder");
    let cluster = profile("slow-pair.toml");
    let cases = [("qwen3-30b-a3b", "ep=16,etp=1,pp=4,tp=1", "ep"), ("llama-3.1-8b", "tp=16,pp=2,cp=1", "tp")];
    for (model, fix, axis) in cases {
        let plan = plan(model, &cluster, &["--global-batch", "64", "--fix", fix], folder.path());
        let hosts = names(&plan["placement"]["hosts"]);
        let mut groups: std::collections::BTreeMap<u64, BTreeSet<String>> = std::collections::BTreeMap::new();
        for rank in plan["placement"]["ranks"].as_array().expect("ranks") {
            let number = rank["rank"].as_u64().expect("a rank");
            let host = hosts[rank["host"].as_u64().expect("a host") as usize].clone();
            groups.entry(number / 16).or_default().insert(host);
        }
        let slow: BTreeSet<String> = ["h0".to_owned(), "h1".to_owned()].into();
        assert!(groups.values().all(|group| *group != slow), "{axis} of {model}: {groups:?}");
    }
}

#[test]
fn an_nvlink_domain_of_72_changes_what_is_chosen() {
    let folder = tempfile::tempdir().expect("a folder");
    let more = ["--gpus", "64", "--global-batch", "256"];
    let parallel = |cluster: &str| plan("qwen3-235b-a22b", cluster, &more, folder.path())["parallel"].clone();
    let rack = parallel("gb200-nvl72");
    let trays = parallel(&profile("gb200-without-nvl72.toml"));
    let reach = |parallel: &Value| {
        let degree = |name: &str| parallel[name].as_u64().unwrap_or(1);
        (degree("tp"), degree("ep") * degree("etp"))
    };
    assert_ne!(reach(&rack), reach(&trays), "{rack} {trays}");
    assert!(reach(&rack).0.max(reach(&rack).1) > 4, "a group of the rack is wider than a tray: {rack}");
}

#[test]
fn what_is_wrong_with_links_and_hosts_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let refused = |profile: &str, args: &[&str]| {
        let inputs = ["plan", "--model", "llama-3.1-8b", "--cluster", profile, "--seq-len", "4096"];
        let output = meshwright(&[&inputs[..], &["--global-batch", "64"], args].concat(), folder.path());
        assert!(!output.status.success(), "{}", text(&output.stdout));
        text(&output.stderr)
    };
    let base = std::fs::read_to_string(profile("slow-pair.toml")).expect("a profile");
    let base = base.split("[[links]]").next().expect("a start");
    let matrix = |cells: &str| {
        let path = folder.path().join("matrix.toml");
        let text = format!(
            "{base}\n[matrix]\nhosts = [\"h0\", \"h1\"]\nbandwidth_gb_per_second = {cells}\nsource = \"x\"\n"
        );
        std::fs::write(&path, text).expect("written");
        refused(path.to_str().expect("UTF-8"), &[])
    };
    assert!(matrix("[[0, nan], [48, 0]]").contains("bandwidth_gb_per_second"));
    assert!(matrix("[[0, 0], [48, 0]]").contains("from `h0` to `h1`"));
    assert!(matrix("[[0, 48000], [48, 0]]").contains("unit"));
    let apart = format!("{base}\n[[links]]\nbetween = [\"h2\", \"leaf0\"]\nbroken = true\nsource = \"x\"\n");
    std::fs::write(folder.path().join("apart.toml"), apart).expect("written");
    assert!(refused("apart.toml", &[]).contains("reach each other"));
}
