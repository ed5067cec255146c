//! GPUs of two and three kinds through the whole search, against brute force through the estimate: which devices form
//! which stage, every degree, every split.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic)]

use cluster_profiles::{Bytes, Cluster, Precision, catalog};
use cost_models::model::{Layer, Mlp};
use cost_models::rules::{Facts, engine};
use cost_models::sites::{limit_of_part, rank_limits};
use cost_models::{
    ModelSpec, Optimizer, ParallelConfig, Recompute, Runtime, Stage, StageMap, TrainingRun, Workload,
    estimate,
};
use rayon::prelude::*;
use solver::units::Units;
use solver::{Constraints, Outcome, Problem, Silent, solve};

struct Random(u64);

impl Random {
    fn below(&mut self, high: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % high.max(1) as u64) as usize
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// A problem with blocks of several widths on nodes of several kinds.
struct Case {
    model: ModelSpec,
    cluster: Cluster,
    workload: Workload,
    constraints: Constraints,
    limit: Option<Bytes>,
}

const GPUS: [&str; 6] = ["h100-sxm-80gb", "a100-sxm-80gb", "a100-sxm-40gb", "l40s", "h200", "rtx-pro-6000"];

/// Nodes of each kind and GPUs of a node.
const NODES: [&[(u32, u32)]; 10] = [
    &[(2, 1), (2, 1)],
    &[(2, 2), (2, 2)],
    &[(1, 2), (3, 2)],
    &[(3, 1), (3, 1)],
    &[(1, 4), (2, 2)],
    &[(1, 4), (1, 4)],
    &[(2, 1), (1, 1), (1, 1)],
    &[(2, 2), (1, 2), (1, 2)],
    &[(1, 4), (1, 2), (1, 2)],
    &[(2, 1), (2, 1), (2, 1)],
];

fn draw(random: &mut Random) -> Case {
    let nodes = random.of(&NODES);
    let mut names: Vec<&str> = GPUS.to_vec();
    let gpus: Vec<&str> = nodes.iter().map(|_| names.remove(random.below(names.len()))).collect();
    let world: u32 = nodes.iter().map(|(count, gpus)| count * gpus).sum();
    let blocks = 3 + random.below(if nodes.len() > 2 { 3 } else { 4 });
    let batch = u64::from(world) * random.of(&[1, 2]);
    let recompute =
        random.of(&["recompute=none", "recompute=none", "recompute=selective", "recompute=none|selective"]);
    let term = format!("schedule=1f1b,cp=1,{recompute}");
    Case {
        model: model(random, blocks),
        cluster: cluster(nodes, &gpus),
        workload: workload(batch),
        constraints: Constraints::parse(&[&term], &[]).expect("terms"),
        limit: (random.below(2) == 0).then(|| Bytes::gib(12.0 + random.below(24) as f64)),
    }
}

/// Llama-3.1-8B with fewer blocks, each of a width of its own.
fn model(random: &mut Random, blocks: usize) -> ModelSpec {
    let mut model = cost_models::model::catalog::get("llama-3.1-8b").expect("a catalogue model");
    let mut seen = 0;
    model.layers.retain(|layer| {
        seen += usize::from(matches!(layer, Layer::Block(_)));
        !matches!(layer, Layer::Block(_)) || seen <= blocks
    });
    for layer in &mut model.layers {
        if let Layer::Block(block) = layer
            && let Mlp::Dense { ffn, .. } = &mut block.mlp
        {
            *ffn = random.of(&[7168, 14336, 14336, 28672]);
        }
    }
    model
}

fn cluster(nodes: &[(u32, u32)], gpus: &[&str]) -> Cluster {
    let mut cluster = catalog::cluster("dgx-h100").expect("a catalogue cluster");
    let base = cluster.groups[0].clone();
    let group = |(&(count, size), gpu): (&(u32, u32), &&str)| {
        let mut group = base.clone();
        group.gpu = catalog::gpu(gpu).expect("a catalogue GPU");
        (group.nodes, group.node.gpus, group.node.domain, group.node.nics) = (count, size, size, size);
        group
    };
    cluster.groups = nodes.iter().zip(gpus).map(group).collect();
    cluster.nodes_per_leaf = None;
    cluster
}

fn workload(global_batch: u64) -> Workload {
    Workload {
        global_batch,
        seq_len: 4096,
        precision: Precision::Bf16,
        optimizer: Optimizer::Adamw,
        gradient_dtype: None,
        expert_imbalance: 1.0,
    }
}

/// Every order of the hosts of a cluster that differs in its kinds.
fn arrangements(cluster: &Cluster) -> Vec<Cluster> {
    let counts: Vec<usize> = cluster.groups.iter().map(|group| group.nodes as usize).collect();
    let firsts: Vec<usize> = (0..counts.len()).map(|kind| counts[..kind].iter().sum()).collect();
    let names = cluster.host_names();
    sequences(&counts)
        .into_iter()
        .map(|kinds| {
            let mut next = firsts.clone();
            let mut take = |kind: &usize| {
                next[*kind] += 1;
                names[next[*kind] - 1].clone()
            };
            let hosts: Vec<String> = kinds.iter().map(&mut take).collect();
            cluster.arranged(&hosts).expect("its own hosts")
        })
        .collect()
}

/// All sequences that use every kind as often as it is counted.
fn sequences(counts: &[usize]) -> Vec<Vec<usize>> {
    if counts.iter().all(|count| *count == 0) {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for kind in (0..counts.len()).filter(|kind| counts[*kind] > 0) {
        let mut rest = counts.to_vec();
        rest[kind] -= 1;
        all.extend(sequences(&rest).into_iter().map(|tail| [vec![kind], tail].concat()));
    }
    all
}

/// Every set of kinds.
fn parts(cluster: &Cluster) -> Vec<Cluster> {
    let sets = 1..1usize << cluster.groups.len();
    let part = |set: usize| {
        let chosen = |(index, group): (usize, _)| (set & (1 << index) != 0).then_some(group);
        let groups = cluster.groups.iter().cloned().enumerate().filter_map(chosen).collect();
        Cluster { groups, ..cluster.clone() }
    };
    sets.map(part).collect()
}

fn divisors(number: u64) -> Vec<u64> {
    (1..=number).filter(|divisor| number.is_multiple_of(*divisor)).collect()
}

/// Every legal set of degrees of a part of the cluster.
fn degrees(problem: &Problem) -> Vec<ParallelConfig> {
    let facts = Facts::new(problem.model, problem.cluster, problem.workload);
    let engine = engine(&problem.runtime.name);
    let node = problem.cluster.groups.iter().map(|group| u64::from(group.node.gpus)).min().unwrap_or(1);
    let recomputes = [Recompute::None, Recompute::Selective, Recompute::Full { layers: None }];
    let mut list = Vec::new();
    for tp in divisors(facts.world).into_iter().filter(|tp| *tp <= node) {
        for pp in divisors(facts.world / tp) {
            let dp = facts.world / tp / pp;
            for (micro, replicas, zero) in data_parallel(dp, facts.global_batch) {
                for (recompute, sequence_parallel) in
                    recomputes.iter().flat_map(|own| [(*own, false), (*own, true)])
                {
                    let parallel = ParallelConfig {
                        tp: tp as u32,
                        pp: pp as u32,
                        dp_replicate: replicas as u32,
                        dp_shard: (dp / replicas) as u32,
                        zero_stage: zero,
                        micro_batch_size: micro,
                        num_microbatches: facts.global_batch / (micro * dp),
                        sequence_parallel,
                        schedule: "1f1b".to_owned(),
                        recompute,
                        ..ParallelConfig::default()
                    };
                    let legal = engine.allows(&facts, &parallel);
                    if legal && problem.constraints.first_broken(&parallel, problem.cluster).is_none() {
                        list.push(parallel);
                    }
                }
            }
        }
    }
    list
}

/// Micro batch, replicas and stage of ZeRO.
fn data_parallel(dp: u64, batch: u64) -> Vec<(u64, u64, u8)> {
    let micros = divisors(batch).into_iter().filter(|micro| batch.is_multiple_of(micro * dp));
    micros
        .flat_map(|micro| {
            let sharded = divisors(dp).into_iter().map(move |replicas| (micro, replicas, 1));
            std::iter::once((micro, 1, 0)).chain(sharded)
        })
        .collect()
}

fn all_splits(units: usize, stages: usize) -> Vec<Vec<usize>> {
    if stages == 1 {
        return vec![vec![units]];
    }
    let cuts = stages - 1..units;
    cuts.flat_map(|cut| all_splits(cut, stages - 1).into_iter().map(move |ends| [ends, vec![units]].concat()))
        .collect()
}

/// Seconds of a step, if the layout is legal and every GPU has room.
fn judged(problem: &Problem, cluster: &Cluster, parallel: &ParallelConfig, ends: &[usize]) -> Option<f64> {
    let units = Units::new(problem.model);
    let starts = std::iter::once(0).chain(ends.iter().copied());
    let stages = starts.zip(ends).enumerate().map(|(rank, (start, &end))| Stage {
        rank: rank as u32,
        chunk: 0,
        layers: units.layers(start..end),
        recompute: parallel.recompute,
    });
    let stages = StageMap(stages.collect());
    let run = TrainingRun {
        model: problem.model,
        cluster,
        workload: problem.workload,
        runtime: problem.runtime,
        parallel,
        stages: &stages,
    };
    if !cost_models::rules::broken(&run).is_empty() {
        return None;
    }
    let prediction = estimate(&run).ok()?;
    let limits = rank_limits(&run, problem.limit());
    let fits = prediction.memory.iter().zip(limits).all(|(rank, limit)| rank.peak_bytes <= limit);
    fits.then(|| prediction.step_time_seconds.get())
}

/// The shortest step on any set of the kinds, with the hosts in any order.
fn brute_force(problem: &Problem) -> Option<f64> {
    let units = Units::new(problem.model).len();
    let best_of = |part: &Cluster| {
        let limit = limit_of_part(part, problem.cluster, problem.runtime, problem.limit());
        let own = Problem { cluster: part, memory_limit: Some(limit), ..problem.clone() };
        let degrees = degrees(&own);
        let orders = arrangements(part);
        let steps = degrees.par_iter().filter_map(|parallel| {
            let splits = all_splits(units, parallel.pp as usize);
            let orders = if parallel.pp == 1 { &orders[..1] } else { &orders[..] };
            let steps = orders
                .iter()
                .flat_map(|order| splits.iter().filter_map(|ends| judged(&own, order, parallel, ends)));
            steps.reduce(f64::min)
        });
        steps.reduce_with(f64::min)
    };
    parts(problem.cluster).iter().filter_map(best_of).reduce(f64::min)
}
fn searched(problem: &Problem) -> Option<f64> {
    match solve(problem, &Silent).expect("the problem is sound") {
        Outcome::Solved(solution) => {
            assert_eq!(solution.certificate.gap, 0.0, "{:?}", solution.certificate);
            Some(solution.estimate.step_time_seconds.get())
        }
        Outcome::Infeasible(_) => None,
        Outcome::Stopped { .. } => panic!("there was no limit"),
    }
}

fn same(a: Option<f64>, b: Option<f64>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * b,
        (a, b) => a == b,
    }
}

fn search_and_brute_force_agree(seed: u64, cases: usize) {
    let mut random = Random(seed);
    let runtime = Runtime::named("megatron-core").expect("a catalogue runtime");
    let mut feasible = 0;
    for case in 0..cases {
        let Case { model, cluster, workload, constraints, limit } = draw(&mut random);
        let problem = Problem {
            memory_limit: limit,
            constraints,
            top: 1,
            nearest: false,
            ..Problem::new(&model, &cluster, &workload, &runtime)
        };
        let (best, found) = (brute_force(&problem), searched(&problem));
        let kinds: Vec<_> =
            cluster.groups.iter().map(|group| (group.nodes, group.node.gpus, &group.gpu.name)).collect();
        assert!(same(found, best), "case {case}: search {found:?}, brute force {best:?}, {kinds:?}");
        feasible += usize::from(best.is_some());
    }
    assert!(feasible * 2 > cases, "only {feasible} of {cases} cases had a plan");
}

#[test]
fn search_and_brute_force_end_at_the_same_step() {
    search_and_brute_force_agree(3, 6);
}

#[test]
#[ignore = "minutes: cargo test --release -p meshwright-solver --test exact_mixed -- --ignored"]
fn search_and_brute_force_end_at_the_same_step_on_150() {
    search_and_brute_force_agree(71, 150);
}
