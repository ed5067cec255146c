//! `meshwright simulate PLAN` and `--order CSV`: a plan's own costs give the plan's own step; orders come back as written.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn meshwright(folder: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
    command.current_dir(folder).args(line.split_whitespace()).output().unwrap()
}

fn stdout(folder: &Path, line: &str) -> String {
    let output = meshwright(folder, line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn refusal(folder: &Path, line: &str) -> String {
    let output = meshwright(folder, line);
    assert!(!output.status.success(), "{line} was accepted");
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).unwrap()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

const DENSE: &str = "--model llama-3.1-70b --cluster dgx-h100 --gpus 64 --seq-len 4096 --global-batch";

/// The step of the simulated pipeline is the plan's, to rounding; with many microbatches, of which the plan
/// extrapolates the steady state, within the last figure printed.
#[test]
fn a_plans_pipeline_takes_as_long_as_the_plan_says() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        ("128 --tp 8 --pp 1 --zero 1 --recompute full", 1e-12),
        ("128 --tp 4 --pp 4", 1e-12),
        ("128 --tp 8 --pp 4 --vpp 5", 1e-12),
        ("512 --tp 8 --pp 8 --stages 9,10,10,10,10,10,10,11", 1e-3),
        ("512 --tp 8 --pp 8 --runtime zero-bubble --schedule zb-2p", 1e-2),
        ("128 --tp 8 --pp 8 --runtime zero-bubble --schedule zb-v --vpp 2", 1e-12),
        ("128 --tp 4 --pp 8 --runtime vocabulary-parallel --schedule 1f1b-vocab2", 1e-12),
        ("128 --tp 4 --pp 8 --runtime fsdp2 --zero 2 --schedule dualpipev --vpp 2", 1e-12),
    ];
    for (layout, tolerance) in cases {
        let plan =
            json(&stdout(folder.path(), &format!("estimate {DENSE} {layout} --out plan.json --format json")));
        let found = json(&stdout(folder.path(), "simulate plan.json --format json"));
        let (step, planned) = (number(&found["step_time_seconds"]), number(&plan["step_time_seconds"]));
        assert!((step / planned - 1.0).abs() <= tolerance, "{layout}: {step}, planned {planned}");
        assert_eq!(found["schedule"], plan["parallel"]["schedule"]);
        assert_eq!(found["microbatches"], plan["parallel"]["num_microbatches"]);
        assert!(number(&found["lower_bound"]) <= number(&found["makespan"]));
        let outside = &found["outside_seconds"];
        let parts: f64 = ["dp", "optimizer", "host"].iter().map(|part| number(&outside[part])).sum();
        assert!(parts < step, "{layout}");
        let bytes = found["peak_activation_bytes"].as_array().unwrap();
        let memory = plan["memory"].as_array().unwrap();
        assert_eq!(bytes.len(), memory.len());
        for (rank, terms) in bytes.iter().zip(memory) {
            let (held, said) = (number(rank), number(&terms["activations_bytes"]));
            assert!((held - said).abs() <= 0.12 * said, "{layout}: {held} held, {said} in the plan");
        }
    }
}

#[test]
fn a_plans_files_are_in_seconds_and_bytes() {
    let folder = tempfile::tempdir().unwrap();
    stdout(folder.path(), &format!("estimate {DENSE} 128 --tp 4 --pp 4 --out plan.json"));
    let text = stdout(folder.path(), "simulate plan.json --svg a.svg --trace a.json --csv a.csv");
    assert!(text.contains("  step         ") && text.contains(" GiB (rank 0)"), "{text}");
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(read("a.svg").contains("activations held (most ") && read("a.svg").contains(" GiB)"));
    let found = json(&stdout(folder.path(), "simulate plan.json --format json"));
    let trace = json(&read("a.json"));
    let events = trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "X");
    let last = events.map(|event| number(&event["ts"]) + number(&event["dur"])).fold(0.0, f64::max);
    assert!((last / 1e6 / number(&found["makespan"]) - 1.0).abs() < 1e-9);
    let order = stdout(folder.path(), "simulate --order a.csv --times 1,1,1 --csv b.csv --format json");
    assert_eq!(json(&order)["microbatches"], found["microbatches"]);
    assert_eq!(read("a.csv"), read("b.csv"));
}

#[test]
fn a_plan_brings_its_own_times() {
    let folder = tempfile::tempdir().unwrap();
    let both = refusal(folder.path(), "simulate plan.json --times 1,1,1");
    assert!(both.contains("cannot be used with"), "{both}");
    let none = refusal(folder.path(), "simulate --ranks 4");
    assert!(none.contains("--schedule") && none.contains("--times"), "{none}");
    std::fs::write(folder.path().join("plan.json"), "{}").unwrap();
    assert!(refusal(folder.path(), "simulate plan.json").contains("not a plan"));
}

/// Files that are no schedule are refused with the cell, operation or circle named.
#[test]
fn bad_orders_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        ("", "no operations"),
        ("\n,,\n", "no operations"),
        ("0F0,0B0\n1F0\n", "rank 1 lacks 1I0"),
        ("0F0,0B0,0B0\n1F0,1B0\n", "rank 0 runs 0B0 twice"),
        ("0F0,0X0\n", "row 1, cell 2: '0X0' is not an operation"),
        ("0F0,1B0\n1F0,0B0\n", "on rank 0 and on rank 1"),
        ("0B0,0F0\n", "runs 0B0 before what it needs"),
        ("0F4000000000,0B4000000000\n", "more than"),
        ("65535F0,65535B0\n", "no rank runs stage 0"),
        ("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n", "deadlock: rank 0 holds 0B0 until 1B0"),
    ];
    for (text, expected) in cases {
        std::fs::write(folder.path().join("order.csv"), text).unwrap();
        let error = refusal(folder.path(), "simulate --order order.csv --times 1,1,1");
        assert!(error.contains(expected) && error.contains("hint: "), "{text:?}: {error}");
    }
}
