//! Launch layers keep the planned ranks on their hosts and GPUs, or say that they cannot.

mod launching;

use cost_models::ParallelConfig;
use launching::plan;
use meshwright::launch::{self, LaunchFile, Launcher, document, layers};
use meshwright::plan::Plan;
use std::process::Command;

fn file<'a>(files: &'a [LaunchFile], name: &str) -> &'a LaunchFile {
    files.iter().find(|file| file.name == name).unwrap_or_else(|| panic!("no {name}"))
}

fn launcher(name: &str) -> &'static dyn Launcher {
    launch::named(name).unwrap()
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
