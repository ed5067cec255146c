//! What `plan` answers through the command line: uneven stages, awkward depths, wishes without an answer, limits, fronts.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

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
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("stdout is one JSON document")
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn number(document: &Value, path: &str) -> f64 {
    document.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} is missing"))
}

fn list<'a>(document: &'a Value, path: &str) -> &'a [Value] {
    document.pointer(path).and_then(Value::as_array).unwrap_or_else(|| panic!("{path} is missing"))
}

const LLAMA: &str = "--model llama-3.1-70b --cluster dgx-h100 --gpus 64 --seq-len 2048 --global-batch 256";

#[test]
fn a_heavy_head_gets_fewer_layers_and_the_export_carries_the_layout() {
    let folder = folder();
    let wishes = "--fix tp=2,pp=8,cp=1,schedule=1f1b --out plan.json";
    let plan = json(folder.path(), &format!("plan {LLAMA} {wishes}"));
    let layout = |key: &str| number(&plan, &format!("/parallel/{key}")) as u64;
    let even = format!(
        "estimate {LLAMA} --tp 2 --pp 8 --dp-replicate {} --zero {} --micro-batch {} --schedule 1f1b --recompute {} \
         --stages 10,10,10,10,10,10,10,10",
        layout("dp_replicate"),
        layout("zero_stage"),
        layout("micro_batch_size"),
        plan["parallel"]["recompute"].as_str().expect("a name"),
    );
    let even = json(folder.path(), &even);
    assert!(number(&plan, "/step_time_seconds") < number(&even, "/step_time_seconds"));
    let exported = meshwright(folder.path(), "export plan.json --to megatron --out launch");
    assert!(exported.status.success(), "{}", String::from_utf8_lossy(&exported.stderr));
    let flags = std::fs::read_to_string(folder.path().join("launch/megatron.args")).expect("flags");
    let layout =
        flags.lines().find(|line| line.contains("--pipeline-model-parallel-layout")).expect("a layout");
    let blocks =
        |stage: &Value| stage["layers"][1].as_u64().unwrap_or(0) - stage["layers"][0].as_u64().unwrap_or(0);
    let inner: Vec<u64> = list(&plan, "/stages").iter().map(blocks).collect();
    assert!(inner.iter().any(|&count| count != inner[0]), "{inner:?}");
    assert!(layout.matches('|').count() == 7 || layout.contains(")*"), "{layout}");
}

#[test]
fn awkward_depths_plan_without_padding_layers() {
    let cases = [
        ("qwen3-235b-a22b", 128, 256, 16, 94),
        ("deepseek-v3", 1024, 1024, 16, 61),
        ("glm-4.5-air", 64, 128, 4, 46),
    ];
    for (model, gpus, batch, pp, blocks) in cases {
        let folder = folder();
        let inputs = format!(
            "--model {model} --cluster dgx-h100 --gpus {gpus} --seq-len 4096 --global-batch {batch} --fix pp={pp} --top 1"
        );
        let plan = json(folder.path(), &format!("plan {inputs} --out plan.json"));
        assert_eq!(number(&plan, "/parallel/pp") as u32, pp);
        let runs = list(&plan, "/inputs/model/layers").iter();
        let listed: u64 = runs.map(|run| run["count"].as_u64().unwrap_or(0)).sum();
        let last = list(&plan, "/stages").iter().filter_map(|stage| stage["layers"][1].as_u64()).max();
        assert_eq!(last, Some(listed - 1), "{model}");
        let exported = meshwright(folder.path(), "export plan.json --to megatron --out launch");
        assert!(exported.status.success(), "{model}: {}", String::from_utf8_lossy(&exported.stderr));
        let flags = std::fs::read_to_string(folder.path().join("launch/megatron.args")).expect("flags");
        assert!(flags.contains(&format!("--num-layers {blocks}\n")), "{model}: {flags}");
    }
}

#[test]
fn wishes_without_an_answer_name_the_reason_and_what_would_do() {
    let folder = folder();
    let line = format!("plan {LLAMA} --fix tp=16 --forbid cross-node-tp");
    let output = meshwright(folder.path(), &line);
    assert_eq!(output.status.code(), Some(3));
    let said = String::from_utf8_lossy(&output.stderr);
    for part in
        ["--fix tp=16", "--forbid cross-node-tp", "use --fix tp=8 instead of --fix tp=16", "drop --fix tp=16"]
    {
        assert!(said.contains(part), "{part} is missing in {said}");
    }
    let output = meshwright(folder.path(), &format!("{line} --format json"));
    let document: Value = serde_json::from_slice(&output.stdout).expect("one document");
    assert_eq!(document.pointer("/infeasible/binding_term"), Some(&Value::from("constraint")));
    let empty = meshwright(folder.path(), &format!("plan {LLAMA} --fix tp=3"));
    assert_eq!(empty.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&empty.stderr).contains("drop --fix tp=3"));
}

#[test]
fn no_time_at_all_is_answered_at_once_with_a_plan_that_fits() {
    let folder = folder();
    let inputs = "--model deepseek-v3 --cluster dgx-h100 --gpus 2048 --seq-len 4096 --global-batch 8192";
    for limit in ["0s", "1ms"] {
        let start = Instant::now();
        let plan = json(folder.path(), &format!("plan {inputs} --time-limit {limit} --out plan.json"));
        assert!(start.elapsed() < Duration::from_secs(5), "{limit} took {:?}", start.elapsed());
        assert_eq!(plan["certificate"]["status"], "feasible");
        assert!(number(&plan, "/certificate/gap") > 0.0);
        assert_eq!(plan["fits"], true);
        let checked = meshwright(folder.path(), "check plan.json");
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    }
}

#[test]
fn a_front_holds_whole_plans_of_which_none_beats_another() {
    let folder = folder();
    let inputs = "--model llama-3.1-8b --cluster dgx-a100 --gpus 32 --seq-len 4096 --global-batch 64";
    for (trade, cost) in [("gpus", "gpus"), ("memory", "peak_memory_bytes"), ("price", "dollars_per_step")] {
        let front = json(folder.path(), &format!("plan {inputs} --pareto {trade} --out front.json"));
        let points = list(&front, "/pareto");
        assert!(!points.is_empty(), "{trade}");
        for pair in points.windows(2) {
            assert!(number(&pair[0], &format!("/{cost}")) < number(&pair[1], &format!("/{cost}")), "{trade}");
            assert!(
                number(&pair[0], "/step_time_seconds") > number(&pair[1], "/step_time_seconds"),
                "{trade}"
            );
        }
        for point in points {
            assert_eq!(point["plan"]["certificate"]["status"], "optimal", "{trade}");
            assert_eq!(point["plan"]["step_time_seconds"], point["step_time_seconds"]);
        }
        let alone = json(folder.path(), &format!("plan {inputs}"));
        let last = points.last().expect("a point");
        if trade != "price" {
            assert_eq!(last["step_time_seconds"], alone["step_time_seconds"], "{trade}");
        }
        let again = json(folder.path(), "estimate front.json");
        assert_eq!(again["step_time_seconds"], front["step_time_seconds"]);
    }
    let refused = meshwright(folder.path(), &format!("plan {inputs} --pareto gpus --objective energy"));
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn stages_that_choose_what_they_repeat_are_exported_as_they_are() {
    let folder = folder();
    let inputs = "--model llama-3.1-70b --cluster dgx-h100 --gpus 64 --seq-len 8192 --global-batch 128 --fix pp=8,schedule=1f1b \
                  --memory-limit 40GiB --top 1";
    let (launcher, file) = ("colossalai", "plugin.py");
    let plan = json(folder.path(), &format!("plan {inputs} --launcher {launcher} --out plan.json"));
    let recomputes: Vec<&str> =
        list(&plan, "/stages").iter().filter_map(|stage| stage["recompute"].as_str()).collect();
    assert!(recomputes.iter().any(|recompute| *recompute != recomputes[0]), "{launcher}: {recomputes:?}");
    let checked = meshwright(folder.path(), "check plan.json");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    let out = format!("export plan.json --to {launcher} --out {launcher}");
    let exported = meshwright(folder.path(), &out);
    assert!(exported.status.success(), "{}", String::from_utf8_lossy(&exported.stderr));
    let text = std::fs::read_to_string(folder.path().join(launcher).join(file)).expect("a file");
    let counts: Vec<String> = recomputes
        .iter()
        .map(|recompute| recompute.strip_prefix("full:").unwrap_or("0").to_owned())
        .collect();
    assert!(text.contains(&format!("num_ckpt_layers_per_stage=[{}]", counts.join(", "))), "{text}");
}

#[test]
fn wishes_that_exclude_each_other_have_no_plan_and_a_way_out() {
    let folder = folder();
    let output = meshwright(folder.path(), &format!("plan {LLAMA} --fix tp=8 --forbid tp=8"));
    assert_eq!(output.status.code(), Some(3));
    let said = String::from_utf8_lossy(&output.stderr);
    for part in
        ["--fix tp=8 and --forbid tp=8 leave no value for tp", "drop --fix tp=8", "drop --forbid tp=8"]
    {
        assert!(said.contains(part), "{part} is missing in {said}");
    }
}

#[test]
fn limits_that_no_gpu_has_and_prices_that_are_missing_are_said() {
    let folder = folder();
    let inputs =
        "--model llama-3.1-8b --cluster gcp-a3-mega --gpus 8 --seq-len 4096 --global-batch 64 --top 1";
    let output = meshwright(folder.path(), &format!("plan {inputs} --memory-limit 200GiB"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("--memory-limit is 200.0 GiB"), "{said}");
    // What a plan may hold is what it was asked for, above the usual margin too.
    let most =
        "plan --model llama-3.1-8b --cluster dgx-h100 --gpus 8 --seq-len 8192 --global-batch 64 --top 1";
    let output = meshwright(folder.path(), &format!("{most} --memory-limit 79GiB --format json"));
    let plan: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a plan");
    assert_eq!(plan["fits"], true);
    for wish in ["--objective tokens-per-dollar", "--pareto price"] {
        let output = meshwright(folder.path(), &format!("plan {inputs} {wish}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{wish}: {said}");
        assert!(said.contains("groups[0].dollars_per_gpu_hour"), "{wish}: {said}");
    }
}

#[test]
fn what_fits_only_with_its_optimizer_on_the_host_is_planned_and_exported_so() {
    let folder = folder();
    let inputs = "--model llama-3.1-70b --cluster dgx-h100 --gpus 8 --seq-len 8192 --global-batch 16 --top 1";
    let never = meshwright(folder.path(), &format!("plan {inputs} --offload never"));
    let said = String::from_utf8_lossy(&never.stderr);
    assert_eq!(never.status.code(), Some(3), "{said}");
    assert!(said.contains("--offload optimizer"), "{said}");
    let plan = json(folder.path(), &format!("plan {inputs} --out plan.json"));
    assert_eq!(number(&plan, "/inputs/runtime/memory/state/optimizer_offload"), 1.0);
    assert_eq!(plan["fits"], true);
    // Of 70.6 B parameters a GPU owns an eighth: two copies over its link, and an update by the host they share.
    let (owned, link, memory) = (70.55e9 / 8.0, 52e9, 200e9);
    let wanted = owned * (8.0 / link + 28.0 * 8.0 / memory);
    let host = number(&plan, "/time_seconds/optimizer");
    assert!((host / wanted - 1.0).abs() < 0.15, "{host} {wanted}");
    let basis = list(&plan, "/assumptions")
        .iter()
        .find(|basis| basis["what"].as_str().is_some_and(|what| what.contains("updated on the host")));
    assert_eq!(basis.expect("a basis")["basis"], "assumed");
    let checked = meshwright(folder.path(), "check plan.json");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    let exported = meshwright(folder.path(), "export plan.json --to megatron --out launch");
    assert!(exported.status.success(), "{}", String::from_utf8_lossy(&exported.stderr));
    let flags = std::fs::read_to_string(folder.path().join("launch/megatron.args")).expect("flags");
    for flag in ["--optimizer-cpu-offload", "--use-precision-aware-optimizer", "--use-distributed-optimizer"]
    {
        assert!(flags.lines().any(|line| line == flag), "{flag} is missing in {flags}");
    }
    let line = "check --launcher megatron --args launch/megatron.args --world-size 8 --cluster dgx-h100";
    let own = meshwright(folder.path(), line);
    assert!(own.status.success(), "{}", String::from_utf8_lossy(&own.stdout));
    let refused =
        meshwright(folder.path(), &format!("plan {inputs} --offload optimizer --launcher torchtitan"));
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("torchtitan"));
}

#[test]
fn activations_wait_on_the_host_where_that_beats_repeating_them() {
    let folder = folder();
    let inputs = "--model llama-3.1-8b --cluster gb200-nvl72 --gpus 8 --seq-len 8192 --global-batch 64 --top 1 --fix pp=1 --memory-limit 50GiB";
    let kept = json(folder.path(), &format!("plan {inputs} --offload never"));
    let plan = json(folder.path(), &format!("plan {inputs} --offload activations --out plan.json"));
    let recompute = plan["parallel"]["recompute"].as_str().expect("a word").to_owned();
    let layers = recompute.strip_prefix("offload:").expect("activations are moved").to_owned();
    assert!(number(&plan, "/step_time_seconds") < number(&kept, "/step_time_seconds"));
    assert_eq!(plan["stages"][0]["recompute"], recompute.as_str());
    let basis = list(&plan, "/assumptions")
        .iter()
        .find(|basis| basis["what"].as_str().is_some_and(|what| what.contains("activations copied")));
    assert_eq!(basis.expect("a basis")["basis"], "assumed");
    let again = json(folder.path(), "estimate plan.json");
    assert_eq!(again["step_time_seconds"], plan["step_time_seconds"]);
    assert_eq!(again["memory"], plan["memory"]);
    let said = meshwright(folder.path(), "explain plan.json");
    assert!(String::from_utf8_lossy(&said.stdout).contains(&recompute));
    for (launcher, file, key) in [
        ("megatron", "megatron.args", "--cpu-offloading-num-layers"),
        ("megatron-bridge", "recipe.py", "config.model.cpu_offloading_num_layers = "),
    ] {
        let out = format!("export plan.json --to {launcher} --out {launcher}");
        let exported = meshwright(folder.path(), &out);
        assert!(exported.status.success(), "{}", String::from_utf8_lossy(&exported.stderr));
        let text = std::fs::read_to_string(folder.path().join(launcher).join(file)).expect("flags");
        let stated = [" ", "\n", ""].iter().any(|between| text.contains(&format!("{key}{between}{layers}")));
        assert!(stated, "{key} {layers} is missing in {text}");
        let line = format!(
            "check --launcher {launcher} --args {launcher}/{file} --world-size 8 --cluster gb200-nvl72 --model llama-3.1-8b"
        );
        let checked = json(folder.path(), &line);
        assert_eq!(checked["valid"], true, "{checked}");
        assert_eq!(checked["step_time_seconds"], plan["step_time_seconds"], "{checked}");
        assert_eq!(checked["peak_bytes"], plan["memory"][0]["peak_bytes"], "{checked}");
    }
    let refused = meshwright(folder.path(), "export plan.json --to nanotron --out other");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("activations in host memory"));
    let stated = format!("estimate {INPUTS_OF_8B} --recompute offload:{layers}");
    let estimated = json(folder.path(), &stated);
    assert!(number(&estimated, "/step_time_seconds") > 0.0);
    let elsewhere = meshwright(
        folder.path(),
        "plan --model llama-3.1-8b --cluster dgx-h100 --gpus 8 --seq-len 8192 --global-batch 64 --offload activations --launcher torchtitan",
    );
    assert_eq!(elsewhere.status.code(), Some(2));
    let unstated = meshwright(folder.path(), &format!("estimate {INPUTS_OF_8B} --offload activations"));
    assert!(String::from_utf8_lossy(&unstated.stderr).contains("--recompute offload:LAYERS"));
}

const INPUTS_OF_8B: &str =
    "--model llama-3.1-8b --cluster gb200-nvl72 --gpus 8 --seq-len 8192 --global-batch 64 --tp 1";
