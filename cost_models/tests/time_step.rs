//! Laws of layer costs, stages and step times.

use cluster_profiles::{Cluster, Precision, Seconds, catalog};
use cost_models::layer_cost::{LayerContext, PassCost, layer_cost};
use cost_models::model::{Attention, Block, CustomLayer, Layer, Mlp};
use cost_models::runtime::{CudaGraph, Overlap, RuntimeFacts, SplitPolicy, TensorOverlap, names};
use cost_models::schedule::{Placement, ScheduleKind, simulate};
use cost_models::stages::{default_stages, stages_from_blocks};
use cost_models::step::{Makespans, PreparedSchedule, SimulatedPipeline, StageCosts, one_f_one_b_upper};
use cost_models::{
    Estimate, ModelSpec, Optimizer, ParallelConfig, Recompute, Runtime, StageMap, StepTime, TrainingRun,
    Workload, estimate, step_time, step_time_bound,
};
use proptest::prelude::*;

fn model(blocks: usize, experts: u64) -> ModelSpec {
    let mlp = if experts > 0 { Mlp::routed(experts, 2, 1024) } else { Mlp::swiglu(14_336) };
    let block = Block { attention: Attention::standard(32, 8, 128), mlp, norms: 2, mlp_bias: false };
    let mut layers = vec![Layer::Embedding];
    layers.extend(std::iter::repeat_n(Layer::Block(block), blocks));
    layers.extend([Layer::FinalNorm, Layer::Head]);
    ModelSpec { name: "law".into(), hidden: 4096, vocab: 32_768, layers, ..ModelSpec::default() }
}

fn workload(parallel: &ParallelConfig) -> Workload {
    Workload {
        global_batch: parallel.global_batch(),
        seq_len: 4096,
        precision: Precision::Bf16,
        optimizer: Optimizer::Adamw,
        gradient_dtype: None,
        expert_imbalance: 1.0,
    }
}

fn cluster(parallel: &ParallelConfig) -> Cluster {
    catalog::cluster("dgx-h100").unwrap().resized(parallel.world_size()).unwrap()
}

fn stages(model: &ModelSpec, parallel: &ParallelConfig) -> StageMap {
    default_stages(model, parallel, SplitPolicy::Even, Placement::Loop).unwrap()
}

fn with_run<T>(
    model: &ModelSpec,
    parallel: &ParallelConfig,
    runtime: &Runtime,
    cluster: &Cluster,
    ask: impl Fn(&TrainingRun) -> T,
) -> T {
    let (workload, stages) = (workload(parallel), stages(model, parallel));
    ask(&TrainingRun { model, cluster, workload: &workload, runtime, parallel, stages: &stages })
}

fn time(model: &ModelSpec, parallel: &ParallelConfig, runtime: &Runtime) -> StepTime {
    with_run(model, parallel, runtime, &cluster(parallel), |run| step_time(run).unwrap())
}

fn core() -> Runtime {
    Runtime::named("megatron-core").unwrap()
}

/// Layouts of one to sixteen nodes.
fn layouts() -> impl Strategy<Value = ParallelConfig> {
    let power = |most: u32| (0..=most).prop_map(|p| 1u32 << p);
    (power(3), power(2), power(1), 1u64..24, any::<bool>(), 0u8..3, any::<bool>()).prop_map(
        |(tp, pp, vpp, microbatches, sp, recompute, sharded)| {
            let vpp = if pp == 1 { 1 } else { vpp };
            let dp = (64 / (tp * pp)).min(8);
            ParallelConfig {
                tp,
                pp,
                vpp,
                dp_shard: if sharded { dp } else { 1 },
                dp_replicate: if sharded { 1 } else { dp },
                zero_stage: u8::from(sharded),
                sequence_parallel: sp && tp > 1,
                num_microbatches: microbatches * u64::from(pp),
                schedule: if vpp > 1 { "interleaved-1f1b" } else { "1f1b" }.to_owned(),
                recompute: [Recompute::None, Recompute::Selective, Recompute::Full { layers: None }]
                    [usize::from(recompute)],
                ..ParallelConfig::default()
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parts_are_not_negative_add_up_and_are_not_below_the_bound(
        parallel in layouts(), experts in prop::sample::select(vec![0u64, 8]), engine in prop::sample::select(names()),
    ) {
        prop_assume!(parallel.world_size().is_multiple_of(8) || parallel.world_size() < 8);
        let (model, runtime) = (model(16, experts), Runtime::named(&engine).unwrap());
        let (step, bound) = with_run(&model, &parallel, &runtime, &cluster(&parallel), |run| {
            (step_time(run).unwrap(), step_time_bound(run).unwrap())
        });
        for (kind, seconds) in step.breakdown.parts() {
            prop_assert!(seconds.get() >= 0.0 && seconds.get().is_finite(), "{kind} {seconds:?}");
        }
        let sum: f64 = step.breakdown.parts().iter().map(|(_, seconds)| seconds.get()).sum();
        prop_assert_eq!(sum, step.total().get());
        prop_assert!(bound.get() <= step.total().get() * (1.0 + 1e-9), "{bound:?} {:?}", step.total());
        prop_assert!((0.0..1.0).contains(&step.bubble_fraction));
    }

    #[test]
    fn faster_links_and_gpus_are_never_slower(parallel in layouts(), factor in 1.0f64..3.0) {
        prop_assume!(parallel.world_size().is_multiple_of(8) || parallel.world_size() < 8);
        let (model, runtime, cluster) = (model(16, 0), core(), cluster(&parallel));
        let mut links = cluster.clone();
        let node = &mut links.groups[0].node;
        (node.inter.bandwidth, node.intra.bandwidth) = (node.inter.bandwidth * factor, node.intra.bandwidth * factor);
        let mut gpus = cluster.clone();
        let kernels = &mut gpus.groups[0].gpu.kernels;
        kernels.gemm_16bit.rate = kernels.gemm_16bit.rate * factor;
        kernels.stream_bandwidth = kernels.stream_bandwidth * factor;
        kernels.attention.rate = kernels.attention.rate * factor;
        let total = |cluster: &Cluster| {
            with_run(&model, &parallel, &runtime, cluster, |run| step_time(run).unwrap().total().get())
        };
        let base = total(&cluster);
        prop_assert!(total(&links) <= base * (1.0 + 1e-9));
        prop_assert!(total(&gpus) <= base * (1.0 + 1e-9));
    }

    #[test]
    fn recompute_and_more_microbatches_take_longer(parallel in layouts()) {
        prop_assume!(parallel.world_size().is_multiple_of(8) || parallel.world_size() < 8);
        let (model, runtime) = (model(16, 0), core());
        let total = |parallel: &ParallelConfig| time(&model, parallel, &runtime).total().get();
        let with = |recompute| ParallelConfig { recompute, ..parallel.clone() };
        let none = total(&with(Recompute::None));
        let one = total(&with(Recompute::Full { layers: Some(1) }));
        let all = total(&with(Recompute::Full { layers: None }));
        prop_assert!(none <= one && one <= all && none < all);
        let twice = ParallelConfig { num_microbatches: 2 * parallel.num_microbatches, ..parallel.clone() };
        prop_assert!(total(&parallel) < total(&twice));
    }

    /// The steady state of many microbatches is extrapolated: it must continue what is simulated.
    #[test]
    fn a_long_step_continues_a_short_one(pp in 2u32..9, rounds in 8u64..16) {
        let (model, runtime) = (model(32, 0), core());
        let total = |microbatches: u64| {
            let parallel = ParallelConfig {
                pp, dp_replicate: 8, zero_stage: 0, num_microbatches: microbatches, ..ParallelConfig::default()
            };
            time(&model, &parallel, &runtime).total().get()
        };
        let p = u64::from(pp);
        let per_round = |low: u64, high: u64| (total(high * p) - total(low * p)) / (high - low) as f64;
        let (short, long) = (per_round(rounds - 3, rounds + 3), per_round(30, 60));
        prop_assert!((short / long - 1.0).abs() < 3e-3, "{short} {long}");
    }
}

/// Where the busiest rank of a long step is not the last to end a short one, what is simulated of the step ends early; what
/// is made of it does not.
#[test]
fn a_long_step_of_uneven_stages_is_as_long_as_simulated() {
    let model = ModelSpec { vocab: 98_304, ..model(32, 0) };
    for (blocks, microbatches) in
        [([8, 8, 9, 7], 128), ([9, 8, 8, 7], 128), ([10, 7, 7, 8], 128), ([7, 10, 8, 7], 512)]
    {
        let parallel = ParallelConfig {
            pp: 2,
            vpp: 2,
            dp_replicate: 8,
            zero_stage: 0,
            num_microbatches: microbatches,
            schedule: "interleaved-1f1b".to_owned(),
            ..ParallelConfig::default()
        };
        let stages = stages_from_blocks(&model, &parallel, &blocks, Placement::Loop).unwrap();
        let (cluster, workload, runtime) = (cluster(&parallel), workload(&parallel), core());
        let run = TrainingRun {
            model: &model,
            cluster: &cluster,
            workload: &workload,
            runtime: &runtime,
            parallel: &parallel,
            stages: &stages,
        };
        let pipeline = SimulatedPipeline::of(&run).unwrap();
        let whole = simulate(&pipeline.orders, &pipeline.costs).unwrap().makespan;
        let costs = StageCosts::of(&run).unwrap();
        let made = PreparedSchedule::of(&run, &costs).unwrap().makespan(&run, &costs).unwrap().get();
        assert!((made / whole - 1.0).abs() < 2e-3, "{blocks:?}: {made} for {whole}");
        let known = Makespans::default();
        let first = known.of(&run, &costs, || Ok(Seconds(made))).unwrap();
        let again = known.of(&run, &costs, || panic!("it is known")).unwrap();
        assert_eq!([first.get(), again.get()], [made; 2]);
        let (slower, other) = (Workload { seq_len: 8192, ..workload.clone() }, Seconds(1.0));
        let run = TrainingRun { workload: &slower, ..run };
        let costs = StageCosts::of(&run).unwrap();
        assert_eq!(known.of(&run, &costs, || Ok(other)).unwrap(), other);
    }
}

/// A combined forward-backward hides expert traffic, but for the share that stays exposed; what runs alone in the warm-up
/// and the cool-down shows all of its own.
#[test]
fn combined_pairs_hide_expert_traffic() {
    let (p, v, m) = (4, 2, 16);
    let layout = |schedule: &str| ParallelConfig {
        pp: p,
        vpp: v,
        ep: 8,
        dp_shard: 8,
        zero_stage: 1,
        num_microbatches: m,
        schedule: schedule.to_owned(),
        ..ParallelConfig::default()
    };
    let model = model(16, 8);
    let plain = time(&model, &layout("interleaved-1f1b"), &core());
    let combined = time(&model, &layout("combined-1f1b"), &core());
    let overlap = Overlap { ep: Some(true), ..Overlap::default() };
    let stated = core().with_facts(&RuntimeFacts { overlap, ..RuntimeFacts::default() });
    let everywhere = time(&model, &layout("interleaved-1f1b"), &stated);
    let exposed = core().shared.expert_overlap_exposed;
    let seconds = |step: &StepTime| step.breakdown.ep.get();
    assert!((seconds(&everywhere) / seconds(&plain) - exposed).abs() < 1e-9);
    let alone = f64::from(2 * (p - 1 - combined.busiest_rank) + (v - 1) * p + 1) / (m as f64 * f64::from(v));
    let expected = seconds(&plain) * (exposed + (1.0 - exposed) * alone);
    assert!((seconds(&combined) / expected - 1.0).abs() < 1e-9, "{} {expected}", seconds(&combined));
    assert!(combined.total() < plain.total() && combined.total() > everywhere.total());
    let bound = with_run(&model, &layout("combined-1f1b"), &core(), &cluster(&layout("1f1b")), |run| {
        step_time_bound(run).unwrap()
    });
    assert!(bound <= combined.total());
}

/// Sends that are stated not to be overlapped hold their rank up.
#[test]
fn blocking_sends_hold_the_rank_up() {
    let parallel = ParallelConfig { pp: 8, num_microbatches: 32, ..ParallelConfig::default() };
    let overlap = Overlap { pp: Some(false), ..Overlap::default() };
    let blocking = core().with_facts(&RuntimeFacts { overlap, ..RuntimeFacts::default() });
    let model = model(16, 0);
    let (free, held) = (time(&model, &parallel, &core()), time(&model, &parallel, &blocking));
    assert!(held.breakdown.pp > free.breakdown.pp && held.total() > free.total());
    assert_eq!(held.breakdown.matmul, free.breakdown.matmul);
}

/// Schedules that combine forwards with backwards hide expert traffic, others do not.
#[test]
fn the_schedule_says_whether_expert_traffic_hides() {
    let model = model(4, 8);
    for &kind in ScheduleKind::ALL {
        let parallel = ParallelConfig {
            ep: 8,
            dp_shard: 8,
            schedule: kind.name().to_owned(),
            ..ParallelConfig::default()
        };
        let pass = with_run(&model, &parallel, &core(), &cluster(&parallel), |run| {
            layer_cost(&LayerContext::of(run), &run.model.layers[1], Recompute::None).forward
        });
        let combines = ["dualpipe", "dualpipev", "combined-1f1b"].contains(&kind.name());
        let hidden = pass.ep_hidden / (pass.ep + pass.ep_hidden);
        let expected = if combines { 1.0 - core().shared.expert_overlap_exposed } else { 0.0 };
        assert!((hidden - expected).abs() < 1e-9, "{kind}: {hidden}");
        assert_eq!(kind.definition().combines, combines);
    }
}

/// One microbatch through equal stages without hops is the closed form to the bit of a rounding.
#[test]
fn equal_stages_take_the_closed_form() {
    let layer = CustomLayer {
        parameters: 0,
        forward_seconds: 1.0,
        input_gradient_seconds: 1.5,
        weight_gradient_seconds: 0.5,
        activation_bytes: 0.0,
        output_bytes: 0.0,
    };
    let model = ModelSpec {
        name: "equal".into(),
        hidden: 64,
        vocab: 0,
        layers: vec![Layer::Custom(layer); 8],
        ..ModelSpec::default()
    };
    for (pp, microbatches) in [(2, 4), (4, 4), (4, 16), (8, 40), (8, 200)] {
        let parallel = ParallelConfig { pp, num_microbatches: microbatches, ..ParallelConfig::default() };
        let map = StageMap(
            (0..pp)
                .map(|rank| cost_models::Stage {
                    rank,
                    chunk: 0,
                    layers: Some([rank * 8 / pp, (rank + 1) * 8 / pp - 1]),
                    recompute: Recompute::None,
                })
                .collect(),
        );
        let (cluster, workload, runtime) = (cluster(&parallel), workload(&parallel), core());
        let run = TrainingRun {
            model: &model,
            cluster: &cluster,
            workload: &workload,
            runtime: &runtime,
            parallel: &parallel,
            stages: &map,
        };
        let step = step_time(&run).unwrap();
        let per_stage = 8.0 / f64::from(pp);
        let expected =
            one_f_one_b_upper(&vec![(per_stage, 2.0 * per_stage); pp as usize], microbatches as f64, 0.0);
        let simulated = step.total().get() - runtime.time.step.get();
        assert!((simulated / expected - 1.0).abs() < 1e-9, "{pp} {microbatches} {simulated} {expected}");
    }
}

#[test]
fn every_layer_of_every_catalogue_model_costs_something_on_every_engine() {
    for name in cost_models::model::catalog::names() {
        let model = cost_models::model::catalog::get(name).unwrap();
        let parallel = ParallelConfig { tp: 8, sequence_parallel: true, ..ParallelConfig::default() };
        let (cluster, workload) = (cluster(&parallel), workload(&parallel));
        for engine in names() {
            let runtime = Runtime::named(&engine).unwrap();
            let context = LayerContext::new(&model, &cluster, &workload, &runtime, &parallel);
            for layer in &model.layers {
                let cost = layer_cost(&context, layer, Recompute::Full { layers: None });
                let passes = [cost.forward, cost.input_gradient, cost.weight_gradient, cost.recompute];
                assert!(cost.forward.total().get() > 0.0, "{name} {engine} {layer:?}");
                for pass in passes {
                    assert!(
                        kinds(&pass).iter().all(|x| *x >= 0.0 && x.is_finite()),
                        "{name} {engine} {layer:?}"
                    );
                    let sum: f64 = kinds(&pass).iter().sum();
                    assert!((sum - pass.total().get()).abs() <= 1e-9 * sum.max(1e-30));
                }
            }
        }
    }
}

fn kinds(pass: &PassCost) -> [f64; 8] {
    [pass.matmul, pass.attention, pass.other_kernels, pass.tp, pass.cp, pass.ep, pass.dp, pass.host]
        .map(|s| s.get())
}

#[test]
fn facts_speed_up_what_they_should() {
    let parallel =
        ParallelConfig { tp: 8, sequence_parallel: true, num_microbatches: 8, ..ParallelConfig::default() };
    let total = |experts, facts: &RuntimeFacts| {
        time(&model(8, experts), &parallel, &Runtime::for_run("megatron-core", facts).unwrap()).total()
    };
    let plain = RuntimeFacts::default();
    let buffers = RuntimeFacts {
        overlap: Overlap { tp: Some(TensorOverlap::UserBuffers), ..Overlap::default() },
        ..plain.clone()
    };
    assert!(total(0, &buffers) < total(0, &plain));
    let graph = RuntimeFacts { cuda_graph: Some(CudaGraph::Full), ..plain.clone() };
    assert!(total(8, &graph) < total(8, &plain));
    let capacity = RuntimeFacts { capacity_factor: Some(1.0), ..plain.clone() };
    assert!(total(8, &capacity) < total(8, &plain));
}

#[test]
fn stages_that_miss_layers_are_refused() {
    let (model, runtime) = (model(4, 0), core());
    let parallel = ParallelConfig { pp: 2, num_microbatches: 4, ..ParallelConfig::default() };
    let (cluster, workload) = (cluster(&parallel), workload(&parallel));
    let whole = stages(&model, &parallel);
    let part = StageMap(whole.0[..1].to_vec());
    let run = |stages| TrainingRun {
        model: &model,
        cluster: &cluster,
        workload: &workload,
        runtime: &runtime,
        parallel: &parallel,
        stages,
    };
    assert!(StageCosts::of(&run(&part)).is_err());
    assert!(StageCosts::of(&run(&whole)).is_ok());
}

/// Shares of what a step rests on add up; the interval holds the step; tokens and FLOPs agree with it.
#[test]
fn an_estimate_agrees_with_itself() {
    let parallel = ParallelConfig {
        tp: 4,
        sequence_parallel: true,
        dp_shard: 4,
        num_microbatches: 8,
        ..ParallelConfig::default()
    };
    let (model, runtime) = (model(16, 0), core());
    let found: Estimate =
        with_run(&model, &parallel, &runtime, &cluster(&parallel), |run| estimate(run).unwrap());
    let again: Estimate =
        with_run(&model, &parallel, &runtime, &cluster(&parallel), |run| estimate(run).unwrap());
    assert_eq!(found, again);
    let shares: f64 = found.basis.iter().map(|basis| basis.share).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{:?}", found.basis);
    let [low, high] = found.step_time_interval_seconds;
    assert!(low < found.step_time_seconds && found.step_time_seconds < high);
    let tokens = found.tokens_per_second_per_gpu * found.step_time_seconds.get() * 16.0;
    assert!((tokens / (parallel.global_batch() as f64 * 4096.0) - 1.0).abs() < 1e-9);
    assert!((0.2..0.7).contains(&found.model_flops_utilization), "{}", found.model_flops_utilization);
}
