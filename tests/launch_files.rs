//! Files of every launcher and launch layer: legal, read back as the plan they were made of, and safe whatever the names.

mod launching;

use cost_models::{ParallelConfig, Recompute};
use launching::{plan, plans, plans_on};
use meshwright::launch::megatron::flag_list;
use meshwright::launch::{self, Given, LaunchFile, Launcher, Question, document, layers};
use meshwright::plan::Plan;
use std::io::Write;
use std::process::{Command, Stdio};

fn usual() -> Vec<&'static dyn layers::Layer> {
    layers::USUAL.iter().filter_map(|name| layers::named(name)).collect()
}

fn file<'a>(files: &'a [LaunchFile], name: &str) -> &'a LaunchFile {
    files.iter().find(|file| file.name == name).unwrap_or_else(|| panic!("no {name}"))
}

fn launcher(name: &str) -> &'static dyn Launcher {
    launch::named(name).unwrap()
}

/// A launcher's own file, read as `check` reads it.
fn read_back(launcher: &dyn Launcher, plan: &Plan, name: &str, text: &str) -> Given {
    let flags = launcher.flags(&document::parse(name, text).unwrap());
    let question = Question {
        flags: &flags,
        world_size: plan.parallel.world_size(),
        cluster: &plan.inputs.cluster,
        model: Some(&plan.inputs.model),
        seq_len: Some(plan.inputs.workload.seq_len),
        global_batch: Some(plan.inputs.workload.global_batch),
        micro_batch: Some(plan.parallel.micro_batch_size),
    };
    let given = launcher.read(&question).unwrap().unwrap_or_else(|error| panic!("{error:?}\n{text}"));
    assert!(given.broken.is_empty(), "{:?}\n{text}", given.broken);
    given
}

const MODELS: [&str; 8] = [
    "llama-3.1-8b",
    "llama-3.1-70b",
    "qwen3-30b-a3b",
    "deepseek-v3",
    "gpt-oss-20b",
    "mixtral-8x7b",
    "gpt-3-6.7b",
    "mistral-7b",
];

#[test]
fn megatron_flags_are_those_of_the_release_and_read_back() {
    let megatron = launcher("megatron");
    let mut read = 0;
    for plan in MODELS.iter().flat_map(|model| plans(model, "megatron-core", &[0, 1])) {
        let files = launch::folder(&plan, megatron, &usual()).unwrap();
        let args = &file(&files, "megatron.args").text;
        args.lines().for_each(legal);
        let given = read_back(megatron, &plan, "megatron.args", args);
        let (mut wanted, mut found) = (plan.parallel.clone(), given.parallel.clone());
        if !plan.inputs.model.is_moe() {
            (wanted.etp, found.etp) = (1, 1);
        }
        (wanted.dp_replicate, wanted.dp_shard) = (1, wanted.dp());
        (found.dp_replicate, found.dp_shard) = (1, found.dp());
        assert_eq!(wanted, found, "{args}");
        assert_eq!(given.unknown, Vec::<String>::new());
        assert_eq!(given.model.parameters_total(), plan.parameters_total, "{}", plan.inputs.model.name);
        assert_eq!(given.model.parameters_mtp(), plan.parameters_mtp, "{}", plan.inputs.model.name);
        assert_eq!(given.stages.as_ref(), Some(&plan.stages), "{args}");
        read += 1;
    }
    assert!(read > 100, "{read}");
}

/// The flag exists, has as many words as it takes, each among its choices.
fn legal(line: &str) {
    let words = shell_words(line);
    let known = flag_list::known(&words[0]).unwrap_or_else(|| panic!("{line}: unknown"));
    let count = words.len() - 1;
    match known.words.as_str() {
        "0" => assert_eq!(count, 0, "{line}"),
        "1" => assert_eq!(count, 1, "{line}"),
        "+" => assert!(count >= 1, "{line}"),
        _ => {}
    }
    for word in &words[1..] {
        assert!(known.choices.is_empty() || known.choices.contains(word), "{line}: {:?}", known.choices);
    }
}

fn shell_words(line: &str) -> Vec<String> {
    line.split(' ').map(|word| word.trim_matches('\'').to_owned()).collect()
}

#[test]
fn uneven_stages_become_a_layout_that_reads_back() {
    let megatron = launcher("megatron");
    let parallel = ParallelConfig {
        tp: 2,
        pp: 4,
        dp_shard: 2,
        num_microbatches: 8,
        sequence_parallel: true,
        ..ParallelConfig::default()
    };
    let plan = plan("llama-3.1-8b", "megatron-core", &parallel, Some(&[7, 9, 9, 7])).unwrap();
    let files = launch::folder(&plan, megatron, &usual()).unwrap();
    let args = &file(&files, "megatron.args").text;
    assert!(args.contains("--pipeline-model-parallel-layout 'E,t*7|t*9|t*9|t*7,L'"), "{args}");
    assert_eq!(read_back(megatron, &plan, "megatron.args", args).stages, Some(plan.stages));
}

#[test]
fn torchtitan_files_read_back() {
    let mut read = 0;
    for name in ["torchtitan", "torchtitan-main"] {
        for plan in ["llama-3.1-8b", "llama-3.1-70b", "qwen3-30b-a3b"]
            .iter()
            .flat_map(|model| plans(model, "fsdp2", &[2, 3]))
        {
            let files = launch::folder(&plan, launcher(name), &usual()).unwrap();
            let own = if files.iter().any(|file| file.name == "overrides.args") {
                "overrides.args"
            } else {
                "meshwright_plan.py"
            };
            let args = &file(&files, own).text;
            let given = read_back(launcher(name), &plan, own, args);
            assert_eq!(given.parallel, plan.parallel, "{args}");
            assert_eq!(
                (given.model.name, given.workload),
                (plan.inputs.model.name.clone(), plan.inputs.workload.clone())
            );
            assert_eq!(given.unknown, Vec::<String>::new());
            let started = launcher(name).engine().unwrap();
            assert_eq!(given.runtime, started, "what is exported runs as it was planned");
            assert_eq!(started.facts.compiled, Some(true));
            let python = &file(&files, "meshwright_plan.py").text;
            assert!(python.contains("config.compile.enable = True"), "{python}");
            let layers = plan.inputs.model.blocks().count();
            assert!(
                plan.parallel.pp == 1 || python.contains(&format!("\"layers.{}\"", layers - 1)),
                "{python}"
            );
            read += 1;
        }
    }
    assert!(read > 40, "{read}");
}

#[test]
fn schedules_that_torch_has_not_are_written_out() {
    let parallel = ParallelConfig {
        pp: 4,
        dp_shard: 2,
        zero_stage: 2,
        num_microbatches: 8,
        schedule: "zb-h1".to_owned(),
        ..ParallelConfig::default()
    };
    let plan = plan("llama-3.1-8b", "fsdp2", &parallel, None).unwrap();
    let files = launch::folder(&plan, launcher("torchtitan"), &usual()).unwrap();
    let orders = cost_models::schedule::from_torch_csv(&file(&files, "zb-h1.csv").text).unwrap();
    assert_eq!((orders.orders().len(), orders.stages(), orders.microbatches()), (4, 4, 8));
    assert!(
        file(&files, "meshwright_plan.py").text.contains("pipeline_parallel_schedule_csv = \"zb-h1.csv\"")
    );
}

#[test]
fn deepspeed_nanotron_and_accelerate_files_read_back() {
    let cases = [
        ("deepspeed", "megatron-deepspeed", "ds_config.json", [0u8, 1, 2, 3].as_slice()),
        ("nanotron", "nanotron", "config.yaml", &[0, 1]),
        ("accelerate", "fsdp2", "accelerate.yaml", &[2, 3]),
    ];
    for (name, runtime, own, zero_stages) in cases {
        let (mut written, mut refused) = (0, 0);
        let sequence_parallel = name == "nanotron";
        let engine = cost_models::Runtime::named(runtime).unwrap();
        for plan in plans_on("dgx-h100", "llama-3.1-8b", &engine, zero_stages, sequence_parallel) {
            let Ok(files) = launch::folder(&plan, launcher(name), &usual()) else {
                refused += 1;
                continue;
            };
            if name == "deepspeed" && plan.parallel.pp > 1 {
                continue;
            }
            let text = &file(&files, own).text;
            let given = read_back(launcher(name), &plan, own, text);
            let (mut wanted, mut found) = (plan.parallel.clone(), given.parallel.clone());
            for parallel in [&mut wanted, &mut found] {
                parallel.etp = 1;
                if name == "accelerate" || name == "deepspeed" {
                    (parallel.sequence_parallel, parallel.pp) = (false, 1);
                    parallel.dp_shard = plan.parallel.dp_shard;
                    parallel.dp_replicate = plan.parallel.dp_replicate;
                }
            }
            if wanted.recompute == Recompute::Selective {
                continue;
            }
            assert_eq!(wanted, found, "{text}");
            written += 1;
        }
        assert!(written > 3, "{name}: {written} written, {refused} refused");
    }
}

#[test]
fn every_launcher_writes_something_or_says_why_not() {
    for launcher in launch::ALL {
        let runtime = launcher.runtime();
        let zero_stages: &[u8] = match runtime {
            "fsdp2" => &[2, 3],
            "jax" => &[1, 3],
            _ => &[0, 1],
        };
        let mut written = 0;
        for plan in plans("llama-3.1-8b", runtime, zero_stages) {
            match launch::folder(&plan, *launcher, &usual()) {
                Ok(_) => written += 1,
                Err(error) => {
                    assert!(!error.reasons.is_empty() && error.reasons.iter().all(|reason| reason.len() > 3))
                }
            }
        }
        assert!(written > 0, "{}", launcher.name());
    }
}

/// Runs a checker on every file of a kind; passes where the checker is not installed.
fn accepted(files: &[LaunchFile], endings: &[&str], program: &str, arguments: &[&str]) -> usize {
    let mut count = 0;
    for file in files.iter().filter(|file| endings.iter().any(|ending| file.name.ends_with(ending))) {
        let spawned = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut child) = spawned else { return 0 };
        child.stdin.take().unwrap().write_all(file.text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(
            output.status.success(),
            "{}: {}\n{}",
            file.name,
            String::from_utf8_lossy(&output.stderr),
            file.text
        );
        count += 1;
    }
    count
}

const PARSE: &str = "import ast, sys; ast.parse(sys.stdin.read())";

/// All files of all launchers for some plans, and of all layers.
fn all_files(edit: impl Fn(&mut Plan)) -> Vec<LaunchFile> {
    let mut files = Vec::new();
    for launcher in launch::ALL {
        let zero_stage = if launcher.runtime() == "fsdp2" { 3 } else { 0 };
        let (dp_replicate, dp_shard) = if zero_stage == 3 { (1, 16) } else { (16, 1) };
        let parallel = ParallelConfig {
            zero_stage,
            dp_replicate,
            dp_shard,
            num_microbatches: 2,
            ..ParallelConfig::default()
        };
        let mut plan = plan("llama-3.1-8b", launcher.runtime(), &parallel, None)
            .or_else(|| {
                self::plan(
                    "llama-3.1-8b",
                    launcher.runtime(),
                    &ParallelConfig { zero_stage: 1, dp_replicate: 1, dp_shard: 16, ..parallel },
                    None,
                )
            })
            .unwrap();
        edit(&mut plan);
        files.extend(launch::folder(&plan, *launcher, layers::ALL).unwrap_or_default());
    }
    files
}

#[test]
fn scripts_python_json_and_yaml_are_well_formed() {
    let files = all_files(|_| {});
    assert!(files.len() > 60);
    accepted(&files, &[".sh", ".sbatch"], "bash", &["-n"]);
    accepted(&files, &[".sh", ".sbatch"], "shellcheck", &["-s", "bash", "-e", "SC2016", "-"]);
    accepted(&files, &[".py"], "python3", &["-c", PARSE]);
    for file in files.iter().filter(|file| file.name.ends_with(".json") || file.name.ends_with(".yaml")) {
        assert!(document::parse(&file.name, &file.text).is_ok(), "{}\n{}", file.name, file.text);
    }
}

#[test]
fn names_with_metacharacters_change_no_command() {
    let name = "x\"\"\"'; touch HACKED; $(touch HACKED) `touch HACKED`\n touch HACKED # \\";
    let files = all_files(|plan| plan.inputs.model.name = name.to_owned());
    assert!(
        files.iter().all(|file| file.text.lines().all(|line| !line.trim_start().starts_with("touch HACKED")))
    );
    accepted(&files, &[".sh", ".sbatch"], "bash", &["-n"]);
    accepted(&files, &[".py"], "python3", &["-c", PARSE]);
    let hosts = all_files(|plan| plan.placement.hosts[0] = "a; touch HACKED".to_owned());
    assert!(hosts.is_empty(), "a host of that name is refused by every launcher");
}

/// The mesh axes of MaxText multiply to the GPUs, inside a node and across.
#[test]
fn maxtext_axes_multiply_to_the_gpus() {
    let mut written = 0;
    for model in ["llama-3.1-8b", "qwen3-30b-a3b"] {
        for plan in plans(model, "jax", &[1, 3]) {
            let Ok(files) = launch::folder(&plan, launcher("maxtext"), &usual()) else { continue };
            let product = |kind: &str| -> u64 {
                let lines = file(&files, "overrides.txt").text.lines();
                let axes = lines.filter(|line| line.starts_with(kind) && line.contains("_parallelism="));
                axes.map(|line| line.rsplit('=').next().unwrap().parse::<u64>().unwrap()).product()
            };
            let node = u64::from(plan.inputs.cluster.main().node.gpus);
            assert_eq!(
                (product("ici_"), product("ici_") * product("dcn_")),
                (node, plan.parallel.world_size())
            );
            written += usize::from(plan.parallel.ep > 1) + 1;
        }
    }
    assert!(written > 20, "{written}");
}

#[test]
fn export_writes_inside_its_folder_and_overwrites_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let parallel = ParallelConfig { dp_shard: 8, num_microbatches: 2, ..ParallelConfig::default() };
    let plan = plan("llama-3.1-8b", "megatron-core", &parallel, None).unwrap();
    let path = folder.path().join("plan.json");
    std::fs::write(&path, serde_json::to_string(&plan).unwrap()).unwrap();
    let export = |more: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_meshwright"))
            .args(["export", "plan.json", "--to", "megatron", "--out", "out"])
            .args(more)
            .current_dir(folder.path())
            .output()
            .unwrap()
    };
    assert!(export(&[]).status.success());
    assert_eq!(export(&[]).status.code(), Some(1));
    let victim = folder.path().join("victim");
    std::fs::write(&victim, "mine").unwrap();
    #[cfg(unix)]
    {
        let script = folder.path().join("out/launch.sh");
        std::fs::remove_file(&script).unwrap();
        std::os::unix::fs::symlink(&victim, &script).unwrap();
        assert_eq!(export(&[]).status.code(), Some(1));
        assert!(export(&["--force"]).status.success());
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "mine");
    }
    assert_eq!(export(&["--layer", "../../etc"]).status.code(), Some(2));
    let names: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
}

/// The zero-bubble fork's schedules become its flags; a plan of another engine does not.
#[test]
fn zero_bubble_schedules_become_flags_of_the_fork() {
    for (schedule, vpp, flag) in [
        ("zb-h1", 1, "--zero-bubble-max-pending-backward 4"),
        ("zb-2p", 1, "--zero-bubble-max-pending-backward 8"),
        ("zb-v", 2, "--zero-bubble-v-schedule-mem-setup zb"),
        ("v-half", 2, "--zero-bubble-v-schedule-mem-setup half"),
        ("v-min", 2, "--zero-bubble-v-schedule-mem-setup min"),
    ] {
        let parallel = ParallelConfig {
            pp: 4,
            vpp,
            dp_shard: 2,
            num_microbatches: 8,
            schedule: schedule.to_owned(),
            ..ParallelConfig::default()
        };
        let blocks = vec![32 / (4 * u64::from(vpp)); 4 * vpp as usize];
        let plan = plan("gpt-3-6.7b", "zero-bubble", &parallel, Some(&blocks)).unwrap();
        let files = launch::folder(&plan, launcher("zero-bubble"), &usual()).unwrap();
        let args = &file(&files, "megatron.args").text;
        assert!(args.lines().any(|line| line == flag), "{schedule}: {args}");
        assert!(!args.contains("--num-virtual-stages-per-pipeline-rank"), "{args}");
        assert!(launch::folder(&plan, launcher("megatron"), &usual()).is_err());
    }
}

/// The difference of two layouts, applied to a configuration, gives the other's.
#[test]
fn differences_lead_from_one_layout_to_the_other() {
    let plans = plans("llama-3.1-8b", "megatron-core", &[0, 1]);
    for launcher in launch::ALL {
        for pair in plans.windows(2) {
            let (old, new) = (&pair[0].parallel, &pair[1].parallel);
            let line = |(key, value): &launch::Setting| format!("{key} {value}").trim_end().to_owned();
            let mut lines: Vec<String> = launcher.settings(old, 4096).iter().map(line).collect();
            for change in launch::difference(*launcher, old, new, 4096) {
                match change.split_at(2) {
                    ("- ", gone) => lines.retain(|line| line != gone),
                    (_, come) => lines.push(come.to_owned()),
                }
            }
            let mut wanted: Vec<String> = launcher.settings(new, 4096).iter().map(line).collect();
            lines.sort();
            wanted.sort();
            assert_eq!(lines, wanted, "{}", launcher.name());
        }
    }
}
