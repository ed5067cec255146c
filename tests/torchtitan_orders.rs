//! torchtitan runs any order of one pipeline: what a plan simulates is what its schedule CSV says.

use cost_models::schedule::{Schedule, ScheduleKind, from_torch_csv};
use cost_models::step::SimulatedPipeline;
use meshwright::plan::Plan;
use std::path::Path;
use std::process::{Command, Output};

fn meshwright(folder: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
    command.current_dir(folder).args(line.split_whitespace()).output().unwrap()
}

fn run(folder: &Path, line: &str) {
    let output = meshwright(folder, line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

const INPUTS: &str = "--model llama-3.1-8b --cluster dgx-h100 --gpus 16 --seq-len 8192 --global-batch 64";

/// Every schedule that has a CSV and no name of its own in torch is exported as its order and read back the same.
#[test]
fn every_exported_order_reads_back() {
    let folder = tempfile::tempdir().unwrap();
    let named = ["1f1b", "interleaved-1f1b", "gpipe", "looped-bfs", "interleaved-zb", "zb-v", "dualpipev"];
    let mut exported = 0;
    for &kind in ScheduleKind::ALL {
        let (schedule, chunks) = (Schedule::from(kind), kind.definition().default_chunks);
        let estimate = format!(
            "estimate {INPUTS} --runtime fsdp2 --tp 2 --pp 4 --vpp {chunks} --zero 2 --schedule {schedule} --out plan.json"
        );
        if !schedule.has_torch_csv() {
            let refused = meshwright(folder.path(), &estimate);
            let error = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert!(!refused.status.success() && error.contains("such a schedule"), "{schedule}: {error}");
            continue;
        }
        run(folder.path(), &estimate);
        run(folder.path(), "export plan.json --to torchtitan --out launch --force");
        let csv = folder.path().join(format!("launch/{schedule}.csv"));
        if named.contains(&kind.name()) {
            assert!(!csv.exists(), "{schedule}");
            continue;
        }
        let text = std::fs::read_to_string(folder.path().join("plan.json")).unwrap();
        let plan = Plan::from_json("plan.json", &text).unwrap();
        let simulated = SimulatedPipeline::of(&plan.run()).unwrap();
        assert_eq!(
            from_torch_csv(&std::fs::read_to_string(&csv).unwrap()).unwrap(),
            simulated.orders,
            "{schedule}"
        );
        std::fs::remove_dir_all(folder.path().join("launch")).unwrap();
        exported += 1;
    }
    assert!(exported > 12, "{exported}");
}

/// A plan for torchtitan may run a schedule torch has no name for; one for Megatron may not.
#[test]
fn plans_offer_what_the_launcher_runs() {
    let folder = tempfile::tempdir().unwrap();
    let fixed = format!("plan {INPUTS} --launcher torchtitan --fix pp=4,schedule=v-half --out plan.json");
    run(folder.path(), &fixed);
    run(folder.path(), "check plan.json");
    run(folder.path(), "export plan.json --to torchtitan --out launch");
    assert!(folder.path().join("launch/v-half.csv").exists());
    let refused =
        meshwright(folder.path(), &format!("plan {INPUTS} --launcher megatron --fix pp=4,schedule=v-half"));
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && error.contains("does not run v-half"), "{error}");
}
