//! `check` of what `export` writes gives the plan's own step time and memory, or asks for what the files cannot hold.

mod launching;

use cost_models::ParallelConfig;
use launching::{plan_on, plans_on};
use meshwright::check::{Check, check_given};
use meshwright::launch::{self, Launcher, Question, ReadError, document};
use meshwright::plan::Plan;

/// A file of a launcher that `check` reads, and what its plans are made of.
struct Kind {
    launcher: &'static str,
    file: &'static str,
    models: &'static [&'static str],
    zero_stages: &'static [u8],
    sequence_parallel: bool,
}

const KINDS: &[Kind] = &[
    Kind {
        launcher: "megatron",
        file: "megatron.args",
        models: &["llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v3", "gpt-oss-20b"],
        zero_stages: &[0, 1],
        sequence_parallel: true,
    },
    Kind {
        launcher: "megatron-bridge",
        file: "recipe.py",
        models: &["llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v3", "gpt-oss-20b"],
        zero_stages: &[0, 1],
        sequence_parallel: true,
    },
    Kind {
        launcher: "torchtitan",
        file: "meshwright_plan.py",
        models: &["llama-3.1-8b", "qwen3-30b-a3b", "llama-3.1-405b"],
        zero_stages: &[2, 3],
        sequence_parallel: true,
    },
    Kind {
        launcher: "torchtitan",
        file: "overrides.args",
        models: &["llama-3.1-8b", "qwen3-30b-a3b"],
        zero_stages: &[2, 3],
        sequence_parallel: true,
    },
    Kind {
        launcher: "torchtitan-main",
        file: "meshwright_plan.py",
        models: &["llama-3.1-8b", "qwen3-30b-a3b"],
        zero_stages: &[2, 3],
        sequence_parallel: false,
    },
    Kind {
        launcher: "deepspeed",
        file: "ds_config.json",
        models: &["llama-3.1-8b", "qwen2.5-7b"],
        zero_stages: &[0, 1, 2, 3],
        sequence_parallel: false,
    },
    Kind {
        launcher: "nanotron",
        file: "config.yaml",
        models: &["llama-3.1-8b", "llama-3.2-1b"],
        zero_stages: &[0, 1],
        sequence_parallel: true,
    },
    Kind {
        launcher: "accelerate",
        file: "accelerate.yaml",
        models: &["llama-3.1-8b", "qwen3-8b"],
        zero_stages: &[2, 3],
        sequence_parallel: false,
    },
];

fn text_of(plan: &Plan, launcher: &dyn Launcher, name: &str) -> Option<String> {
    let files = launch::folder(plan, launcher, &[]).ok()?;
    files.into_iter().find(|file| file.name == name).map(|file| file.text)
}

/// What `check` says of a file, with the facts that `export` says the file does not hold.
fn checked(
    plan: &Plan,
    launcher: &'static dyn Launcher,
    name: &str,
    text: &str,
    told: bool,
) -> Result<Check, ReadError> {
    let flags = launcher.flags(&document::parse(name, text).unwrap());
    let unstated = launcher.unstated(plan).join(" ");
    let fact = |option: &str, value: u64| (told && unstated.contains(option)).then_some(value);
    let question = Question {
        flags: &flags,
        world_size: plan.parallel.world_size(),
        cluster: &plan.inputs.cluster,
        model: (told && unstated.contains("--model")).then_some(&plan.inputs.model),
        seq_len: fact("--seq-len", plan.inputs.workload.seq_len),
        global_batch: fact("--global-batch", plan.inputs.workload.global_batch),
        micro_batch: fact("--micro-batch", plan.parallel.micro_batch_size),
    };
    let given = launcher.read(&question).unwrap()?;
    Ok(check_given(&given, &plan.inputs.cluster, plan.inputs.memory_limit_bytes, Some(launcher)))
}

/// Step time and peak of the file's check over the plan's, each less one.
fn differences(plan: &Plan, check: &Check) -> (f64, f64) {
    let peak = plan.estimate.memory.iter().map(|rank| rank.peak_bytes.get()).fold(0.0, f64::max);
    let step = plan.estimate.step_time_seconds.get();
    (check.step_time_seconds.unwrap_or(f64::INFINITY) / step - 1.0, check.peak_bytes.get() / peak - 1.0)
}

#[test]
fn files_check_as_the_plan_that_they_state() {
    let mut all = Vec::new();
    for kind in KINDS {
        let launcher = launch::named(kind.launcher).unwrap();
        let runtime = launcher.engine().unwrap();
        let (mut read, mut faults) = (0, Vec::new());
        for cluster in ["dgx-h100", "dgx-a100"] {
            for plan in kind.models.iter().flat_map(|model| {
                plans_on(cluster, model, &runtime, kind.zero_stages, kind.sequence_parallel)
            }) {
                let Some(text) = text_of(&plan, launcher, kind.file) else { continue };
                if plan.parallel.pp > 1 && kind.launcher == "deepspeed" {
                    continue; // The pipeline is the training script's: no key of the file states it.
                }
                let check = checked(&plan, launcher, kind.file, &text, true).unwrap();
                let (step, peak) = differences(&plan, &check);
                if !check.valid || step.abs() > 1e-9 || peak.abs() > 1e-9 {
                    faults.push(format!(
                        "{} {} {} on {cluster}, {:?}: step {step:+.4}, peak {peak:+.4}, {:?} {:?}",
                        kind.launcher,
                        kind.file,
                        plan.inputs.model.name,
                        plan.parallel,
                        check.broken_rules,
                        check.assumed
                    ));
                }
                read += 1;
            }
        }
        println!("{} {}: {read} read, {} differ", kind.launcher, kind.file, faults.len());
        faults.truncate(6);
        all.extend(faults);
        assert!(read >= 12, "{} {}: {read}", kind.launcher, kind.file);
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

/// Stages that torchtitan would not make itself are in the Python file; overrides that could not say them are not written.
#[test]
fn torchtitan_states_stages_and_orders() {
    let launcher = launch::named("torchtitan").unwrap();
    let runtime = launcher.engine().unwrap();
    let parallel = |vpp: u32, schedule: &str| ParallelConfig {
        pp: 4,
        vpp,
        dp_shard: 2,
        zero_stage: 2,
        num_microbatches: 8,
        schedule: schedule.to_owned(),
        ..ParallelConfig::default()
    };
    let uneven: &[u64] = &[5, 10, 10, 7];
    for (vpp, schedule, blocks) in [
        (1, "1f1b", Some(uneven)),
        (1, "zb-h1", None),
        (2, "interleaved-1f1b", None),
        (2, "zb-v", None),
        (4, "interleaved-1f1b", None),
        (2, "interleaved-zb", None),
    ] {
        let plan = plan_on("dgx-h100", "llama-3.1-8b", &runtime, &parallel(vpp, schedule), blocks).unwrap();
        let text = text_of(&plan, launcher, "meshwright_plan.py").unwrap();
        let check = checked(&plan, launcher, "meshwright_plan.py", &text, true).unwrap();
        let (step, peak) = differences(&plan, &check);
        assert!(check.valid, "{schedule} {:?}", check.broken_rules);
        assert!(
            step.abs() < 1e-9 && peak.abs() < 1e-9,
            "{schedule} x {vpp}: {step} {peak} {:?}",
            check.assumed
        );
        let overrides = text_of(&plan, launcher, "overrides.args");
        // Sixteen stages of 34 units cannot be had by a number of layers per stage.
        assert_eq!(overrides.is_some(), blocks.is_none() && vpp <= 2, "{schedule}");
        if let Some(text) = overrides {
            let check = checked(&plan, launcher, "overrides.args", &text, true).unwrap();
            let (step, peak) = differences(&plan, &check);
            assert!(
                check.valid && step.abs() < 1e-9 && peak.abs() < 1e-9,
                "{schedule}: {step} {peak}\n{text}"
            );
        }
    }
}

/// What a file cannot hold is asked for by the option that gives it.
#[test]
fn facts_that_files_cannot_hold_are_asked_for() {
    let parallel = ParallelConfig {
        dp_shard: 8,
        zero_stage: 3,
        micro_batch_size: 2,
        num_microbatches: 4,
        ..ParallelConfig::default()
    };
    for (name, file, options) in [
        ("accelerate", "accelerate.yaml", ["--model", "--seq-len", "--micro-batch"].as_slice()),
        ("deepspeed", "ds_config.json", &["--model", "--seq-len"]),
    ] {
        let launcher = launch::named(name).unwrap();
        let plan = plan_on("dgx-h100", "llama-3.1-8b", &launcher.engine().unwrap(), &parallel, None).unwrap();
        let text = text_of(&plan, launcher, file).unwrap();
        let missing = checked(&plan, launcher, file, &text, false).unwrap_err().missing;
        for option in options {
            assert!(missing.iter().any(|fact| fact.contains(option)), "{name}: {missing:?}");
        }
        let unstated = launcher.unstated(&plan).join("; ");
        assert!(options.iter().all(|option| unstated.contains(option)), "{name}: {unstated}");
    }
}
