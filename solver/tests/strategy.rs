//! Stages that choose what they repeat: the search and brute force over all splits and all choices of all stages end at the
//! same step time, each judged by `estimate`.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic)]

mod support;

use cluster_profiles::Bytes;
use cost_models::model::{CustomLayer, Layer};
use cost_models::rules::{Facts, engine};
use cost_models::{ModelSpec, ParallelConfig, Recompute, Runtime, Stage, StageMap};
use serde_json::json;
use solver::{Constraints, Problem, Solution};
use support::random::Random;
use support::runs::{all_splits, cluster, proved, same, step, step_if_it_fits, workload};

impl Random {
    fn layer(&mut self) -> Layer {
        let milliseconds = |value: u64| value as f64 * 1e-3;
        Layer::Custom(CustomLayer {
            parameters: (1 + self.below(8)) * 50_000_000,
            forward_seconds: milliseconds(1 + self.below(30)),
            input_gradient_seconds: milliseconds(1 + self.below(30)),
            weight_gradient_seconds: milliseconds(self.below(30)),
            activation_bytes: (1 + self.below(40)) as f64 * 2e8,
            output_bytes: 3e7,
        })
    }
}

/// Seconds of a step, if the layout fits.
fn judged(
    problem: &Problem,
    parallel: &ParallelConfig,
    ends: &[usize],
    choices: &[Recompute],
) -> Option<f64> {
    let starts = std::iter::once(0).chain(ends.iter().copied());
    let stages = starts.zip(ends).zip(choices).enumerate().map(|(rank, ((start, &end), &recompute))| Stage {
        rank: rank as u32,
        chunk: 0,
        layers: Some([start as u32, end as u32 - 1]),
        recompute,
    });
    step_if_it_fits(problem, parallel, &StageMap(stages.collect()))
}

fn degrees(problem: &Problem) -> Vec<ParallelConfig> {
    let facts = Facts::new(problem.model, problem.cluster, problem.workload);
    let engine = engine(&problem.runtime.name);
    let divisors = |number: u64| (1..=number).filter(move |divisor| number.is_multiple_of(*divisor));
    let mut list = Vec::new();
    for pp in divisors(facts.world) {
        let dp = facts.world / pp;
        for micro_batch_size in divisors(facts.global_batch) {
            for &zero_stage in engine.zero_stages {
                let parallel = ParallelConfig {
                    pp: pp as u32,
                    dp_shard: dp as u32,
                    zero_stage,
                    micro_batch_size,
                    num_microbatches: facts.global_batch / (micro_batch_size * dp).max(1),
                    ..ParallelConfig::default()
                };
                if engine.allows(&facts, &parallel) {
                    list.push(parallel);
                }
            }
        }
    }
    list
}

/// Every combination of choices of stages with so many layers.
fn choices(layers: &[usize]) -> Vec<Vec<Recompute>> {
    let Some((first, rest)) = layers.split_first() else { return vec![Vec::new()] };
    let counted = (1..=*first as u32).map(|n| Recompute::Full { layers: Some(n) });
    let own: Vec<Recompute> = std::iter::once(Recompute::None).chain(counted).collect();
    let rest = choices(rest);
    own.iter().flat_map(|&choice| rest.iter().map(move |rest| [&[choice][..], rest].concat())).collect()
}

fn brute_force(problem: &Problem) -> Option<f64> {
    let mut best: Option<f64> = None;
    for parallel in degrees(problem) {
        for ends in all_splits(problem.model.layers.len(), parallel.pp as usize) {
            let starts = std::iter::once(0).chain(ends.iter().copied());
            let layers: Vec<usize> = starts.zip(&ends).map(|(start, end)| end - start).collect();
            let steps =
                choices(&layers).into_iter().filter_map(|choice| judged(problem, &parallel, &ends, &choice));
            best = best.into_iter().chain(steps).reduce(f64::min);
        }
    }
    best
}

fn check(cases: u64, most_layers: u64) {
    let sizes = json!({"layers": 1, "hidden": 1024, "heads": 16, "ffn": 4096, "vocab": 1000});
    let shell = ModelSpec::from_compact("irregular", &sizes).expect("sizes are sound");
    let runtime = Runtime::named("colossalai").expect("a catalogue runtime");
    let constraints = Constraints::parse(&["schedule=1f1b,tp=1,cp=1,ep=1"], &[]).expect("terms");
    let mut random = Random(5);
    let (mut feasible, mut repeated) = (0, 0);
    for case in 0..cases {
        let layers = (0..2 + random.below(most_layers - 1)).map(|_| random.layer()).collect();
        let model = ModelSpec { layers, ..shell.clone() };
        let cluster = cluster([1, 2, 3, 4][random.below(4) as usize]);
        let workload = workload([4, 6, 8, 12][random.below(4) as usize], 1024);
        let problem = Problem {
            memory_limit: Some(Bytes::gib([16.0, 20.0, 28.0, 40.0][random.below(4) as usize])),
            constraints: constraints.clone(),
            top: 1,
            ..Problem::new(&model, &cluster, &workload, &runtime)
        };
        let brute = brute_force(&problem);
        let found = proved(&problem);
        let repeats = |own: &Solution| own.stages.0.iter().any(|stage| stage.recompute != Recompute::None);
        repeated += u32::from(found.as_ref().is_some_and(repeats));
        feasible += u32::from(brute.is_some());
        let found = found.as_ref().map(step);
        assert!(same(found, brute), "case {case}: {found:?} {brute:?}");
    }
    assert!(
        feasible * 2 > cases as u32 && repeated * 8 > cases as u32,
        "{feasible} had a plan, {repeated} repeat"
    );
}

#[test]
fn stages_repeat_no_more_than_brute_force_says() {
    check(120, 5);
}

#[test]
#[ignore = "minutes: cargo test --release -p meshwright-solver --test strategy -- --ignored"]
fn stages_repeat_no_more_than_brute_force_says_on_500() {
    check(500, 7);
}
