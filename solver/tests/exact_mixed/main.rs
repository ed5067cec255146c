//! GPUs of two and three kinds through the whole search, against brute force through the estimate: which devices form
//! which stage, every degree, every split.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic)]

mod brute;
mod program;
#[path = "../support/mod.rs"]
mod support;

use brute::brute_force;
use cluster_profiles::{Bytes, BytesPerSecond, Cluster, LinkOverride};
use cost_models::model::{Layer, Mlp};
use cost_models::{ModelSpec, Runtime, Workload};
use program::integer_program;
use solver::{Constraints, Problem};
use support::kinds::{GPUS, cluster_of, llama_of};
use support::random::Random;
use support::runs::{proved, same, workload};

/// A problem with blocks of several widths on nodes of several kinds.
struct Case {
    model: ModelSpec,
    cluster: Cluster,
    workload: Workload,
    constraints: Constraints,
    limit: Option<Bytes>,
}

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

fn draw(random: &mut Random, nodes: &[&[(u32, u32)]]) -> Case {
    let nodes = random.of(nodes);
    let gpus = random.distinct(&GPUS, nodes.len());
    let world: u32 = nodes.iter().map(|(count, gpus)| count * gpus).sum();
    let blocks = 3 + random.index(if nodes.len() > 2 { 3 } else { 4 });
    let batch = u64::from(world) * random.of(&[1, 2]);
    let recompute =
        random.of(&["recompute=none", "recompute=none", "recompute=selective", "recompute=none|selective"]);
    let term = format!("schedule=1f1b,cp=1,{recompute}");
    Case {
        model: model(random, blocks),
        cluster: cluster_of(nodes, &gpus),
        workload: workload(batch, 4096),
        constraints: Constraints::parse(&[&term], &[]).expect("terms"),
        limit: (random.index(2) == 0).then(|| Bytes::gib(12.0 + random.index(24) as f64)),
    }
}

/// Llama-3.1-8B with fewer blocks, each of a width of its own.
fn model(random: &mut Random, blocks: usize) -> ModelSpec {
    let mut model = llama_of(blocks);
    for layer in &mut model.layers {
        if let Layer::Block(block) = layer
            && let Mlp::Dense { ffn, .. } = &mut block.mlp
        {
            *ffn = random.of(&[7168, 14336, 14336, 28672]);
        }
    }
    model
}

/// Two islands of equal nodes, joined by links of so many GB/s.
fn islands(nodes: u32, gpus: u32, joined: f64) -> Cluster {
    let mut cluster = cluster_of(&[(nodes, gpus), (nodes, gpus)], &["h100-sxm-80gb", "h100-sxm-80gb"]);
    let name = |island: &str, node: u32| format!("{island}{node}");
    for (group, island) in cluster.groups.iter_mut().zip(["a", "b"]) {
        group.hosts = (0..nodes).map(|node| name(island, node)).collect();
    }
    for (a, b) in (0..nodes).flat_map(|a| (0..nodes).map(move |b| (a, b))) {
        cluster.links.push(LinkOverride {
            between: [name("a", a), name("b", b)],
            rail: None,
            bandwidth: Some(BytesPerSecond(joined * 1e9)),
            latency: None,
            broken: false,
            source: "two sites".to_owned(),
        });
    }
    cluster
}

fn search_and_brute_force_agree(seed: u64, cases: usize) {
    let mut random = Random(seed);
    let runtime = Runtime::named("megatron-core").expect("a catalogue runtime");
    let mut feasible = 0;
    for case in 0..cases {
        let Case { model, cluster, workload, constraints, limit } = draw(&mut random, &NODES);
        let problem = Problem {
            memory_limit: limit,
            constraints,
            top: 1,
            nearest: false,
            ..Problem::new(&model, &cluster, &workload, &runtime)
        };
        let best = brute_force(&problem);
        let solution = proved(&problem);
        let found = solution.as_ref().map(|own| own.estimate.step_time_seconds.get());
        let layout = solution.as_ref().map(|own| &own.parallel);
        let kinds: Vec<_> =
            cluster.groups.iter().map(|group| (group.nodes, group.node.gpus, &group.gpu.name)).collect();
        assert!(
            same(found, best),
            "case {case}: search {found:?}, brute force {best:?}, {kinds:?}, {layout:?}"
        );
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
fn search_and_brute_force_end_at_the_same_step_on_500() {
    search_and_brute_force_agree(71, 500);
}

/// The integer program decides which hosts form which stage, with which layers.
fn the_integer_program_agrees(seed: u64, cases: usize) {
    let mut random = Random(seed);
    let runtime = Runtime::named("megatron-core").expect("a catalogue runtime");
    for case in 0..cases {
        let drawn = draw(&mut random, &[&[(2, 1), (2, 1)], &[(2, 1), (1, 1)], &[(2, 1), (1, 1), (1, 1)]]);
        let Case { model, cluster, workload, constraints, limit } = drawn;
        let problem = Problem {
            memory_limit: limit,
            constraints,
            top: 1,
            nearest: false,
            ..Problem::new(&model, &cluster, &workload, &runtime)
        };
        let found = proved(&problem).map(|own| own.estimate.step_time_seconds.get());
        let program = integer_program(&problem);
        assert!(same(found, program), "case {case}: search {found:?}, integer program {program:?}");
    }
}

#[test]
fn the_integer_program_ends_there_too() {
    the_integer_program_agrees(37, 2);
}

#[test]
#[ignore = "minutes: cargo test --release -p meshwright-solver --test exact_mixed -- --ignored"]
fn the_integer_program_ends_there_too_on_500() {
    the_integer_program_agrees(41, 500);
}

/// On two islands joined by a slow link the pipeline goes once from one to the other, and nothing else does.
fn boundaries_lie_on_the_slow_link(seed: u64, cases: usize) {
    let mut random = Random(seed);
    let runtime = Runtime::named("megatron-core").expect("a catalogue runtime");
    let mut crossed = 0;
    for case in 0..cases {
        let (nodes, gpus) = random.of(&[(1, 2), (2, 1), (2, 2), (1, 4), (3, 1)]);
        let joined = random.of(&[0.2, 0.5, 1.0, 2.0]);
        let blocks = 3 + random.index(4);
        let model = model(&mut random, blocks);
        let (cluster, workload) = (islands(nodes, gpus, joined), workload(u64::from(nodes * gpus) * 4, 4096));
        let problem = Problem {
            constraints: Constraints::parse(&["schedule=1f1b,cp=1,recompute=none"], &[]).expect("terms"),
            memory_limit: Some(Bytes::gib(random.of(&[20.0, 40.0, 74.0]))),
            top: 1,
            nearest: false,
            ..Problem::new(&model, &cluster, &workload, &runtime)
        };
        let (best, found) = (brute_force(&problem), proved(&problem));
        let step = found.as_ref().map(|own| own.estimate.step_time_seconds.get());
        assert!(
            same(step, best),
            "case {case}: search {step:?}, brute force {best:?}, {nodes} x {gpus}, {joined}"
        );
        let Some(solution) = found.filter(|own| own.cluster.gpu_count() > u64::from(nodes * gpus)) else {
            continue;
        };
        let hosts = solution.cluster.host_names();
        let island = |host: &String| host.chars().next();
        let changes = hosts.windows(2).filter(|pair| island(&pair[0]) != island(&pair[1])).count();
        assert_eq!(changes, 1, "case {case}: {hosts:?}");
        assert!(
            solution.parallel.pp.is_multiple_of(2),
            "case {case}: a stage on both islands, {:?}",
            solution.parallel
        );
        crossed += 1;
    }
    assert!(crossed * 4 > cases, "only {crossed} of {cases} plans use both islands");
}

#[test]
fn pipelines_cross_a_slow_link_once_and_nothing_else_does() {
    boundaries_lie_on_the_slow_link(13, 4);
}
