//! Layers kept, repeated or moved to the host: the search and brute force over all counts of each end at the same step time, each
//! judged by `estimate`.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic)]

mod support;

use cluster_profiles::{Bytes, BytesPerSecond, Cluster, Seconds};
use cost_models::model::{CustomLayer, Layer};
use cost_models::rules::{Facts, engine};
use cost_models::{ModelSpec, ParallelConfig, Recompute, Runtime, Stage, StageMap};
use serde_json::json;
use solver::{Constraints, Problem, Solution};
use support::random::Random;
use support::runs::{proved, same, step, step_if_it_fits, workload};

impl Random {
    fn layer(&mut self) -> Layer {
        let milliseconds = |value: u64| value as f64 * 1e-3;
        Layer::Custom(CustomLayer {
            parameters: (1 + self.below(6)) * 50_000_000,
            forward_seconds: milliseconds(5 + self.below(30)),
            input_gradient_seconds: milliseconds(5 + self.below(30)),
            weight_gradient_seconds: milliseconds(self.below(30)),
            activation_bytes: (1 + self.below(40)) as f64 * 2e8,
            output_bytes: 3e7,
        })
    }
}

/// GPUs of a node whose links to the host have this rate each.
fn cluster(gpus: u64, gigabytes: f64) -> Cluster {
    let mut cluster = support::runs::cluster(gpus);
    cluster.groups[0].node.host.bandwidth = BytesPerSecond(gigabytes * 1e9);
    cluster.groups[0].node.host.latency = Seconds::ZERO;
    cluster
}

/// Seconds of a step, if the layout fits.
fn judged(problem: &Problem, parallel: &ParallelConfig) -> Option<f64> {
    let last = problem.model.layers.len() as u32 - 1;
    let stage = Stage { rank: 0, chunk: 0, layers: Some([0, last]), recompute: parallel.recompute };
    step_if_it_fits(problem, parallel, &StageMap(vec![stage]))
}

/// Every legal layout without a pipeline that keeps, repeats or moves so many layers as `counts` says.
fn least(problem: &Problem, recomputes: &[Recompute]) -> Option<f64> {
    let facts = Facts::new(problem.model, problem.cluster, problem.workload);
    let engine = engine(&problem.runtime.name);
    let divisors = |number: u64| (1..=number).filter(move |divisor| number.is_multiple_of(*divisor));
    let dp = facts.world;
    let mut best: Option<f64> = None;
    for micro_batch_size in divisors(facts.global_batch) {
        for (zero_stage, replicas) in std::iter::once((0, 1)).chain(divisors(dp).map(|copies| (1, copies))) {
            for &recompute in recomputes {
                let parallel = ParallelConfig {
                    dp_replicate: replicas as u32,
                    dp_shard: (dp / replicas) as u32,
                    zero_stage,
                    micro_batch_size,
                    num_microbatches: facts.global_batch / (micro_batch_size * dp).max(1),
                    recompute,
                    ..ParallelConfig::default()
                };
                if engine.allows(&facts, &parallel) {
                    best = best.into_iter().chain(judged(problem, &parallel)).reduce(f64::min);
                }
            }
        }
    }
    best
}

fn is_moved(solution: &Solution) -> bool {
    matches!(solution.parallel.recompute, Recompute::Offload { .. })
}

#[test]
fn the_search_keeps_repeats_and_moves_as_brute_force_does() {
    let sizes = json!({"layers": 1, "hidden": 1024, "heads": 16, "ffn": 4096, "vocab": 1000});
    let shell = ModelSpec::from_compact("irregular", &sizes).expect("sizes are sound");
    let runtime = Runtime::named("megatron-core").expect("a catalogue runtime");
    let constraints = Constraints::parse(&["pp=1,tp=1,cp=1,ep=1,schedule=1f1b"], &[]).expect("terms");
    let mut random = Random(23);
    let (mut kept, mut repeated, mut moved, mut none) = (0, 0, 0, 0);
    for case in 0..300 {
        let layers: Vec<Layer> = (0..2 + random.below(7)).map(|_| random.layer()).collect();
        let count = layers.len() as u32;
        let model = ModelSpec { layers, ..shell.clone() };
        let rate = [0.01, 5.0, 40.0, 120.0, 1e9][random.below(5) as usize];
        let cluster = cluster([1, 2, 4][random.below(3) as usize], rate);
        let workload = workload([4, 8][random.below(2) as usize], 1024);
        let problem = Problem {
            memory_limit: Some(Bytes::gib([20.0, 28.0, 36.0, 48.0][random.below(4) as usize])),
            constraints: constraints.clone(),
            top: 1,
            moves_activations: true,
            nearest: false,
            ..Problem::new(&model, &cluster, &workload, &runtime)
        };
        let repeats: Vec<Recompute> = (1..=count).map(|n| Recompute::Full { layers: Some(n) }).collect();
        let without: Vec<Recompute> = [&[Recompute::None], &repeats[..]].concat();
        let moves = (1..count).map(|layers| Recompute::Offload { layers });
        let with: Vec<Recompute> = without.iter().copied().chain(moves).collect();
        let found = proved(&problem);
        let (brute, other) = (least(&problem, &with), least(&problem, &without));
        assert!(
            same(found.as_ref().map(step), brute),
            "case {case}: {:?} {brute:?}",
            found.as_ref().map(step)
        );
        let plain = proved(&Problem { moves_activations: false, ..problem.clone() });
        assert!(same(plain.as_ref().map(step), other), "case {case}: without {other:?}");
        match &found {
            Some(solution) if is_moved(solution) => {
                moved += 1;
                assert!(rate > 1.0 || plain.is_none(), "case {case}: moved over a link of {rate} GB/s");
            }
            Some(solution) if solution.parallel.recompute == Recompute::None => kept += 1,
            Some(solution) => {
                repeated += 1;
                assert!(rate < 1e9, "case {case}: {} repeated", solution.parallel.recompute);
            }
            None => none += 1,
        }
    }
    assert!(
        kept > 30 && repeated > 30 && moved > 30 && none < 150,
        "{kept} keep, {repeated} repeat, {moved} move, {none} do not fit"
    );
}

#[test]
fn what_is_moved_may_be_fixed_and_only_where_the_engine_can() {
    let model = cost_models::model::catalog::get("llama-3.1-8b").expect("a catalogue model");
    let cluster = cluster(8, 52.0);
    let workload = workload(32, 8192);
    let plan = |runtime: &str, terms: &str| {
        let runtime = Runtime::named(runtime).expect("a catalogue runtime");
        let constraints = Constraints::parse(&[terms], &[]).expect("terms");
        let problem =
            Problem { constraints, nearest: false, ..Problem::new(&model, &cluster, &workload, &runtime) };
        proved(&problem).map(|solution| solution.parallel)
    };
    let fixed = plan("megatron-core", "recompute=offload:7").expect("a plan");
    assert_eq!((fixed.recompute, fixed.pp), (Recompute::Offload { layers: 7 }, 1));
    let any = plan("megatron-core", "recompute=offload").expect("a plan");
    assert!(any.recompute.is_moving());
    let piped = plan("megatron-core", "recompute=offload,pp=2").expect("a plan");
    assert!(matches!(piped.recompute, Recompute::Modules(choice) if !choice.moved.is_empty()));
    assert_eq!(plan("megatron-core", "recompute=offload:7,pp=2"), None);
    let named = plan("megatron-core", "recompute=offload:attn_proj+core_attn,pp=2").expect("a plan");
    assert_eq!(named.recompute.to_string(), "offload:core_attn+attn_proj");
    assert_eq!(plan("megatron-core", "recompute=offload:attn_proj"), None);
    assert_eq!(plan("fsdp2", "recompute=offload:7"), None);
}
