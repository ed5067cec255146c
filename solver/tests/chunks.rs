//! Several chunks per rank: the search and brute force over all balanced splits and all counts of recomputed layers end at the
//! same step time, each judged by `estimate`.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic)]

mod support;

use cluster_profiles::Bytes;
use cost_models::model::{CustomLayer, Layer};
use cost_models::rules::{Facts, engine};
use cost_models::schedule::Placement;
use cost_models::{ModelSpec, ParallelConfig, Recompute, Runtime};
use serde_json::json;
use solver::families::{Slack, balanced};
use solver::splits::stage_map;
use solver::units::Units;
use solver::{Constraints, Problem};
use support::random::Random;
use support::runs::{cluster, same, searched, step, step_if_it_fits, workload};

impl Random {
    fn layer(&mut self) -> Layer {
        let milliseconds = |value: u64| value as f64 * 1e-3;
        Layer::Custom(CustomLayer {
            parameters: (1 + self.below(6)) * 50_000_000,
            forward_seconds: milliseconds(1 + self.below(20)),
            input_gradient_seconds: milliseconds(1 + self.below(20)),
            weight_gradient_seconds: milliseconds(self.below(20)),
            activation_bytes: (1 + self.below(30)) as f64 * 1e8,
            output_bytes: 3e7,
        })
    }

    /// A few kinds of layers, in random order.
    fn layers(&mut self, most: u64) -> Vec<Layer> {
        let kinds: Vec<Layer> = (0..1 + self.below(3)).map(|_| self.layer()).collect();
        (0..4 + self.below(most - 3)).map(|_| kinds[self.below(kinds.len() as u64) as usize]).collect()
    }
}

/// Seconds of a step, if the layout fits.
fn judged(problem: &Problem, units: &Units, parallel: &ParallelConfig, ends: &Vec<usize>) -> Option<f64> {
    step_if_it_fits(problem, parallel, &stage_map(units, parallel, Placement::Loop, ends))
}

/// Every legal set of degrees with several chunks per rank, for layers of stated cost.
fn degrees(problem: &Problem) -> Vec<ParallelConfig> {
    let facts = Facts::new(problem.model, problem.cluster, problem.workload);
    let engine = engine(&problem.runtime.name);
    let layers = problem.model.layers.len() as u64;
    let divisors = |number: u64| (1..=number).filter(move |divisor| number.is_multiple_of(*divisor));
    let counted = (1..=layers as u32).map(|count| Recompute::Full { layers: Some(count) });
    let recomputes: Vec<Recompute> = std::iter::once(Recompute::None).chain(counted).collect();
    let mut list = Vec::new();
    for pp in divisors(facts.world).filter(|&pp| pp > 1) {
        let dp = facts.world / pp;
        for micro_batch_size in divisors(facts.global_batch) {
            for vpp in 2..=layers / pp {
                for &recompute in &recomputes {
                    let parallel = ParallelConfig {
                        pp: pp as u32,
                        vpp: vpp as u32,
                        dp_shard: dp as u32,
                        zero_stage: 1,
                        micro_batch_size,
                        num_microbatches: facts.global_batch / (micro_batch_size * dp).max(1),
                        schedule: "interleaved-1f1b".to_owned(),
                        recompute,
                        ..ParallelConfig::default()
                    };
                    if engine.allows(&facts, &parallel) {
                        list.push(parallel);
                    }
                }
            }
        }
    }
    list
}

fn least(problem: &Problem, splits: impl Fn(&Units, usize, usize) -> Vec<Vec<usize>>) -> Option<f64> {
    let units = Units::new(problem.model);
    let mut best: Option<f64> = None;
    for parallel in degrees(problem) {
        let (ranks, chunks) = (parallel.pp as usize, parallel.vpp as usize);
        let ends = splits(&units, ranks * chunks, ranks);
        let steps = ends.iter().filter_map(|ends| judged(problem, &units, &parallel, ends));
        best = best.into_iter().chain(steps).reduce(f64::min);
    }
    best
}

fn balanced_splits(units: &Units, stages: usize, ranks: usize) -> Vec<Vec<usize>> {
    balanced(units, stages, ranks, Slack { first: 1, last: 1 })
}

fn check(cases: u64, most_layers: u64) {
    let sizes = json!({"layers": 1, "hidden": 1024, "heads": 16, "ffn": 4096, "vocab": 1000});
    let shell = ModelSpec::from_compact("irregular", &sizes).expect("sizes are sound");
    let runtime = Runtime::named("megatron-core").expect("a catalogue runtime");
    let terms = ["schedule=interleaved-1f1b,tp=1,cp=1,ep=1,zero=1,dp-replicate=1"];
    let constraints = Constraints::parse(&terms, &["pp=1", "vpp=1"]).expect("terms");
    let mut random = Random(11);
    let (mut feasible, mut repeated) = (0, 0);
    for case in 0..cases {
        let model = ModelSpec { layers: random.layers(most_layers), ..shell.clone() };
        let cluster = cluster([2, 3, 4][random.below(3) as usize]);
        let workload = workload([4, 6, 8, 12][random.below(4) as usize], 1024);
        let problem = Problem {
            memory_limit: Some(Bytes::gib([12.0, 16.0, 20.0, 28.0][random.below(4) as usize])),
            constraints: constraints.clone(),
            top: 1,
            ..Problem::new(&model, &cluster, &workload, &runtime)
        };
        let brute = least(&problem, balanced_splits);
        let found = searched(&problem);
        feasible += u32::from(brute.is_some());
        let recompute = found.as_ref().map(|solution| solution.parallel.recompute);
        repeated += u32::from(recompute.is_some_and(|recompute| recompute != Recompute::None));
        let found = found.as_ref().map(step);
        assert!(same(found, brute), "case {case}: {found:?} {brute:?}");
    }
    assert!(
        feasible * 4 > cases as u32 && repeated * 16 > cases as u32,
        "{feasible} had a plan, {repeated} repeat"
    );
}

#[test]
fn chunks_repeat_no_more_than_brute_force_says() {
    check(160, 12);
}

#[test]
#[ignore = "a minute: cargo test -p meshwright-solver --test chunks -- --ignored"]
fn chunks_repeat_no_more_than_brute_force_says_on_1500() {
    check(1500, 12);
}
