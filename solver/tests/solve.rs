//! The search, against brute force through `estimate`, and laws that any search must keep.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic)]

mod support;

use cluster_profiles::{Bytes, Seconds};
use cost_models::layerwise::{self, LayeredRun};
use cost_models::rules::{Facts, engine};
use cost_models::{ModelSpec, ParallelConfig, Recompute, Runtime, TrainingRun, estimate};
use serde_json::json;
use solver::units::Units;
use solver::{Constraints, Objective, Outcome, Problem, Silent, Solution, pareto, solve};
use support::runs::{all_splits, chain, cluster, step_if_it_fits, workload};

fn small_model() -> ModelSpec {
    let sizes =
        json!({"layers": 5, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocab": 128_256});
    ModelSpec::from_compact("small", &sizes).expect("sizes are sound")
}

fn catalogue(name: &str) -> ModelSpec {
    cost_models::model::catalog::get(name).expect("a catalogue model")
}

fn runtime(name: &str) -> Runtime {
    Runtime::named(name).expect("a catalogue runtime")
}

fn solution(problem: &Problem) -> Option<Solution> {
    match solve(problem, &Silent).expect("the problem is sound") {
        Outcome::Solved(solution) => Some(*solution),
        Outcome::Infeasible(_) | Outcome::Stopped { .. } => None,
    }
}

fn divisors(number: u64) -> Vec<u32> {
    (1..=number).filter(|divisor| number.is_multiple_of(*divisor)).map(|divisor| divisor as u32).collect()
}

/// The least step time of all layouts with 1F1B, by looking at every one.
fn brute_force(problem: &Problem) -> Option<f64> {
    let facts = Facts::new(problem.model, problem.cluster, problem.workload);
    let engine = engine(&problem.runtime.name);
    let units = Units::new(problem.model);
    let world = facts.world;
    let mut best: Option<f64> = None;
    for tp in divisors(world) {
        for cp in divisors(world) {
            for pp in divisors(world) {
                for dp_replicate in divisors(world) {
                    for dp_shard in divisors(world) {
                        for micro_batch_size in divisors(facts.global_batch).into_iter().map(u64::from) {
                            for (zero_stage, sequence_parallel) in
                                [(0, false), (0, true), (1, false), (1, true)]
                            {
                                let per_step = micro_batch_size * u64::from(dp_replicate * dp_shard);
                                let degrees = ParallelConfig {
                                    tp,
                                    cp,
                                    pp,
                                    dp_replicate,
                                    dp_shard,
                                    zero_stage,
                                    sequence_parallel,
                                    micro_batch_size,
                                    num_microbatches: facts.global_batch / per_step.max(1),
                                    ..ParallelConfig::default()
                                };
                                if engine.allows(&facts, &degrees) {
                                    best = least(best, best_split(problem, &units, &degrees));
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    best
}

fn least(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.into_iter().chain(b).reduce(f64::min)
}

fn best_split(problem: &Problem, units: &Units, degrees: &ParallelConfig) -> Option<f64> {
    let layers =
        (1..=problem.model.layers.len() as u32).map(|layers| Recompute::Full { layers: Some(layers) });
    let recomputes = [Recompute::None, Recompute::Selective, Recompute::Full { layers: None }];
    let mut best = None;
    for recompute in recomputes.into_iter().chain(layers) {
        let parallel = ParallelConfig { recompute, ..degrees.clone() };
        for ends in all_splits(units.len(), parallel.pp as usize) {
            let stages = chain(&ends, |range| units.layers(range), recompute);
            best = least(best, step_if_it_fits(problem, &parallel, &stages));
        }
    }
    best
}

#[test]
fn the_search_ends_where_brute_force_ends() {
    let (model, cluster, runtime) = (small_model(), cluster(4), runtime("megatron-core"));
    let workload = workload(8, 4096);
    for limit in [12.0, 16.0, 24.0, 75.0] {
        let problem = Problem {
            memory_limit: Some(Bytes::gib(limit)),
            constraints: Constraints::parse(&["schedule=1f1b"], &[]).expect("a term"),
            ..Problem::new(&model, &cluster, &workload, &runtime)
        };
        let (found, brute) = (solution(&problem), brute_force(&problem));
        match (&found, brute) {
            (Some(found), Some(brute)) => {
                let step = found.estimate.step_time_seconds.get();
                assert!(
                    (step - brute).abs() <= 1e-9 * brute,
                    "{limit} GiB: {step} against {brute}, {:?}",
                    found.parallel
                );
            }
            (found, brute) => assert_eq!(found.is_some(), brute.is_some(), "{limit} GiB"),
        }
    }
}

fn moe_model() -> ModelSpec {
    let sizes = json!({
        "layers": 12, "hidden": 2048, "heads": 32, "kv_heads": 4, "ffn": 6144, "vocab": 151_936,
        "experts": 64, "topk": 8, "moe_ffn": 768, "dense_layers": 1
    });
    ModelSpec::from_compact("small-moe", &sizes).expect("sizes are sound")
}

/// A plan of a model with experts on two nodes.
fn moe_plan(threads: usize) -> Solution {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
    let (model, cluster, workload, runtime) =
        (moe_model(), cluster(16), workload(64, 4096), runtime("megatron-core"));
    pool.install(|| solution(&Problem::new(&model, &cluster, &workload, &runtime)).expect("it fits"))
}

#[test]
fn any_number_of_threads_gives_the_same_bytes() {
    let text = |solution: &Solution| {
        let Solution { parallel, stages, estimate, certificate, alternatives, .. } = solution;
        json!([parallel, stages, estimate, certificate, alternatives]).to_string()
    };
    let one = text(&moe_plan(1));
    for threads in [2, 5] {
        assert_eq!(text(&moe_plan(threads)), one);
    }
}

#[test]
fn a_plan_is_legal_fits_and_estimates_to_itself() {
    let (model, moe, workload) = (small_model(), moe_model(), workload(64, 4096));
    let cluster = cluster(16);
    for name in cost_models::runtime::names() {
        let runtime = runtime(&name);
        for model in [&model, &moe] {
            let problem = Problem::new(model, &cluster, &workload, &runtime);
            let Some(solution) = solution(&problem) else { panic!("{name}: no plan for {}", model.name) };
            let Solution { parallel, stages, estimate: predicted, certificate, .. } = &solution;
            let run = TrainingRun {
                model,
                cluster: &cluster,
                workload: &workload,
                runtime: &runtime,
                parallel,
                stages,
            };
            assert_eq!(cost_models::rules::broken(&run), [], "{name}: {parallel:?}");
            let again = match &solution.layer_strategies {
                Some(strategies) => {
                    layerwise::estimate(&LayeredRun::new(run, strategies).expect("legal strategies"))
                }
                None => estimate(&run),
            };
            assert_eq!(&again.expect("legal"), predicted, "{name}: {parallel:?}");
            assert!(predicted.memory.iter().all(|rank| rank.peak_bytes <= problem.limit()), "{name}");
            assert!(certificate.bound_seconds <= predicted.step_time_seconds, "{name}: {certificate:?}");
            let excluded: u64 = certificate.pruned.values().sum();
            assert!(excluded < certificate.considered, "{name}: {certificate:?}");
        }
    }
}

#[test]
fn more_memory_never_makes_the_best_plan_slower() {
    let (model, cluster, workload, runtime) =
        (moe_model(), cluster(8), workload(32, 8192), runtime("megatron-core"));
    let step = |limit: f64| {
        let problem = Problem {
            memory_limit: Some(Bytes::gib(limit)),
            ..Problem::new(&model, &cluster, &workload, &runtime)
        };
        solution(&problem).map_or(f64::INFINITY, |solution| solution.estimate.step_time_seconds.get())
    };
    let steps: Vec<f64> = [6.0, 9.0, 13.0, 20.0, 30.0, 50.0, 75.0].into_iter().map(step).collect();
    assert!(steps.windows(2).all(|pair| pair[1] <= pair[0]), "{steps:?}");
    assert!(steps[0] > steps[6], "the limit never bound: {steps:?}");
}

#[test]
fn a_faster_link_never_makes_the_best_plan_slower() {
    let (model, workload, runtime) = (small_model(), workload(64, 4096), runtime("megatron-core"));
    let step = |share: f64| {
        let mut cluster = cluster(16);
        let inter = &mut cluster.groups[0].node.inter;
        inter.bandwidth = inter.bandwidth * share;
        solution(&Problem::new(&model, &cluster, &workload, &runtime))
            .expect("it fits")
            .estimate
            .step_time_seconds
    };
    let steps: Vec<_> = [0.02, 0.1, 0.5, 1.0, 4.0].into_iter().map(step).collect();
    assert!(steps.windows(2).all(|pair| pair[1] <= pair[0]), "{steps:?}");
    assert!(steps[0] > steps[4], "the link never mattered: {steps:?}");
}

#[test]
fn what_is_fixed_and_forbidden_is_kept() {
    let (model, cluster, workload, runtime) =
        (small_model(), cluster(16), workload(64, 4096), runtime("megatron-core"));
    let plan = |fix: &[&str], forbid: &[&str]| {
        let constraints = Constraints::parse(fix, forbid).expect("terms");
        let problem = Problem { constraints, ..Problem::new(&model, &cluster, &workload, &runtime) };
        solution(&problem).expect("there is a layout").parallel
    };
    let parallel = plan(&["tp=2,pp=4", "recompute=full"], &["dp_replicate>1", "vpp>1"]);
    assert_eq!((parallel.tp, parallel.pp, parallel.dp_replicate, parallel.vpp), (2, 4, 1, 1));
    assert!(matches!(parallel.recompute, Recompute::Full { .. }));
    assert!(plan(&["recompute=full:1"], &[]).recompute != Recompute::None);
    assert!(plan(&[], &["tp<=8"]).tp == 16);
}

fn outcome(problem: &Problem) -> Outcome {
    solve(problem, &Silent).expect("the problem is sound")
}

#[test]
fn what_cannot_fit_names_the_term_the_shortfall_and_changes_that_work() {
    let (model, cluster, runtime) = (catalogue("llama-3.1-70b"), cluster(8), runtime("megatron-core"));
    let workload = workload(16, 8192);
    let problem = Problem { offloads: true, ..Problem::new(&model, &cluster, &workload, &runtime) };
    let Outcome::Infeasible(answer) = outcome(&problem) else { panic!("70B trains on 8 GPUs") };
    assert!(answer.shortfall_bytes > Bytes::ZERO, "{answer:?}");
    let leanest = answer.leanest.as_ref().expect("a legal layout");
    assert_eq!(leanest.memory.peak_bytes - problem.limit(), answer.shortfall_bytes);
    let (_, largest) =
        leanest.memory.terms().into_iter().find(|(term, _)| *term == answer.binding_term).expect("a term");
    assert!(leanest.memory.terms().iter().all(|(_, bytes)| *bytes <= largest), "{answer:?}");
    let changes: Vec<&str> = answer.nearest.iter().map(|change| change.change.as_str()).collect();
    assert!(
        changes.iter().any(|change| change.starts_with("use ") && change.ends_with("GPUs")),
        "{changes:?}"
    );
    assert!(changes.iter().any(|change| change.contains("--offload optimizer")), "{changes:?}");
}

#[test]
fn a_batch_that_no_layout_divides_is_a_rule_not_a_crash() {
    let (model, cluster, runtime) = (small_model(), cluster(8), runtime("fsdp1"));
    let workload = workload(12, 4096);
    let Outcome::Infeasible(answer) = outcome(&Problem::new(&model, &cluster, &workload, &runtime)) else {
        panic!("12 sequences on 8 data-parallel ranks")
    };
    assert_eq!((answer.binding_term.as_str(), answer.shortfall_bytes), ("M12", Bytes::ZERO), "{answer:?}");
    assert!(answer.nearest.iter().any(|change| change.change == "use a global batch of 8"), "{answer:?}");
}

#[test]
fn contradictory_and_empty_wishes_are_answered_with_the_way_out() {
    let (model, cluster, workload, runtime) =
        (small_model(), cluster(16), workload(64, 4096), runtime("megatron-core"));
    let with = |fix: &[&str], forbid: &[&str]| Problem {
        constraints: Constraints::parse(fix, forbid).expect("terms"),
        ..Problem::new(&model, &cluster, &workload, &runtime)
    };
    let Outcome::Infeasible(answer) = outcome(&with(&["tp=16"], &["cross-node-tp"])) else {
        panic!("16 GPUs are two nodes")
    };
    assert!(answer.reason.contains("--fix tp=16") && answer.reason.contains("cross-node-tp"), "{answer:?}");
    let changes: Vec<&str> = answer.nearest.iter().map(|change| change.change.as_str()).collect();
    let expected =
        ["use --fix tp=8 instead of --fix tp=16", "drop --fix tp=16", "drop --forbid cross-node-tp"];
    assert_eq!(changes, expected);
    let error = solve(&with(&["schedule=zb-h1"], &[]), &Silent).expect_err("not one of Megatron's");
    assert!(error.to_string().contains("interleaved-1f1b"), "{error}");
    let Outcome::Infeasible(answer) = outcome(&with(&["tp=3"], &[])) else { panic!("tp 3 of 16 GPUs") };
    assert_eq!(answer.binding_term, "constraint");
    assert!(answer.nearest.iter().any(|change| change.change == "drop --fix tp=3"), "{answer:?}");
}

#[test]
fn a_time_limit_is_kept() {
    let (model, cluster, workload, runtime) =
        (catalogue("deepseek-v3"), cluster(2048), workload(8192, 4096), runtime("megatron-core"));
    for limit in [0, 1] {
        let problem = Problem {
            time_limit: Some(std::time::Duration::from_millis(limit)),
            ..Problem::new(&model, &cluster, &workload, &runtime)
        };
        let start = std::time::Instant::now();
        let answer = outcome(&problem);
        assert!(start.elapsed().as_secs_f64() < 2.0, "{limit} ms took {:?}", start.elapsed());
        assert!(!matches!(answer, Outcome::Infeasible(_)), "a limit proves nothing");
    }
}

#[test]
fn a_cancelled_search_answers_with_its_best_and_the_gap() {
    #[derive(Default)]
    struct StopAtFirst(std::sync::atomic::AtomicBool);
    impl solver::Observer for StopAtFirst {
        fn progress(&self, progress: solver::Progress) {
            self.0.store(progress.best.is_some(), std::sync::atomic::Ordering::Relaxed);
        }
        fn cancelled(&self) -> bool {
            self.0.load(std::sync::atomic::Ordering::Relaxed)
        }
    }
    let (model, cluster, workload, runtime) =
        (moe_model(), cluster(16), workload(64, 4096), runtime("megatron-core"));
    let problem = Problem::new(&model, &cluster, &workload, &runtime);
    let Outcome::Solved(early) = solve(&problem, &StopAtFirst::default()).expect("sound") else {
        panic!("none found")
    };
    let best = solution(&problem).expect("it fits");
    assert!(early.certificate.bound_seconds <= best.estimate.step_time_seconds);
    assert!(early.estimate.step_time_seconds >= best.estimate.step_time_seconds);
    assert_eq!(early.certificate.gap > 0.0, early.certificate.status == solver::Status::Feasible);
}

#[test]
fn uneven_stages_beat_even_ones_where_the_head_is_heavy() {
    let (model, cluster, workload, runtime) =
        (catalogue("llama-3.1-70b"), cluster(64), workload(256, 2048), runtime("megatron-core"));
    let constraints = Constraints::parse(&["tp=2,pp=8,cp=1,schedule=1f1b"], &[]).expect("terms");
    let problem = Problem { constraints, ..Problem::new(&model, &cluster, &workload, &runtime) };
    let best = solution(&problem).expect("it fits");
    let even = cost_models::stages::stages_from_blocks(
        &model,
        &best.parallel,
        &[10; 8],
        cost_models::schedule::Placement::Loop,
    )
    .expect("80 blocks");
    let parallel = &best.parallel;
    let run = TrainingRun {
        model: &model,
        cluster: &cluster,
        workload: &workload,
        runtime: &runtime,
        parallel,
        stages: &even,
    };
    let even_step = estimate(&run).expect("legal").step_time_seconds;
    assert!(best.estimate.step_time_seconds < even_step, "{:?} {even_step:?}", best.stages);
}

#[test]
fn awkward_numbers_of_layers_plan_without_padding() {
    for (name, gpus, pp, batch) in
        [("qwen3-235b-a22b", 128, 16, 256), ("deepseek-v3", 1024, 16, 1024), ("gemma-2-27b", 32, 4, 64)]
    {
        let (model, cluster, workload, runtime) =
            (catalogue(name), cluster(gpus), workload(batch, 4096), runtime("megatron-core"));
        let fix = format!("pp={pp}");
        let constraints = Constraints::parse(&[fix.as_str()], &[]).expect("a term");
        let problem = Problem { constraints, top: 1, ..Problem::new(&model, &cluster, &workload, &runtime) };
        let best = solution(&problem).unwrap_or_else(|| panic!("{name} does not fit"));
        let layers: usize = best.stages.0.iter().map(|stage| stage.layer_range().len()).sum();
        assert_eq!(layers, model.layers.len(), "{name}");
        assert_eq!(best.parallel.pp, pp);
    }
}

#[test]
fn other_objectives_find_what_they_ask_for() {
    let (model, mut cluster, workload, runtime) =
        (moe_model(), cluster(32), workload(64, 4096), runtime("megatron-core"));
    cluster.groups[0].dollars_per_gpu_hour = Some(2.5);
    let with =
        |objective| Problem { objective, top: 1, ..Problem::new(&model, &cluster, &workload, &runtime) };
    let fastest = solution(&with(Objective::StepTime)).expect("it fits");
    let step = fastest.estimate.step_time_seconds;
    let fewest = |within| solution(&with(Objective::Gpus { within })).expect("it fits");
    let (tight, loose) = (fewest(step * 1.05), fewest(step * 4.0));
    assert!(
        tight.estimate.step_time_seconds <= step * 1.05 && loose.estimate.step_time_seconds <= step * 4.0
    );
    assert!(
        loose.cluster.gpu_count() < tight.cluster.gpu_count(),
        "{} {}",
        loose.cluster.gpu_count(),
        tight.cluster.gpu_count()
    );
    let dollars =
        |solution: &Solution| solution.estimate.step_time_seconds.get() * solution.cluster.gpu_count() as f64;
    let cheapest = solution(&with(Objective::TokensPerDollar)).expect("it fits");
    assert!(
        [&fastest, &tight, &loose]
            .into_iter()
            .all(|other| dollars(&cheapest) <= dollars(other) * (1.0 + 1e-9))
    );
}

#[test]
fn a_step_that_no_number_of_gpus_keeps_is_answered_with_the_fastest() {
    let (model, cluster, workload, runtime) =
        (small_model(), cluster(16), workload(64, 4096), runtime("megatron-core"));
    let with =
        |objective| Problem { objective, top: 1, ..Problem::new(&model, &cluster, &workload, &runtime) };
    let fastest = solution(&with(Objective::StepTime)).expect("it fits").estimate.step_time_seconds;
    let Outcome::Infeasible(answer) = outcome(&with(Objective::Gpus { within: fastest * 0.01 })) else {
        panic!("a hundredth of the step of {fastest:?}")
    };
    assert_eq!(answer.binding_term, "within");
    assert!(answer.reason.contains("on 16 GPUs"), "{}", answer.reason);
    let change = &answer.nearest[0].change;
    let allowed = change.strip_prefix("allow --within ").and_then(|rest| rest.strip_suffix('s'));
    let within = Seconds(allowed.and_then(|text| text.parse().ok()).expect("a number of seconds"));
    assert!(solution(&with(Objective::Gpus { within })).is_some(), "{change} does not do");
    assert!(within <= fastest * 1.002, "{change}: the fastest takes {fastest:?}");
}

#[test]
fn of_the_fewest_gpus_the_fastest_plan_is_taken() {
    let (model, cluster, workload, runtime) =
        (small_model(), cluster(8), workload(64, 4096), runtime("megatron-core"));
    let with =
        |objective| Problem { objective, top: 1, ..Problem::new(&model, &cluster, &workload, &runtime) };
    let fastest = solution(&with(Objective::StepTime)).expect("it fits").estimate.step_time_seconds;
    let fewest = solution(&with(Objective::Gpus { within: fastest * 10.0 })).expect("it fits");
    assert_eq!((fewest.cluster.gpu_count(), fewest.estimate.step_time_seconds), (8, fastest));
}

#[test]
fn numbers_of_gpus_that_are_proposed_are_numbers_the_nodes_have() {
    let (model, whole, workload, runtime) =
        (small_model(), cluster(64), workload(64, 4096), runtime("fsdp1"));
    let part = whole.resized(7).expect("a part of a node");
    let problem = Problem { whole: Some(&whole), ..Problem::new(&model, &part, &workload, &runtime) };
    let Outcome::Infeasible(answer) = outcome(&problem) else { panic!("7 GPUs share 64 sequences") };
    let sizes: Vec<u64> = answer
        .nearest
        .iter()
        .filter_map(|change| change.change.strip_prefix("use ")?.strip_suffix(" GPUs")?.parse().ok())
        .collect();
    assert_eq!(sizes, [4, 8], "{:?}", answer.nearest);
}

#[test]
fn prices_that_are_missing_are_named() {
    let (model, mut cluster, workload, runtime) =
        (small_model(), cluster(16), workload(64, 4096), runtime("megatron-core"));
    cluster.groups[0].dollars_per_gpu_hour = None;
    let objective = Objective::TokensPerDollar;
    let problem = Problem { objective, ..Problem::new(&model, &cluster, &workload, &runtime) };
    let refused = solve(&problem, &Silent).expect_err("there is no price");
    assert!(refused.to_string().contains("groups[0].dollars_per_gpu_hour"), "{refused}");
    let plain = Problem { objective: Objective::StepTime, ..problem };
    assert!(pareto::front(&plain, pareto::Trade::Price, &Silent).is_err());
}

/// Where no split of several chunks fits with one layer of each recomputed, it is the fewest layers that do: what is found by
/// itself is the best of what is found with every number fixed.
#[test]
fn chunks_recompute_as_many_layers_as_they_must() {
    let (model, cluster, workload, runtime) =
        (catalogue("llama-3.1-70b"), cluster(32), workload(128, 8192), runtime("megatron-core"));
    let with = |recompute: &str| {
        let fixed = "tp=4,cp=1,pp=4,vpp=2,schedule=interleaved-1f1b,micro-batch=1";
        let constraints = Constraints::parse(&[fixed, recompute], &[]).expect("constraints are sound");
        let problem = Problem { constraints, top: 1, ..Problem::new(&model, &cluster, &workload, &runtime) };
        solution(&problem).map(|solution| solution.estimate.step_time_seconds.get())
    };
    let counted: Vec<Option<f64>> =
        (1..=11).map(|layers| with(&format!("recompute=full:{layers}"))).collect();
    assert_eq!(counted[0], None);
    let best = counted.into_iter().flatten().reduce(f64::min);
    assert!(best.is_some());
    assert_eq!(with("recompute=full"), best);
}
