//! Laws of the memory model: conservation, monotonicity, closed forms, a published table.

use cluster_profiles::{Cluster, Precision};
use cost_models::memory::{InFlight, MemoryContext, rank_memory};
use cost_models::model::{Attention, Block, Layer, Mlp, Sharding};
use cost_models::runtime::{Runtime, RuntimeFacts, SplitPolicy, names};
use cost_models::schedule::{GroupRule, Placement, ScheduleKind, ScheduleShape, generate};
use cost_models::sharding::StateShards;
use cost_models::stages::{default_stages, stages_from_blocks, stages_from_layout};
use cost_models::{ModelSpec, Optimizer, ParallelConfig, RankMemory, Recompute, TrainingRun, Workload};
use proptest::prelude::*;

fn model(blocks: usize, hidden: u64, experts: u64) -> ModelSpec {
    let mlp = if experts > 0 { Mlp::routed(experts, 2, hidden) } else { Mlp::swiglu(4 * hidden) };
    let attention = Attention::standard(hidden / 64, hidden / 128, 64);
    let block = Block { attention, mlp, norms: 2, mlp_bias: false };
    let mut layers = vec![Layer::Embedding];
    layers.extend(std::iter::repeat_n(Layer::Block(block), blocks));
    layers.extend([Layer::FinalNorm, Layer::Head]);
    ModelSpec { name: "law".into(), hidden, vocab: 32_768, layers, ..ModelSpec::default() }
}

fn workload(parallel: &ParallelConfig, seq_len: u64) -> Workload {
    Workload {
        global_batch: parallel.global_batch(),
        seq_len,
        precision: Precision::Bf16,
        optimizer: Optimizer::Adamw,
        gradient_dtype: None,
        expert_imbalance: 1.0,
    }
}

fn cluster() -> Cluster {
    cluster_profiles::catalog::cluster("dgx-h100").unwrap()
}

fn memory(model: &ModelSpec, parallel: &ParallelConfig, runtime: &Runtime) -> Vec<RankMemory> {
    let stages = default_stages(model, parallel, SplitPolicy::Even, Placement::Loop).unwrap();
    let (cluster, workload) = (cluster(), workload(parallel, 2048));
    let run =
        TrainingRun { model, cluster: &cluster, workload: &workload, runtime, parallel, stages: &stages };
    rank_memory(&run).unwrap()
}

fn largest(memory: &[RankMemory], of: fn(&RankMemory) -> f64) -> f64 {
    memory.iter().map(of).fold(0.0, f64::max)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parameters_of_all_ranks_are_the_models(pp in 1u32..6, blocks in 6usize..20, experts in prop::sample::select(vec![0u64, 8])) {
        let model = model(blocks, 512, experts);
        let parallel = ParallelConfig { pp, num_microbatches: 8, ..ParallelConfig::default() };
        let held: f64 = memory(&model, &parallel, &Runtime::named("megatron-core").unwrap())
            .iter().map(|rank| rank.parameters_bytes.get()).sum();
        prop_assert_eq!(held, 2.0 * model.parameters_total() as f64);
    }

    #[test]
    fn tensor_and_expert_parts_add_up(tp in prop::sample::select(vec![1u32, 2, 4]), ep in prop::sample::select(vec![1u32, 2, 4])) {
        let model = model(4, 512, 8);
        let parallel = ParallelConfig { tp, ep, etp: tp, dp_shard: 4, ..ParallelConfig::default() };
        let shards = StateShards::new(&parallel, &Runtime::named("megatron-core").unwrap().memory);
        for weight in model.layers.iter().flat_map(|layer| layer.weights(&model)) {
            let holders = match weight.sharding {
                Sharding::Tensor | Sharding::TensorKv { .. } | Sharding::Vocabulary => tp,
                Sharding::Expert => tp * ep,
                _ => 1,
            };
            let whole = shards.held(&weight, &model) * f64::from(holders);
            prop_assert!((whole - weight.parameters() as f64).abs() < 0.5, "{}", weight.name);
        }
    }

    #[test]
    fn more_data_parallelism_never_raises_static_memory(
        dp in 1u32..9, zero in 0u8..4, experts in prop::sample::select(vec![0u64, 8]), engine in 0usize..13,
    ) {
        let model = model(4, 512, experts);
        let runtime = Runtime::named(&names()[engine]).unwrap();
        let config = |dp_shard| ParallelConfig { dp_shard, zero_stage: zero, num_microbatches: 4, ..ParallelConfig::default() };
        let of = |dp| largest(&memory(&model, &config(dp), &runtime), |rank| rank.static_bytes.get());
        // From one rank to two an engine may start to keep reduction buffers.
        prop_assert!(of(2 * (dp + 1)) <= of(dp + 1) * (1.0 + 1e-12));
    }

    #[test]
    fn more_tensor_parallelism_never_raises_parameters(tp in 1u32..8, experts in prop::sample::select(vec![0u64, 8])) {
        let model = model(4, 1024, experts);
        let runtime = Runtime::named("megatron-core").unwrap();
        let config = |tp| ParallelConfig { tp, etp: tp, sequence_parallel: tp > 1, ..ParallelConfig::default() };
        let of = |tp| largest(&memory(&model, &config(tp), &runtime), |rank| rank.parameters_bytes.get());
        prop_assert!(of(2 * tp) <= of(tp));
    }

    #[test]
    fn terms_add_up_to_the_peak(
        pp in 1u32..5, tp in prop::sample::select(vec![1u32, 2]), zero in 0u8..4, m in 1u64..12, engine in 0usize..13,
    ) {
        let model = model(8, 512, 8);
        let runtime = Runtime::named(&names()[engine]).unwrap();
        let parallel = ParallelConfig { pp, tp, etp: tp, dp_shard: 4, ep: 2, zero_stage: zero, num_microbatches: m, ..ParallelConfig::default() };
        for rank in memory(&model, &parallel, &runtime) {
            let sum: f64 = rank.terms().iter().map(|(_, bytes)| bytes.get()).sum();
            prop_assert!((sum / rank.peak_bytes.get() - 1.0).abs() < 1e-9);
            prop_assert!(rank.peak_bytes >= rank.allocated_bytes && rank.allocated_bytes >= rank.static_bytes);
            prop_assert!(rank.terms().iter().all(|(_, bytes)| bytes.get() >= 0.0));
        }
    }

    #[test]
    fn counts_in_flight_are_those_of_the_generated_orders(p in 2u32..7, v in 1u32..4, groups in 1u32..4) {
        let kinds = [ScheduleKind::OneFOneB, ScheduleKind::Gpipe, ScheduleKind::Interleaved, ScheduleKind::Combined];
        // Equal rounds of more than p microbatches are torch's alone.
        let shapes = [(GroupRule::Megatron, p * groups), (GroupRule::Torch, (p + 1) * groups.min(p - 1))];
        for ((kind, (group_rule, m)), name) in kinds.into_iter().flat_map(|kind| shapes.map(|shape| ((kind, shape), kind.name()))) {
            let v = if matches!(kind, ScheduleKind::Interleaved | ScheduleKind::Combined) { v.max(2) } else { 1 };
            let parallel = ParallelConfig { pp: p, vpp: v, num_microbatches: u64::from(m), schedule: name.into(), ..ParallelConfig::default() };
            let shape = ScheduleShape { group_rule, ..ScheduleShape::new(p, m).with_chunks(v) };
            let fast = InFlight::new(&parallel, &shape).unwrap();
            let exact = InFlight::of(&generate(kind, &shape).unwrap());
            let bytes: Vec<f64> = (0..v).map(|chunk| f64::from(chunk * chunk + 1)).collect();
            for rank in 0..p as usize {
                prop_assert_eq!(fast.peak(rank, &bytes), exact.peak(rank, &bytes), "{} rank {}", name, rank);
            }
        }
    }

    #[test]
    fn every_split_holds_every_layer_once(blocks in 1usize..40, pp in 1u32..7, vpp in 1u32..4, policy in 0usize..4) {
        let policy = [SplitPolicy::Even, SplitPolicy::CountEnds, SplitPolicy::EndsOneLess, SplitPolicy::RunningCost][policy];
        let model = model(blocks, 512, 0);
        let parallel = ParallelConfig { pp, vpp, ..ParallelConfig::default() };
        let stages = default_stages(&model, &parallel, policy, Placement::Loop).unwrap();
        prop_assert_eq!(stages.0.len() as u32, pp * vpp);
        let layers: Vec<usize> = stages.0.iter().flat_map(cost_models::Stage::layer_range).collect();
        prop_assert_eq!(layers, (0..model.layers.len()).collect::<Vec<_>>());
    }

    #[test]
    fn no_layout_string_panics(layout in "[EtmL|()*0-9,x ]{0,24}") {
        let parallel = ParallelConfig { pp: 2, ..ParallelConfig::default() };
        let _ = stages_from_layout(&model(4, 512, 0), &parallel, &layout);
    }
}

/// Korthikanti et al. (arXiv 2205.05198), figure 7: activation memory over that of tensor parallelism alone, 22B.
#[test]
fn recompute_and_sequence_parallelism_save_what_the_paper_says() {
    let attention = Attention::standard(64, 64, 96);
    let mlp = Mlp::Dense { ffn: 24_576, activation: cost_models::model::Activation::Gelu };
    let block = Block { attention, mlp, norms: 2, mlp_bias: true };
    let layers = vec![Layer::Embedding, Layer::Block(block), Layer::FinalNorm, Layer::Head];
    let model = ModelSpec { hidden: 6144, vocab: 51_200, layers, ..ModelSpec::default() };
    let (cluster, runtime) = (cluster(), Runtime::named("megatron-2021").unwrap());
    let saved = |sequence_parallel, recompute| {
        let parallel = ParallelConfig { tp: 8, sequence_parallel, ..ParallelConfig::default() };
        let workload = workload(&parallel, 2048);
        let context = MemoryContext::new(&model, &cluster, &workload, &runtime, &parallel).unwrap();
        context.layer_memory(1).saved_bytes(recompute).get()
    };
    let base = saved(false, Recompute::None);
    for (sequence, recompute, percent) in [
        (true, Recompute::None, 66.84),
        (false, Recompute::Selective, 49.42),
        (true, Recompute::Selective, 16.18),
        (false, Recompute::Full { layers: None }, 7.64),
    ] {
        let share = 100.0 * saved(sequence, recompute) / base;
        assert!((share - percent).abs() < 0.1, "{share} for {percent}");
    }
}

#[test]
fn a_loss_in_pieces_needs_the_logits_of_one_piece() {
    let wide = ModelSpec { vocab: 1 << 20, ..model(4, 128, 0) };
    let parallel = ParallelConfig { dp_shard: 8, zero_stage: 3, ..ParallelConfig::default() };
    let logits = |release, compiled| {
        let facts =
            RuntimeFacts { release: Some(release), compiled: Some(compiled), ..RuntimeFacts::default() };
        let memory = memory(&wide, &parallel, &Runtime::for_run("fsdp2", &facts).unwrap());
        largest(&memory, |rank| rank.logits_bytes.get())
    };
    let table = 2048.0 * f64::from(1 << 20);
    assert!((logits((2024, 12), true) - 14.0 * table).abs() < 0.01 * table, "compiled blocks, eager loss");
    assert!((logits((2025, 6), true) - 4.0 * table).abs() < 0.01 * table, "compiled loss");
    assert!((logits((2026, 8), true) - 4.0 * table / 8.0).abs() < 0.01 * table, "in eight pieces");
    assert!((logits((2026, 8), false) - 14.0 * table / 8.0).abs() < 0.01 * table);
}

#[test]
fn per_operator_recompute_keeps_no_grouped_products() {
    let parallel = ParallelConfig {
        dp_shard: 8,
        zero_stage: 3,
        recompute: Recompute::Selective,
        ..ParallelConfig::default()
    };
    let runtime = Runtime::named("fsdp2").unwrap();
    let narrow = memory(&model(4, 512, 8), &parallel, &runtime);
    let mut wide = model(4, 512, 8);
    for layer in &mut wide.layers {
        if let Layer::Block(block) = layer {
            block.mlp = Mlp::routed(8, 2, 4096);
        }
    }
    let wide = memory(&wide, &parallel, &runtime);
    let kept = |memory: &[RankMemory]| largest(memory, |rank| rank.activations_bytes.get());
    let one_layer = 2048.0 * 2.0 * 4096.0 * 2.0;
    assert!(kept(&wide) - kept(&narrow) < 4.0 * one_layer, "only the layer being recomputed grows");
}

#[test]
fn a_layout_string_says_the_same_as_its_list() {
    let model = model(13, 512, 0);
    let parallel = ParallelConfig { pp: 4, vpp: 2, ..ParallelConfig::default() };
    let text = stages_from_layout(&model, &parallel, "Et|(tt|)*6L").unwrap();
    assert_eq!(
        text,
        stages_from_blocks(&model, &parallel, &[1, 2, 2, 2, 2, 2, 2, 0], Placement::Loop).unwrap()
    );
    for broken in ["Et|t", "tEL", "E(t|L", "Et)L", "E*", "Et*9999999L", "Ex|L", ""] {
        assert!(stages_from_layout(&model, &parallel, broken).is_err(), "{broken}");
    }
    assert!(stages_from_blocks(&model, &parallel, &[13], Placement::Loop).is_err());
    assert!(stages_from_blocks(&model, &parallel, &[u64::MAX; 8], Placement::Loop).is_err());
}

#[test]
fn senseless_runs_are_refused() {
    let model = model(4, 512, 0);
    let (cluster, runtime) = (cluster(), Runtime::named("megatron-core").unwrap());
    let parallel = ParallelConfig { tp: 0, micro_batch_size: 0, ..ParallelConfig::default() };
    let workload = Workload { seq_len: 0, ..workload(&ParallelConfig::default(), 1) };
    let error = MemoryContext::new(&model, &cluster, &workload, &runtime, &parallel).unwrap_err().to_string();
    for field in ["tp is 0", "micro_batch_size is 0", "seq_len is 0"] {
        assert!(error.contains(field), "{error}");
    }
    let unknown = ParallelConfig { schedule: "no-such".into(), pp: 2, ..ParallelConfig::default() };
    assert!(InFlight::new(&unknown, &runtime.schedule_shape(&unknown, 1)).is_err());
}

#[test]
fn torchs_optimizer_keeps_two_moments_as_wide_as_the_parameters_and_no_master() {
    let (model, parallel) = (model(4, 512, 0), ParallelConfig::default());
    let stages = default_stages(&model, &parallel, SplitPolicy::Even, Placement::Loop).unwrap();
    let (cluster, runtime) = (cluster(), Runtime::named("torch").unwrap());
    for (precision, optimizer, ratio) in [
        (Precision::Bf16, Optimizer::Adamw, 2.0),
        (Precision::Fp32, Optimizer::Adamw, 2.0),
        (Precision::Bf16, Optimizer::Sgd, 1.0),
        (Precision::Fp32, Optimizer::AdamwBf16, 1.0),
    ] {
        let workload = Workload { precision, optimizer, ..workload(&parallel, 2048) };
        let run = TrainingRun {
            model: &model,
            cluster: &cluster,
            workload: &workload,
            runtime: &runtime,
            parallel: &parallel,
            stages: &stages,
        };
        let rank = &rank_memory(&run).unwrap()[0];
        assert_eq!(
            rank.optimizer_bytes.get(),
            ratio * rank.parameters_bytes.get(),
            "{precision:?} {optimizer:?}"
        );
    }
}
