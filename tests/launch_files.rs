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

#[test]
fn the_planned_order_of_hosts_and_gpus_is_kept_or_refused() {
    let parallel = ParallelConfig { dp_shard: 16, num_microbatches: 2, ..ParallelConfig::default() };
    let mut planned = plan("llama-3.1-8b", "megatron-core", &parallel, None).unwrap();
    for seat in &mut planned.placement.ranks {
        seat.host = 1 - seat.host;
        seat.gpu = 7 - seat.gpu;
    }
    let files = launch::folder(&planned, launcher("megatron"), layers::ALL).unwrap();
    assert_eq!(file(&files, "hosts.txt").text, "node1\nnode0\n");
    assert!(file(&files, "launch.sh").text.contains("  7,6,5,4,3,2,1,0\n"));
    assert!(file(&files, "rankfile.mpi").text.starts_with("rank 0=node1 slot=0\n"));
    let scattered = scattered(&planned);
    let error = launch::folder(&scattered, launcher("megatron"), layers::ALL).unwrap_err().to_string();
    assert!(
        error.contains("more than one host") && error.contains("--layer slurm-tasks, mpi keeps"),
        "{error}"
    );
    planned.stages.0.clear();
    assert!(launch::folder(&planned, launcher("megatron"), layers::ALL).is_err());
}

/// Even ranks on one host, odd ones on the other.
fn scattered(planned: &Plan) -> Plan {
    let mut plan = planned.clone();
    for seat in &mut plan.placement.ranks {
        (seat.host, seat.gpu) = ((seat.rank % 2) as u32, (seat.rank / 2) as u32);
    }
    plan
}

/// Runs a script of a launch folder with `scontrol` and `srun` that only say what they were asked.
fn run_batch_script(folder: &std::path::Path, script: &str, submitted_from: &std::path::Path) -> String {
    let tools = folder.join("tools");
    std::fs::create_dir_all(&tools).unwrap();
    let command = folder.join("launch").join(script);
    let scontrol = format!(
        "#!/usr/bin/env bash\nif [[ $2 == job ]]; then echo '   Command={}'; else printf '%s\\n' node0 node1; fi\n",
        command.display()
    );
    let srun = "#!/usr/bin/env bash\necho \"$PWD|$MASTER_ADDR|$*\"; cat \"$SLURM_HOSTFILE\"\n";
    for (name, text) in [("scontrol", scontrol.as_str()), ("srun", srun)] {
        std::fs::write(tools.join(name), text).unwrap();
        assert!(Command::new("chmod").arg("+x").arg(tools.join(name)).status().unwrap().success());
    }
    // Slurm runs a copy from a folder of its own.
    let spool = folder.join("spool");
    std::fs::create_dir_all(&spool).unwrap();
    std::fs::copy(&command, spool.join("slurm_script")).unwrap();
    let output = Command::new("bash")
        .arg(spool.join("slurm_script"))
        .current_dir(submitted_from)
        .env("PATH", format!("{}:/usr/bin:/bin", tools.display()))
        .envs([("SLURM_JOB_ID", "7"), ("SLURM_JOB_NODELIST", "node[0-1]")])
        .env("SLURM_SUBMIT_DIR", submitted_from)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn write_folder(folder: &std::path::Path, files: &[LaunchFile]) {
    std::fs::create_dir_all(folder).unwrap();
    for file in files {
        std::fs::write(folder.join(&*file.name), &file.text).unwrap();
        if file.executable {
            assert!(
                Command::new("chmod").arg("+x").arg(folder.join(&*file.name)).status().unwrap().success()
            );
        }
    }
}

#[cfg(unix)]
#[test]
fn batch_scripts_find_their_folder_and_keep_the_order() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let parallel = ParallelConfig { dp_shard: 16, num_microbatches: 2, ..ParallelConfig::default() };
    let mut planned = plan("llama-3.1-8b", "megatron-core", &parallel, None).unwrap();
    planned.placement.ranks.iter_mut().for_each(|seat| seat.host = 1 - seat.host);
    let layers: Vec<_> =
        ["torchrun", "slurm", "slurm-tasks"].map(|name| layers::named(name).unwrap()).to_vec();
    write_folder(&root.join("launch"), &launch::folder(&planned, launcher("megatron"), &layers).unwrap());
    for from in [root.clone(), root.join("launch")] {
        let told = run_batch_script(&root, "job.sbatch", &from);
        assert!(told.starts_with(&format!("{}|node1|", root.join("launch").display())), "{told}");
        assert!(told.ends_with("\nnode1\nnode0\n"), "{told}");
        let told = run_batch_script(&root, "job_tasks.sbatch", &from);
        assert!(told.ends_with(&("node1\n".repeat(8) + &"node0\n".repeat(8))), "{told}");
    }
    // Ranks that are not numbered node by node: one line of the host file for each.
    let scattered = scattered(&planned);
    let tasks = [layers::named("slurm-tasks").unwrap(), layers::named("mpi").unwrap()];
    let files = launch::folder(&scattered, launcher("megatron"), &tasks).unwrap();
    let ranks = &file(&files, "rankfile.mpi").text;
    assert!(ranks.starts_with("rank 0=node0 slot=0\nrank 1=node1 slot=0\nrank 2=node0 slot=1\n"), "{ranks}");
    write_folder(&root.join("launch"), &files);
    let told = run_batch_script(&root, "job_tasks.sbatch", &root);
    assert!(told.ends_with(&"node0\nnode1\n".repeat(8)), "{told}");
    let left: Vec<_> =
        std::fs::read_dir(root.join("launch")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(
        left.iter().all(|name| !name.to_string_lossy().starts_with("hosts.") || name == "hosts.txt"),
        "{left:?}"
    );
}

/// The variables that a launcher's script asks for reach the other hosts.
#[test]
fn variables_of_the_user_are_carried() {
    let parallel = ParallelConfig { dp_shard: 16, num_microbatches: 2, ..ParallelConfig::default() };
    let planned = plan("llama-3.1-8b", "megatron-core", &parallel, None).unwrap();
    for launcher in launch::ALL {
        let Ok(exported) = launcher.export(&planned) else { continue };
        let text = exported.job.prepare + &exported.job.command;
        for word in text.split(|c: char| !c.is_ascii_uppercase() && c != '_') {
            let asked = word.ends_with("_SCRIPT") || word.ends_with("_PATH") || word.ends_with("_CONFIG");
            let ours = word.len() > 6 && asked && word != "JAX_CONFIG";
            assert!(!ours || layers::CARRIED.contains(&word), "{}: {word}", launcher.name());
        }
    }
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

#[test]
fn what_a_launcher_forbids_can_be_read_by_the_search() {
    for launcher in launch::ALL {
        let forbidden = solver::Constraints::parse(&[], launcher.forbids());
        assert!(forbidden.is_ok(), "{}: {forbidden:?}", launcher.name());
    }
}

/// The fields that Kubeflow's two kinds need, with the numbers of the plan.
#[test]
fn kubernetes_files_have_the_shape_of_their_kinds() {
    let parallel = ParallelConfig { dp_shard: 16, num_microbatches: 2, ..ParallelConfig::default() };
    let plan = plan("llama-3.1-8b", "megatron-core", &parallel, None).unwrap();
    let files = launch::folder(&plan, launcher("megatron"), layers::ALL).unwrap();
    let tree = |name: &str| match document::parse(name, &file(&files, name).text).unwrap() {
        document::Document::Tree(tree) => tree,
        document::Document::Words { .. } => panic!("{name} is a tree"),
    };
    let job = tree("pytorchjob.yaml");
    assert_eq!(
        (job["apiVersion"].as_str(), job["kind"].as_str()),
        (Some("kubeflow.org/v1"), Some("PyTorchJob"))
    );
    assert_eq!(job["spec"]["nprocPerNode"], "8");
    for (role, replicas) in [("Master", 1), ("Worker", 1)] {
        let replica = &job["spec"]["pytorchReplicaSpecs"][role];
        assert_eq!(replica["replicas"], replicas);
        let container = &replica["template"]["spec"]["containers"][0];
        assert_eq!(
            (container["name"].as_str(), &container["resources"]["limits"]["nvidia.com/gpu"]),
            (Some("pytorch"), &8.into())
        );
        assert!(container["image"].is_string() && container["command"].is_array());
    }
    let job = tree("trainjob.yaml");
    assert_eq!(
        (job["apiVersion"].as_str(), job["kind"].as_str()),
        (Some("trainer.kubeflow.org/v1alpha1"), Some("TrainJob"))
    );
    let trainer = &job["spec"]["trainer"];
    assert_eq!((&trainer["numNodes"], &trainer["numProcPerNode"]), (&2.into(), &8.into()));
    assert!(job["metadata"]["name"].is_string() && job["spec"]["runtimeRef"]["name"].is_string());
    assert!(trainer["command"].is_array());
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

/// What a launcher cannot do costs time that is told, with the reason; one without limits costs nothing.
#[test]
fn the_cost_of_a_launchers_limits_is_told() {
    let limits = |launcher: &str, gpus: u64| {
        let inputs = meshwright::inputs::load(&meshwright::inputs::Source {
            model: "llama-3.1-8b",
            cluster: "dgx-h100",
            gpus: Some(gpus),
            workload: cost_models::Workload {
                global_batch: 8,
                seq_len: 32_768,
                precision: cluster_profiles::Precision::Bf16,
                optimizer: cost_models::Optimizer::Adamw,
                gradient_dtype: None,
                expert_imbalance: 1.0,
            },
            runtime: None,
            launcher: Some(launcher),
            memory_limit: None,
            lost: &[],
        })
        .unwrap();
        let forbid = launch::named(launcher).unwrap().forbids();
        let none: [&str; 0] = [];
        let constraints = solver::Constraints::parse(&none, forbid).unwrap();
        let wishes = meshwright::Wishes { constraints, ..meshwright::Wishes::default() };
        let meshwright::Answer::Plan(plan) = meshwright::plan(inputs, &wishes, &solver::Silent).unwrap()
        else {
            panic!("{launcher} has a plan")
        };
        meshwright::limits::of(&plan, &meshwright::Wishes::default(), &solver::Silent).unwrap()
    };
    let deepspeed = limits("deepspeed", 16);
    assert!(
        deepspeed.slower > 0.0 && deepspeed.limits.iter().any(|limit| limit.starts_with("no ")),
        "{deepspeed:?}"
    );
}
