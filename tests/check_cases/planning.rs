//! Reports that ask what to run, or where: questions for the search, whose answer `check` confirms.

use cluster_profiles::Precision;
use cost_models::{Optimizer, Workload};
use meshwright::inputs::{self, Source};
use meshwright::launch::{self, layers};
use meshwright::plan::Plan;
use meshwright::{Answer, Wishes, check};
use solver::Constraints;

/// The plan of a model on `gpus` H100, with what is asked for.
fn planned(model: &str, gpus: u64, seq_len: u64, global_batch: u64, fix: &[&str]) -> Plan {
    let workload = Workload {
        global_batch,
        seq_len,
        precision: Precision::Bf16,
        optimizer: Optimizer::Adamw,
        gradient_dtype: None,
        expert_imbalance: 1.0,
    };
    let inputs = inputs::load(&Source {
        model,
        cluster: "dgx-h100",
        gpus: Some(gpus),
        lost: &[],
        workload,
        runtime: None,
        launcher: None,
        memory_limit: None,
    })
    .unwrap();
    let none: [&str; 0] = [];
    let constraints = Constraints::parse(fix, &none).unwrap();
    let wishes = Wishes { constraints, top: 1, ..Wishes::default() };
    match meshwright::plan(inputs, &wishes, &solver::Silent).unwrap() {
        Answer::Plan(plan) => *plan,
        _ => panic!("{model} on {gpus} GPUs has a plan"),
    }
}

/// verl#901: 7B on 8 H100 with 16 to 32 thousand tokens: no tensor parallelism for the weights, the sequence is split.
#[test]
fn c67_seven_billion_on_long_sequences() {
    for seq_len in [16_384, 32_768] {
        let plan = planned("qwen2.5-7b", 8, seq_len, 32, &[]);
        assert!(check::check(&plan).passes());
        assert!(plan.parallel.tp * plan.parallel.cp <= 4, "{:?}", plan.parallel);
    }
}

/// NVIDIA/Megatron-LM#1849: the micro batch is found, and neither twice nor half of it is faster.
#[test]
fn c71_the_micro_batch_is_planned() {
    for (model, gpus) in [("llama-3.1-8b", 8), ("qwen3-30b-a3b", 16)] {
        let plan = planned(model, gpus, 4096, 256, &[]);
        let verdict = check::check(&plan);
        assert!(verdict.passes());
        let rebatched: Vec<_> = verdict
            .faster
            .iter()
            .filter(|change| change.parallel.micro_batch_size != plan.parallel.micro_batch_size)
            .collect();
        assert!(rebatched.is_empty(), "{model}: {:?} {rebatched:?}", plan.parallel);
    }
}

/// vllm PR#51548: in the usual order of ranks a pipeline rank is a node, its replicas and tensor-parallel ranks are inside it, and
/// the placement says so.
#[test]
fn c73_pipeline_ranks_are_nodes() {
    let plan = planned("llama-3.1-8b", 16, 4096, 64, &["tp=2", "pp=2", "cp=1", "rank_order=tp-cp-ep-dp-pp"]);
    assert_eq!((plan.parallel.dp(), plan.placement.ranks.len()), (4, 16));
    for seat in &plan.placement.ranks {
        assert_eq!(seat.coordinates.pp, seat.host, "{seat:?}");
    }
}

/// NVIDIA/Megatron-LM#1856: stages go to other hosts by the order of the hosts alone; the flags stay.
#[test]
fn c75_stages_are_moved_by_the_order_of_hosts() {
    let plan = planned("llama-3.1-8b", 16, 4096, 64, &["tp=2", "pp=2", "cp=1"]);
    let mut reversed = plan.clone();
    reversed.placement.hosts.reverse();
    let usual: Vec<_> = layers::USUAL.iter().filter_map(|name| layers::named(name)).collect();
    let files = |plan: &Plan| launch::folder(plan, launch::named("megatron").unwrap(), &usual).unwrap();
    let text = |plan: &Plan, name: &str| {
        files(plan).into_iter().find(|file| file.name == name).map(|file| file.text).unwrap()
    };
    let hosts = |plan: &Plan| text(plan, "hosts.txt").lines().map(str::to_owned).collect::<Vec<_>>();
    let mut turned = hosts(&reversed);
    turned.reverse();
    assert_eq!(hosts(&plan), turned);
    assert_eq!(text(&plan, "megatron.args"), text(&reversed, "megatron.args"));
}
