//! Micro batches of different sizes by kind of GPU: what they cost, hold and may be.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic)]

use cluster_profiles::{Bytes, Cluster, NodeGroup, Precision, catalog};
use cost_models::rules::broken;
use cost_models::shares::{KindShare, ranks_by_kind};
use cost_models::sites::fits;
use cost_models::stages::default_stages;
use cost_models::{Estimate, ModelSpec, Optimizer, ParallelConfig, Runtime, TrainingRun, Workload, estimate};

/// Nodes of four GPUs, two of each kind.
fn cluster(gpus: &[&str]) -> Cluster {
    let mut cluster = catalog::cluster("dgx-h100").expect("a catalogue cluster");
    let base = cluster.groups[0].clone();
    let group = |gpu: &&str| {
        let mut group = NodeGroup { gpu: catalog::gpu(gpu).expect("a catalogue GPU"), ..base.clone() };
        (group.nodes, group.node.gpus, group.node.domain, group.node.nics) = (2, 4, 4, 4);
        group
    };
    cluster.groups = gpus.iter().map(group).collect();
    cluster.nodes_per_leaf = None;
    cluster
}

type Edit<'e> = &'e dyn Fn(&mut ParallelConfig);

fn share(gpu: &str, ranks: u32, micro_batch_size: u64) -> KindShare {
    KindShare { gpu: gpu.to_owned(), ranks, micro_batch_size, state: 1 }
}

fn layout(shares: Vec<KindShare>) -> ParallelConfig {
    let ranks: u32 = shares.iter().map(|share| share.ranks).sum();
    ParallelConfig { dp_shard: ranks, zero_stage: 3, num_microbatches: 3, ..ParallelConfig::default() }
        .with_shares(shares)
}

/// What is asked of a run with a layout.
fn with_run<T>(
    cluster: &Cluster,
    runtime: &str,
    parallel: &ParallelConfig,
    ask: impl Fn(&TrainingRun) -> T,
) -> T {
    let model: ModelSpec = cost_models::model::catalog::get("llama-3.1-8b").expect("a catalogue model");
    let runtime = Runtime::named(runtime).expect("a catalogue runtime");
    let workload = Workload {
        global_batch: parallel.global_batch(),
        seq_len: 4096,
        precision: Precision::Bf16,
        optimizer: Optimizer::Adamw,
        gradient_dtype: None,
        expert_imbalance: 1.0,
    };
    let policy = runtime.memory.pipeline.split;
    let placement = cost_models::schedule::Placement::Loop;
    let stages = default_stages(&model, parallel, policy, placement).expect("stages");
    ask(&TrainingRun {
        model: &model,
        cluster,
        workload: &workload,
        runtime: &runtime,
        parallel,
        stages: &stages,
    })
}

fn predicted(cluster: &Cluster, parallel: &ParallelConfig) -> Estimate {
    with_run(cluster, "fsdp2", parallel, |run| estimate(run).expect("a prediction"))
}

fn ids(cluster: &Cluster, runtime: &str, parallel: &ParallelConfig) -> Vec<String> {
    with_run(cluster, runtime, parallel, broken).into_iter().map(|rule| rule.id).collect()
}

/// Kinds that differ in their name alone: the same micro batch on each is the layout with one, to the bit.
#[test]
fn equal_shares_of_equal_gpus_are_one_micro_batch() {
    let mut cluster = cluster(&["h100-sxm-80gb", "h100-sxm-80gb"]);
    cluster.groups[1].gpu.name = "h100-of-another-name".to_owned();
    let one = ParallelConfig { micro_batch_size: 2, ..layout(vec![share("h100-sxm-80gb", 16, 1)]) };
    let shares = vec![share("h100-sxm-80gb", 8, 2), share("h100-of-another-name", 8, 2)];
    let each = ParallelConfig { shares: shares.clone(), ..one.clone() };
    let (a, b) = (predicted(&cluster, &one), predicted(&cluster, &each));
    assert_eq!(
        (a.step_time_seconds, a.time_seconds, a.memory),
        (b.step_time_seconds, b.time_seconds, b.memory)
    );
    assert!(a.kinds.is_empty() && b.kinds.len() == 2);
    assert_eq!(one.clone().with_shares(shares), one, "equal shares are one micro batch");
}

/// The step is that of the kind that the others wait for; more sequences on another change nothing until it is that kind.
#[test]
fn the_slowest_kind_makes_the_step() {
    let cluster = cluster(&["h100-sxm-80gb", "a100-sxm-80gb"]);
    let at = |fast, slow| {
        predicted(&cluster, &layout(vec![share("h100-sxm-80gb", 8, fast), share("a100-sxm-80gb", 8, slow)]))
    };
    let busy = |own: &Estimate| [0, 1].map(|kind| own.kinds[kind].busy_seconds.get());
    let (one, two) = (at(2, 1), at(5, 1));
    assert_eq!(busy(&one)[1], busy(&two)[1], "what a kind takes depends on its own micro batch alone");
    assert!(busy(&one)[1] > busy(&one)[0] && busy(&two)[0] > busy(&two)[1]);
    for own in [one, two] {
        let [a, b] = busy(&own);
        let after = own.step_time_seconds.get() - a.max(b);
        assert!(after > 0.0 && after < 0.1 * a.max(b), "{after} s of optimizer and fixed cost");
    }
    // The slow kind with three sequences takes about three times as long as with one.
    let three = busy(&at(1, 3))[1] / busy(&at(2, 1))[1];
    assert!((2.5..3.3).contains(&three), "{three}");
}

#[test]
fn memory_is_equal_state_and_own_activations() {
    let cluster = cluster(&["h100-sxm-80gb", "a100-sxm-40gb"]);
    let shares = layout(vec![share("h100-sxm-80gb", 8, 2), share("a100-sxm-40gb", 8, 1)]);
    let own = predicted(&cluster, &shares);
    let [large, small] = &own.kinds[..] else { panic!("two kinds") };
    assert_eq!(large.memory.static_bytes, small.memory.static_bytes);
    assert_eq!(large.state_share * 16.0, 1.0);
    let activations = large.memory.activations_bytes / small.memory.activations_bytes;
    assert!((activations - 2.0).abs() < 1e-9, "{activations}");
    // All limits are kept by kind: what is too much for the small GPU fits the large one.
    let peak = small.memory.peak_bytes;
    let fits_at = |limit: Bytes, swapped: bool| {
        let [a, b] = if swapped { [1, 2] } else { [2, 1] };
        let parallel = layout(vec![share("h100-sxm-80gb", 8, a), share("a100-sxm-40gb", 8, b)]);
        with_run(&cluster, "fsdp2", &parallel, |run| fits(run, &estimate(run).expect("a prediction"), limit))
    };
    assert!(fits_at(Bytes::gib(74.0), false) && !fits_at(Bytes::gib(74.0), true));
    assert!(!fits_at(peak * 0.99, false));
}

#[test]
fn shares_have_rules() {
    let mixed = cluster(&["h100-sxm-80gb", "a100-sxm-80gb"]);
    let good = layout(vec![share("h100-sxm-80gb", 8, 3), share("a100-sxm-80gb", 8, 1)]);
    assert_eq!(good.global_batch(), 3 * 8 * 4);
    for runtime in ["fsdp1", "fsdp2"] {
        assert!(ids(&mixed, runtime, &good).is_empty());
    }
    for runtime in ["megatron-core", "megatron-deepspeed", "torch", "jax"] {
        assert!(ids(&mixed, runtime, &good).contains(&"E11".to_owned()), "{runtime}");
    }
    let with = |edit: &dyn Fn(&mut ParallelConfig)| {
        let mut parallel = good.clone();
        edit(&mut parallel);
        ids(&mixed, "fsdp2", &parallel)
    };
    let wrong: [(&str, Edit); 6] = [
        ("a rank too many", &|p| p.shares[0].ranks = 9),
        ("a kind that is not there", &|p| p.shares[1].gpu = "l40s".to_owned()),
        ("another order", &|p| p.shares.reverse()),
        ("no sequence", &|p| p.shares[1].micro_batch_size = 0),
        ("micro_batch_size is not the largest", &|p| p.micro_batch_size = 2),
        ("a rank over two kinds", &|p| (p.cp, p.dp_shard) = (16, 1)),
    ];
    for (what, edit) in wrong {
        assert!(with(edit).contains(&"S1".to_owned()), "{what}: {:?}", with(edit));
    }
    assert!(with(&|p| p.num_microbatches = 2).is_empty(), "the batch of this test follows");
    assert_eq!(
        ranks_by_kind(&mixed, &ParallelConfig { tp: 4, cp: 2, ..ParallelConfig::default() }),
        Some(vec![("h100-sxm-80gb".to_owned(), 1), ("a100-sxm-80gb".to_owned(), 1)])
    );
    assert_eq!(ranks_by_kind(&mixed, &ParallelConfig { cp: 16, ..ParallelConfig::default() }), None);
}

/// State apart from compute: bytes by share, collectives by the largest, all of it the even case where shares are even.
#[test]
fn uneven_state_moves_bytes_and_costs_the_largest_shard() {
    let cluster = cluster(&["h200", "a100-sxm-40gb"]);
    let with = |states: [u32; 2]| {
        let mut shares = vec![share("h200", 8, 2), share("a100-sxm-40gb", 8, 1)];
        shares.iter_mut().zip(states).for_each(|(share, state)| share.state = state);
        layout(shares)
    };
    let (even, uneven) = (with([1, 1]), with([3, 1]));
    let again = predicted(&cluster, &with([5, 5]));
    let (a, b) = (predicted(&cluster, &even), predicted(&cluster, &uneven));
    assert_eq!((a.step_time_seconds, &a.memory), (again.step_time_seconds, &again.memory));
    assert_eq!((even.largest_shard(), uneven.largest_shard(), uneven.relative_state(1)), (1.0, 1.5, 0.5));
    for (kind, relative) in [(0, 1.5), (1, 0.5)] {
        let bytes = |own: &Estimate| own.kinds[kind].memory.static_bytes.get();
        assert!((bytes(&b) / bytes(&a) / relative - 1.0).abs() < 1e-12);
        assert_eq!(b.kinds[kind].memory.activations_bytes, a.kinds[kind].memory.activations_bytes);
    }
    assert!(b.step_time_seconds > a.step_time_seconds);
    let flipped = predicted(&cluster, &with([1, 3]));
    assert_eq!(flipped.time_seconds.dp, b.time_seconds.dp, "collectives only see the largest shard");

    let broken = |uneven_shards: bool, edit: &dyn Fn(&mut ParallelConfig)| {
        let mut parallel = uneven.clone();
        edit(&mut parallel);
        with_run(&cluster, "fsdp2", &parallel, |run| {
            let runtime = Runtime { uneven_shards, ..run.runtime.clone() };
            broken(&TrainingRun { runtime: &runtime, ..*run })
                .into_iter()
                .map(|rule| rule.id)
                .collect::<Vec<_>>()
        })
    };
    assert!(broken(true, &|_| {}).is_empty());
    assert_eq!(broken(false, &|_| {}), ["S2"]);
    assert_eq!(broken(true, &|p| (p.dp_replicate, p.dp_shard) = (2, 8)), ["S2"]);
    assert_eq!(broken(true, &|p| p.shares[0].state = 0), ["S1"]);
}
