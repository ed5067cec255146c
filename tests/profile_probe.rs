//! The probe itself, run: it needs torch, which `make closed-loop` installs.

mod profiling;

use profiling::Bench;
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const GPT: &str =
    "layers = 2\nhidden = 64\nheads = 4\nkv_heads = 2\nffn = 128\nvocab = 256\nactivation = \"swiglu\"\n";

/// `MESHWRIGHT_TORCH_PYTHON`, or the interpreter of the closed loop.
fn python() -> PathBuf {
    if let Some(python) = std::env::var_os("MESHWRIGHT_TORCH_PYTHON") {
        return python.into();
    }
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache"), PathBuf::from);
    cache.join("meshwright/closed-loop/venv/bin/python")
}

/// The probe on one process.
fn start(bench: &Bench, out: &str) -> Child {
    Command::new(python())
        .args(["probe.py", "--out", out, "--cpu", "--seconds", "0.02"])
        .envs([("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"), ("MASTER_ADDR", "127.0.0.1")])
        .env("MASTER_PORT", if out == "whole.json" { "29641" } else { "29642" })
        .current_dir(bench.folder.path())
        .stderr(Stdio::null())
        .spawn()
        .expect("an interpreter with torch: run `make closed-loop` once, or set MESHWRIGHT_TORCH_PYTHON")
}

fn report(bench: &Bench, file: &str) -> Option<Value> {
    let text = std::fs::read_to_string(bench.folder.path().join(file)).ok()?;
    Some(serde_json::from_str(&text).expect("never half a file"))
}

fn done(report: &Value) -> Vec<String> {
    report["done"].as_array().unwrap().iter().map(|key| key.as_str().unwrap().to_owned()).collect()
}

#[test]
#[ignore = "needs torch: cargo test --test profile_probe -- --ignored"]
fn a_probe_that_was_killed_goes_on_where_it_was() {
    let bench = Bench::new();
    bench.write("gpt.toml", GPT);
    let script =
        "profile script --model gpt.toml --out probe.py --seq-len 64,128 --micro-batch 1,2 --tp 1,2 --cp 1,2";
    assert_eq!(bench.run(script).code, 0);
    assert!(start(&bench, "whole.json").wait().unwrap().success());
    let whole = report(&bench, "whole.json").unwrap();
    assert!(done(&whole).len() > 20 && whole["complete"] == true, "{:?}", done(&whole));

    let mut before = Vec::new();
    for kill in 1..=3 {
        let mut probe = start(&bench, "killed.json");
        let (begin, wanted) = (Instant::now(), before.len() + 4);
        while report(&bench, "killed.json").is_none_or(|report| done(&report).len() < wanted) {
            assert!(begin.elapsed() < Duration::from_secs(120), "kill {kill}: {before:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        probe.kill().unwrap();
        probe.wait().unwrap();
        let stopped = report(&bench, "killed.json").unwrap();
        assert_eq!(done(&stopped)[..before.len()], before);
        assert_eq!(stopped["complete"], false);
        before = done(&stopped);
        // What is there of a probe that was stopped imports, and says that it is not all.
        let answer = bench.import("probe killed.json");
        assert!(answer["notes"].to_string().contains("start it again to go on"), "{}", answer["notes"]);
    }
    let stopped = report(&bench, "killed.json").unwrap();
    assert!(start(&bench, "killed.json").wait().unwrap().success());
    let finished = report(&bench, "killed.json").unwrap();
    assert_eq!(done(&finished), done(&whole), "the same measurements in the same order, each once");
    assert_eq!(finished["complete"], true);
    // What was measured before is not measured again.
    for (index, layer) in stopped["layers"].as_array().unwrap().iter().enumerate() {
        assert_eq!(&finished["layers"][index], layer);
    }
    let left = std::fs::read_dir(bench.folder.path()).unwrap();
    let parts = left.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().ends_with(".part"));
    assert_eq!(parts.count(), 0);
}
