//! A search for a launcher finds what it can start, and what its limits cost.

use cluster_profiles::Precision;
use cost_models::{Optimizer, Workload};
use meshwright::inputs::{self, Inputs, Source};
use meshwright::launch::{self, layers};
use meshwright::plan::Plan;
use meshwright::{Answer, Wishes};
use solver::Constraints;

fn loaded(
    launcher: &str,
    model: &str,
    gpus: u64,
    seq_len: u64,
    global_batch: u64,
) -> Result<Inputs, meshwright::error::AppError> {
    inputs::load(&Source {
        model,
        cluster: "dgx-h100",
        gpus: Some(gpus),
        workload: Workload {
            global_batch,
            seq_len,
            precision: Precision::Bf16,
            optimizer: Optimizer::Adamw,
            gradient_dtype: None,
            expert_imbalance: 1.0,
        },
        runtime: None,
        launcher: Some(launcher),
        memory_limit: None,
        lost: &[],
    })
}

/// The plan of a search that keeps what the launcher forbids.
fn planned(launcher: &str, inputs: Inputs) -> Plan {
    let none: [&str; 0] = [];
    let constraints = Constraints::parse(&none, launch::named(launcher).unwrap().forbids()).unwrap();
    let wishes = Wishes { constraints, top: 1, ..Wishes::default() };
    match meshwright::plan(inputs, &wishes, &solver::Silent).unwrap() {
        Answer::Plan(plan) => *plan,
        _ => panic!("{launcher} has a plan"),
    }
}

/// Every launcher starts what is planned for it; one that lacks a model says so before the search, with those that have it.
#[test]
fn what_is_planned_for_a_launcher_is_exported() {
    let usual: Vec<_> = layers::USUAL.iter().filter_map(|name| layers::named(name)).collect();
    let (mut started, mut refused) = (0, Vec::new());
    for launcher in launch::ALL {
        for (model, gpus) in
            [("llama-3.1-8b", 16), ("qwen3-30b-a3b", 32), ("llama-3.1-70b", 64), ("gemma-2-9b", 8)]
        {
            let name = launcher.name();
            let inputs = match loaded(name, model, gpus, 8192, 128) {
                Ok(inputs) => inputs,
                Err(error) => {
                    assert!(error.to_string().contains(&format!("--launcher {name} cannot run")), "{error}");
                    assert!(error.hint().is_some_and(|hint| hint.contains("deepspeed")), "{error:?}");
                    refused.push((name, model));
                    continue;
                }
            };
            let plan = planned(name, inputs);
            let files = launch::folder(&plan, *launcher, &usual);
            assert!(files.is_ok(), "{name} {model} {:?}: {}", plan.parallel, files.unwrap_err());
            started += 1;
        }
    }
    assert!(started > 30, "{started}");
    assert!(
        refused.contains(&("torchtitan", "gemma-2-9b")) && refused.contains(&("nanotron", "qwen3-30b-a3b"))
    );
}

/// A format that the launcher's files cannot state is refused as well.
#[test]
fn formats_that_a_launcher_lacks_are_refused() {
    let mut source = loaded("torchtitan", "llama-3.1-8b", 8, 4096, 8).unwrap();
    source.workload.precision = Precision::Fp8;
    let told = launch::named("torchtitan").unwrap().refuses(&source.model, &source.workload);
    assert!(told.iter().any(|what| what.contains("fp8")), "{told:?}");
    assert!(launch::named("megatron").unwrap().refuses(&source.model, &source.workload).is_empty());
}

#[test]
fn what_a_launcher_forbids_can_be_read_by_the_search() {
    for launcher in launch::ALL {
        let forbidden = solver::Constraints::parse(&[], launcher.forbids());
        assert!(forbidden.is_ok(), "{}: {forbidden:?}", launcher.name());
    }
}

/// What a launcher cannot do costs time that is told, with the reason.
#[test]
fn the_cost_of_a_launchers_limits_is_told() {
    let plan = planned("deepspeed", loaded("deepspeed", "llama-3.1-8b", 16, 32_768, 8).unwrap());
    let limits = meshwright::limits::of(&plan, &Wishes::default(), &solver::Silent).unwrap();
    assert!(limits.slower > 0.0 && limits.limits.iter().any(|limit| limit.starts_with("no ")), "{limits:?}");
}
