//! GPUs of several kinds: the program against brute force, the search against brute force through the estimate, and what
//! must hold of any plan.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic)]

mod support;

use cluster_profiles::{Bytes, Cluster};
use cost_models::sites::rank_limits;
use cost_models::{ParallelConfig, Recompute, Runtime, Stage, StageMap, TrainingRun, estimate};
use solver::highs::MipOptions;
use solver::mixed::program::{StageKinds, assign};
use solver::times::run_of;
use solver::{Observer, Outcome, Problem, Progress, Silent, Solution, solve};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use support::kinds::{cluster_of, llama_of, sequences};
use support::random::Random;
use support::runs::{searched, workload};

impl Random {
    fn fraction(&mut self) -> f64 {
        self.below(1 << 20) as f64 / f64::from(1u32 << 20)
    }
}

/// All ways to write `total` as `parts` positive numbers.
fn compositions(total: u64, parts: usize) -> Vec<Vec<u64>> {
    if parts == 1 {
        return if total > 0 { vec![vec![total]] } else { Vec::new() };
    }
    (1..total)
        .flat_map(|first| {
            compositions(total - first, parts - 1).into_iter().map(move |rest| [vec![first], rest].concat())
        })
        .collect()
}

fn programs_agree(cases: usize) {
    let mut random = Random(7);
    for case in 0..cases {
        let kinds = 2 + random.index(2);
        let counts: Vec<usize> = (0..kinds).map(|_| 1 + random.index(2)).collect();
        let stages: usize = counts.iter().sum();
        let layers = (stages + 1 + random.index(6)) as u64;
        let shape = StageKinds {
            layers,
            microbatches: (1 + random.index(12)) as f64,
            seconds: (0..kinds).map(|_| 0.2 + random.fraction()).collect(),
            ends: (0..kinds).map(|_| (random.fraction() * 0.3, random.fraction())).collect(),
            most: (0..stages).map(|_| (0..kinds).map(|_| 2 + random.index(7) as u64).collect()).collect(),
            counts,
        };
        let all = sequences(&shape.counts);
        let splits = compositions(layers, stages);
        let values = all.iter().flat_map(|kinds| splits.iter().map(|layers| shape.value(kinds, layers)));
        let best = values.fold(f64::INFINITY, f64::min);
        let found = assign(&shape, &MipOptions::default()).expect("HiGHS runs");
        match found {
            Some(found) => {
                assert!(
                    (found.seconds - best).abs() <= 1e-9 * best,
                    "case {case}: {found:?} {best} {shape:?}"
                );
            }
            None => assert!(best.is_infinite(), "case {case}: {best} {shape:?}"),
        }
    }
}

#[test]
fn highs_gives_stages_the_kinds_that_brute_force_does() {
    programs_agree(40);
}

#[test]
#[ignore = "minutes: cargo test -p meshwright-solver --release --test mixed -- --ignored"]
fn highs_gives_stages_the_kinds_that_brute_force_does_on_500() {
    programs_agree(500);
}

/// The shortest step of any pipeline of both kinds: every degree, order and split, through the estimate.
fn brute_force(problem: &Problem, blocks: u64) -> f64 {
    let mut best = f64::INFINITY;
    let names = problem.cluster.host_names();
    let swapped: Vec<String> = names.iter().rev().cloned().collect();
    let world = problem.cluster.gpu_count();
    for hosts in [names, swapped] {
        let cluster = problem.cluster.arranged(&hosts).expect("its own hosts");
        for (tp, pp, cp) in grids(world) {
            let dp = world / tp / pp / cp;
            if !problem.workload.global_batch.is_multiple_of(dp) {
                continue;
            }
            let share = problem.workload.global_batch / dp;
            for micro in (1..=share).filter(|micro| share.is_multiple_of(*micro)) {
                let able = |(sequence, zero, _): &(bool, u8, Recompute)| {
                    (tp > 1 || !*sequence) && (dp * cp > 1 || *zero == 0)
                };
                for (sequence_parallel, zero, recompute) in variants().into_iter().filter(able) {
                    let parallel = ParallelConfig {
                        tp: tp as u32,
                        pp: pp as u32,
                        cp: cp as u32,
                        dp_shard: dp as u32,
                        zero_stage: zero,
                        micro_batch_size: micro,
                        num_microbatches: share / micro,
                        sequence_parallel,
                        schedule: "1f1b".to_owned(),
                        recompute,
                        ..ParallelConfig::default()
                    };
                    for counts in compositions(blocks + 2, pp as usize) {
                        best = best.min(step(problem, &cluster, &parallel, &counts));
                    }
                }
            }
        }
    }
    best
}

fn grids(world: u64) -> Vec<(u64, u64, u64)> {
    let divisors: Vec<u64> = (1..=world).filter(|d| world.is_multiple_of(*d)).collect();
    let mut grids = Vec::new();
    for &tp in divisors.iter().filter(|tp| **tp <= 2) {
        for &pp in &divisors {
            for &cp in &divisors {
                if world.is_multiple_of(tp * pp * cp) {
                    grids.push((tp, pp, cp));
                }
            }
        }
    }
    grids
}

fn variants() -> Vec<(bool, u8, Recompute)> {
    let mut all = Vec::new();
    for sp in [false, true] {
        for zero in [0, 1] {
            for recompute in [Recompute::None, Recompute::Selective, Recompute::Full { layers: None }] {
                all.push((sp, zero, recompute));
            }
        }
    }
    all
}

/// The step of stages of so many units (the norm counts with the head); infinite where rules or memory forbid it.
fn step(problem: &Problem, cluster: &Cluster, parallel: &ParallelConfig, counts: &[u64]) -> f64 {
    let last_block = problem.model.layers.len() as u64 - 3;
    let mut first = 0;
    let stages = counts.iter().enumerate().map(|(rank, count)| {
        let end = first + count;
        let last = if end == last_block + 2 { last_block + 2 } else { end - 1 };
        let stage = Stage {
            rank: rank as u32,
            chunk: 0,
            layers: Some([first as u32, last as u32]),
            recompute: parallel.recompute,
        };
        first = end;
        stage
    });
    let stages = StageMap(stages.collect());
    let run = TrainingRun { cluster, ..run_of(problem, parallel, &stages) };
    if !cost_models::rules::broken(&run).is_empty() {
        return f64::INFINITY;
    }
    let Ok(prediction) = estimate(&run) else { return f64::INFINITY };
    let limits = rank_limits(&run, problem.limit());
    let fits = prediction.memory.iter().zip(limits).all(|(rank, limit)| rank.peak_bytes <= limit);
    if fits { prediction.step_time_seconds.get() } else { f64::INFINITY }
}

fn search_is_exact(cases: usize) {
    let mut random = Random(29);
    let runtime = Runtime::named("megatron-core").expect("a catalogue runtime");
    let gpus = ["h100-sxm-80gb", "a100-sxm-80gb", "a100-sxm-40gb", "l40s", "h200"];
    for case in 0..cases {
        let (a, b) = (random.index(5), random.index(5));
        if a == b {
            continue;
        }
        let blocks = 2 + random.index(3);
        let cluster = cluster_of(&[(1, 2); 2], &[gpus[a], gpus[b]]);
        let (model, workload) = (llama_of(blocks), workload([4, 8][random.index(2)], 4096));
        let limit = (random.index(3) == 0).then(|| Bytes((10.0 + 30.0 * random.fraction()) * Bytes::GIB));
        let problem = Problem { memory_limit: limit, ..Problem::new(&model, &cluster, &workload, &runtime) };
        let mut best = brute_force(&problem, blocks as u64);
        for group in 0..2 {
            let mut alone = cluster.clone();
            alone.groups = vec![cluster.groups[group].clone()];
            let own = cost_models::sites::limit_on(&cluster, &runtime, problem.limit(), group);
            let single = Problem { cluster: &alone, memory_limit: Some(own), ..problem.clone() };
            best = searched(&single).map_or(best, |own| best.min(own.estimate.step_time_seconds.get()));
        }
        match searched(&problem) {
            Some(solution) => {
                assert_eq!(solution.certificate.gap, 0.0, "case {case}: {:?}", solution.certificate);
                let value = solution.estimate.step_time_seconds.get();
                let certificate = &solution.certificate;
                assert!(
                    certificate.bound_seconds.get() <= best * (1.0 + 1e-9),
                    "case {case}: {certificate:?} {best}"
                );
                assert!(value <= best * (1.0 + certificate.gap + 1e-9), "case {case}: {value} {best}");
                assert!(value >= best * (1.0 - 1e-9), "case {case}: {value} {best} {:?}", solution.parallel);
            }
            None => assert!(best.is_infinite(), "case {case}: {best}"),
        }
    }
}

#[test]
fn the_search_finds_what_brute_force_through_the_estimate_does() {
    search_is_exact(12);
}

#[test]
#[ignore = "minutes: cargo test -p meshwright-solver --release --test mixed -- --ignored"]
fn the_search_finds_what_brute_force_through_the_estimate_does_on_200() {
    search_is_exact(200);
}

#[test]
fn faster_gpus_get_more_layers_and_memory_is_that_of_each_kind() {
    let cluster = cluster_of(&[(2, 8); 2], &["h100-sxm-80gb", "a100-sxm-80gb"]);
    let model = cost_models::model::catalog::get("llama-3.1-70b").expect("a catalogue model");
    let (workload, runtime) =
        (workload(64, 4096), Runtime::named("megatron-core").expect("a catalogue runtime"));
    let problem = Problem::new(&model, &cluster, &workload, &runtime);
    let solution = searched(&problem).expect("it fits");
    let alone = {
        let mut fast = cluster.clone();
        fast.groups.truncate(1);
        searched(&Problem { cluster: &fast, ..problem.clone() }).map(|own| own.estimate.step_time_seconds)
    };
    assert!(alone.is_none_or(|alone| alone >= solution.estimate.step_time_seconds), "{alone:?}");
    assert_eq!(solution.cluster.gpu_count(), 32, "both kinds are used");
    let run = TrainingRun {
        model: &model,
        cluster: &solution.cluster,
        workload: &workload,
        runtime: &runtime,
        parallel: &solution.parallel,
        stages: &solution.stages,
    };
    let sites = cost_models::sites::Sites::of(&solution.cluster, &solution.parallel).expect("two kinds");
    let limits = rank_limits(&run, problem.limit());
    assert!(solution.estimate.memory.iter().zip(limits).all(|(rank, limit)| rank.peak_bytes <= limit));
    let layers = |wanted: &str| -> Vec<usize> {
        let own = solution.stages.0.iter().filter(|stage| {
            let site = &sites.list[stage.rank as usize];
            solution.cluster.groups[site.group].gpu.name == wanted
        });
        own.map(|stage| stage.layer_range().len()).collect()
    };
    let mean = |counts: &[usize]| counts.iter().sum::<usize>() as f64 / counts.len().max(1) as f64;
    let (fast, slow) = (layers("h100-sxm-80gb"), layers("a100-sxm-80gb"));
    assert!(!fast.is_empty() && !slow.is_empty(), "{:?}", solution.parallel);
    assert!(mean(&fast) > 1.3 * mean(&slow), "{fast:?} {slow:?}");
}

/// Counts what is reported, and cancels after so many reports.
struct Watch {
    reports: AtomicU64,
    most: u64,
}

impl Observer for Watch {
    fn progress(&self, progress: Progress) {
        assert!(progress.best.is_none_or(|best| best.is_finite() && best > 0.0));
        self.reports.fetch_add(1, Ordering::Relaxed);
    }

    fn cancelled(&self) -> bool {
        self.reports.load(Ordering::Relaxed) >= self.most
    }
}

/// 70B on 16 nodes of four kinds.
fn four_kinds() -> Cluster {
    let nodes = [(6, 8), (4, 8), (4, 8), (2, 8)];
    cluster_of(&nodes, &["h100-sxm-80gb", "h200", "a100-sxm-80gb", "l40s"])
}

#[test]
fn limits_are_kept_and_answered_with_the_best_so_far() {
    let (cluster, model) =
        (four_kinds(), cost_models::model::catalog::get("llama-3.1-70b").expect("a model"));
    let (workload, runtime) =
        (workload(128, 4096), Runtime::named("megatron-core").expect("a catalogue runtime"));
    let problem = Problem::new(&model, &cluster, &workload, &runtime);
    let whole = searched(&problem).expect("it fits");
    let check = |solution: &Solution| {
        let certificate = &solution.certificate;
        assert!(solution.estimate.fits);
        assert!(certificate.bound_seconds <= whole.estimate.step_time_seconds, "{certificate:?}");
        assert!(solution.estimate.step_time_seconds >= whole.certificate.bound_seconds, "{certificate:?}");
    };
    for limit in [0, 1, 20] {
        let start = std::time::Instant::now();
        let limited = Problem { time_limit: Some(Duration::from_millis(limit)), ..problem.clone() };
        check(&searched(&limited).expect("a first plan"));
        assert!(start.elapsed() < Duration::from_secs(20), "{limit} ms took {:?}", start.elapsed());
    }
    for most in [1, 3, 8] {
        let watch = Watch { reports: AtomicU64::new(0), most };
        let Ok(Outcome::Solved(solution)) = solve(&problem, &watch) else { panic!("a plan was known") };
        assert!(watch.reports.load(Ordering::Relaxed) >= most);
        check(&solution);
    }
}

#[test]
fn a_model_too_large_for_one_kind_has_a_first_plan_on_several() {
    let cluster = cluster_of(&[(2, 8); 2], &["a100-sxm-40gb", "l40s"]);
    let model = cost_models::model::catalog::get("llama-3.1-70b").expect("a model");
    let (workload, runtime) =
        (workload(32, 4096), Runtime::named("megatron-core").expect("a catalogue runtime"));
    let problem = Problem::new(&model, &cluster, &workload, &runtime);
    let whole = searched(&problem);
    let limited = Problem { time_limit: Some(Duration::ZERO), ..problem.clone() };
    match (whole, solve(&limited, &Silent).expect("no fault")) {
        (Some(whole), Outcome::Solved(first)) => {
            assert!(first.estimate.step_time_seconds >= whole.certificate.bound_seconds);
        }
        (None, other) => assert!(!matches!(other, Outcome::Solved(_)), "{other:?}"),
        (Some(_), other) => assert!(matches!(other, Outcome::Stopped { .. }), "{other:?}"),
    }
}

#[test]
fn islands_joined_by_a_slow_link_meet_at_pipeline_boundaries() {
    let mut cluster = cluster_of(&[(2, 8); 2], &["h100-sxm-80gb", "h100-sxm-80gb"]);
    cluster.groups[0].hosts = vec!["a0".into(), "a1".into()];
    cluster.groups[1].hosts = vec!["b0".into(), "b1".into()];
    for a in ["a0", "a1"] {
        for b in ["b0", "b1"] {
            cluster.links.push(cluster_profiles::LinkOverride {
                between: [a.into(), b.into()],
                rail: None,
                bandwidth: Some(cluster_profiles::BytesPerSecond(1e9)),
                latency: None,
                broken: false,
                source: "two sites".into(),
            });
        }
    }
    let model = llama_of(8);
    let (workload, runtime) =
        (workload(16, 4096), Runtime::named("megatron-core").expect("a catalogue runtime"));
    let solution = searched(&Problem::new(&model, &cluster, &workload, &runtime)).expect("it fits");
    if solution.cluster.gpu_count() == 32 {
        assert!(solution.parallel.pp >= 2, "{:?}", solution.parallel);
        let hosts = solution.cluster.host_names();
        let stage = (32 / solution.parallel.pp) as usize;
        for ranks in (0..32).collect::<Vec<usize>>().chunks(stage) {
            let sites: std::collections::BTreeSet<char> =
                ranks.iter().filter_map(|rank| hosts[rank / 8].chars().next()).collect();
            assert_eq!(sites.len(), 1, "a stage over both sites: {hosts:?}");
        }
    }
}
