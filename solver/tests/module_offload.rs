//! Modules kept, repeated and moved to the host in pipelines: the search and brute force over choices, splits and degrees end at
//! the same step time, each judged by `estimate`.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic)]

mod support;

use cluster_profiles::{Bytes, BytesPerSecond, Cluster};
use cost_models::estimate::hosts_fit;
use cost_models::model::Layer;
use cost_models::rules::{Facts, engine};
use cost_models::schedule::Placement;
use cost_models::{ModelSpec, ParallelConfig, Recompute, Runtime, estimate};
use serde_json::{Value, json};
use solver::families::{Slack, balanced};
use solver::module_choices::module_choices;
use solver::splits::stage_map;
use solver::times::run_of;
use solver::units::Units;
use solver::{Constraints, Problem, Solution};
use support::random::Random;
use support::runs::{all_splits, same, step, workload};

/// Layers of several widths, with experts or without.
fn model(random: &mut Random) -> ModelSpec {
    let latent = random.below(4) == 0;
    let routed = latent || random.below(3) == 0;
    let mut layers: Vec<Layer> = Vec::new();
    let mut shell = None;
    for _ in 0..3 + random.below(if routed { 3 } else { 5 }) {
        let (heads, ffn) = ([8, 32][random.below(2) as usize], 4096 * (1 + random.below(5)));
        let mut sizes = json!({
            "layers": 1, "hidden": 4096, "heads": 32, "kv_heads": heads, "ffn": ffn, "vocab": 1000,
        });
        if routed && random.below(4) > 0 {
            let width = 2048 * (1 + random.below(4));
            add(&mut sizes, &json!({"experts": 4, "topk": 2, "moe_ffn": width}));
        }
        if latent {
            let ranks = json!({"q_lora": 1536, "kv_lora": 512, "qk_nope": 128, "qk_rope": 64, "v_head": 128});
            add(&mut sizes, &ranks);
            add(&mut sizes, &json!({"attention": "MLA"}));
        }
        let one = ModelSpec::from_compact("irregular", &sizes).expect("sizes are sound");
        layers.extend(one.layers.iter().filter(|layer| matches!(layer, Layer::Block(_))));
        shell = Some(one);
    }
    ModelSpec { layers, ..shell.expect("at least two layers") }
}

fn add(sizes: &mut Value, more: &Value) {
    let (sizes, more) = (sizes.as_object_mut().unwrap(), more.as_object().unwrap());
    sizes.extend(more.iter().map(|(key, value)| (key.clone(), value.clone())));
}

fn cluster(random: &mut Random) -> Cluster {
    let gpus = [2, 4, 4][random.below(3) as usize];
    let mut cluster = support::runs::cluster(gpus);
    let node = &mut cluster.groups[0].node;
    node.host.bandwidth = BytesPerSecond([1.0, 25.0, 50.0, 200.0, 1e6][random.below(5) as usize] * 1e9);
    node.memory = [None, Some(Bytes::gib(12.0)), Some(Bytes::gib(2000.0))][random.below(3) as usize];
    cluster
}

/// Seconds of a step, if the layout fits.
fn judged(problem: &Problem, units: &Units, parallel: &ParallelConfig, ends: &Vec<usize>) -> Option<f64> {
    let stages = stage_map(units, parallel, Placement::Loop, ends);
    let run = run_of(problem, parallel, &stages);
    let estimate = estimate(&run).expect("a legal layout can be estimated");
    let fits = estimate.memory.iter().all(|rank| rank.peak_bytes <= problem.limit());
    (fits && hosts_fit(&run, &estimate.memory)).then(|| estimate.step_time_seconds.get())
}

/// Which pipelines a problem may have.
#[derive(Clone, Copy, PartialEq)]
enum Shape {
    /// One stage per rank, or no pipeline.
    Any,
    /// One stage per rank, several ranks.
    Chain,
    /// Several stages per rank.
    Chunks,
}

impl Shape {
    fn constraints(self) -> Constraints {
        let schedule = if self == Self::Chunks { "interleaved-1f1b" } else { "1f1b" };
        let terms = format!("tp=1,cp=1,ep=1,zero=1,dp_replicate=1,schedule={schedule}");
        let forbidden: &[&str] = match self {
            Self::Any => &[],
            Self::Chain => &["pp=1"],
            Self::Chunks => &["pp=1", "vpp=1"],
        };
        Constraints::parse(&[terms.as_str()], forbidden).expect("terms")
    }

    /// Chunks per rank that are looked at.
    fn chunks(self, pp: u64, layers: u64) -> std::ops::RangeInclusive<u64> {
        match self {
            Self::Any => 1..=1,
            Self::Chain => 1..=u64::from(pp > 1),
            Self::Chunks => 2..=if pp > 1 { layers / pp } else { 0 },
        }
    }

    fn splits(self, units: &Units, pp: u64, vpp: u64) -> Vec<Vec<usize>> {
        match self {
            Self::Chunks => balanced(units, (pp * vpp) as usize, pp as usize, Slack { first: 1, last: 1 }),
            _ => all_splits(units.len(), pp as usize),
        }
    }
}

/// The least step of every legal layout without tensor, context or expert parallelism and with these recomputes.
fn least(problem: &Problem, recomputes: &[Recompute], shape: Shape) -> Option<f64> {
    let facts = Facts::new(problem.model, problem.cluster, problem.workload);
    let (engine, units) = (engine(&problem.runtime.name), Units::new(problem.model));
    let divisors = |number: u64| (1..=number).filter(move |divisor| number.is_multiple_of(*divisor));
    let mut best: Option<f64> = None;
    for pp in divisors(facts.world) {
        let dp = facts.world / pp;
        for vpp in shape.chunks(pp, units.len() as u64) {
            let splits = shape.splits(&units, pp, vpp);
            for micro_batch_size in divisors(facts.global_batch) {
                for &recompute in recomputes {
                    let parallel = ParallelConfig {
                        pp: pp as u32,
                        vpp: vpp as u32,
                        dp_shard: dp as u32,
                        micro_batch_size,
                        num_microbatches: facts.global_batch / (micro_batch_size * dp).max(1),
                        schedule: if vpp > 1 { "interleaved-1f1b" } else { "1f1b" }.to_owned(),
                        recompute,
                        ..ParallelConfig::default()
                    };
                    if engine.allows(&facts, &parallel) {
                        let steps = splits.iter().filter_map(|ends| judged(problem, &units, &parallel, ends));
                        best = steps.chain(best).reduce(f64::min);
                    }
                }
            }
        }
    }
    best
}

fn searched(problem: &Problem) -> Option<Solution> {
    let solution = support::runs::searched(problem)?;
    let chunks = solution.parallel.vpp > 1;
    assert!(chunks || solution.certificate.gap == 0.0, "{:?}", solution.certificate);
    Some(solution)
}

/// Compares on so many problems; how many plans move modules in a pipeline, and how many repeat others beside.
fn compare(cases: u32, seed: u64) -> [u32; 3] {
    let runtime = Runtime::named("megatron-core").expect("a catalogue runtime");
    let mut random = Random(seed);
    let (mut moved, mut both, mut feasible) = (0, 0, 0);
    for case in 0..cases {
        let (model, cluster) = (model(&mut random), cluster(&mut random));
        let shape = [Shape::Any, Shape::Chain, Shape::Chunks][random.below(3) as usize];
        let workload = workload([4, 8][random.below(2) as usize], [8192, 32768][random.below(2) as usize]);
        let roomy = Problem {
            memory_limit: Some(Bytes::gib(1000.0)),
            constraints: shape.constraints(),
            top: 1,
            nearest: false,
            ..Problem::new(&model, &cluster, &workload, &runtime)
        };
        let Some(kept) = searched(&roomy) else { continue };
        let peaks = kept.estimate.memory;
        let peak = peaks.iter().map(|rank| rank.peak_bytes).fold(Bytes::ZERO, Bytes::max);
        let share = 0.55 + 0.05 * random.below(9) as f64;
        let problem = Problem { memory_limit: Some(peak * share), moves_activations: true, ..roomy };
        let least = |recomputes: &[Recompute]| least(&problem, recomputes, shape);
        let count = model.layers.len() as u32;
        let kept = [Recompute::None, Recompute::Selective].into_iter();
        let repeated = (1..=count).map(|n| Recompute::Full { layers: Some(n) });
        let without: Vec<Recompute> = kept.chain(repeated).collect();
        let moves = (1..count).map(|layers| Recompute::Offload { layers });
        let modules = module_choices(&model).into_iter().map(Recompute::Modules);
        let with: Vec<Recompute> = without.iter().copied().chain(moves).chain(modules).collect();
        let (found, brute) = (searched(&problem), least(&with));
        let value = found.as_ref().map(step);
        assert!(same(value, brute), "case {case}: search {value:?}, brute force {brute:?}");
        let never = searched(&Problem { moves_activations: false, ..problem.clone() }).as_ref().map(step);
        assert!(same(never, least(&without)), "case {case}: without moves {never:?}");
        if let Some(solution) = &found {
            feasible += 1;
            assert!(never.is_none_or(|never| step(solution) <= never), "case {case}: {never:?}");
            let mut faster = cluster.clone();
            let link = &mut faster.groups[0].node.host;
            link.bandwidth = BytesPerSecond(link.bandwidth.get() * 1.5);
            let faster = searched(&Problem { cluster: &faster, ..problem.clone() }).as_ref().map(step);
            assert!(faster.is_some_and(|faster| faster <= step(solution)), "case {case}: {faster:?}");
            if let Recompute::Modules(choice) = solution.parallel.recompute {
                moved += u32::from(solution.parallel.pp > 1);
                both += u32::from(!choice.repeated.is_empty());
            }
        }
    }
    [feasible, moved, both]
}

#[test]
fn pipelines_keep_repeat_and_move_modules_as_brute_force_does() {
    let [feasible, moved, both] = compare(100, 7);
    assert!(feasible > 40 && moved > 10 && both > 5, "{feasible} plans, {moved} move, {both} repeat too");
}

#[test]
#[ignore = "a minute: cargo test -p meshwright-solver --test module_offload -- --ignored"]
fn and_on_500_more() {
    let [feasible, moved, both] = compare(500, 99);
    assert!(feasible > 200 && moved > 50 && both > 25, "{feasible} plans, {moved} move, {both} repeat too");
}
