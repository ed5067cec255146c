//! Input that is huge, deep, doubled, senseless or hostile is refused or made safe: no panic, no hang, nothing outside
//! the folder that is written to.

mod launching;

use cost_models::ParallelConfig;
use launching::plan;
use meshwright::check;
use meshwright::plan::Plan;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

fn some_plan() -> Plan {
    let parallel = ParallelConfig { pp: 2, dp_shard: 8, num_microbatches: 2, ..ParallelConfig::default() };
    plan("llama-3.1-8b", "megatron-core", &parallel, None).unwrap()
}

fn meshwright(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_meshwright")).args(arguments).current_dir(folder).output().unwrap()
}

fn refused(output: &Output, code: i32, words: &str) {
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{told}");
    assert!(told.starts_with("error: ") && told.contains(words) && told.len() < 4096, "{told}");
}

/// A hundred megabytes of valid JSON, as a configuration and as a plan.
#[test]
fn a_hundred_megabytes_of_json() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("big.json");
    let item = format!("\"{}\",", "a".repeat(1 << 20));
    let text = format!("{{\"zero_optimization\": [{}1]}}", item.repeat(100));
    assert!(text.len() > 100_000_000);
    std::fs::write(&path, &text).unwrap();
    let begun = Instant::now();
    let configuration = [
        "check",
        "--launcher",
        "deepspeed",
        "--args",
        "big.json",
        "--world-size",
        "8",
        "--cluster",
        "dgx-h100",
    ];
    refused(&meshwright(folder.path(), &configuration), 1, "at most 4");
    refused(&meshwright(folder.path(), &["check", "big.json"]), 1, "not a plan");
    refused(
        &meshwright(folder.path(), &["export", "big.json", "--to", "megatron", "--out", "out"]),
        1,
        "not a plan",
    );
    assert!(begun.elapsed() < Duration::from_secs(120), "{:?}", begun.elapsed());
    assert!(!folder.path().join("out").exists());
}

#[test]
fn deep_nesting_and_doubled_keys() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let deep = "[".repeat(200_000) + &"]".repeat(200_000);
    write("deep.json", &format!("{{\"a\": {deep}}}"));
    write("deep.yaml", &format!("a: {deep}"));
    let plan = serde_json::to_string(&some_plan()).unwrap();
    write("twice.json", &plan.replacen("{", "{\"parameters_total\": 1, ", 1));
    write("twice-inside.json", &plan.replacen("\"parallel\":{", "\"parallel\":{\"tp\":4,", 1));
    write("doubled.json", r#"{"train_batch_size": 8, "train_batch_size": 16}"#);
    let check = |name: &str| {
        let arguments = [
            "check",
            "--launcher",
            "deepspeed",
            "--args",
            name,
            "--world-size",
            "8",
            "--cluster",
            "dgx-h100",
        ];
        meshwright(folder.path(), &arguments)
    };
    refused(&check("deep.json"), 1, "nested deeper");
    refused(&check("deep.yaml"), 1, "nested deeper");
    refused(&check("doubled.json"), 1, "stands twice");
    for name in ["deep.json", "twice.json", "twice-inside.json"] {
        refused(&meshwright(folder.path(), &["check", name]), 1, name);
        refused(&meshwright(folder.path(), &["export", name, "--to", "megatron", "--out", "out"]), 1, name);
    }
}

/// Every text of a plan is replaced by one that would run a command if a script or a program took it for code, and the
/// scripts are run.
#[test]
fn shell_metacharacters_in_names_run_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let evil = "x'; touch HACKED; $(touch HACKED) `touch HACKED` \"\"\"\n touch HACKED # ${IFS} \\";
    let mut document = serde_json::to_value(some_plan()).unwrap();
    for path in [
        "/inputs/model/name",
        "/inputs/model/family",
        "/inputs/cluster/name",
        "/inputs/cluster_source/origin",
        "/inputs/runtime/title",
    ] {
        if let Some(name) = document.pointer_mut(path) {
            *name = evil.into();
        }
    }
    std::fs::write(folder.path().join("plan.json"), document.to_string()).unwrap();
    let all = "torchrun,slurm,slurm-tasks,mpi,hostfile,pytorchjob,trainjob,skypilot,ray";
    let output = meshwright(
        folder.path(),
        &["export", "plan.json", "--to", "megatron", "--out", "out", "--layer", all],
    );
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for script in ["launch.sh", "job.sbatch", "job_tasks.sbatch", "task.sh", "mpirun.sh"] {
        // Nothing that the scripts start is on the path: they stop there.
        let run = Command::new("bash")
            .arg(script)
            .current_dir(folder.path().join("out"))
            .env_clear()
            .envs([
                ("PATH", "/usr/bin:/bin"),
                ("NODE_RANK", "0"),
                ("MASTER_ADDR", "localhost"),
                ("RANK", "0"),
                ("LOCAL_RANK", "0"),
                ("WORLD_SIZE", "16"),
            ])
            .output();
        assert!(run.is_err() || run.is_ok_and(|run| !run.status.success()), "{script}");
    }
    assert!(!folder.path().join("HACKED").exists() && !folder.path().join("out/HACKED").exists());
    document["placement"]["hosts"][0] = "node0; touch HACKED".into();
    std::fs::write(folder.path().join("plan.json"), document.to_string()).unwrap();
    let output = meshwright(folder.path(), &["export", "plan.json", "--to", "megatron", "--out", "other"]);
    refused(&output, 1, "host");
}

/// Nothing in a plan names a file, an existing file stays, and a link in the folder is not followed.
#[test]
fn nothing_outside_the_folder_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut document = serde_json::to_value(some_plan()).unwrap();
    document["inputs"]["model"]["name"] = "../../escaped".into();
    document["inputs"]["cluster_source"]["origin"] = "/etc/escaped".into();
    std::fs::write(folder.path().join("plan.json"), document.to_string()).unwrap();
    let export = |more: &[&str]| {
        let arguments: Vec<&str> =
            ["export", "plan.json", "--to", "megatron", "--out", "a/b"].iter().chain(more).copied().collect();
        meshwright(folder.path(), &arguments)
    };
    assert!(export(&[]).status.success());
    refused(&export(&[]), 1, "would be overwritten");
    assert!(export(&["--force"]).status.success());
    let names: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    refused(&export(&["--layer", "../x"]), 2, "unknown launch layer");
    std::fs::write(folder.path().join("file"), "mine").unwrap();
    let output = meshwright(folder.path(), &["export", "plan.json", "--to", "megatron", "--out", "file"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(std::fs::read_to_string(folder.path().join("file")).unwrap(), "mine");
}

/// Every number and text of a plan, replaced by values that no plan has: an error or a verdict, at once.
#[test]
fn senseless_values_in_a_plan() {
    let original = serde_json::to_value(some_plan()).unwrap();
    let mut paths = Vec::new();
    leaves(&original, String::new(), &mut paths);
    paths.retain(|path| !path.starts_with("/placement/ranks/") || path.starts_with("/placement/ranks/3/"));
    let values = [
        json!(0),
        json!(-1),
        json!(u64::MAX),
        json!(1e300),
        json!("$(reboot)"),
        json!(null),
        json!([]),
        json!({}),
    ];
    let step = (paths.len() * values.len() / 600).max(1);
    let cases = paths.iter().flat_map(|path| values.iter().map(move |value| (path, value)));
    let mut read = 0;
    for (path, value) in cases.step_by(step) {
        let mut document = original.clone();
        *document.pointer_mut(path).unwrap() = value.clone();
        if let Ok(plan) = Plan::from_json("plan.json", &document.to_string()) {
            let verdict = check::check(&plan);
            assert!(verdict.peak_bytes.get().is_finite(), "{path} {value}");
            for launcher in meshwright::launch::ALL {
                let _ = meshwright::launch::folder(&plan, *launcher, meshwright::launch::layers::ALL);
            }
            read += 1;
        }
    }
    assert!(read > 10, "{read}");
}

fn leaves(value: &Value, path: String, paths: &mut Vec<String>) {
    let escaped = |key: &str| key.replace('~', "~0").replace('/', "~1");
    match value {
        Value::Object(map) => {
            map.iter().for_each(|(key, value)| leaves(value, format!("{path}/{}", escaped(key)), paths))
        }
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(index, value)| leaves(value, format!("{path}/{index}"), paths));
        }
        _ => paths.push(path),
    }
}
