//! Reports about step times: what is slow, and why.

use crate::case::{Case, SEVEN};

/// Oneflow libai#345, NeMo Speech#11939: the global batch is the user's, whatever the degrees.
#[test]
fn c47_changes_keep_the_global_batch() {
    let flags = format!("{SEVEN} --ffn-hidden-size 11008 --micro-batch-size 2 --global-batch-size 128");
    let check = Case::megatron(&flags, 8, "dgx-h100").check();
    assert!(!check.remedies.is_empty());
    for change in check.remedies.iter().chain(&check.faster) {
        assert_eq!(change.parallel.global_batch(), 128, "{}", change.change);
        assert!(!change.flags.is_empty(), "{}", change.change);
    }
}

/// NVIDIA/Megatron-LM#756: Mixtral 8x7B with EP8 TP2 on 16 H100.
#[test]
fn c49_mixtral() {
    let flags = "--seq-length 4096 --micro-batch-size 1 --global-batch-size 256 --bf16 --use-distributed-optimizer \
        --overlap-grad-reduce --overlap-param-gather --tensor-model-parallel-size 2 --sequence-parallel \
        --expert-model-parallel-size 8 --moe-grouped-gemm --moe-token-dispatcher-type alltoall \
        --attention-dropout 0 --hidden-dropout 0 --moe-permute-fusion";
    let check = Case::megatron(flags, 16, "dgx-h100").with("megatron", "mixtral-8x7b").check();
    assert!(check.valid && check.fits, "{:?}", check.broken_rules);
    // Known off: about 230 TFLOP/s per GPU were measured in March 2024, before the kernels that the profile knows.
    let mfu = check.model_flops_utilization.unwrap();
    let teraflops = 989.0 * mfu;
    eprintln!("{teraflops:.0} TFLOP/s");
    assert!((1.5..1.9).contains(&(teraflops / 230.0)), "{teraflops}");
}

/// Megatron-Bridge#5318: full recompute over 16 B300 costs time that the memory does not need.
#[test]
fn c51_full_recompute_that_is_not_needed() {
    let words = "model.seq_length=16384 train.micro_batch_size=1 train.global_batch_size=256 model.expert_model_parallel_size=16 \
        model.recompute_granularity=full model.recompute_method=uniform model.recompute_num_layers=1 \
        ddp.use_distributed_optimizer=True ddp.overlap_grad_reduce=True ddp.overlap_param_gather=True";
    let check = Case::megatron(words, 16, "dgx-b300").with("megatron-bridge", "qwen3.5-35b-a3b").check();
    assert!(check.valid && check.fits, "{:?}", check.broken_rules);
    assert!(check.faster[0].flags.contains(&"- model.recompute_granularity full".to_owned()));
    // The later recipe runs EP8.
    let narrower = "+ model.expert_model_parallel_size 8".to_owned();
    assert!(check.faster.iter().any(|change| change.flags.contains(&narrower)));
}

/// hiyouga/LlamaFactory#5014 and deepspeedai/DeepSpeed#4281 train adapters; the same network with full training shows
/// what they saw: gathering parameters over 10 GbE takes most of the step.
#[test]
fn c57_parameters_gathered_over_slow_ethernet() {
    let (read, _) = Case::megatron("finetuning_type: lora\nstage: sft\n", 16, "dgx-a100")
        .with("deepspeed", "llama-3-8b")
        .read();
    assert!(read.unwrap_err().not_planned.unwrap().contains("adapters"));
    let step = |stage: u8, bandwidth: f64| {
        let text = format!(
            r#"{{"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4, "bf16": {{"enabled": true}},
            "zero_optimization": {{"stage": {stage}}}}}"#
        );
        let mut case = Case::megatron(&text, 16, "dgx-a100").with("deepspeed", "llama-3-8b");
        case.seq_len = Some(1024);
        let (given, mut cluster) = case.read();
        if bandwidth > 0.0 {
            cluster.groups[0].node.inter.bandwidth = cluster_profiles::BytesPerSecond(bandwidth / 8.0);
        }
        let given = given.unwrap();
        let run = given.run(&cluster, given.stages.as_ref().unwrap());
        cost_models::estimate(&run).unwrap().step_time_seconds.get()
    };
    assert!(step(3, 1.25e9) > 5.0 * step(3, 0.0), "{} {}", step(3, 1.25e9), step(3, 0.0));
    assert!(step(3, 1.25e9) > 2.0 * step(1, 1.25e9), "{} {}", step(3, 1.25e9), step(1, 1.25e9));
}

/// Teraflops per GPU and second of a run whose nodes have this network, in bits per second (0: the cluster's own).
fn teraflops(case: &Case, network: f64, peak: f64) -> f64 {
    let (given, mut cluster) = case.read();
    if network > 0.0 {
        let node = &mut cluster.groups[0].node;
        node.inter.bandwidth = cluster_profiles::BytesPerSecond(network / 8.0 / f64::from(node.nics));
    }
    let given = given.unwrap();
    let run = given.run(&cluster, given.stages.as_ref().unwrap());
    cost_models::estimate(&run).unwrap().model_flops_utilization * peak
}

/// deepspeedai/DeepSpeed#2928: an 80B model with ZeRO-3 over 340 Gb/s is slower than BLOOM with 3D parallelism over 140.
#[test]
fn c61_zero_three_needs_more_network_than_three_dimensions() {
    let gathered = r#"{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1, "bf16": {"enabled": true},
        "zero_optimization": {"stage": 3}, "activation_checkpointing": {"cpu_checkpointing": false}}"#;
    let mut gathered = Case::megatron(gathered, 512, "dgx-a100").with("deepspeed", "llama-1-65b");
    gathered.seq_len = Some(1024);
    let bloom = r#"{"train_batch_size": 2048, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 128,
        "bf16": {"enabled": true}, "zero_optimization": {"stage": 1}, "pipeline": {"stages": 12},
        "tensor_parallel": {"autotp_size": 4}, "activation_checkpointing": {"cpu_checkpointing": false}}"#;
    let mut bloom = Case::megatron(bloom, 384, "dgx-a100").with("deepspeed", "bloom-176b");
    bloom.seq_len = Some(2048);
    let (slow, fast) = (teraflops(&gathered, 340e9, 312.0), teraflops(&bloom, 140e9, 312.0));
    eprintln!("ZeRO-3 {slow:.0}, 3D {fast:.0} model TFLOP/s");
    // The reports count the recomputed forward: a third more.
    assert!((fast * 4.0 / 3.0 / 150.0 - 1.0).abs() < 0.2, "{fast}");
    assert!((slow * 4.0 / 3.0 / 90.0 - 1.0).abs() < 0.2, "{slow}");
    assert!(slow < 0.8 * fast, "{slow} {fast}");
}

/// microsoft/Tutel#187: experts across nodes of slow Ethernet cost about as many times more as there are nodes; further
/// nodes hurt less.
#[test]
fn c63_experts_over_ethernet() {
    let step = |nodes: u64| {
        let flags = format!(
            "--seq-length 4096 --micro-batch-size 1 --global-batch-size {} --bf16 --use-distributed-optimizer \
            --overlap-grad-reduce --overlap-param-gather --expert-model-parallel-size {} --moe-grouped-gemm \
            --moe-token-dispatcher-type alltoall --attention-dropout 0 --hidden-dropout 0 --moe-permute-fusion",
            8 * 8 * nodes,
            8 * nodes
        );
        let case = Case::megatron(&flags, 8 * nodes, "dgx-a100").with("megatron", "qwen3-30b-a3b");
        let (given, mut cluster) = case.read();
        let node = &mut cluster.groups[0].node;
        node.inter.bandwidth = cluster_profiles::BytesPerSecond(12.5e9 / f64::from(node.nics));
        let given = given.unwrap();
        let run = given.run(&cluster, given.stages.as_ref().unwrap());
        cost_models::estimate(&run).unwrap().step_time_seconds.get()
    };
    let (one, two, four) = (step(1), step(2), step(4));
    eprintln!("{one:.2} {two:.2} {four:.2} s");
    assert!(two > 1.7 * one, "leaving NVLink: {one} {two}");
    assert!(four / two < two / one, "further nodes hurt less: {one} {two} {four}");
}

/// Megatron-Bridge's recipe table: a configuration that it states whole, with its median.
#[test]
fn c53_recipe_medians() {
    let words = "model.seq_length=4096 train.micro_batch_size=1 train.global_batch_size=15360 \
        model.pipeline_model_parallel_size=2 model.expert_model_parallel_size=32 \
        model.pipeline_model_parallel_layout='Et*4|(t*4|)*14tmL' \
        model.fp8_format=e4m3 model.fp8_recipe=mxfp8 ddp.use_distributed_optimizer=True ddp.overlap_grad_reduce=True \
        ddp.overlap_param_gather=True model.moe_token_dispatcher_type=flex model.moe_flex_dispatcher_backend=hybridep";
    let case = Case::megatron(words, 256, "gb300-nvl72").with("megatron-bridge", "deepseek-v3");
    let step = case.check().step_time_seconds.unwrap();
    eprintln!("DeepSeek-V3 on 256 GB300: {step:.1} s, measured 38.3 s");
    // Known off: the recipe captures the whole step in graphs and pages its activations; neither is among its degrees.
    assert!((2.0..2.6).contains(&(step / 38.3)), "{step}");
}
