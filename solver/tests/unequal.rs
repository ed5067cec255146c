//! Micro batches of different sizes by kind of GPU: the search against every way to share, through the estimate, and laws.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic)]

mod support;

use cluster_profiles::{Bytes, Cluster};
use cost_models::estimate::KindEstimate;
use cost_models::rules::broken;
use cost_models::shares::{KindShare, ranks_by_kind};
use cost_models::sites::{fits, limit_of_part};
use cost_models::stages::default_stages;
use cost_models::{ModelSpec, ParallelConfig, Recompute, Runtime, Workload, estimate};
use rayon::prelude::*;
use solver::divisors::divisors;
use solver::times::run_of;
use solver::{Constraints, Problem, Solution};
use support::kinds::{GPUS, cluster_of, llama_of};
use support::random::Random;
use support::runs::{proved, same, workload};

/// Nodes of every kind and GPUs of a node.
const NODES: [&[(u32, u32)]; 9] = [
    &[(1, 1), (1, 1)],
    &[(2, 1), (1, 2)],
    &[(1, 4), (1, 4)],
    &[(3, 1), (2, 1)],
    &[(1, 4), (1, 2)],
    &[(3, 2), (1, 2)],
    &[(1, 2), (1, 1), (1, 2)],
    &[(1, 4), (1, 2), (1, 2)],
    &[(2, 1), (3, 1), (1, 1)],
];

struct Case {
    model: ModelSpec,
    cluster: Cluster,
    workload: Workload,
    runtime: Runtime,
    fixed: &'static str,
    limit: Option<Bytes>,
}

fn draw(random: &mut Random) -> Case {
    let nodes = random.of(&NODES);
    let gpus = random.distinct(&GPUS, nodes.len());
    let world: u32 = nodes.iter().map(|(count, gpus)| count * gpus).sum();
    let (runtime, fixed) = random.of(&[
        ("fsdp1", "cp=1"),
        ("fsdp1", "cp=1"),
        ("fsdp2", "pp=1,cp=1"),
        ("fsdp2", "pp=1,cp=1|2,dp_replicate=1"),
    ]);
    let blocks = 2 + random.below(4) as usize;
    let batch = u64::from(world) + 2 * random.below(13);
    Case {
        model: llama_of(blocks),
        cluster: cluster_of(nodes, &gpus),
        workload: workload(batch, random.of(&[1024, 2048, 4096, 8192])),
        runtime: Runtime::named(runtime).expect("a catalogue runtime"),
        fixed,
        limit: (random.below(2) == 0).then(|| Bytes::gib(10.0 + random.below(24) as f64)),
    }
}

fn problem<'a>(case: &'a Case, forbid: &[&str], limit: Option<Bytes>) -> Problem<'a> {
    Problem {
        memory_limit: limit,
        constraints: Constraints::parse(&[case.fixed], forbid).expect("terms"),
        top: 1,
        nearest: false,
        ..Problem::new(&case.model, &case.cluster, &case.workload, &case.runtime)
    }
}

/// Every set of the kinds.
fn parts(cluster: &Cluster) -> Vec<Cluster> {
    let part = |set: usize| {
        let groups = cluster.groups.iter().enumerate();
        let chosen = groups.filter(|(index, _)| set & (1 << index) != 0).map(|(_, group)| group.clone());
        Cluster { groups: chosen.collect(), ..cluster.clone() }
    };
    (1..1usize << cluster.groups.len()).map(part).collect()
}

/// Every layout without pipeline on a part, with every micro batch that makes up the global batch, the same for all or not.
fn layouts(problem: &Problem) -> Vec<ParallelConfig> {
    let (world, batch) = (problem.cluster.gpu_count(), problem.workload.global_batch);
    let node = problem.cluster.groups.iter().map(|group| u64::from(group.node.gpus)).min().unwrap_or(1);
    let most_tp = if problem.cluster.is_homogeneous() { world } else { node };
    let mut list = Vec::new();
    for tp in divisors(world).into_iter().filter(|tp| *tp <= most_tp) {
        for cp in divisors(world / tp) {
            let dp = world / tp / cp;
            for (dp_replicate, zero_stage, recompute, sequence_parallel) in variants(dp) {
                let parallel = ParallelConfig {
                    tp: tp as u32,
                    cp: cp as u32,
                    dp_replicate,
                    dp_shard: dp as u32 / dp_replicate,
                    zero_stage,
                    sequence_parallel,
                    recompute,
                    ..ParallelConfig::default()
                };
                for num_microbatches in divisors(batch) {
                    let sized = ParallelConfig { num_microbatches, ..parallel.clone() };
                    let uneven = problem.runtime.uneven_shards;
                    list.extend(shared(problem.cluster, &sized, batch / num_microbatches, uneven));
                }
            }
        }
    }
    list
}

fn variants(dp: u64) -> Vec<(u32, u8, Recompute, bool)> {
    let recomputes = [Recompute::None, Recompute::Selective, Recompute::Full { layers: None }];
    let mut list = Vec::new();
    // The search shards the state over two ranks at least, where there are two.
    for replicas in divisors(dp).into_iter().filter(|replicas| *replicas < dp || dp == 1) {
        for zero in [2, 3] {
            for recompute in recomputes {
                list.extend([false, true].map(|sequence| (replicas as u32, zero, recompute, sequence)));
            }
        }
    }
    list
}

/// A layout with every way to share the sequences of a microbatch.
fn shared(cluster: &Cluster, parallel: &ParallelConfig, total: u64, uneven: bool) -> Vec<ParallelConfig> {
    let mut list = Vec::new();
    let dp = u64::from(parallel.dp());
    if total.is_multiple_of(dp) {
        list.push(ParallelConfig { micro_batch_size: total / dp, ..parallel.clone() });
    }
    let Some(kinds) = ranks_by_kind(cluster, parallel).filter(|kinds| kinds.len() > 1) else { return list };
    let weights = if uneven && parallel.dp_replicate == 1 {
        weightings(kinds.len())
    } else {
        vec![vec![1; kinds.len()]]
    };
    let ranks: Vec<u64> = kinds.iter().map(|(_, ranks)| u64::from(*ranks)).collect();
    for (sizes, weights) in
        ways(&ranks, total).iter().flat_map(|sizes| weights.iter().map(move |own| (sizes, own)))
    {
        let share = |(((gpu, ranks), &micro_batch_size), &state): ((&(String, u32), &u64), &u32)| KindShare {
            gpu: gpu.clone(),
            ranks: *ranks,
            micro_batch_size,
            state,
        };
        let own = parallel.clone().with_shares(kinds.iter().zip(sizes).zip(weights).map(share).collect());
        list.extend(Some(own).filter(|own| !own.shares.is_empty()));
    }
    list
}

/// Every way to weight the state of so many kinds with numbers up to eight, some of them the same.
fn weightings(kinds: usize) -> Vec<Vec<u32>> {
    let mut list: Vec<Vec<u32>> = vec![Vec::new()];
    for _ in 0..kinds {
        list = list
            .iter()
            .flat_map(|own| (1..=8).map(move |weight| [own.clone(), vec![weight]].concat()))
            .collect();
    }
    list
}

fn ways(ranks: &[u64], total: u64) -> Vec<Vec<u64>> {
    let Some((first, others)) = ranks.split_first() else {
        return if total == 0 { vec![Vec::new()] } else { Vec::new() };
    };
    let sizes = 1..=total / first;
    sizes
        .flat_map(|size| {
            ways(others, total - first * size).into_iter().map(move |rest| [vec![size], rest].concat())
        })
        .collect()
}

/// Seconds of a step, if the layout is legal and every GPU has room.
fn judged(problem: &Problem, parallel: &ParallelConfig) -> Option<f64> {
    let policy = problem.runtime.memory.pipeline.split;
    let placement = cost_models::schedule::Placement::Loop;
    let stages = default_stages(problem.model, parallel, policy, placement).expect("one stage");
    let run = run_of(problem, parallel, &stages);
    let barred = problem.constraints.first_broken(parallel, problem.cluster).is_some();
    if barred || !broken(&run).is_empty() {
        return None;
    }
    let prediction = estimate(&run).ok()?;
    fits(&run, &prediction, problem.limit()).then(|| prediction.step_time_seconds.get())
}

fn brute_force(problem: &Problem) -> Option<(f64, ParallelConfig)> {
    let best_of = |part: &Cluster| {
        let limit = limit_of_part(part, problem.cluster, problem.runtime, problem.limit());
        let own = Problem { cluster: part, memory_limit: Some(limit), ..problem.clone() };
        let judged = |parallel: &ParallelConfig| Some((judged(&own, parallel)?, parallel.clone()));
        layouts(&own).par_iter().filter_map(judged).reduce_with(least)
    };
    parts(problem.cluster).iter().filter_map(best_of).reduce(least)
}

fn least(a: (f64, ParallelConfig), b: (f64, ParallelConfig)) -> (f64, ParallelConfig) {
    if b.0 < a.0 { b } else { a }
}

fn step(solution: &Option<Solution>) -> Option<f64> {
    solution.as_ref().map(support::runs::step)
}

/// Two kinds with little room for the state, and an engine that may shard it unevenly.
fn draw_uneven(random: &mut Random) -> Case {
    let nodes = random.of(&[&[(1, 1), (1, 1)][..], &[(1, 2), (1, 1)], &[(1, 2), (1, 2)], &[(1, 1), (1, 3)]]);
    let gpus = random.distinct(&["h100-sxm-80gb", "a100-sxm-40gb", "l40s", "h200"], nodes.len());
    let world: u64 = nodes.iter().map(|(count, gpus)| u64::from(count * gpus)).sum();
    let runtime = Runtime::named("fsdp1").expect("a catalogue runtime");
    Case {
        model: llama_of(8 * world as usize - 8 + random.below(8) as usize),
        cluster: cluster_of(nodes, &gpus),
        workload: workload(world + random.below(5), random.of(&[1024, 2048])),
        runtime: Runtime { uneven_shards: true, ..runtime },
        fixed: "cp=1",
        limit: None,
    }
}

fn search_and_brute_force_agree(
    seed: u64,
    cases: usize,
    draw: fn(&mut Random) -> Case,
) -> Vec<ParallelConfig> {
    let mut random = Random(seed);
    let mut plans = Vec::new();
    let (mut feasible, mut unequal) = (0, 0);
    for index in 0..cases {
        let case = draw(&mut random);
        let problem = problem(&case, &[], case.limit);
        let (solution, best) = (proved(&problem), brute_force(&problem));
        let found = step(&solution);
        let layout = solution.as_ref().map(|own| &own.parallel);
        let kinds: Vec<_> =
            case.cluster.groups.iter().map(|group| (group.nodes, group.node.gpus, &group.gpu.name)).collect();
        assert!(
            same(found, best.as_ref().map(|(step, _)| *step)),
            "case {index}: search {found:?}, brute force {best:?}, {kinds:?}, {layout:?}, {:?}",
            case.workload
        );
        feasible += usize::from(best.is_some());
        unequal += usize::from(layout.is_some_and(|own| !own.shares.is_empty()));
        plans.extend(layout.cloned());
    }
    assert!(feasible * 2 > cases, "only {feasible} of {cases} cases had a plan");
    assert!(unequal * 5 > cases, "only {unequal} of {cases} plans have unequal micro batches");
    plans
}

#[test]
fn search_and_brute_force_end_at_the_same_step() {
    search_and_brute_force_agree(7, 120, draw);
}

#[test]
#[ignore = "minutes: cargo test --release -p meshwright-solver --test unequal -- --ignored"]
fn search_and_brute_force_end_at_the_same_step_on_500() {
    search_and_brute_force_agree(91, 500, draw);
}

#[test]
fn state_lies_apart_from_compute_where_brute_force_puts_it() {
    let plans = search_and_brute_force_agree(11, 50, draw_uneven);
    let uneven = plans.iter().filter(|own| own.has_uneven_state()).count();
    assert!(uneven >= 5, "only {uneven} of {} plans have uneven state", plans.len());
    for plan in plans.iter().filter(|own| own.has_uneven_state()) {
        let parts = plan.shares.iter().map(|share| f64::from(share.ranks) * plan.relative_state(share.state));
        let whole = parts.sum::<f64>() / f64::from(plan.dp());
        assert!((whole - 1.0).abs() < 1e-12, "the shares of {plan:?} make {whole}");
    }
}

#[test]
#[ignore = "minutes: cargo test --release -p meshwright-solver --test unequal -- --ignored"]
fn state_lies_apart_from_compute_where_brute_force_puts_it_on_500() {
    search_and_brute_force_agree(17, 500, draw_uneven);
}

/// Unequal micro batches never lose to equal ones, memory never hurts, and the shares make up the batch.
#[test]
fn more_freedom_and_more_memory_are_never_worse() {
    let mut random = Random(19);
    let at_most = |better: &Option<Solution>, worse: &Option<Solution>, what: &str| {
        let Some(worse) = step(worse) else { return };
        let better = step(better).unwrap_or(f64::INFINITY);
        assert!(better <= worse * (1.0 + 1e-12), "{what}: {better} above {worse}");
    };
    for _ in 0..100 {
        let mut case = draw(&mut random);
        case.runtime.uneven_shards = random.below(2) == 0;
        let limit = Bytes::gib(10.0 + random.below(30) as f64);
        let free = proved(&problem(&case, &[], Some(limit)));
        let even = proved(&problem(&case, &["uneven-state"], Some(limit)));
        at_most(&free, &even, "even shards are better");
        assert!(even.is_none_or(|own| !own.parallel.has_uneven_state()));
        let equal = proved(&problem(&case, &["unequal-micro-batches", "uneven-state"], Some(limit)));
        at_most(&free, &equal, "equal micro batches are better");
        assert!(equal.is_none_or(|own| own.parallel.shares.is_empty()));
        let more = proved(&problem(&case, &[], Some(limit * 1.25)));
        at_most(&more, &free, "less memory is better");
        let Some(solution) = free else { continue };
        assert_eq!(solution.parallel.global_batch(), case.workload.global_batch);
        let ranks: u32 = solution.parallel.shares.iter().map(|share| share.ranks).sum();
        assert!(solution.parallel.shares.is_empty() || ranks == solution.parallel.dp());
    }
}

#[test]
fn kinds_with_equal_gpus_share_equally_to_the_bit() {
    for runtime in ["fsdp1", "fsdp2"] {
        let case = Case {
            model: llama_of(4),
            cluster: cluster_of(&[(1, 4), (2, 2)], &["h100-sxm-80gb", "h100-sxm-80gb"]),
            workload: workload(32, 4096),
            runtime: Runtime::named(runtime).expect("a catalogue runtime"),
            fixed: "pp=1",
            limit: None,
        };
        let free = proved(&problem(&case, &[], None)).expect("a plan");
        let equal = proved(&problem(&case, &["unequal-micro-batches"], None)).expect("a plan");
        assert_eq!(free.parallel, equal.parallel);
        assert_eq!(free.estimate, equal.estimate);
        assert!(free.parallel.shares.is_empty());
    }
}

#[test]
fn an_engine_with_one_micro_batch_for_all_stays_equal() {
    let case = Case {
        model: llama_of(4),
        cluster: cluster_of(&[(1, 4), (1, 4)], &["h100-sxm-80gb", "l40s"]),
        workload: workload(40, 4096),
        runtime: Runtime::named("megatron-core").expect("a catalogue runtime"),
        fixed: "pp=1",
        limit: None,
    };
    let plan = proved(&problem(&case, &[], None)).expect("a plan");
    assert!(plan.parallel.shares.is_empty());
}

/// What Cephalo (arXiv 2411.01075) is made for: with room, sequences go by speed; where a kind has no room, the others take them.
#[test]
fn sequences_go_by_speed_as_far_as_memory_lets_them() {
    let runtime = Runtime::named("fsdp1").expect("a catalogue runtime");
    let plan_on = |gpus: [&str; 2], seq_len: u64| {
        let case = Case {
            model: llama_of(8),
            cluster: cluster_of(&[(1, 4), (1, 4)], &gpus),
            workload: workload(352, seq_len),
            runtime: runtime.clone(),
            fixed: "num_microbatches=2,recompute=none,zero=3,dp=8",
            limit: None,
        };
        proved(&problem(&case, &[], None)).expect("a plan")
    };
    let roomy = plan_on(["h200", "a100-sxm-80gb"], 1024);
    let [fast, slow] = &roomy.estimate.kinds[..] else { panic!("{:?}", roomy.parallel) };
    let one = slow.busy_seconds.get() / slow.share.micro_batch_size as f64;
    let apart = (fast.busy_seconds - slow.busy_seconds).get().abs();
    assert!(apart <= 2.0 * one, "kinds end {apart} s apart, a sequence takes {one} s");
    assert!(fast.share.micro_batch_size > slow.share.micro_batch_size);

    let tight = plan_on(["h200", "a100-sxm-40gb"], 1024);
    let [large, small] = &tight.estimate.kinds[..] else { panic!("{:?}", tight.parallel) };
    let share = |kind: &KindEstimate| kind.share.micro_batch_size as f64;
    assert!(share(small) / share(large) < share(slow) / share(fast), "{:?}", tight.parallel);
    assert!(small.busy_seconds < large.busy_seconds * 0.95, "the smaller GPU waits");
    assert!(small.memory.static_bytes == large.memory.static_bytes, "its state is no smaller");
}
