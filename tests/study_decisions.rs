//! What follows from a study: goodput, sensitivities, fronts, switches, prices, batches.

mod study;

use study::*;

const SERIES: &str = r#"
name = "series"
[base]
model = "llama-3.1-8b"
cluster = "dgx-h100"
seq_len = 4096
global_batch = 64
[[axes]]
key = "gpus"
values = [8, 32]
[[axes]]
key = "gpu.memory"
values = ["40 GiB", "20 GiB", "141 GiB", "80 GiB"]
[[axes]]
key = "cluster.inter.bandwidth"
values = ["25 GB/s", "100 GB/s", "5 GB/s"]
[[axes]]
key = "cluster.inter.latency"
values = ["5 us", "50 us"]
"#;

#[test]
fn a_job_that_failures_leave_no_progress_never_finishes() {
    let folder = folder();
    let hopeless = SMALL.replace("\"5 years\"", "\"1 min\"").replace("values = [1, 8, 16]", "values = [16]");
    write(folder.path(), "study.toml", &hopeless);
    let arguments = ["study", "study.toml", "--out", "out", "--html", "study.html", "--format", "json"];
    let output = meshwright(&arguments, folder.path());
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let (header, rows) = table(&folder.path().join("out/results.csv"));
    let at = |name: &str| header.iter().position(|own| own == name).unwrap_or_else(|| panic!("{name}"));
    for row in &rows {
        assert_eq!((row[at("status")].as_str(), row[at("binding")].as_str()), ("excluded", "goodput"));
        assert!(
            row[at("reason")].starts_with("never finishes: it fails every 3.75 s"),
            "{}",
            row[at("reason")]
        );
        assert_eq!(row[at("goodput_fraction")], "0");
        for empty in ["training_seconds", "training_dollars", "dollars_per_billion_tokens"] {
            assert_eq!(row[at(empty)], "", "{empty}");
        }
        assert!(!row[at("step_time_seconds")].is_empty());
    }
    let decisions: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(decisions["reasons"]["goodput"].as_str().expect("a reason").starts_with("never finishes"));
    let page = std::fs::read_to_string(folder.path().join("study.html")).expect("a page");
    assert!(page.contains("never finishes"));
}

#[test]
fn sensitivities_are_the_derivatives_of_the_step() {
    use meshwright::study::decide::sensitivities;
    use meshwright::study::hardware::NUMBERS;
    let study = meshwright::study::Study::read("series.toml", SERIES).expect("it reads");
    let Ok(meshwright::Answer::Plan(plan)) = meshwright::study::run::plan_of(&study, 42, 1) else {
        panic!("a plan fits")
    };
    let list = sensitivities(&plan);
    assert!(list.len() >= 5, "{list:?}");
    let step = |number: &meshwright::study::hardware::Number, factor: f64| {
        let mut cluster = plan.inputs.cluster.clone();
        (number.scale)(&mut cluster, factor);
        let run = cost_models::TrainingRun { cluster: &cluster, ..plan.run() };
        cost_models::estimate(&run).expect("it runs").step_time_seconds.get()
    };
    let mut elasticities = 0.0;
    for one in &list {
        let number = NUMBERS.iter().find(|number| number.name == one.name).expect("a number");
        // A difference ten times as fine.
        let fine = (step(number, 1.001) / step(number, 0.999)).ln() / (1.001f64 / 0.999).ln();
        assert!((one.elasticity - fine).abs() < 0.02, "{}: {} and {fine}", one.name, one.elasticity);
        assert_eq!(one.step_halved_seconds, step(number, 0.5), "{}", one.name);
        assert_eq!(one.step_doubled_seconds, step(number, 2.0), "{}", one.name);
        elasticities += one.elasticity.abs();
    }
    // All rates doubled and all latencies halved halve all but the fixed times: the elasticities add up to at most one.
    assert!((0.5..1.01).contains(&elasticities), "{elasticities}");
    assert!(list.windows(2).all(|pair| pair[0].elasticity.abs() >= pair[1].elasticity.abs()));
}

#[test]
fn memory_helps_as_the_points_with_more_of_it_say() {
    let folder = folder();
    let study = "name = \"memory\"\n[base]\nmodel = \"llama-3.1-8b\"\ncluster = \"dgx-h100\"\ngpus = 8\nseq_len = 8192\n\
                 global_batch = 64\noffload = \"never\"\n[[axes]]\nkey = \"gpu.memory\"\nvalues = [\"30 GiB\", \"60 GiB\"]\n";
    let step_and_memory = |memory: &str| {
        let text = study.replace("[\"30 GiB\", \"60 GiB\"]", &format!("[\"{memory}\"]"));
        write(folder.path(), "study.toml", &text);
        let arguments = ["study", "study.toml", "--out", memory, "--format", "json"];
        let output = meshwright(&arguments, folder.path());
        let decisions: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let of = |name: &str| decisions["sensitivities"][0][name].as_f64();
        (
            decisions["best"][0]["step_time_seconds"].as_f64(),
            of("memory_halved_seconds"),
            of("memory_doubled_seconds"),
        )
    };
    let (less, more) = (step_and_memory("30 GiB"), step_and_memory("60 GiB"));
    assert!(less.0 > more.0, "more memory recomputes less: {less:?} {more:?}");
    assert_eq!((less.2, more.1), (more.0, less.0));
}

/// Every question of the README's table has its answer, each by the keys that the table names.
#[test]
fn the_decisions_that_the_readme_names_are_drawn() {
    let folder = folder();
    let study = r#"
name = "decisions"
[base]
model = "llama-3.1-8b"
gpus = 16
seq_len = 4096
tokens = 15e12
failures.mtbf_gpu = "1 years"
failures.storage_bandwidth = "1 GB/s"
failures.asynchronous = true
failures.restart = "10 min"
failures.replacement = "6 hours"

[batch_schedule]
noise_scale = [[0, 1e5], [15e12, 2e7]]

[[axes]]
key = "cluster"
values = ["dgx-h100", "dgx-b200"]

[[axes]]
key = "global_batch"
values = [32, 512]

[[axes]]
key = "failures.elastic"
values = [false, true]
"#;
    write(folder.path(), "study.toml", study);
    let output = meshwright(&["study", "study.toml", "--out", "out", "--format", "json"], folder.path());
    done(&output);
    let decisions: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for name in ["fronts", "batch_schedules", "break_even", "sensitivities"] {
        assert!(!decisions[name].as_array().expect("a list").is_empty(), "{name}");
    }
    let phases = decisions["batch_schedules"][0]["phases"].as_array().expect("phases");
    assert!(phases.len() == 2, "a larger batch later: {phases:?}");
    let (header, rows) = table(&folder.path().join("out/results.csv"));
    let at = |name: &str| header.iter().position(|own| own == name).unwrap_or_else(|| panic!("{name}"));
    let number = |row: &Vec<String>, name: &str| row[at(name)].parse::<f64>().expect("a number");
    for pair in rows.chunks(2) {
        // To go on without a node beats to wait for it.
        let fraction = |row| number(row, "goodput_fraction");
        assert!(fraction(&pair[1]) > fraction(&pair[0]), "{pair:?}");
        assert!(number(&pair[1], "training_seconds") < number(&pair[0], "training_seconds"));
        assert!(number(&pair[0], "checkpoint_interval_seconds") > 0.0);
    }
    // At the break-even price a token costs the same on both.
    let pair = &decisions["break_even"][0]["pairs"][0];
    let of = |name: &str| pair[name].as_f64().expect("a number");
    let at_break_even = of("dollars_other") * of("break_even_price") / of("price");
    assert!((at_break_even / of("dollars_one") - 1.0).abs() < 1e-9, "{pair}");
}
