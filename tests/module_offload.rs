//! Modules of a pipeline's layers in host memory, through the command line: planned, explained, exported, and read back.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn meshwright(folder: &Path, line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_meshwright"))
        .args(line.split_whitespace())
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs")
}

fn json(folder: &Path, line: &str) -> Value {
    let output = meshwright(folder, &format!("{line} --format json"));
    assert!(!output.stdout.is_empty(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("stdout is one JSON document")
}

fn number(document: &Value, path: &str) -> f64 {
    document.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} is missing"))
}

fn step(document: &Value) -> f64 {
    number(document, "/step_time_seconds")
}

fn peak(document: &Value) -> f64 {
    let ranks = document["memory"].as_array().expect("memory by rank");
    ranks.iter().map(|rank| number(rank, "/peak_bytes")).fold(0.0, f64::max)
}

const INPUTS: &str = "--model llama-3.1-8b --cluster gb200-nvl72 --gpus 8 --seq-len 8192 --global-batch 64";

/// In 22 GiB a pipeline of two has no room for all activations, whatever the other degrees.
const TIGHT: &str = "--top 1 --memory-limit 22GiB --fix pp=2";

#[test]
fn a_pipeline_that_moves_modules_beats_one_that_repeats_all() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let run = |line: &str| json(folder.path(), &format!("plan {INPUTS} {TIGHT}{line}"));
    let kept = meshwright(folder.path(), &format!("plan {INPUTS} {TIGHT},recompute=none --offload never"));
    assert_eq!(kept.status.code(), Some(3), "{}", String::from_utf8_lossy(&kept.stdout));
    let (never, full) = (run(" --offload never"), run(",recompute=full --offload never"));
    let plan = run(" --offload any --out plan.json");
    let recompute = plan["parallel"]["recompute"].as_str().expect("a word");
    assert!(recompute.contains("offload:core_attn") || recompute.contains("+core_attn"), "{recompute}");
    assert_eq!(plan["certificate"]["gap"], 0.0);
    assert!(step(&plan) < step(&never) && step(&never) <= step(&full), "{recompute}: {}", step(&plan));
    assert!(number(&plan, "/memory/0/host_bytes") > 1e9);
    assert!(number(&plan, "/parallel/pp") == 2.0);
    for stage in plan["stages"].as_array().expect("stages") {
        assert_eq!(stage["recompute"], recompute);
    }
    let again = json(folder.path(), "estimate plan.json");
    assert_eq!(
        (&again["step_time_seconds"], &again["memory"]),
        (&plan["step_time_seconds"], &plan["memory"])
    );
    for verb in ["explain", "check"] {
        let said = meshwright(folder.path(), &format!("{verb} plan.json"));
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.status.success() && text.contains(recompute), "{verb}: {text}");
    }
    let fixed = run(&format!(",recompute={recompute}"));
    assert_eq!(fixed["step_time_seconds"], plan["step_time_seconds"]);
    exported_and_read_back(folder.path(), &plan);
}

fn check_line(launcher: &str, name: &str) -> String {
    format!(
        "check --launcher {launcher} --args {name} --world-size 8 --cluster gb200-nvl72 --model llama-3.1-8b"
    )
}

fn checked(folder: &Path, launcher: &str, name: &str) -> Value {
    json(folder, &check_line(launcher, name))
}

/// Both launchers of Megatron-core say the same of their files as the plan does.
fn exported_and_read_back(folder: &Path, plan: &Value) {
    let files = [
        ("megatron", "megatron.args", "megatron.args", "--fine-grained-offloading-max-inflight-offloads 1"),
        (
            "megatron-bridge",
            "recipe.py",
            "overrides.txt",
            "fine_grained_offloading_max_inflight_offloads = 1",
        ),
    ];
    for (launcher, file, words, cap) in files {
        let exported = meshwright(folder, &format!("export plan.json --to {launcher} --out {launcher}"));
        assert!(exported.status.success(), "{}", String::from_utf8_lossy(&exported.stderr));
        let read = |name: &str| std::fs::read_to_string(folder.join(launcher).join(name)).expect("a file");
        let text = read(file);
        assert!(text.contains(cap) && text.contains("attn_proj"), "{text}");
        assert!(read("launch.sh").contains("NVTE_CPU_OFFLOAD_V1"));
        for name in [file, words] {
            let checked = checked(folder, launcher, &format!("{launcher}/{name}"));
            assert_eq!(checked["broken_rules"], serde_json::json!([]), "{checked}");
            assert!(checked["assumed"].to_string().contains("NVTE_CPU_OFFLOAD_V1=1"), "{checked}");
            // Words leave the attention kernel open.
            if name == file {
                assert_eq!(number(&checked, "/peak_bytes"), peak(plan), "{checked}");
                assert_eq!(checked["step_time_seconds"], plan["step_time_seconds"], "{checked}");
            }
        }
    }
    let flags = std::fs::read_to_string(folder.join("megatron/megatron.args")).expect("flags");
    for (value, valid) in [("1", true), ("0", false)] {
        std::fs::write(folder.join("with.args"), format!("export NVTE_CPU_OFFLOAD_V1={value}\n{flags}"))
            .expect("a file");
        let checked = checked(folder, "megatron", "with.args");
        assert_eq!(checked["broken_rules"].to_string().contains("NVTE_CPU_OFFLOAD_V1 is `0`"), !valid);
        assert!(!checked["assumed"].to_string().contains("NVTE_CPU_OFFLOAD_V1"), "{checked}");
    }
    let overrides = std::fs::read_to_string(folder.join("megatron-bridge/overrides.txt")).expect("words");
    std::fs::write(folder.join("strange.txt"), format!("{overrides}dist.use_tp_pp_dp_mapping=banana\n"))
        .expect("a file");
    let strange = meshwright(folder, &check_line("megatron-bridge", "strange.txt"));
    let said =
        format!("{}{}", String::from_utf8_lossy(&strange.stdout), String::from_utf8_lossy(&strange.stderr));
    assert!(!strange.status.success() && said.contains("banana"), "{said}");
    let refused = meshwright(folder, "export plan.json --to nanotron --out other");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("activations in host memory"));
}

#[test]
fn a_host_without_room_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cluster = "name = \"small-hosts\"\ntitle = \"eight GPUs\"\n[[groups]]\ngpu = \"h100-sxm-80gb\"\nnodes = 1\n[groups.node]\ngpus = 8\ndomain = 8\nnics = 8\nintra = { kind = \"nvlink\", latency = \"3 us\", bandwidth = \"450 GB/s\", source = \"test\" }\ninter = { kind = \"infiniband\", latency = \"9 us\", bandwidth = \"50 GB/s\", source = \"test\" }\nhost = { kind = \"pcie\", latency = \"10 us\", bandwidth = \"52 GB/s\", source = \"test\" }\n";
    let degrees = "--tp 2 --pp 2 --dp-replicate 1 --zero 1 --micro-batch 1";
    let layout = format!("{degrees} --recompute offload:core_attn+attn_proj");
    let estimated = |memory: &str| {
        std::fs::write(folder.path().join("small.toml"), format!("{cluster}memory = \"{memory}\"\n"))
            .unwrap();
        let inputs = "--model llama-3.1-8b --cluster small.toml --gpus 8 --seq-len 8192 --global-batch 64";
        json(folder.path(), &format!("estimate {inputs} {layout}"))
    };
    let (large, small) = (estimated("2 TB"), estimated("8 GB"));
    assert_eq!((&large["fits"], &small["fits"]), (&Value::Bool(true), &Value::Bool(false)));
    assert_eq!(large["memory"], small["memory"]);
    let warnings = small["warnings"].to_string();
    assert!(warnings.contains("wait in host memory"), "{warnings}");
    // Four GPUs of each pipeline rank.
    let held: f64 =
        [0, 1].map(|rank| 4.0 * number(&small, &format!("/memory/{rank}/host_bytes"))).iter().sum();
    assert!(held > 8e9 && held < 2e12, "{held}");
}

#[test]
fn never_and_a_layout_that_moves_contradict_each_other() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let lines = [
        format!("plan {INPUTS} --offload never --fix recompute=offload:core_attn+attn_proj"),
        format!("plan {INPUTS} --offload never --fix recompute=offload"),
        format!(
            "estimate {INPUTS} --offload never --tp 2 --pp 2 --dp-replicate 1 --zero 1 --micro-batch 1 --recompute offload:core_attn"
        ),
    ];
    for line in lines {
        let refused = meshwright(folder.path(), &line);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{line}: {said}");
        assert!(said.contains("contradicts --offload never"), "{said}");
    }
}
