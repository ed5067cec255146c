//! Reports about memory: what fits, and which term fills a GPU.

use crate::case::{Case, SEVEN, breaks, near, off};
use meshwright::check::Check;

/// NVIDIA/Megatron-LM#525: the unfused attention of old GPUs, not the state, fills the memory.
#[test]
fn c01_unfused_attention_is_counted() {
    let flags = "--num-layers 36 --hidden-size 1280 --num-attention-heads 20 --seq-length 1024 \
        --max-position-embeddings 1024 --vocab-size 50257 --fp16 --micro-batch-size 4 --global-batch-size 4";
    let flash = Case::megatron(flags, 1, "dgx-2").check();
    let text = format!("{flags} --transformer-impl local");
    let unfused = Case::megatron(&text, 1, "dgx-2").check();
    assert!(unfused.peak_bytes.get() > 1.5 * flash.peak_bytes.get());
    assert_eq!(unfused.largest_term, "activations");
}

/// NVIDIA/Megatron-LM#597: 7B on 8 GPUs at micro batch 2 needs recompute.
#[test]
fn c03_seven_billion_at_micro_batch_two() {
    let flags = format!(
        "{SEVEN} --ffn-hidden-size 11008 --micro-batch-size 2 --global-batch-size 128 --sequence-parallel"
    );
    let check = Case::megatron(&flags, 8, "dgx-a100").check();
    assert!(check.valid && !check.fits);
    assert!(check.assumed.iter().any(|what| what.contains("sequence parallelism")), "{:?}", check.assumed);
    near(&check, 90.0, 0.25);
    assert!(check.remedies.iter().any(|remedy| remedy.fits && remedy.change.contains("recompute")));
    let full =
        format!("{flags} --recompute-granularity full --recompute-method uniform --recompute-num-layers 1");
    let full = Case::megatron(&full, 8, "dgx-a100").check();
    assert!(full.fits);
    near(&full, 57.0, 0.15);
}

/// aliyun/aicb PR#36: 7B with TP8 on 32 GPUs, nvidia-smi shows 21 GB.
#[test]
fn c05_seven_billion_with_tp_eight() {
    let flags = format!(
        "{SEVEN} --ffn-hidden-size 10880 --micro-batch-size 1 --global-batch-size 32 --tensor-model-parallel-size 8 --sequence-parallel"
    );
    let check = Case::megatron(&flags, 32, "dgx-a100").check();
    assert!(check.valid && check.fits);
    // What the case measured had neither a sharded optimizer nor a sequence-parallel stream, and nvidia-smi shows 21 GB.
    let plain = flags.replace(" --sequence-parallel", "").replace("--use-distributed-optimizer", "");
    let plain = Case::megatron(&plain, 32, "dgx-a100").check();
    near(&plain, 21.0, 0.16);
}

/// Megatron-Bridge PR#5077: the fullest stage counts, not parameters over pp.
#[test]
fn c07_the_fullest_stage_of_an_uneven_pipeline() {
    let flags = "--num-layers 8 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64 --seq-length 2048 \
        --max-position-embeddings 2048 --position-embedding-type rope --normalization RMSNorm --swiglu \
        --disable-bias-linear --untie-embeddings-and-output-weights --vocab-size 32000 --bf16 --micro-batch-size 1 \
        --global-batch-size 1 --pipeline-model-parallel-size 4 --pipeline-model-parallel-layout 'Et|tt|tt|tttL'";
    let check = Case::megatron(flags, 4, "dgx-h100").check();
    assert!(check.valid);
    assert_eq!(check.fullest_rank, 3);
}

/// deepspeedai/DeepSpeed#4527: 6.8B over 4 GPUs: the vendor's estimator counts the state alone, and so do our state terms;
/// the rest is listed beside them.
#[test]
fn c09_what_an_offload_estimator_leaves_out() {
    let of = |offload: &str| {
        let text = format!(
            r#"{{"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "fp16": {{"enabled": true}},
            "zero_optimization": {{"stage": 3{offload}}}}}"#
        );
        let mut case = Case::megatron(&text, 4, "dgx-a100").with("deepspeed", "gpt-3-6.7b");
        case.seq_len = Some(2048);
        let memory = case.memory();
        let state = memory.parameters_bytes + memory.gradients_bytes + memory.optimizer_bytes;
        eprintln!("state {:.2} GiB, {memory:?}", state.as_gib());
        (case.check(), memory, state.as_gib())
    };
    let optimizer = r#", "offload_optimizer": {"device": "cpu"}"#;
    let (_, _, kept) = of("");
    let (_, _, away) = of(optimizer);
    let (check, memory, none) = of(&format!(r#"{optimizer}, "offload_param": {{"device": "cpu"}}"#));
    // The vendor counts 18 bytes per parameter, two of them a copy that fp16 runs do not keep, and the largest layer: 0.49.
    assert!((kept + 0.49) / 29.01 > 0.85 && kept < 29.01, "{kept}");
    assert!(((away + 0.49) / 3.66 - 1.0).abs() < 0.05, "{away}");
    assert!(none < 0.49, "{none}");
    // Live parameters, 2 GB of them, and the activations of a microbatch.
    assert!(memory.communication_bytes.get() >= 2e9 && memory.activations_bytes.get() > 0.0);
    assert!(check.assumed.iter().any(|what| what.contains("host memory")), "{:?}", check.assumed);
    let small = of(r#", "stage3_max_live_parameters": 1"#);
    assert!(small.1.communication_bytes < memory.communication_bytes);
}

/// deepspeedai/DeepSpeed#5305: 7B over 8 GPUs, sequences split four ways: ZeRO-3 takes more than ZeRO-2, recompute less.
#[test]
fn c11_zero_three_and_sequence_parallelism() {
    let of = |stage: u8, recompute: bool| {
        let more =
            if recompute { r#", "activation_checkpointing": {"cpu_checkpointing": false}"# } else { "" };
        let text = format!(
            r#"{{"train_batch_size": 16, "train_micro_batch_size_per_gpu": 1, "bf16": {{"enabled": true}},
            "zero_optimization": {{"stage": {stage}}}, "sequence_parallel_size": 4{more}}}"#
        );
        let mut case = Case::megatron(&text, 8, "dgx-a100").with("deepspeed", "llama-2-7b");
        case.seq_len = Some(32_768);
        let check = case.check();
        assert!(check.valid, "{:?}", check.broken_rules);
        check
    };
    let (full, none) = (of(2, true), of(2, false));
    assert!(full.peak_bytes < none.peak_bytes && full.fits);
    near(&none, 62.3, 0.15);
    // Known off: measured were 43.8 GB with recompute, and 52.8 and 75.2 GB with ZeRO-3, more than with ZeRO-2. DeepSpeed's
    // buckets and what its allocator keeps are not in the estimate, nor why sharded parameters took 9 to 13 GB more.
    off(&full, 43.8, -0.35..-0.25);
    off(&of(3, true), 52.8, -0.70..-0.55);
    off(&of(3, false), 75.2, -0.35..-0.15);
    assert!(full.step_time_seconds.unwrap() > none.step_time_seconds.unwrap());
    let tensor = "--seq-length 32768 --max-position-embeddings 32768 --micro-batch-size 1 --global-batch-size 16 --bf16 \
        --tensor-model-parallel-size 4 --sequence-parallel --use-distributed-optimizer --attention-dropout 0 --hidden-dropout 0";
    let tensor = Case::megatron(tensor, 8, "dgx-a100").with("megatron", "llama-2-7b").check();
    assert!(tensor.peak_bytes < none.peak_bytes, "tensor parallelism shards the weights too");
    // Known off: 45 GB were measured; which activations that framework keeps beside sequence parallelism is not stated.
    off(&tensor, 45.0, 0.3..0.5);
}

/// EleutherAI/gpt-neox#892, #616: 20B needs 360 GB of state: 8 x 80 GB with ZeRO-1, not 2.
#[test]
fn c13_twenty_billion_parameters() {
    let flags = "--seq-length 2048 --micro-batch-size 1 --global-batch-size 32 --bf16 --use-distributed-optimizer \
        --tensor-model-parallel-size 2 --sequence-parallel";
    let two = Case::megatron(flags, 2, "dgx-a100").with("megatron", "gpt-neox-20b").check();
    assert!(!two.fits);
    let eight = format!(
        "{flags} --pipeline-model-parallel-size 4 --recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
    );
    assert!(Case::megatron(&eight, 8, "dgx-a100").with("megatron", "gpt-neox-20b").check().passes());
}

/// EleutherAI/gpt-neox#409: 13B over 8 GPUs of 40 GB fits with recompute and a micro batch of 1 only.
#[test]
fn c13_thirteen_billion_on_small_gpus() {
    let of = |more: &str| {
        let flags = format!(
            "--seq-length 2048 --bf16 --tensor-model-parallel-size 8 --global-batch-size 32 --attention-dropout 0 \
            --hidden-dropout 0 {more}"
        );
        Case::megatron(&flags, 8, "dgx-a100-40gb").with("megatron", "gpt-3-13b").check()
    };
    let full = "--micro-batch-size 1 --recompute-granularity full --recompute-method uniform --recompute-num-layers 1";
    assert!(of(full).passes());
    assert!(!of("--micro-batch-size 8").fits);
}

/// pytorch/torchtitan#620: the optimizer state counts from the first step on.
#[test]
fn c15_eight_billion_on_small_gpus() {
    let flags = "--module llama3 --config llama3_8b --training.local_batch_size 1 --training.seq_len 2048 activation_checkpoint:full";
    let mut case = Case::megatron(flags, 4, "rtx4090-8x-pcie");
    case.launcher = "torchtitan";
    let check = case.check();
    assert!(check.valid && !check.fits);
}

/// pytorch/torchtitan PR#1993: DeepSeek-V3 16B on 8 B200: 4 sequences of 4,096 fit, 8 of them or 8,192 tokens do not.
#[test]
fn c17_sixteen_billion_on_b200() {
    let of = |batch: u32, seq: u32| {
        let toml = format!(
            "[model]\nname = \"deepseek_v3\"\nflavor = \"16B\"\n[training]\nlocal_batch_size = {batch}\nseq_len = {seq}\n\
             [activation_checkpoint]\nmode = \"none\"\n"
        );
        let mut case = Case::megatron(&toml, 8, "dgx-b200");
        case.launcher = "torchtitan";
        case.check()
    };
    assert!(of(4, 4096).fits);
    assert!(!of(8, 4096).fits);
    assert!(!of(4, 8192).fits);
    // 88 % of 179 GiB.
    near(&of(4, 6144), 169.0, 0.2);
}

/// Megatron-Bridge PR#3107: the base fits by what is allocated; more TP or PP lowers the peak and costs time.
#[test]
fn c19_seventy_billion_fine_tuning() {
    let base = "--seq-length 4096 --micro-batch-size 1 --global-batch-size 32 --bf16 --fp8-format hybrid --fp8-recipe tensorwise \
        --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --sequence-parallel --attention-dropout 0 --hidden-dropout 0";
    let of = |layout: &str| {
        Case::megatron(&format!("{base} {layout}"), 32, "dgx-h100").with("megatron", "llama-3-70b").check()
    };
    // The recipe reduces gradients in bf16 and gathers 8-bit parameters; 58.8 GB is what was allocated.
    let layout = "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 5";
    let text =
        format!("{base} {layout} --grad-reduce-in-bf16 --fp8-param-gather --cross-entropy-loss-fusion");
    let memory = Case::megatron(&text, 32, "dgx-h100").with("megatron", "llama-3-70b").memory();
    let allocated = memory.allocated_bytes.get() / 1e9;
    // Known off: what 8-bit layers of a fine-tuning run save is counted too high.
    let over = allocated / 58.8 - 1.0;
    assert!((0.10..0.17).contains(&over), "{allocated:.1} GB allocated {memory:?}");
    let usual = of(
        "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 5",
    );
    let deep = of(
        "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 8 --num-virtual-stages-per-pipeline-rank 5",
    );
    let wide = of(
        "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 5",
    );
    assert!(usual.valid && deep.valid && wide.valid);
    let time = |check: &Check| check.step_time_seconds.unwrap();
    assert!(time(&usual) < time(&deep) && time(&deep) < time(&wide));
    let offload =
        of("--tensor-model-parallel-size 4 --pipeline-model-parallel-size 4 --cpu-offloading-num-layers 4");
    breaks(&offload, "R4");
}

/// NVIDIA/Megatron-LM#1236: FP8 without 8-bit primary weights keeps extra copies.
#[test]
fn c21_fp8_keeps_copies_of_the_weights() {
    let flags = format!(
        "{SEVEN} --ffn-hidden-size 11008 --micro-batch-size 1 --global-batch-size 8 --fp8-format hybrid --fp8-recipe delayed"
    );
    let copies = Case::megatron(&flags, 8, "dgx-h100").check();
    let text = format!("{flags} --fp8-param-gather");
    let gathered = Case::megatron(&text, 8, "dgx-h100").check();
    assert!(copies.peak_bytes.get() > gathered.peak_bytes.get() + 6e9);
}

/// hiyouga/LlamaFactory#10474: at 256K tokens the saved inputs of layers alone fill a GPU; sequence parallelism of 4 is the cure.
#[test]
fn c23_long_sequences_need_sequence_parallelism() {
    let base = |sp: u32| {
        format!(
            r#"{{"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "bf16": {{"enabled": true}},
            "zero_optimization": {{"stage": 3}}, "activation_checkpointing": {{"cpu_checkpointing": false}},
            "sequence_parallel_size": {sp}}}"#
        )
    };
    let of = |sp| {
        let text = base(sp);
        let mut case = Case::megatron(&text, 16, "dgx-h200").with("deepspeed", "qwen3-32b");
        case.seq_len = Some(262_144);
        (case.check(), case.memory().activations_bytes.get())
    };
    let ((one, saved), (four, quarter)) = (of(1), of(4));
    assert!(!one.fits && saved > 165e9, "the saved inputs of the layers alone: {saved}");
    assert!(four.fits && (quarter / saved - 0.25).abs() < 0.01);
}

/// deepspeedai/DeepSpeed#1378: the ends of a pipeline hold more than its middle.
#[test]
fn c55_the_ends_of_a_pipeline_are_fuller() {
    let flags = SEVEN.to_owned()
        + " --ffn-hidden-size 11008 --micro-batch-size 1 --global-batch-size 64 --pipeline-model-parallel-size 4";
    let (given, cluster) = Case::megatron(&flags, 8, "dgx-h100").read();
    let given = given.unwrap();
    let stages = given.stages.as_ref().unwrap();
    let memory = cost_models::estimate(&given.run(&cluster, stages)).unwrap().memory;
    let parameters = |rank: usize| memory[rank].parameters_bytes.get();
    assert!(parameters(0) > 1.05 * parameters(1) && parameters(3) > 1.05 * parameters(1));
}
