//! Studies from outside: every point a row, killed and gone on, two at once, faults.

mod study;

use std::time::{Duration, Instant};
use study::*;

#[test]
fn every_point_is_a_row_and_agrees_with_plan() {
    let folder = folder();
    write(folder.path(), "small.toml", SMALL);
    done(&meshwright(&["study", "small.toml", "--out", "out", "--html", "study.html"], folder.path()));
    let (header, rows) = table(&folder.path().join("out/results.csv"));
    assert_eq!(rows.len(), 24);
    let at = |name: &str| header.iter().position(|own| own == name).unwrap_or_else(|| panic!("{name}"));
    for (index, row) in rows.iter().enumerate() {
        assert_eq!(row[0], index.to_string());
        let fits = row[at("gpus")] != "1";
        assert_eq!(row[at("status")], if fits { "ok" } else { "infeasible" }, "{row:?}");
        assert!(!row[at("binding")].is_empty() && row[at("reason")].is_empty() == fits);
    }
    // One point, planned by hand.
    let row = rows.iter().find(|row| row[at("gpus")] == "16" && row[at("seq_len")] == "4096").expect("a row");
    let arguments = ["plan", "--model", "llama-3.1-8b", "--cluster", "dgx-h100", "--gpus", "16"];
    let more =
        ["--seq-len", "4096", "--global-batch", &row[at("global_batch")], "--format", "json", "--top", "1"];
    let plan = meshwright(&[&arguments[..], &more[..]].concat(), folder.path());
    let plan: serde_json::Value = serde_json::from_slice(&plan.stdout).expect("a plan");
    let number = |name: &str| row[at(name)].parse::<f64>().expect("a number");
    assert_eq!(Some(number("step_time_seconds")), plan["step_time_seconds"].as_f64());
    assert_eq!(Some(number("tp")), plan["parallel"]["tp"].as_f64());
    let parts: f64 = header.iter().filter(|name| name.starts_with("time_")).map(|name| number(name)).sum();
    assert!((parts / number("step_time_seconds") - 1.0).abs() < 1e-9);
    // Money is price times GPUs times time.
    let seconds = 1e12 / (number("tokens_per_second_per_gpu") * 16.0) / number("goodput_fraction");
    assert!((number("training_seconds") / seconds - 1.0).abs() < 1e-9);
    let dollars = seconds / 3600.0 * 16.0 * number("cluster.dollars_per_gpu_hour");
    assert!((number("training_dollars") / dollars - 1.0).abs() < 1e-9);
}

/// A series of numbers without pattern, the same on every run.
fn scattered(count: u64) -> impl Iterator<Item = f64> {
    (1..=count).map(|number| (number as f64 * 0.618_033_988_749).fract())
}

#[test]
fn killed_at_any_moment_it_goes_on_and_ends_in_the_same_bytes() {
    let folder = folder();
    let points =
        SMALL.replace("[16, 32]", "[16, 24, 32, 40, 48, 64]").replace("[2048, 4096]", "[1024, 2048, 4096]");
    write(folder.path(), "study.toml", &points);
    let begun = Instant::now();
    done(&meshwright(&["study", "study.toml", "--out", "whole"], folder.path()));
    let whole = begun.elapsed();
    let lines = || {
        let text = std::fs::read_to_string(folder.path().join("parts/rows.jsonl")).unwrap_or_default();
        text.matches('\n').count()
    };
    let mut before = 0;
    let mut grew = 0;
    for share in scattered(20) {
        let mut child = start(&["study", "study.toml", "--out", "parts"], folder.path());
        std::thread::sleep(Duration::from_secs_f64(whole.as_secs_f64() * share * 0.2));
        // SIGKILL on Unix.
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
        let now = lines();
        assert!(now >= before, "{before} rows became {now}");
        grew += usize::from(now > before);
        before = now;
    }
    assert!(grew > 0, "no run got as far as a row");
    done(&meshwright(&["study", "study.toml", "--out", "parts"], folder.path()));
    assert_same_results(&folder.path().join("whole"), &folder.path().join("parts"));
}

#[test]
fn what_a_kill_leaves_of_a_line_is_cut_off_and_planned_again() {
    let folder = folder();
    write(folder.path(), "study.toml", SMALL);
    done(&meshwright(&["study", "study.toml", "--out", "whole"], folder.path()));
    done(&meshwright(&["study", "study.toml", "--out", "torn"], folder.path()));
    let path = folder.path().join("torn/rows.jsonl");
    let text = std::fs::read(&path).expect("a journal");
    for cut in [text.len() - 7, text.len() / 2, 1, 0] {
        std::fs::write(&path, &text[..cut]).expect("can be written");
        done(&meshwright(&["study", "study.toml", "--out", "torn"], folder.path()));
        assert_same_results(&folder.path().join("whole"), &folder.path().join("torn"));
    }
    // Rubbish after whole lines is not taken for rows.
    std::fs::write(&path, [&text[..], b"\0\0\0\n{\"row\":[1]}\n"].concat()).expect("can be written");
    done(&meshwright(&["study", "study.toml", "--out", "torn"], folder.path()));
    assert_same_results(&folder.path().join("whole"), &folder.path().join("torn"));
}

#[test]
fn two_runs_into_one_folder_are_refused_and_neither_is_harmed() {
    let folder = folder();
    write(folder.path(), "study.toml", SMALL);
    std::fs::create_dir(folder.path().join("out")).expect("a folder");
    let lock = std::fs::File::create(folder.path().join("out/lock")).expect("a lock");
    lock.lock().expect("it is free");
    let second = meshwright(&["study", "study.toml", "--out", "out"], folder.path());
    assert_eq!(second.status.code(), Some(1));
    assert!(stderr(&second).contains("another run is writing to `out`"), "{}", stderr(&second));
    drop(lock);
    done(&meshwright(&["study", "study.toml", "--out", "out"], folder.path()));
    // Another study does not get into the folder either.
    write(folder.path(), "other.toml", &SMALL.replace("2.0, 3.5", "2.0, 4.0"));
    let other = meshwright(&["study", "other.toml", "--out", "out"], folder.path());
    assert_eq!(other.status.code(), Some(1));
    assert!(stderr(&other).contains("belongs to another study"), "{}", stderr(&other));
    // Nor does one overwrite what is of no study.
    std::fs::create_dir(folder.path().join("own")).expect("a folder");
    write(folder.path(), "own/results.csv", "mine\n");
    let own = meshwright(&["study", "study.toml", "--out", "own"], folder.path());
    assert_eq!(own.status.code(), Some(1));
    assert!(stderr(&own).contains("has a results.csv that is of no study"), "{}", stderr(&own));
    assert_eq!(std::fs::read_to_string(folder.path().join("own/results.csv")).expect("a file"), "mine\n");
}

#[test]
fn columns_have_names_of_their_own() {
    let folder = folder();
    let axes = "[[axes]]\nkey = \"gap\"\nvalues = [\"0%\", \"5%\"]\n[[axes]]\nkey = \"memory_limit\"\nvalues = [\"60 GiB\"]\n";
    write(folder.path(), "study.toml", &format!("{SMALL}\n{axes}"));
    done(&meshwright(&["study", "study.toml", "--out", "out"], folder.path()));
    let text = std::fs::read_to_string(folder.path().join("out/results.csv")).expect("results");
    let mut names: Vec<&str> = text.lines().next().expect("a header").split(',').collect();
    assert!(names.contains(&"asked.gap") && names.contains(&"asked.memory_limit_bytes"), "{names:?}");
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
}

#[cfg(unix)]
#[test]
fn a_full_disk_is_an_error_and_what_was_written_counts() {
    let folder = folder();
    write(folder.path(), "study.toml", SMALL);
    done(&meshwright(&["study", "study.toml", "--out", "whole"], folder.path()));
    let binary = env!("CARGO_BIN_EXE_meshwright");
    // Files may not grow beyond 8 KiB; the signal for it is ignored, so that writes fail as on a full disk.
    let script = format!("trap '' XFSZ; ulimit -f 8; exec {binary} study study.toml --out full");
    let output = std::process::Command::new("bash").args(["-c", &script]).current_dir(folder.path()).output();
    let output = output.expect("bash runs");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("cannot write `full/rows.jsonl`"), "{}", stderr(&output));
    assert!(stderr(&output).contains("make room and start it again"), "{}", stderr(&output));
    let text = std::fs::read_to_string(folder.path().join("full/rows.jsonl")).expect("a journal");
    assert!(text.lines().count() > 1);
    done(&meshwright(&["study", "study.toml", "--out", "full"], folder.path()));
    assert_same_results(&folder.path().join("whole"), &folder.path().join("full"));
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error() {
    let folder = folder();
    write(folder.path(), "study.toml", SMALL);
    let output = meshwright(&["study", "study.toml", "--out", "study.toml/out"], folder.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("cannot write `study.toml/out`"), "{}", stderr(&output));
}

#[test]
fn all_faults_of_a_study_are_named_before_the_first_point() {
    let cases = [
        ("values = [16, 32]", "values = []", "axis `global_batch` has no values"),
        ("values = [16, 32]", "values = [16, 16]", "has 16 twice"),
        ("values = [16, 32]", "values = [16, \"many\"]", "expected a whole number"),
        ("values = [16, 32]", "range = { from = 1, to = 8, count = 0 }", "count is 0"),
        ("key = \"seq_len\"", "key = \"seq_length\"", "did you mean `seq_len`?"),
        ("key = \"seq_len\"", "key = \"gpus\"", "two axes set `gpus`"),
        ("tokens = 1e12", "seq_len = 4096", "`seq_len` is set in [base] and along an axis"),
        ("tokens = 1e12", "dollars_per_hour = 100", "`gpus` and `dollars_per_hour` exclude each other"),
        ("llama-3.1-8b", "llama-3.1-9b", "llama-3.1-9b"),
        ("\"10 GB/s\"", "10", "expected a rate with a unit"),
        ("name = \"small\"", "name = \"small\"\nobjective = \"fun\"", "unknown objective `fun`"),
        (
            "tokens = 1e12",
            "tokens = 1e12\ngap = \"60%\"",
            "gap is \"60%\", expected 0 to 50%, such as 1% or 0.01",
        ),
        ("tokens = 1e12", "tokens = 1e12\ngap = 0.6", "gap is 0.6, expected 0 to 50%"),
        (
            "failures.mtbf_gpu = \"5 years\"",
            "",
            "failures.storage_bandwidth says nothing without failures.mtbf_gpu",
        ),
    ];
    let folder = folder();
    for (from, to, expected) in cases {
        write(folder.path(), "wrong.toml", &SMALL.replacen(from, to, 1));
        let output = meshwright(&["study", "wrong.toml", "--out", "out"], folder.path());
        assert_eq!(output.status.code(), Some(1), "{to}");
        assert!(stderr(&output).contains(expected), "{to}: {}", stderr(&output));
        assert!(!folder.path().join("out").exists(), "nothing is written");
    }
    let batches = "key = \"global_batch\"\nvalues = [16, 32]";
    let one_batch = SMALL.replace(batches, "key = \"precision\"\nvalues = [\"bf16\"]");
    let one_batch = one_batch.replace("[base]", "[base]\nglobal_batch = 16");
    for (study, expected) in [
        (format!("{SMALL}\n[[skip]]\ngpus = \">= 1\"\n"), "every point of the grid is left out"),
        (
            format!("{}\n[constraints]\ndollars = 5\n", SMALL.replace("tokens = 1e12", "")),
            "constraints: dollars is of a whole training: set tokens",
        ),
        (
            format!("{SMALL}\n[chart]\nx = \"precision\"\n"),
            "chart: x is `precision`, expected a key that varies",
        ),
        (
            format!("{SMALL}\n[chart]\ny = \"speed\"\n"),
            "chart: y is `speed`, expected tokens_per_second_per_gpu",
        ),
        (
            format!("{one_batch}\n[batch_schedule]\nnoise_scale = [[0, 1]]\n"),
            "batch_schedule needs an axis of batches",
        ),
    ] {
        write(folder.path(), "wrong.toml", &study);
        let output = meshwright(&["study", "wrong.toml", "--out", "out"], folder.path());
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
    let several = SMALL.replace("[16, 32]", "[]").replace("\"10 GB/s\"", "\"10 parsecs\"");
    write(folder.path(), "wrong.toml", &several);
    let text = stderr(&meshwright(&["study", "wrong.toml", "--out", "out"], folder.path()));
    assert!(text.contains("global_batch") && text.contains("parsecs"), "{text}");
}

#[test]
fn skips_ranges_zips_and_constraints_shape_the_rows() {
    let folder = folder();
    let study = r#"
name = "shaped"
[base]
model = "llama-3.1-8b"
cluster = "dgx-h100"
tokens = 1e12
"model.layers" = 16

[[axes]]
zip = { gpus = [8, 16], global_batch = [16, 32] }

[[axes]]
key = "seq_len"
range = { from = 1024, to = 4096, count = 3, log = true }

[[axes]]
key = "cluster.inter.bandwidth"
values = ["25 GB/s", "400 Gb/s"]

[[skip]]
gpus = 8
"cluster.inter.bandwidth" = "<= 25 GB/s"

[constraints]
dollars_per_hour = 30.0
"#;
    write(folder.path(), "study.toml", study);
    done(&meshwright(&["study", "study.toml", "--out", "out"], folder.path()));
    let (header, rows) = table(&folder.path().join("out/results.csv"));
    let column = |name: &str| {
        let at = header.iter().position(|own| own == name).unwrap_or_else(|| panic!("{name}"));
        rows.iter().map(|row| row[at].clone()).collect::<Vec<_>>()
    };
    assert_eq!(rows.len(), 3 + 2 * 3);
    assert_eq!(column("seq_len")[..3], ["1024", "2048", "4096"]);
    for (gpus, (batch, status)) in
        column("gpus").iter().zip(column("global_batch").iter().zip(column("status")))
    {
        assert_eq!(batch, if gpus == "8" { "16" } else { "32" });
        assert_eq!(status, if gpus == "8" { "ok" } else { "excluded" });
    }
    assert!(column("binding").iter().filter(|what| *what == "dollars_per_hour").count() == 6);
    // Half the layers of an 8B model are less than 5 billion parameters: both models were not mixed up.
    assert!(column("cluster.inter.bandwidth_bytes_per_second").contains(&"50000000000".to_owned()));
}

#[test]
fn a_format_that_a_gpu_lacks_is_a_row_with_the_reason() {
    let folder = folder();
    let axes = "[[axes]]\nkey = \"precision\"\nvalues = [\"nvfp4\", \"bf16\"]\n";
    let base = "name = \"formats\"\n[base]\nmodel = \"llama-3.1-8b\"\ncluster = \"dgx-h100\"\ngpus = 8\n\
                seq_len = 2048\nglobal_batch = 16\n";
    write(folder.path(), "study.toml", &format!("{base}{axes}"));
    let output = meshwright(&["study", "study.toml", "--out", "out"], folder.path());
    done(&output);
    let (header, rows) = table(&folder.path().join("out/results.csv"));
    let at = |name: &str| header.iter().position(|own| own == name).unwrap_or_else(|| panic!("{name}"));
    let cell = |row: usize, name: &str| rows[row][at(name)].as_str();
    assert_eq!((cell(0, "status"), cell(0, "binding")), ("infeasible", "precision"));
    assert!(
        cell(0, "reason").starts_with("precision is nvfp4, which H100-SXM-80GB"),
        "{}",
        cell(0, "reason")
    );
    assert_eq!(cell(1, "status"), "ok");
    assert!(String::from_utf8_lossy(&output.stdout).contains("precision: precision is nvfp4"));
}

/// Points of every kind that `plan` treats in its own way: an engine, a launcher, memory that fits only with the optimizer's
/// state on the host, a part of a node, a precision, terms.
const LIKE_PLAN: &str = r#"
name = "like-plan"
[base]
cluster = "dgx-h100"
seq_len = 4096

[[axes]]
zip = { model = ["llama-3.1-8b", "llama-3.1-8b", "llama-3.1-8b", "mixtral-8x7b", "llama-3.1-8b"], gpus = [1, 4, 8, 16, 2], global_batch = [8, 8, 16, 32, 8], precision = ["bf16", "bf16", "fp8", "bf16", "bf16"], launcher = ["megatron", "torchtitan", "megatron", "megatron", "megatron"], fix = ["", "dp=4", "", "ep=8", ""], offload = ["optimizer", "never", "never", "never", "optimizer"], gradient_dtype = ["fp32", "fp32", "bf16", "fp32", "bf16"] }
"#;

#[test]
fn every_point_is_the_plan_of_its_inputs() {
    let folder = folder();
    write(folder.path(), "study.toml", LIKE_PLAN);
    done(&meshwright(&["study", "study.toml", "--out", "out"], folder.path()));
    let (header, rows) = table(&folder.path().join("out/results.csv"));
    let at = |name: &str| header.iter().position(|own| own == name).unwrap_or_else(|| panic!("{name}"));
    let mut planned = 0;
    for row in &rows {
        let cell = |name: &str| row[at(name)].as_str();
        let mut flags = vec!["plan", "--cluster", "dgx-h100", "--seq-len", "4096", "--format", "json"];
        for (flag, name) in [
            ("--model", "model"),
            ("--gpus", "gpus"),
            ("--global-batch", "global_batch"),
            ("--precision", "precision"),
            ("--launcher", "launcher"),
            ("--offload", "offload"),
            ("--gradient-dtype", "gradient_dtype"),
            ("--fix", "fix"),
        ] {
            if !cell(name).is_empty() {
                flags.extend([flag, cell(name)]);
            }
        }
        let plan = meshwright(&flags, folder.path());
        let document: serde_json::Value = serde_json::from_slice(&plan.stdout).unwrap_or_default();
        let step = document["step_time_seconds"].as_f64();
        assert_eq!(cell("step_time_seconds").parse().ok(), step, "{row:?}: {}", stderr(&plan));
        if step.is_none() {
            continue;
        }
        planned += 1;
        for axis in ["tp", "pp", "vpp", "cp", "ep", "dp_shard", "zero_stage", "micro_batch_size"] {
            assert_eq!(cell(axis).parse().ok(), document["parallel"][axis].as_f64(), "{axis} of {row:?}");
        }
        let offloads = document["inputs"]["runtime"]["memory"]["state"]["optimizer_offload"].as_f64();
        assert_eq!(cell("optimizer_offload").parse().ok(), offloads);
    }
    assert!(planned >= 4, "{rows:?}");
}

#[test]
fn optimizer_state_goes_to_the_host_where_nothing_fits_without_as_in_a_plan() {
    let folder = folder();
    let study = "name = \"spill\"\n[base]\nmodel = \"llama-3.1-8b\"\ncluster = \"dgx-h100\"\nseq_len = 2048\n\
                 global_batch = 16\n[[axes]]\nkey = \"gpus\"\nvalues = [1, 8]\n";
    write(folder.path(), "study.toml", study);
    done(&meshwright(&["study", "study.toml", "--out", "out"], folder.path()));
    let (header, rows) = table(&folder.path().join("out/results.csv"));
    let at = |name: &str| header.iter().position(|own| own == name).unwrap_or_else(|| panic!("{name}"));
    let offloaded: Vec<&str> = rows.iter().map(|row| row[at("optimizer_offload")].as_str()).collect();
    for (row, gpus) in rows.iter().zip(["1", "8"]) {
        let inputs = ["plan", "--model", "llama-3.1-8b", "--cluster", "dgx-h100", "--gpus", gpus];
        let more = ["--seq-len", "2048", "--global-batch", "16", "--format", "json"];
        let plan = meshwright(&[&inputs[..], &more[..]].concat(), folder.path());
        let plan: serde_json::Value = serde_json::from_slice(&plan.stdout).unwrap_or_default();
        assert_eq!(row[at("step_time_seconds")].parse().ok(), plan["step_time_seconds"].as_f64());
        assert_eq!(row[at("status")] == "ok", plan["step_time_seconds"].is_number());
    }
    assert_eq!(offloaded, ["1", "0"]);
}

#[test]
fn a_model_that_a_launcher_lacks_is_a_row_with_the_reason() {
    let folder = folder();
    let study = "name = \"launchers\"\n[base]\nmodel = \"deepseek-v3\"\ncluster = \"dgx-h100\"\ngpus = 512\nseq_len = 4096\n\
                 global_batch = 512\n[[axes]]\nkey = \"launcher\"\nvalues = [\"nanotron\", \"accelerate\"]\n";
    write(folder.path(), "study.toml", study);
    let output = meshwright(&["study", "study.toml", "--out", "out"], folder.path());
    let (header, rows) = table(&folder.path().join("out/results.csv"));
    let at = |name: &str| header.iter().position(|own| own == name).unwrap_or_else(|| panic!("{name}"));
    assert_eq!(rows[0][at("status")], "infeasible", "{}", stderr(&output));
    assert_eq!(rows[0][at("binding")], "launcher");
    assert!(rows[0][at("reason")].starts_with("nanotron cannot run"), "{}", rows[0][at("reason")]);
}

/// Runs a command and says the most memory it held, in bytes, as the kernel counts it.
#[cfg(target_os = "linux")]
fn peak_bytes(arguments: &[&str], folder: &std::path::Path) -> u64 {
    let mut child = start(arguments, folder);
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child.try_wait().expect("it is a child").is_none() {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|text| text.trim().trim_end_matches(" kB").parse::<u64>().ok());
        peak = peak.max(kib.unwrap_or(0) * 1024);
        std::thread::sleep(Duration::from_millis(10));
    }
    peak
}

#[cfg(target_os = "linux")]
#[test]
#[ignore = "a minute: cargo test --release --test study_run -- --ignored"]
fn a_hundred_thousand_points_stream() {
    let folder = folder();
    let prices = "[[axes]]\nkey = \"cluster.dollars_per_gpu_hour\"\nrange = { from = 1, to = 5, count = 500 }\n\
                  [[axes]]\nkey = \"failures.mtbf_gpu\"\nrange = { from = \"1 years\", to = \"9 years\", count = 50 }\n";
    let base = "name = \"many\"\n[base]\nmodel = \"llama-3.1-8b\"\ncluster = \"dgx-h100\"\nseq_len = 4096\n\
                tokens = 1e12\n[[axes]]\nkey = \"gpus\"\nvalues = [8, 16]\n[[axes]]\nkey = \"global_batch\"\nvalues = [32, 64]\n";
    write(folder.path(), "study.toml", &format!("{base}{prices}"));
    let peak = peak_bytes(&["study", "study.toml", "--out", "out", "--html", "study.html"], folder.path());
    let (_, rows) = table(&folder.path().join("out/results.csv"));
    assert_eq!(rows.len(), 100_000);
    assert!(peak > 0 && peak < 500_000_000, "{peak} bytes");
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_holds_what_the_csv_holds() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;
    let folder = folder();
    write(folder.path(), "study.toml", SMALL);
    done(&meshwright(&["study", "study.toml", "--out", "out"], folder.path()));
    let (header, rows) = table(&folder.path().join("out/results.csv"));
    let file = std::fs::File::open(folder.path().join("out/results.parquet")).expect("a file");
    let reader = SerializedFileReader::new(file).expect("Parquet");
    let fields = reader.metadata().file_metadata().schema_descr().columns().to_vec();
    assert_eq!(fields.iter().map(|field| field.name()).collect::<Vec<_>>(), header);
    let at = header.iter().position(|name| name == "step_time_seconds").expect("a column");
    let mut count = 0;
    for (row, text) in reader.get_row_iter(None).expect("rows").zip(&rows) {
        let row = row.expect("a row");
        assert_eq!(row.get_long(0).expect("a point").to_string(), text[0]);
        assert_eq!(row.get_double(at).ok(), text[at].parse::<f64>().ok());
        count += 1;
    }
    assert_eq!(count, rows.len());
}
