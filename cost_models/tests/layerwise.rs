//! Layer strategies: the uniform case is the ordinary one, redistribution follows its formula, faults are named.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic)]

use cluster_profiles::{Cluster, Collective, Precision, catalog};
use cost_models::comm::Fabric;
use cost_models::layerwise::{self, LayerStrategies, LayeredRun, Sharding, Strategy, StrategyRun};
use cost_models::stages::stages_from_blocks;
use cost_models::{
    ModelSpec, Optimizer, ParallelConfig, Recompute, Runtime, StageMap, TrainingRun, Workload, estimate,
    model, rules,
};
use proptest::prelude::*;

struct World {
    model: ModelSpec,
    cluster: Cluster,
    runtime: Runtime,
    workload: Workload,
}

fn world(name: &str, gpus: u64, batch: u64) -> World {
    World {
        model: model::catalog::get(name).expect("a catalogue model"),
        cluster: catalog::cluster("dgx-h100").and_then(|cluster| cluster.resized(gpus)).expect("whole nodes"),
        runtime: Runtime::named("galvatron").expect("a profile"),
        workload: Workload {
            global_batch: batch,
            seq_len: 4096,
            precision: Precision::Bf16,
            optimizer: Optimizer::Adamw,
            gradient_dtype: None,
            expert_imbalance: 1.0,
        },
    }
}

impl World {
    fn run<'a>(&'a self, parallel: &'a ParallelConfig, stages: &'a StageMap) -> TrainingRun<'a> {
        TrainingRun {
            model: &self.model,
            cluster: &self.cluster,
            workload: &self.workload,
            runtime: &self.runtime,
            parallel,
            stages,
        }
    }

    fn layout(&self, [tp, pp, m]: [u32; 3], zero_stage: u8) -> ParallelConfig {
        let dp = self.cluster.gpu_count() as u32 / tp / pp;
        ParallelConfig {
            tp,
            pp,
            dp_shard: dp,
            zero_stage,
            sequence_parallel: tp > 1,
            micro_batch_size: self.workload.global_batch / u64::from(m) / u64::from(dp),
            num_microbatches: m.into(),
            ..ParallelConfig::default()
        }
    }

    fn split(&self, parallel: &ParallelConfig, blocks: &[u64]) -> StageMap {
        let placement = cost_models::schedule::Placement::Loop;
        stages_from_blocks(&self.model, parallel, blocks, placement).expect("a split of the blocks")
    }
}

fn uneven(blocks: u64, stages: u32) -> Vec<u64> {
    let share = blocks / u64::from(stages);
    let mut counts = vec![share; stages as usize];
    counts[0] += blocks - share * u64::from(stages);
    counts
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]
    #[test]
    fn strategies_that_are_all_the_runs_own_change_nothing(
        tp in 0u32..4, pp in 0u32..3, m in 0u32..4, zero in prop::sample::select(vec![0u8, 2, 3]), again in any::<bool>(),
        gpipe in any::<bool>(),
    ) {
        let world = world("llama-3.1-8b", 32, 64);
        let mut parallel = world.layout([1 << tp, 1 << pp, 1 << m], zero);
        prop_assume!(parallel.micro_batch_size > 0);
        if gpipe {
            "gpipe".clone_into(&mut parallel.schedule);
        }
        let recompute = if again { Recompute::Full { layers: None } } else { Recompute::None };
        let blocks = uneven(32, parallel.pp);
        let plain = ParallelConfig { recompute, ..parallel.clone() };
        let stages = world.split(&plain, &blocks);
        let ordinary = world.run(&plain, &stages);
        prop_assert!(rules::broken(&ordinary).is_empty(), "{:?}", rules::broken(&ordinary));
        let strategy = Strategy { tp: parallel.tp, sharding: Sharding::of_stage(zero).unwrap(), recompute };
        let strategies = LayerStrategies::of_blocks(&[strategy; 32]);
        let kept = world.split(&parallel, &blocks);
        let layered = LayeredRun::new(world.run(&parallel, &kept), &strategies).expect("legal");
        prop_assert_eq!(layerwise::estimate(&layered).unwrap(), estimate(&ordinary).unwrap());
    }
}

#[test]
fn redistribution_gathers_over_the_old_group_and_merges_groups_that_grow() {
    let world = world("llama-3.1-8b", 16, 16);
    let parallel = world.layout([2, 1, 1], 2);
    let stages = world.split(&parallel, &[32]);
    let run = world.run(&parallel, &stages);
    let strategies: LayerStrategies = "0-9:tp=2,zero=2;10-31:tp=8,zero=2".parse().unwrap();
    let layered = LayeredRun::new(run, &strategies).expect("legal");
    let fabric = Fabric::new(&world.cluster, &world.runtime.shared);
    let gather = |sequences: f64, ranks: u32, stride: u32| {
        let bytes = cluster_profiles::Bytes(2.0 * sequences * 4096.0 * world.model.hidden as f64);
        fabric.time(Collective::AllGather, bytes, world.cluster.group_shape(ranks, stride))
    };
    // 16 sequences: 2 on each of 8 groups of 2 ranks, 8 on each of 2 groups of 8.
    let growing = layered.redistribution(11);
    assert_eq!(growing.forward, gather(2.0, 2, 1) + gather(8.0, 4, 2));
    assert_eq!(growing.backward, gather(8.0, 8, 1));
    let shrinking = layered.redistribution(33);
    assert_eq!([shrinking.forward, shrinking.backward], [growing.backward, growing.forward]);
    assert_eq!(layered.redistribution(12), layerwise::Exchange::default());
    let bytes = |sequences: f64| 2.0 * sequences * 4096.0 * world.model.hidden as f64;
    assert_eq!(growing.transient.get(), bytes(2.0) + bytes(8.0));
}

/// Time of a mixed layout without redistribution lies between those of its strategies; memory of one rank adds up.
#[test]
fn blocks_of_two_kinds_add_up() {
    let world = world("llama-3.1-8b", 16, 32);
    let parallel = world.layout([4, 1, 4], 3);
    let stages = world.split(&parallel, &[32]);
    let run = world.run(&parallel, &stages);
    let of = |text: &str| {
        let layered = LayeredRun::new(run, &text.parse().unwrap()).expect("legal");
        layerwise::estimate(&layered).unwrap()
    };
    let kept = of("0-31:tp=4,zero=3");
    let again = of("0-31:tp=4,zero=3,recompute=full");
    for count in 1..32 {
        let mixed = of(&format!("0-{}:tp=4,zero=3,recompute=full;{count}-31:tp=4,zero=3", count - 1));
        let share = f64::from(count) / 32.0;
        let between = |a: f64, b: f64| b + (a - b) * share;
        let time = between(again.step_time_seconds.get(), kept.step_time_seconds.get());
        assert!((mixed.step_time_seconds.get() / time - 1.0).abs() < 1e-9);
        let saved = between(again.memory[0].activations_bytes.get(), kept.memory[0].activations_bytes.get());
        assert!((mixed.memory[0].activations_bytes.get() / saved - 1.0).abs() < 1e-9);
    }
}

#[test]
fn every_fault_is_named() {
    let world = world("llama-3.1-8b", 16, 32);
    let parallel = world.layout([4, 1, 4], 2);
    let stages = world.split(&parallel, &[32]);
    let run = world.run(&parallel, &stages);
    let broken = |text: &str| {
        let faults = LayeredRun::new(run, &text.parse().unwrap()).expect_err("a fault");
        faults.into_iter().map(|fault| fault.id).collect::<Vec<_>>()
    };
    assert_eq!(broken("0-30:tp=4,zero=2"), ["L2"]);
    assert_eq!(broken("0-15:tp=4,zero=2;17-31:tp=4,zero=2"), ["L2"]);
    assert_eq!(broken("0-4294967295:tp=4,zero=2"), ["L2"]);
    assert_eq!(broken("0-15:tp=4,zero=2;16-31:tp=4,zero=0"), ["L6"]);
    assert_eq!(broken("0-31:tp=3,zero=2,recompute=selective"), ["L7", "L8"]);
    assert_eq!(broken("0-31:tp=16,zero=2"), ["T6b"]);
    assert_eq!(broken("0-31:tp=0,zero=2"), ["L8"]);
    assert_eq!(broken("0-31:tp=1,zero=2"), ["L9"]);
    let again = ParallelConfig { recompute: Recompute::Full { layers: None }, ..parallel.clone() };
    let uniform: LayerStrategies = "0-31:tp=4,zero=2".parse().unwrap();
    let faults = LayeredRun::new(world.run(&again, &stages), &uniform).expect_err("stated twice");
    assert_eq!(faults[0].id, "L4");
    let megatron = Runtime::named("megatron-core").unwrap();
    let faults =
        LayeredRun::new(TrainingRun { runtime: &megatron, ..run }, &uniform).expect_err("no strategies");
    assert_eq!(faults[0].id, "L1");
}

#[test]
fn strategies_are_read_as_they_are_written() {
    for text in ["0-15:tp=8,zero=3;16-79:tp=4,zero=2,recompute=full", "0:tp=1,zero=0;1:tp=2,zero=0"] {
        let read: LayerStrategies = text.parse().unwrap();
        assert_eq!(read.to_string(), text);
        let json = serde_json::to_string(&read).unwrap();
        assert_eq!(serde_json::from_str::<LayerStrategies>(&json).unwrap(), read);
    }
    let json = serde_json::to_value("0-1:tp=8,zero=3".parse::<LayerStrategies>().unwrap()).unwrap();
    let wanted = serde_json::json!([{"layers": [0, 1], "tp": 8, "sharding": "zero3", "recompute": "none"}]);
    assert_eq!(json, wanted);
    for text in [
        "",
        ";",
        "0-1",
        "0-1:tp=8",
        "0-1:zero=2",
        "0-1:tp=8,zero=1",
        "a-1:tp=8,zero=2",
        "0-1:tp=8,tp=4,zero=2",
        "0-1:tp=8,zero=2,dp=2",
        "0-99999999999:tp=8,zero=2",
        "0-1:tp=-8,zero=2",
        "0-1:tp=8,zero=2,recompute=half",
    ] {
        assert!(text.parse::<LayerStrategies>().is_err(), "{text}");
    }
}

#[test]
fn runs_and_lists_say_the_same() {
    let strategy = |tp| Strategy { tp, sharding: Sharding::Zero3, recompute: Recompute::None };
    let list = [strategy(4), strategy(4), strategy(2), strategy(4)];
    let runs = LayerStrategies::of_blocks(&list);
    assert_eq!(runs.0.len(), 3);
    assert_eq!(runs.by_block(4).unwrap(), list);
    assert_eq!(runs.by_block(5), None);
    assert_eq!(runs.uniform(), None);
    let backwards = LayerStrategies(vec![StrategyRun { layers: [1, 0], strategy: strategy(1) }]);
    assert_eq!(backwards.by_block(2), None);
}
