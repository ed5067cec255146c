//! Shards as separate processes, and the files that run them on an engine.

mod study;

use std::path::Path;
use std::process::{Command, Stdio};
use study::*;

fn whole(folder: &Path) {
    write(folder, "study.toml", SMALL);
    done(&meshwright(&["study", "study.toml", "--out", "whole"], folder));
}

#[test]
fn shards_one_of_them_killed_and_retried_merge_to_the_whole() {
    let folder = folder();
    let folder = folder.path();
    whole(folder);
    let out = |number: u32| format!("shard-{number}");
    let shard = |number: u32| format!("{number}/3");
    let run = |number: u32| {
        start(&["study", "study.toml", "--out", &out(number), "--shard", &shard(number)], folder)
    };
    let mut children: Vec<_> = (1..=3).map(run).collect();
    children[1].kill().expect("it can be killed");
    for child in &mut children {
        child.wait().expect("it ends");
    }
    // Until it is retried, the merge says what is missing.
    if !folder.join("shard-2/results.csv").exists() {
        let early = meshwright(&["study", "merge", "shard-1", "shard-3", "--out", "merged"], folder);
        assert_eq!(early.status.code(), Some(1));
        assert!(stderr(&early).contains("points are missing"), "{}", stderr(&early));
    }
    assert!(run(2).wait().expect("it ends").success());
    done(&meshwright(&["study", "merge", "shard-3", "shard-1", "shard-2", "--out", "merged"], folder));
    assert_same_results(&folder.join("whole"), &folder.join("merged"));
}

#[test]
fn a_shard_without_any_plan_is_done_all_the_same() {
    let folder = folder();
    let folder = folder.path();
    write(folder, "study.toml", &SMALL.replace("[1, 8, 16]", "[1]"));
    done(&meshwright(&["study", "study.toml", "--out", "one", "--shard", "1/2"], folder));
    done(&meshwright(&["study", "study.toml", "--out", "two", "--shard", "2/2"], folder));
    let merged = meshwright(&["study", "merge", "one", "two", "--out", "merged"], folder);
    assert_eq!(merged.status.code(), Some(3), "{}", stderr(&merged));
    let (_, rows) = table(&folder.join("merged/results.csv"));
    assert_eq!(rows.len(), 8);
}

#[test]
fn shards_of_different_studies_do_not_mix() {
    let folder = folder();
    let folder = folder.path();
    whole(folder);
    write(folder, "other.toml", &SMALL.replace("[2048, 4096]", "[2048]"));
    done(&meshwright(&["study", "other.toml", "--out", "other"], folder));
    let mixed = meshwright(&["study", "merge", "whole", "other", "--out", "merged"], folder);
    assert_eq!(mixed.status.code(), Some(1));
    assert!(stderr(&mixed).contains("is of another study"), "{}", stderr(&mixed));
    let none = meshwright(&["study", "merge", ".", "--out", "merged"], folder);
    assert!(stderr(&none).contains("study.json"), "{}", stderr(&none));
}

#[test]
fn a_merge_takes_no_folder_of_another_study_or_shard() {
    let folder = folder();
    let folder = folder.path();
    whole(folder);
    let other = SMALL.replace("\"small\"", "\"other\"").replace("[2048, 4096]", "[2048]");
    write(folder, "other.toml", &other);
    for shard in ["1/2", "2/2"] {
        meshwright(&["study", "other.toml", "--out", &shard[..1], "--shard", shard], folder);
    }
    let bytes = |name: &str| std::fs::read(folder.join(name).join("results.csv")).expect("results");
    let before = ["whole", "1"].map(bytes);
    for out in ["whole", "1"] {
        let refused = meshwright(&["study", "merge", "1", "2", "--out", out], folder);
        assert_eq!(refused.status.code(), Some(1), "{out}");
        assert!(stderr(&refused).contains("name another --out"), "{}", stderr(&refused));
    }
    assert_eq!(before, ["whole", "1"].map(bytes));
    for _ in 0..2 {
        done(&meshwright(&["study", "merge", "1", "2", "--out", "merged"], folder));
    }
    let refused = meshwright(&["study", "merge", "whole", "--out", "merged"], folder);
    assert!(stderr(&refused).contains("belongs to another study"), "{}", stderr(&refused));
}

/// Runs a script with the binary on the path.
fn bash(script: &str, folder: &Path, environment: &[(&str, &str)]) {
    let binaries =
        Path::new(env!("CARGO_BIN_EXE_meshwright")).parent().expect("a folder").display().to_string();
    let path = format!("{binaries}:{}", std::env::var("PATH").expect("a path"));
    let status = Command::new("bash")
        .args(["-c", script])
        .current_dir(folder)
        .env("PATH", path)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    assert!(status.expect("bash runs").success(), "{script}");
}

fn export(engine: &str, folder: &Path) {
    whole(folder);
    let results = "it's here";
    let arguments = ["study", "export", "study.toml", "--engine", engine, "--shards", "2"];
    done(&meshwright(&[&arguments[..], &["--results", results, "--out", "job"]].concat(), folder));
}

#[cfg(unix)]
#[test]
fn a_slurm_task_that_is_killed_is_queued_again_and_the_results_are_the_same() {
    use std::os::unix::process::CommandExt;
    let folder = folder();
    let folder = folder.path();
    export("slurm", folder);
    let path = Path::new(env!("CARGO_BIN_EXE_meshwright")).parent().expect("a folder").display().to_string();
    let path = format!("{path}:{}", std::env::var("PATH").expect("a path"));
    let mut command = Command::new("bash");
    command.args(["job/shards.sbatch"]).current_dir(folder).env("PATH", path).env("SLURM_ARRAY_TASK_ID", "1");
    // A group of its own, as Slurm kills a task with all its processes.
    let mut task =
        command.process_group(0).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("bash runs");
    let rows = folder.join("it's here/shard-1/rows.jsonl");
    while task.try_wait().expect("it is a child").is_none()
        && std::fs::metadata(&rows).map_or(0, |file| file.len()) == 0
    {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let _ = Command::new("kill").args(["-KILL", "--", &format!("-{}", task.id())]).status();
    task.wait().expect("it ends");
    for task in ["2", "1"] {
        bash("./job/shards.sbatch", folder, &[("SLURM_ARRAY_TASK_ID", task)]);
    }
    bash("./job/merge.sbatch", folder, &[]);
    assert_same_results(&folder.join("whole"), &folder.join("it's here"));
}

#[test]
fn files_that_a_study_names_are_found_from_the_folder_it_was_exported_in() {
    let folder = folder();
    let folder = folder.path();
    write(
        folder,
        "model.toml",
        "name = \"own\"\nlayers = 8\nhidden = 1024\nheads = 8\nffn = 4096\nvocab = 32000\n",
    );
    let own = SMALL.replace("llama-3.1-8b", "model.toml").replace("[2048, 4096]", "[2048]");
    write(folder, "study.toml", &own);
    let arguments = ["study", "export", "study.toml", "--shards", "1", "--results", "out", "--out", "job"];
    done(&meshwright(&[&arguments[..], &["--engine", "slurm"]].concat(), folder));
    bash("cd job && ./shards.sbatch && ./merge.sbatch", folder, &[("SLURM_ARRAY_TASK_ID", "1")]);
    assert!(folder.join("out/results.csv").exists());
    done(&meshwright(&[&arguments[..], &["--engine", "kubernetes", "--force"]].concat(), folder));
    let text = std::fs::read_to_string(folder.join("job/shards.yaml")).expect("a file");
    assert!(text.contains("in its working folder, \"model.toml\""), "{text}");
    let colon = ["study", "export", "study.toml", "--results", "a:b", "--out", "x", "--engine", "kubernetes"];
    let refused = meshwright(&colon, folder);
    assert!(stderr(&refused).contains("--results has a colon"), "{}", stderr(&refused));
}

#[test]
fn the_slurm_array_runs_the_shards_and_the_merge() {
    let folder = folder();
    let folder = folder.path();
    export("slurm", folder);
    for task in ["1", "2"] {
        bash("./job/shards.sbatch", folder, &[("SLURM_ARRAY_TASK_ID", task)]);
    }
    bash("./job/merge.sbatch", folder, &[]);
    assert_same_results(&folder.join("whole"), &folder.join("it's here"));
    let text = std::fs::read_to_string(folder.join("job/shards.sbatch")).expect("a file");
    assert!(text.contains("#SBATCH --array=1-2\n") && text.contains("#SBATCH --requeue\n"));
    bash("bash -n job/submit.sh", folder, &[]);
}

#[test]
fn the_indexed_job_runs_the_shards_and_the_merge() {
    let folder = folder();
    let folder = folder.path();
    export("kubernetes", folder);
    let command = |name: &str| {
        let text = std::fs::read_to_string(folder.join(name)).expect("a file");
        let job: serde_json::Value = serde_norway::from_str(&text).expect("YAML");
        assert_eq!(job["kind"], "Job");
        let command = &job["spec"]["template"]["spec"]["containers"][0]["command"];
        assert_eq!((&command[0], &command[1]), (&"bash".into(), &"-c".into()));
        (job["spec"].clone(), command[2].as_str().expect("a script").to_owned())
    };
    let (spec, shard) = command("job/shards.yaml");
    // The study is mounted from a ConfigMap that holds its text; here it lies where it always did.
    let text = std::fs::read_to_string(folder.join("job/study.yaml")).expect("a file");
    let map: serde_json::Value = serde_norway::from_str(&text).expect("YAML");
    assert_eq!((&map["kind"], &map["data"]["study.toml"]), (&"ConfigMap".into(), &SMALL.into()));
    let mounts = &spec["template"]["spec"]["containers"][0]["volumeMounts"];
    let results = folder.canonicalize().expect("it exists").join("it's here");
    assert_eq!(mounts[0]["mountPath"], "/study");
    assert_eq!(mounts[1]["mountPath"], results.display().to_string());
    assert!(shard.contains("/study/study.toml"));
    let shard = shard.replace("/study/study.toml", "study.toml");
    assert_eq!((&spec["completionMode"], &spec["completions"]), (&"Indexed".into(), &2.into()));
    for index in ["0", "1"] {
        bash(&shard, folder, &[("JOB_COMPLETION_INDEX", index)]);
    }
    bash(&command("job/merge.yaml").1, folder, &[]);
    assert_same_results(&folder.join("whole"), &folder.join("it's here"));
}

/// As much of Ray as the driver uses, in one process.
const RAY: &str = "
def init():
    pass

def remote(**options):
    assert options['max_retries'] > 0
    def wrap(function):
        function.remote = function
        return function
    return wrap

def get(list):
    return list
";

#[test]
fn the_ray_driver_runs_the_shards_and_the_merge() {
    let folder = folder();
    let folder = folder.path();
    export("ray", folder);
    std::fs::create_dir(folder.join("stub")).expect("a folder");
    write(&folder.join("stub"), "ray.py", RAY);
    bash("python3 job/study.py", folder, &[("PYTHONPATH", "stub")]);
    assert_same_results(&folder.join("whole"), &folder.join("it's here"));
}

#[test]
fn wrong_shards_and_engines_are_usage_errors() {
    let folder = folder();
    let folder = folder.path();
    write(folder, "study.toml", SMALL);
    for shard in ["0/2", "3/2", "1", "1/0", "a/b", "1/99999999"] {
        let output = meshwright(&["study", "study.toml", "--out", "out", "--shard", shard], folder);
        assert_eq!(output.status.code(), Some(2), "{shard}");
    }
    let arguments = ["study", "export", "study.toml", "--engine", "cron", "--results", "r", "--out", "job"];
    let output = meshwright(&arguments, folder);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("use slurm, kubernetes, ray"), "{}", stderr(&output));
}
