//! Activations in host memory: what is held at every moment, and how long computation waits for copies.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic)]

use cluster_profiles::{BytesPerSecond, Precision, Seconds, catalog};
use cost_models::offload::{CopiedLayer, most_held, shared_rate, waits};
use cost_models::schedule::Placement;
use cost_models::stages::stages_from_blocks;
use cost_models::{Estimate, Optimizer, ParallelConfig, Recompute, Runtime, TrainingRun, Workload, estimate};
use proptest::prelude::*;

/// The order told again by its events: what each layer waits for, and what is on the device when it runs.
struct Replay {
    waits: [f64; 2],
    most_held: f64,
}

fn replay(layers: &[CopiedLayer], saved: &[f64], moved: usize) -> Replay {
    let count = layers.len();
    let mut on_device = vec![false; count];
    let mut most: f64 = 0.0;
    let held = |on_device: &[bool]| {
        on_device.iter().zip(saved).filter(|(here, _)| **here).map(|(_, bytes)| bytes).sum::<f64>()
    };
    let (mut now, mut link) = (0.0_f64, 0.0_f64);
    let mut out = vec![0.0; moved];
    for layer in 0..count {
        for first in 0..moved {
            if count - moved + first == layer {
                now = now.max(out[first]);
                on_device[first] = false;
            }
        }
        on_device[layer] = true;
        most = most.max(held(&on_device));
        now += layers[layer].forward;
        if layer < moved {
            link = link.max(now) + layers[layer].copy;
            out[layer] = link;
        }
    }
    let forward = now;
    let mut link = now;
    let mut back = vec![0.0; moved];
    for layer in (0..count).rev() {
        for first in (0..moved).rev() {
            if count - moved + first == layer + 1 {
                link = link.max(now) + layers[first].copy;
                back[first] = link;
                on_device[first] = true;
            }
        }
        if layer < moved {
            now = now.max(back[layer]);
        }
        most = most.max(held(&on_device));
        now += layers[layer].backward;
        on_device[layer] = false;
    }
    assert!(on_device.iter().all(|here| !here), "everything is released");
    let work = |time: fn(&CopiedLayer) -> f64| layers.iter().map(time).sum::<f64>();
    Replay { waits: [forward - work(|l| l.forward), now - forward - work(|l| l.backward)], most_held: most }
}

fn layers() -> impl Strategy<Value = (Vec<CopiedLayer>, Vec<f64>, usize)> {
    let layer = (1u32..20, 1u32..40, 0u32..60).prop_map(|(forward, backward, copy)| CopiedLayer {
        forward: f64::from(forward),
        backward: f64::from(backward),
        copy: f64::from(copy),
    });
    prop::collection::vec((layer, 1u32..9), 2..12).prop_flat_map(|list| {
        let count = list.len();
        let (layers, saved): (Vec<CopiedLayer>, Vec<f64>) =
            list.into_iter().map(|(layer, saved)| (layer, f64::from(saved))).unzip();
        (Just(layers), Just(saved), 0..count)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn waits_and_bytes_are_those_of_the_order((layers, saved, moved) in layers()) {
        let replay = replay(&layers, &saved, moved);
        let [forward, backward] = waits(&layers, moved).map(Seconds::get);
        prop_assert!((forward - replay.waits[0]).abs() < 1e-9, "{forward} {:?}", replay.waits);
        prop_assert!((backward - replay.waits[1]).abs() < 1e-9, "{backward} {:?}", replay.waits);
        prop_assert_eq!(most_held(&saved, moved), replay.most_held);
    }

    #[test]
    fn more_layers_hold_less_and_wait_longer((layers, saved, moved) in layers()) {
        let more = moved + 1;
        prop_assume!(more < layers.len());
        prop_assert!(most_held(&saved, more) <= most_held(&saved, moved));
        let sum = |moved| waits(&layers, moved).map(Seconds::get);
        prop_assert!(sum(more).iter().zip(sum(moved)).all(|(more, less)| *more >= less - 1e-9));
    }

    #[test]
    fn without_copies_there_are_no_waits((layers, _, moved) in layers()) {
        let free: Vec<CopiedLayer> = layers.iter().map(|layer| CopiedLayer { copy: 0.0, ..*layer }).collect();
        prop_assert_eq!(waits(&free, moved), [Seconds::ZERO; 2]);
        prop_assert_eq!(waits(&layers, 0), [Seconds::ZERO; 2]);
    }
}

#[test]
fn gpus_behind_one_switch_share_their_way_to_the_host() {
    let node = |name: &str| catalog::cluster(name).unwrap().main().node.clone();
    let (pcie, c2c) = (node("dgx-h100"), node("aws-p6e-gb200"));
    assert_eq!(shared_rate(&pcie).get() * 2.0, pcie.host.bandwidth.get());
    assert_eq!(shared_rate(&c2c), c2c.host.bandwidth);
    let mut alone = pcie;
    alone.gpus = 1;
    assert_eq!(shared_rate(&alone), alone.host.bandwidth);
}

/// Llama-3.1-8B on eight H100 with a host link of so many GB/s, and this recompute.
fn run(gigabytes: f64, recompute: Recompute) -> Estimate {
    let model = cost_models::model::catalog::get("llama-3.1-8b").unwrap();
    let mut cluster = catalog::cluster("dgx-h100").and_then(|cluster| cluster.resized(8)).unwrap();
    cluster.groups[0].node.host.bandwidth = BytesPerSecond(gigabytes * 1e9);
    cluster.groups[0].node.host.latency = Seconds::ZERO;
    let workload = Workload {
        global_batch: 16,
        seq_len: 8192,
        precision: Precision::Bf16,
        optimizer: Optimizer::Adamw,
        gradient_dtype: None,
        expert_imbalance: 1.0,
    };
    let parallel = ParallelConfig {
        tp: 2,
        dp_shard: 4,
        sequence_parallel: true,
        num_microbatches: 4,
        recompute,
        ..ParallelConfig::default()
    };
    let stages =
        stages_from_blocks(&model, &parallel, &[32], Placement::Loop).unwrap().with_recompute(recompute);
    let runtime = Runtime::named("megatron-core").unwrap();
    estimate(&TrainingRun {
        model: &model,
        cluster: &cluster,
        workload: &workload,
        runtime: &runtime,
        parallel: &parallel,
        stages: &stages,
    })
    .unwrap()
}

#[test]
fn a_fast_link_costs_nothing_and_a_slow_one_its_copies() {
    let (kept, full) = (run(1.0, Recompute::None), run(1.0, Recompute::Full { layers: None }));
    for layers in [1, 8, 20, 31] {
        let moved = Recompute::Offload { layers };
        let (fast, slow, stuck) = (run(1e9, moved), run(40.0, moved), run(0.5, moved));
        let step = |estimate: &Estimate| estimate.step_time_seconds.get();
        assert!((step(&fast) / step(&kept) - 1.0).abs() < 1e-6, "{layers} layers cost {}", step(&fast));
        assert!(step(&slow) >= step(&fast) && step(&stuck) > step(&full), "{layers}");
        let saved = |estimate: &Estimate| estimate.memory[0].activations_bytes.get();
        let share = f64::from(32 - layers) / 32.0;
        assert!((saved(&fast) / saved(&kept) - share).abs() < 1e-9, "{layers} layers: {}", saved(&fast));
        assert_eq!(fast.memory, stuck.memory);
    }
}
