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
}

#[test]
fn a_host_whose_links_are_dead_is_named_and_left_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let base = std::fs::read_to_string(profile("slow-pair.toml")).expect("a profile");
    let base = base.split("[[links]]").next().expect("a start");
    let apart = format!("{base}\n[[links]]\nbetween = [\"h2\", \"leaf0\"]\nbroken = true\nsource = \"x\"\n");
    std::fs::write(folder.path().join("apart.toml"), apart).expect("written");
    let more = ["--gpus", "32", "--global-batch", "64"];
    let made = plan("llama-3.1-8b", "apart.toml", &more, folder.path());
    assert!(!names(&made["placement"]["hosts"]).contains(&"h2".to_owned()), "{}", made["placement"]["hosts"]);
    // All eight are asked for: seven work, and the text says which does not.
    let inputs = ["plan", "--model", "llama-3.1-8b", "--cluster", "apart.toml", "--seq-len", "4096"];
    let output = meshwright(&[&inputs[..], &["--global-batch", "56"]].concat(), folder.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(shown.contains("on 56 x H100") && shown.contains("left out: h2"), "{shown}");
    assert!(shown.contains("host h2 is left out: no link to the other hosts works"), "{shown}");
}

#[test]
fn a_host_with_one_dead_interface_is_left_out_where_there_is_a_spare_and_named_where_there_is_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let base = std::fs::read_to_string(profile("slow-pair.toml")).expect("a profile");
    let base = base.split("[[links]]").next().expect("a start");
    let rail = format!(
        "{base}\n[[links]]\nbetween = [\"h2\", \"leaf0\"]\nrail = 3\nbroken = true\nsource = \"x\"\n"
    );
    std::fs::write(folder.path().join("rail.toml"), rail).expect("written");
    let fewer = plan("llama-3.1-8b", "rail.toml", &["--gpus", "32", "--global-batch", "64"], folder.path());
    assert!(
        !names(&fewer["placement"]["hosts"]).contains(&"h2".to_owned()),
        "{}",
        fewer["placement"]["hosts"]
    );
    assert_eq!(fewer["warnings"], serde_json::json!([]));
    let all = plan("llama-3.1-8b", "rail.toml", &["--global-batch", "64"], folder.path());
    assert!(names(&all["placement"]["hosts"]).contains(&"h2".to_owned()), "{}", all["placement"]["hosts"]);
    let warnings = all["warnings"].to_string();
    assert!(warnings.contains("links are broken between hosts of this plan: h2 (NIC 3);"), "{warnings}");
}

#[test]
fn a_slow_host_that_is_used_is_named_with_the_way_to_do_without() {
    let folder = tempfile::tempdir().expect("a folder");
    let base = std::fs::read_to_string(profile("slow-pair.toml")).expect("a profile");
    let base = base.split("[[links]]").next().expect("a start");
    let slow =
        format!("{base}\n[[links]]\nbetween = [\"h2\", \"leaf0\"]\nbandwidth = \"1 GB/s\"\nsource = \"x\"\n");
    std::fs::write(folder.path().join("slow.toml"), slow).expect("written");
    let all = plan("llama-3.1-8b", "slow.toml", &["--global-batch", "56"], folder.path());
    let warnings = all["warnings"].to_string();
    assert!(warnings.contains("h2: no link to another host is faster than 1.0 GB/s"), "{warnings}");
    let without = ["--global-batch", "56", "--lost", "h2"];
    let fewer = plan("llama-3.1-8b", "slow.toml", &without, folder.path());
    assert!(!fewer["warnings"].to_string().contains("no link"), "{}", fewer["warnings"]);
    assert!(fewer["step_time_seconds"].as_f64() < all["step_time_seconds"].as_f64());
}

/// Rates of 64 hosts in four leaves: two hosts with a slow network interface, a leaf with slow uplinks, a dead pair.
fn pairs_with_faults() -> String {
    let mut csv = "from,to,rail,bandwidth_gb_per_second\n".to_owned();
    let mut state = 9_u64;
    let mut noise = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        0.95 + 0.1 * ((state >> 11) as f64 / (1_u64 << 53) as f64)
    };
    for from in 0..64 {
        for to in (0..64).filter(|to| *to != from) {
            for rail in 0..8 {
                let slow = |host, rail| matches!((host, rail), (17, 3) | (40, 6));
                let own: f64 = if slow(from, rail) || slow(to, rail) { 20.0 } else { 48.5 };
                let rate = if (from / 16 == 2) == (to / 16 == 2) { own } else { own.min(24.0) };
                let dead = rail == 1 && matches!((from, to), (5, 9) | (9, 5));
                csv +=
                    &format!("node-{from},node-{to},{rail},{:.3}\n", if dead { 0.0 } else { rate * noise() });
            }
        }
    }
    csv
}

#[test]
fn a_plan_on_imported_pairs_walks_around_their_faults() {
    let folder = tempfile::tempdir().expect("a folder");
    let leaves: String = (0..4)
        .map(|leaf| format!("SwitchName=leaf{leaf} Nodes=node-[{}-{}]\n", leaf * 16, leaf * 16 + 15))
        .collect();
    std::fs::write(folder.path().join("pairs.csv"), pairs_with_faults()).expect("written");
    std::fs::write(folder.path().join("topology.conf"), leaves).expect("written");
    for words in [
        "slurm topology.conf --base dgx-h100 --out base.toml",
        "pairs pairs.csv --base base.toml --out faults.toml",
    ] {
        let args: Vec<&str> = ["profile", "import"].into_iter().chain(words.split(' ')).collect();
        let output = meshwright(&args, folder.path());
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    // As many hosts as there are, with a layout whose stages are as large as a leaf.
    let more = ["--global-batch", "512", "--fix", "tp=4,pp=4,cp=1"];
    let made = plan("llama-3.1-70b", "faults.toml", &more, folder.path());
    let hosts = names(&made["placement"]["hosts"]);
    assert_eq!(hosts.len(), 64);
    let place = |host: &str| hosts.iter().position(|own| own == host).expect("it is used");
    let (five, nine) = (place("node-5"), place("node-9"));
    assert_ne!(five / 16, nine / 16, "the dead pair shares a stage: {hosts:?}");
    let neighbours = (five / 16).abs_diff(nine / 16) == 1 || (five / 16).abs_diff(nine / 16) == 3;
    assert!(five % 16 != nine % 16 || !neighbours, "the dead pair hands microbatches on: {hosts:?}");
    let of_leaf =
        |host: &String| host.trim_start_matches("node-").parse::<usize>().expect("a number") / 16 == 2;
    let crossing = hosts.chunks(16).filter(|stage| stage.iter().any(of_leaf) && !stage.iter().all(of_leaf));
    assert_eq!(crossing.count(), 0, "gradients cross the slow uplinks: {hosts:?}");
    // Four hosts may be left out.
    let spare = ["--gpus", "480", "--global-batch", "480", "--fix", "tp=4,pp=4,cp=1"];
    let made = plan("llama-3.1-70b", "faults.toml", &spare, folder.path());
    let left = names(&made["placement"]["spare"]);
    assert_eq!(left.len(), 4, "{left:?}");
    assert!(["node-17", "node-40"].iter().all(|slow| left.contains(&(*slow).to_owned())), "{left:?}");
}
