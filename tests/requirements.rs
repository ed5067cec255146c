//! What a plan rests on: requirements, engine profiles of one's own, memory near its edge.

use cluster_profiles::{Bytes, Precision};
use cost_models::{Dtype, Optimizer, Workload};
use meshwright::inputs::{self, Inputs, Source};
use meshwright::plan::Plan;
use meshwright::require::Require;
use meshwright::{Answer, Wishes};

fn source<'a>(cluster: &'a str, gpus: u64) -> Source<'a> {
    let workload = Workload {
        global_batch: 32,
        seq_len: 4096,
        precision: Precision::Bf16,
        optimizer: Optimizer::Adamw,
        gradient_dtype: Some(Dtype::Fp32),
        expert_imbalance: 1.0,
    };
    Source {
        model: "llama-3.1-8b",
        cluster,
        lost: &[],
        gpus: Some(gpus),
        workload,
        runtime: None,
        launcher: None,
        memory_limit: None,
    }
}

fn answer(inputs: Inputs, require: Option<Require>) -> Answer {
    let wishes = Wishes { require, top: 1, ..Wishes::default() };
    meshwright::plan(inputs, &wishes, &solver::Silent).unwrap()
}

fn planned(answer: Answer) -> Plan {
    match answer {
        Answer::Plan(plan) => *plan,
        other => panic!("{other:?}"),
    }
}

fn refused(answer: Answer) -> String {
    match answer {
        Answer::Infeasible(infeasible) => infeasible.reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn measured_refuses_links_that_nobody_measured() {
    let one = inputs::load(&source("dgx-h100", 8)).unwrap();
    let plan = planned(answer(one, Some(Require::Measured)));
    assert!(plan.estimate.basis.iter().all(|share| share.basis != "assumed"), "{:?}", plan.estimate.basis);
    let two = inputs::load(&source("dgx-h100", 16)).unwrap();
    let reason = refused(answer(two, Some(Require::Measured)));
    assert!(reason.contains("links between nodes"), "{reason}");
    let assumed = inputs::load(&source("mi300x-8x", 8)).unwrap();
    assert!(refused(answer(assumed, Some(Require::Measured))).contains("mi300x"));
}

#[test]
fn validated_plans_are_like_published_runs_in_every_axis() {
    let inputs = inputs::load(&source("dgx-h100", 16)).unwrap();
    let support = planned(answer(inputs, Some(Require::Validated))).estimate.published;
    assert!(support.runs > 0);
    assert!(support.axes.iter().all(|(_, runs)| *runs > 0), "{support:?}");
    let unlike = inputs::load(&source("mi300x-8x", 8)).unwrap();
    assert!(refused(answer(unlike, Some(Require::Validated))).contains("no published run"));
}

#[test]
fn runs_unlike_published_ones_get_a_wider_interval() {
    let relative = |cluster: &str| {
        let plan = planned(answer(inputs::load(&source(cluster, 8)).unwrap(), None));
        plan.estimate.step_time_interval_seconds[1].get() / plan.estimate.step_time_seconds.get()
    };
    assert!(relative("mi300x-8x") > relative("dgx-h100") + 0.05);
}

#[test]
fn the_search_counts_what_a_full_memory_costs() {
    let default = planned(answer(inputs::load(&source("dgx-h100", 8)).unwrap(), None));
    assert_eq!(default.estimate.edge_penalty_seconds.get(), 0.0);
    let all = Source { memory_limit: Some(Bytes::gib(79.0)), ..source("dgx-h100", 8) };
    let full = planned(answer(inputs::load(&all).unwrap(), None));
    let with_penalty = full.estimate.step_time_seconds + full.estimate.edge_penalty_seconds;
    assert!(with_penalty <= default.estimate.step_time_seconds * (1.0 + 1e-9));
}

#[test]
fn an_engine_may_be_described_in_a_file() {
    let profile = include_str!("../cost_models/runtimes/megatron-core.toml");
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let ratio = |text: &str| profile.replace("ratio = 1.045", text);
    let own = write("own.toml", &ratio("ratio = 1.2"));
    let with = |path: &str| inputs::load(&Source { runtime: Some(path), ..source("dgx-h100", 8) });
    assert_eq!(with(&own).unwrap().runtime.memory.reserve.ratio, 1.2);
    assert_eq!(with(&write("same.toml", profile)).unwrap().runtime, with("megatron-core").unwrap().runtime);
    for (text, word) in [
        (ratio("ratio = 0.2"), "memory.reserve.ratio is 0.2"),
        (ratio("ratio = nan"), "memory.reserve.ratio"),
        (profile.replace("name = \"megatron-core\"", "name = \"mine\""), "mine"),
        (profile.replace("[time]", "[time]\nspeed = 3"), "speed"),
    ] {
        let error = with(&write("wrong.toml", &text)).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
}
