//! Strategies by layer on random small problems: the dynamic program, an integer program and brute force through `estimate` end
//! at the same step.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod brute;
mod program;
#[path = "../support/mod.rs"]
mod support;

use brute::Menu;
use cluster_profiles::{Bytes, Cluster};
use cost_models::layerwise::Sharding;
use cost_models::model::{CustomLayer, Layer};
use cost_models::{ModelSpec, Recompute, Runtime, Workload};
use serde_json::json;
use solver::{Constraints, Problem};
use support::random::Random;
use support::runs::{cluster, same, searched, workload};

const FULL: Recompute = Recompute::Full { layers: None };

/// A random problem.
struct Case {
    model: ModelSpec,
    cluster: Cluster,
    workload: Workload,
    limit: Bytes,
    menu: Menu,
    fix: Vec<String>,
}

impl Case {
    fn blocks(&self) -> usize {
        let blocks = self.model.layers.iter();
        blocks.filter(|layer| matches!(layer, Layer::Block(_) | Layer::Custom(_))).count()
    }

    fn problem<'a>(&'a self, runtime: &'a Runtime) -> Problem<'a> {
        Problem {
            memory_limit: Some(self.limit),
            constraints: Constraints::parse(&self.fix, &[]).expect("terms"),
            top: 1,
            nearest: false,
            ..Problem::new(&self.model, &self.cluster, &self.workload, runtime)
        }
    }
}

/// Blocks of a few kinds, some of stated cost, between an embedding and a head, or alone.
fn layers(random: &mut Random) -> Vec<Layer> {
    let wide = |ffn: u64| {
        let sizes = json!({"layers": 1, "hidden": 4096, "heads": 32, "ffn": ffn, "vocab": 32000});
        ModelSpec::from_compact("block", &sizes).expect("sizes are sound").layers
    };
    let shell = wide(4096);
    let blocks = 2 + random.below(5);
    let stated = random.below(3) == 0;
    let mut list: Vec<Layer> = (0..blocks)
        .map(|_| {
            if stated {
                return Layer::Custom(CustomLayer {
                    parameters: (1 + random.below(12)) * 40_000_000,
                    forward_seconds: (1 + random.below(30)) as f64 * 1e-3,
                    input_gradient_seconds: (1 + random.below(30)) as f64 * 1e-3,
                    weight_gradient_seconds: random.below(30) as f64 * 1e-3,
                    activation_bytes: (1 + random.below(20)) as f64 * 1e8,
                    output_bytes: 3e7,
                });
            }
            wide(4096 * (1 + random.below(6)))[1]
        })
        .collect();
    if !stated || random.below(2) == 0 {
        list.insert(0, shell[0]);
        list.extend(&shell[2..]);
    }
    list
}

fn case(random: &mut Random) -> Case {
    let layers = layers(random);
    let blocks = layers.iter().filter(|layer| matches!(layer, Layer::Block(_) | Layer::Custom(_))).count();
    let sizes = json!({"layers": 1, "hidden": 4096, "heads": 32, "ffn": 4096, "vocab": 32000});
    let shell = ModelSpec::from_compact("irregular", &sizes).expect("sizes are sound");
    let gpus = [1, 2, 4, 8][random.below(4) as usize];
    let batch = [2, 4, 8, 16][random.below(4) as usize];
    let microbatches = [[1, 2], [2, 4], [1, 4], [2, 8]][random.below(4) as usize].map(|m: u64| m.min(batch));
    let [few, mut many] = microbatches;
    if blocks > 3 {
        many = few;
    }
    // As many ways as brute force can go through: 12 for two blocks, 2 for six.
    let mut menu = Menu {
        tps: vec![1, 2],
        shardings: vec![Sharding::Zero2, Sharding::Zero3],
        recomputes: vec![Recompute::None, FULL],
    };
    let mut fix = vec![format!("cp=1,microbatches={few}|{many}")];
    match (blocks, random.below(3)) {
        (2, _) => menu.tps = vec![1, 2, 4],
        (3, 0) => {}
        (3, _) => {
            menu.tps = vec![1, 2, 4];
            menu.recomputes = vec![Recompute::None];
        }
        (4, 0) => menu.shardings = vec![Sharding::Zero2],
        (4, 1) => menu.recomputes = vec![Recompute::None],
        (4, _) => menu.tps = vec![1],
        (5, _) => {
            menu.tps = vec![1, 2, 4];
            menu.shardings = vec![Sharding::Zero3];
            menu.recomputes = vec![Recompute::None];
        }
        (_, 0) => {
            menu.shardings = vec![Sharding::Zero2];
            menu.recomputes = vec![Recompute::None];
        }
        (_, 1) => {
            menu.tps = vec![1];
            menu.shardings = vec![Sharding::Zero3];
        }
        (_, _) => {
            menu.tps = vec![1];
            menu.recomputes = vec![Recompute::None];
        }
    }
    if blocks <= 3 {
        fix.push("pp<=2".to_owned());
    }
    let tps: Vec<String> = menu.tps.iter().map(u32::to_string).collect();
    let zeros: Vec<String> = menu.shardings.iter().map(|own| own.zero_stage().to_string()).collect();
    fix.push(format!("tp={},zero={}", tps.join("|"), zeros.join("|")));
    if menu.recomputes.len() == 1 {
        fix.push("recompute=none".to_owned());
    }
    let limit = [4.0, 7.0, 12.0, 20.0, 40.0, 74.0][random.below(6) as usize];
    Case {
        model: ModelSpec { layers, ..shell },
        cluster: cluster(gpus),
        workload: workload(batch, 2048),
        limit: Bytes::gib(limit),
        menu,
        fix,
    }
}

fn check(cases: u64, seed: u64) {
    let runtime = Runtime::named("galvatron").expect("a profile");
    let mut random = Random(seed);
    let (mut feasible, mut better, mut apart, mut open, mut programs) = (0, 0, 0, 0, 0);
    for index in 0..cases {
        let case = case(&mut random);
        let problem = case.problem(&runtime);
        let (any, alike) = brute::best(&problem, &case.menu);
        let found = searched(&problem);
        let step = found.as_ref().map(|solution| {
            (solution.estimate.step_time_seconds + solution.estimate.edge_penalty_seconds).get()
        });
        assert!(same(step, any), "case {index}: search {step:?}, brute force {any:?}: {:?}", case.fix);
        if let Some(solution) = &found {
            let certificate = &solution.certificate;
            let bound = certificate.bound_seconds.get();
            assert!(any.is_some_and(|best| bound <= best * (1.0 + 1e-9)), "case {index}: {certificate:?}");
            open += u32::from(certificate.gap > 0.0);
            apart += u32::from(solution.layer_strategies.is_some());
        }
        feasible += u32::from(any.is_some());
        better += u32::from(match (any, alike) {
            (Some(any), Some(alike)) => any < alike * (1.0 - 1e-9),
            (Some(_), None) => true,
            (None, _) => false,
        });
        // The program lists solutions by a bound, of which a pipeline of many ranks has thousands near the best.
        if case.blocks() <= 3 && case.fix.iter().any(|term| term == "pp<=2") {
            programs += 1;
            let program = program::best(&problem, &case.menu);
            assert!(same(program, any), "case {index}: integer program {program:?}, brute force {any:?}");
        }
    }
    println!(
        "{cases} cases, {programs} by program too, {feasible} feasible, {apart} with strategies, {better} better for them, {open} open"
    );
    assert!(u64::from(feasible) * 2 > cases, "only {feasible} of {cases} had a plan");
    assert!(u64::from(better) * 8 > cases, "strategies by layer helped in {better} of {cases} only");
    assert_eq!(open, 0, "{open} were not closed");
}

#[test]
fn all_three_end_at_the_same_step() {
    check(100, 5);
}

#[test]
#[ignore = "minutes: cargo test --release -p meshwright-solver --test layerwise -- --ignored"]
fn all_three_end_at_the_same_step_on_500() {
    check(500, 23);
}

/// Where memory binds, blocks that differ beat the best layout whose blocks are alike; never the other way round.
#[test]
fn strategies_by_layer_are_never_worse_and_better_where_memory_binds() {
    let runtime = Runtime::named("galvatron").expect("a profile");
    let model = cost_models::model::catalog::get("llama-3.1-8b").expect("a catalogue model");
    for (gpus, batch, seq_len, limit) in [(8, 64, 8192, 40.0), (8, 32, 4096, 74.0), (16, 32, 4096, 30.0)] {
        let case = Case {
            model: model.clone(),
            cluster: cluster(gpus),
            workload: workload(batch, seq_len),
            limit: Bytes::gib(limit),
            menu: Menu { tps: Vec::new(), shardings: Vec::new(), recomputes: Vec::new() },
            fix: Vec::new(),
        };
        let problem = case.problem(&runtime);
        let free = searched(&problem).expect("it fits");
        let alike = searched(&Problem { layers_alike: true, ..problem.clone() }).expect("it fits");
        let (step, other) = (free.estimate.step_time_seconds, alike.estimate.step_time_seconds);
        assert!(step <= other, "{gpus} GPUs: {step:?} against {other:?}");
        let binds = limit == 40.0;
        assert!(!binds || (step < other * 0.999 && free.layer_strategies.is_some()), "{step:?}, {other:?}");
    }
}

/// Catalogue models on whole nodes: bounded work, small gaps.
#[test]
#[ignore = "a minute: cargo test --release -p meshwright-solver --test layerwise -- --ignored --nocapture"]
fn large_models_are_planned_with_bounded_work() {
    let runtime = Runtime::named("galvatron").expect("a profile");
    for (name, gpus, batch, seq_len, limit) in [
        ("llama-3.1-8b", 8, 32, 4096, None),
        ("llama-3.1-8b", 8, 64, 8192, Some(40.0)),
        ("llama-3.1-70b", 64, 128, 4096, None),
        ("llama-3.1-70b", 64, 128, 8192, None),
        ("llama-3.1-70b", 32, 64, 4096, Some(60.0)),
        ("llama-3.1-405b", 1024, 512, 8192, None),
    ] {
        let model = cost_models::model::catalog::get(name).expect("a catalogue model");
        let cluster = cluster(gpus);
        let workload = workload(batch, seq_len);
        let problem = Problem {
            memory_limit: limit.map(Bytes::gib),
            nearest: false,
            ..Problem::new(&model, &cluster, &workload, &runtime)
        };
        let start = std::time::Instant::now();
        let found = searched(&problem).expect("it fits somehow");
        let alike = searched(&Problem { layers_alike: true, ..problem.clone() });
        println!(
            "{name} on {gpus}: {:.2?}, step {:.4} (alike {:.4}), gap {:.4} %, {} simulated, {:?}",
            start.elapsed(),
            found.estimate.step_time_seconds.get(),
            alike.map_or(f64::NAN, |alike| alike.estimate.step_time_seconds.get()),
            found.certificate.gap * 100.0,
            found.certificate.simulated,
            found.layer_strategies.map(|strategies| strategies.to_string()),
        );
    }
}
