//! Configurations from public issue threads, each with the verdict it deserves; the thread is named at every case.

use meshwright::check::{Check, check_given};
use meshwright::launch::{self, Given, Question, ReadError, document};

/// A configuration and what it runs on.
struct Case<'a> {
    launcher: &'a str,
    text: &'a str,
    gpus: u64,
    cluster: &'a str,
    model: Option<&'a str>,
    seq_len: Option<u64>,
    global_batch: Option<u64>,
}

impl<'a> Case<'a> {
    fn megatron(text: &'a str, gpus: u64, cluster: &'a str) -> Self {
        Self { launcher: "megatron", text, gpus, cluster, model: None, seq_len: None, global_batch: None }
    }

    fn with(self, launcher: &'a str, model: &'a str) -> Self {
        Self { launcher, model: Some(model), ..self }
    }

    fn read(&self) -> (Result<Given, ReadError>, cluster_profiles::Cluster) {
        let cluster = cluster_profiles::catalog::cluster(self.cluster).unwrap().resized(self.gpus).unwrap();
        let model = self.model.map(|name| cost_models::model::catalog::get(name).unwrap());
        let launcher = launch::named(self.launcher).unwrap();
        let flags = launcher.flags(&document::parse("configuration", self.text).unwrap());
        let question = Question {
            flags: &flags,
            world_size: self.gpus,
            cluster: &cluster,
            model: model.as_ref(),
            seq_len: self.seq_len,
            global_batch: self.global_batch,
        };
        (launcher.read(&question).unwrap(), cluster)
    }

    /// Memory of the fullest rank.
    fn memory(&self) -> cost_models::RankMemory {
        let (given, cluster) = self.read();
        let given = given.unwrap();
        let memory =
            cost_models::estimate(&given.run(&cluster, given.stages.as_ref().unwrap())).unwrap().memory;
        memory.into_iter().max_by(|a, b| a.peak_bytes.get().total_cmp(&b.peak_bytes.get())).unwrap()
    }

    fn check(&self) -> Check {
        let (given, cluster) = self.read();
        let check =
            check_given(&given.unwrap(), &cluster, cluster.gpu().memory, launch::named(self.launcher));
        eprintln!(
            "peak {:.1} GiB ({} {:.1}), valid {}, fits {}: {:?}",
            check.peak_bytes.as_gib(),
            check.largest_term,
            check.largest_term_bytes.as_gib(),
            check.valid,
            check.fits,
            check.broken_rules.iter().map(|rule| &rule.id).collect::<Vec<_>>()
        );
        check
    }
}

fn breaks(check: &Check, id: &str) -> String {
    let rule = check.broken_rules.iter().find(|rule| rule.id == id);
    let rule = rule.unwrap_or_else(|| panic!("{id} is not among {:?}", check.broken_rules));
    format!("{} {}", rule.message, rule.hint.clone().unwrap_or_default())
}

fn near(check: &Check, gigabytes: f64, tolerance: f64) {
    let found = check.peak_bytes.get() / 1e9;
    assert!((found / gigabytes - 1.0).abs() <= tolerance, "{found:.1} GB, the case says {gigabytes}");
}

/// Llama-like sizes of 7B.
const SEVEN: &str = "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --max-position-embeddings 4096 \
    --seq-length 4096 --position-embedding-type rope --normalization RMSNorm --swiglu --disable-bias-linear \
    --untie-embeddings-and-output-weights --vocab-size 32000 --bf16 --attention-dropout 0 --hidden-dropout 0 \
    --use-distributed-optimizer";

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

/// deepspeedai/DeepSpeed#4527: 6.8B on 4 GPUs: 29 GB of state without offload, and an estimate that says what it leaves out.
#[test]
fn c09_offload_is_said_not_to_be_modelled() {
    let config = |offload: &str| {
        format!(
            r#"{{"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "fp16": {{"enabled": true}},
            "zero_optimization": {{"stage": 3{offload}}}}}"#
        )
    };
    let of = |offload: &str| {
        let text = config(offload);
        let mut case = Case::megatron(&text, 4, "dgx-a100").with("deepspeed", "gpt-3-6.7b");
        case.seq_len = Some(512);
        case.check()
    };
    let kept = of("");
    assert!(kept.peak_bytes.get() > 29e9, "state, and what is gathered beside it");
    let offloaded = of(r#", "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}"#);
    let said = offloaded.assumed.iter().filter(|what| what.contains("not modelled")).count();
    assert_eq!(said, 2, "{:?}", offloaded.assumed);
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
    assert!(full.step_time_seconds.unwrap() > none.step_time_seconds.unwrap());
    let tensor = "--seq-length 32768 --max-position-embeddings 32768 --micro-batch-size 1 --global-batch-size 16 --bf16 \
        --tensor-model-parallel-size 4 --sequence-parallel --use-distributed-optimizer --attention-dropout 0 --hidden-dropout 0";
    let tensor = Case::megatron(tensor, 8, "dgx-a100").with("megatron", "llama-2-7b").check();
    assert!(tensor.peak_bytes < none.peak_bytes, "tensor parallelism shards the weights too");
}

/// pytorch/torchtitan PR#1993: DeepSeek-V3 16B on 8 B200: 4 sequences of 4,096 fit, 8 of them or 8,192 tokens do not.
#[test]
fn c17_sixteen_billion_on_b200() {
    let of = |batch: u32, seq: u32| {
        let flags = format!(
            "--module deepseek_v3 --config deepseek_v3_16b --training.local_batch_size {batch} --training.seq_len {seq} activation_checkpoint:none"
        );
        let mut case = Case::megatron(&flags, 8, "dgx-b200");
        case.launcher = "torchtitan";
        case.check()
    };
    assert!(of(4, 4096).fits);
    assert!(!of(8, 4096).fits);
    assert!(!of(4, 8192).fits);
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

/// pytorch/torchtitan#620: the optimizer state counts from the first step on.
#[test]
fn c15_eight_billion_on_small_gpus() {
    let flags = "--module llama3 --config llama3_8b --training.local_batch_size 1 --training.seq_len 2048 activation_checkpoint:full";
    let mut case = Case::megatron(flags, 4, "rtx4090-8x-pcie");
    case.launcher = "torchtitan";
    let check = case.check();
    assert!(check.valid && !check.fits);
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
    assert!((allocated / 58.8 - 1.0).abs() < 0.17, "{allocated:.1} GB allocated {memory:?}");
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

/// vllm#36861, #14120 and the like: serving is another matter, and is said to be.
#[test]
fn c31_serving_is_not_planned() {
    let text = "--tensor-parallel-size 2 --pipeline-parallel-size 16 --gpu-memory-utilization 0.9";
    let (read, _) = Case::megatron(text, 32, "dgx-h100").with("megatron", "llama-3.1-70b").read();
    assert!(read.unwrap_err().not_planned.unwrap().contains("serving"));
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_meshwright"))
        .args(["check", "--launcher", "vllm", "--args", "x", "--world-size", "8", "--cluster", "dgx-h100"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("not planned here: it serves models"));
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

/// NVIDIA-NeMo/RL#883 and PrimeIntellect-ai/prime-rl PR#3042: all-to-all context parallelism splits key-value heads.
#[test]
fn c25_c27_all_to_all_needs_key_value_heads() {
    let flags = "--seq-length 131072 --micro-batch-size 1 --global-batch-size 8 --bf16 --use-distributed-optimizer \
        --tensor-model-parallel-size 8 --sequence-parallel --context-parallel-size 4 --cp-comm-type a2a";
    let check = Case::megatron(flags, 64, "dgx-h100").with("megatron", "qwen3-32b").check();
    assert!(breaks(&check, "M8").contains("p2p"));
}

/// modelscope/ms-swift#9403: adapters are not planned.
#[test]
fn c29_low_rank_adapters_are_not_planned() {
    let flags = "--num-layers 94 --lora-rank 8 --micro-batch-size 1 --seq-length 2048";
    let (read, _) = Case::megatron(flags, 32, "dgx-h100").with("megatron", "qwen3-235b-a22b").read();
    assert!(read.unwrap_err().not_planned.unwrap().contains("LoRA"));
}

/// NVIDIA/Megatron-LM#1304, PR#823: layers that do not divide were dropped.
#[test]
fn c33_lost_layers() {
    let flags = |layers: u32, pp: u32, chunk: &str| {
        SEVEN.replace("--num-layers 32", &format!("--num-layers {layers}"))
            + &format!(
                " --ffn-hidden-size 11008 --micro-batch-size 1 --global-batch-size 64 --pipeline-model-parallel-size {pp} {chunk}"
            )
    };
    let check = Case::megatron(&flags(30, 4, ""), 8, "dgx-h100").check();
    assert!(breaks(&check, "P2").contains("30 layers over pp 4"));
    let check =
        Case::megatron(&flags(40, 8, "--num-layers-per-virtual-pipeline-stage 2"), 8, "dgx-h100").check();
    breaks(&check, "P2");
}

/// modelscope/ms-swift#5737: 46 layers over PP4, and experts that do not tile 32 GPUs.
#[test]
fn c35_glm_air() {
    let flags = "--seq-length 4096 --micro-batch-size 2 --global-batch-size 16 --bf16 --use-distributed-optimizer \
        --tensor-model-parallel-size 8 --sequence-parallel --pipeline-model-parallel-size 4 \
        --expert-model-parallel-size 16 --expert-tensor-parallel-size 1";
    let check = Case::megatron(flags, 32, "dgx-h100").with("megatron", "glm-4.5-air").check();
    assert!(breaks(&check, "P2").contains("46 layers over pp 4"));
    breaks(&check, "M2");
    let uneven = format!(
        "{flags} --decoder-first-pipeline-num-layers 11 --decoder-last-pipeline-num-layers 11 --expert-model-parallel-size 8"
    );
    assert!(Case::megatron(&uneven, 32, "dgx-h100").with("megatron", "glm-4.5-air").check().valid);
}

/// modelscope/ms-swift#6476: 94 layers over PP4 with 22 on the last rank is valid.
#[test]
fn c37_uneven_last_rank() {
    let flags = "--seq-length 2048 --micro-batch-size 1 --global-batch-size 16 --bf16 --use-distributed-optimizer \
        --pipeline-model-parallel-size 4 --decoder-last-pipeline-num-layers 22 --expert-model-parallel-size 4 --expert-tensor-parallel-size 1";
    let check = Case::megatron(flags, 16, "dgx-h100").with("megatron", "qwen3-235b-a22b").check();
    assert!(check.valid, "{:?}", check.broken_rules);
    assert!(!check.fits, "full training of 235B on 16 GPUs");
}

/// pytorch/torchtitan#775: fewer microbatches than pipeline ranks.
#[test]
fn c39_too_few_microbatches() {
    let toml = "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = 4\nseq_len = 8192\n\
        [parallelism]\npipeline_parallel_degree = 8\npipeline_parallel_schedule = \"1F1B\"\n";
    let mut case = Case::megatron(toml, 8, "dgx-h100");
    case.launcher = "torchtitan";
    assert!(breaks(&case.check(), "T7a").contains("local_batch_size 8 works"));
}

/// pytorch/torchtitan PR#4258: expert ranks are taken from dp_shard x cp x tp.
#[test]
fn c41_expert_ranks_that_do_not_divide() {
    let flags = "--module deepseek_v3 --config deepseek_v3_671b --training.local_batch_size 1 --training.seq_len 4096 \
        --parallelism.expert_parallel_degree 48";
    let mut case = Case::megatron(flags, 64, "dgx-h100");
    case.launcher = "torchtitan";
    let check = case.check();
    breaks(&check, "T2");
    breaks(&check, "M9");
}

/// vllm#2652, #11797: what heads allow, key-value heads included.
#[test]
fn c43_heads_and_tensor_parallelism() {
    let flags = "--num-layers 28 --hidden-size 3584 --ffn-hidden-size 18944 --num-attention-heads 28 --group-query-attention \
        --num-query-groups 4 --seq-length 4096 --max-position-embeddings 4096 --vocab-size 152064 --swiglu \
        --disable-bias-linear --micro-batch-size 1 --global-batch-size 8 --tensor-model-parallel-size 8";
    let check = Case::megatron(flags, 8, "dgx-h100").check();
    assert!(breaks(&check, "M5").contains("tp 4"));
}

/// accelerate#4200: Accelerate's configuration has no expert axis; long sequences fit with context parallelism.
#[test]
fn c45_no_expert_axis_in_accelerate() {
    let yaml = |size: &str| {
        format!(
            "distributed_type: FSDP\nnum_processes: 2\nmixed_precision: bf16\nfsdp_config:\n  fsdp_version: 2\n\
             parallelism_config:\n  parallelism_config_{size}_size: 2\n"
        )
    };
    let of = |size: &str| {
        let text = yaml(size);
        let mut case = Case::megatron(&text, 2, "dgx-h100").with("accelerate", "gpt-oss-20b");
        case.seq_len = Some(8192);
        case.check()
    };
    assert!(breaks(&of("ep"), "A8").contains("expert"));
    assert!(of("cp").valid);
}

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

/// Megatron-Bridge PR#5352: full recompute and graphs of parts of a layer exclude each other.
#[test]
fn c69_recompute_and_graphs() {
    let words = "model.seq_length=4096 train.micro_batch_size=1 train.global_batch_size=16 model.pipeline_model_parallel_size=2 \
        model.recompute_granularity=full model.recompute_method=uniform model.recompute_num_layers=1 \
        model.cuda_graph_impl=transformer_engine ddp.use_distributed_optimizer=True";
    let check = Case::megatron(words, 16, "dgx-h100").with("megatron-bridge", "qwen3-8b").check();
    breaks(&check, "R6");
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
    // Measured: about 230 TFLOP/s per GPU, of 989.
    let mfu = check.model_flops_utilization.unwrap();
    assert!((0.15..0.45).contains(&mfu), "{mfu}");
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

/// Overrides of a Megatron-Bridge recipe, as words and as Python, are checked by Megatron-LM's rules.
#[test]
fn bridge_overrides() {
    let words = "model.tensor_model_parallel_size=4 model.pipeline_model_parallel_size=3 model.sequence_parallel=True \
        train.micro_batch_size=1 train.global_batch_size=32 model.seq_length=4096 ddp.use_distributed_optimizer=True";
    let python = "cfg.model.tensor_model_parallel_size = 4\ncfg.model.pipeline_model_parallel_size = 3\n\
        cfg.model.sequence_parallel = True\ncfg.train.micro_batch_size = 1\ncfg.train.global_batch_size = 32\n\
        cfg.model.seq_length = 4096\ncfg.ddp.use_distributed_optimizer = True\n";
    for text in [words, python] {
        let check = Case::megatron(text, 24, "dgx-h100").with("megatron-bridge", "llama-3.1-8b").check();
        breaks(&check, "P2");
        assert_eq!(check.broken_rules.len(), 1, "{:?}", check.broken_rules);
    }
}

/// Facts that are missing are asked for by name, all at once.
#[test]
fn missing_facts_are_named() {
    let mut case = Case::megatron("--tensor-model-parallel-size 8", 8, "dgx-h100");
    let missing = case.read().0.unwrap_err().missing.join("; ");
    for fact in ["the model: --num-layers", "the sequence length", "--micro-batch-size"] {
        assert!(missing.contains(fact), "{missing}");
    }
    case.launcher = "deepspeed";
    case.text = "{\"zero_optimization\": {\"stage\": 3}}";
    let missing = case.read().0.unwrap_err().missing.join("; ");
    assert!(missing.contains("--model") && missing.contains("--seq-len"), "{missing}");
}

/// DeepSpeed's own demands on a configuration.
#[test]
fn deepspeed_rules() {
    let text = r#"{"train_batch_size": 30, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2,
        "bf16": {"enabled": true}, "fp16": {"enabled": true}, "zero_optimization": {"stage": 4}, "sequence_parallel_size": 3}"#;
    let mut case = Case::megatron(text, 24, "dgx-h100").with("deepspeed", "llama-3.1-8b");
    case.seq_len = Some(4096);
    let check = case.check();
    for id in ["D1", "D2", "D2a", "D5"] {
        breaks(&check, id);
    }
    let text = r#"{"bf16": {"enabled": true}, "zero_optimization": {"stages": 3, "overlap_comm": "yes", "reduce_bucket_size": 0}}"#;
    let mut case = Case::megatron(text, 24, "dgx-h100").with("deepspeed", "llama-3.1-8b");
    case.seq_len = Some(4096);
    let check = case.check();
    assert!(breaks(&check, "D2b").contains("`stage` is the nearest"));
    assert_eq!(check.broken_rules.iter().filter(|rule| rule.id == "D2c").count(), 2);
    breaks(&check, "D1a");
}

/// Accelerate's demands, several broken at once.
#[test]
fn accelerate_rules() {
    let yaml = "distributed_type: FSDP\nnum_processes: 8\nmixed_precision: bf16\nfsdp_config:\n  fsdp_version: 1\n\
        parallelism_config:\n  parallelism_config_dp_replicate_size: 2\n  parallelism_config_dp_shard_size: 1\n  \
        parallelism_config_tp_size: 4\n  parallelism_config_cp_size: 1\n";
    let mut case = Case::megatron(yaml, 16, "dgx-h100").with("accelerate", "llama-3.1-8b");
    case.seq_len = Some(4096);
    let check = case.check();
    for id in ["A1", "A1a", "A3", "A4", "A5"] {
        breaks(&check, id);
    }
    let negative = yaml.replace("tp_size: 4", "tp_size: -4");
    let mut case = Case::megatron(&negative, 16, "dgx-h100").with("accelerate", "llama-3.1-8b");
    case.seq_len = Some(4096);
    assert!(case.read().0.is_err());
}

/// Configurations that are huge, senseless or hostile give an error or a verdict, never a panic or a hang.
#[test]
fn hostile_configurations() {
    let most = u64::MAX;
    let texts = [
        format!(
            "--num-layers {most} --hidden-size {most} --num-attention-heads 0 --seq-length -1 --micro-batch-size {most}"
        ),
        format!(
            "{SEVEN} --ffn-hidden-size 11008 --micro-batch-size 1048576 --global-batch-size 1 --tensor-model-parallel-size 1048576 --pipeline-model-parallel-size 1048576"
        ),
        format!(
            "{SEVEN} --ffn-hidden-size 1 --micro-batch-size 1 --moe-layer-freq ([1]*9999999999) --num-experts 65536"
        ),
        format!(
            "{SEVEN} --ffn-hidden-size 16 --micro-batch-size 1 --pipeline-model-parallel-layout '{}'",
            "((((((((t*9999)*9999)*9999)*9999)*9999)*9999)*9999)*9999)"
        ),
        format!(
            "{SEVEN} --ffn-hidden-size 16 --micro-batch-size 1 --decoder-first-pipeline-num-layers 1099511627776 --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 1099511627776"
        ),
        format!(
            "{SEVEN} --ffn-hidden-size 16 --micro-batch-size 1 --num-distributed-optimizer-instances 1048576 --recompute-num-layers 99999999999"
        ),
    ];
    for text in &texts {
        let (given, cluster) = Case::megatron(text, 64, "dgx-h100").read();
        match given {
            Ok(given) => assert!(!check_given(&given, &cluster, cluster.gpu().memory, None).passes()),
            Err(error) => assert!(!error.is_empty()),
        }
    }
    for launcher in ["torchtitan", "deepspeed", "nanotron", "accelerate", "megatron-bridge"] {
        for key in [
            "parallelism.tp",
            "parallelism.tensor_parallel_degree",
            "parallelism.pipeline_parallel_degree",
            "sequence_parallel_size",
            "parallelism.dp",
            "model.pipeline_model_parallel_size",
        ] {
            for value in ["1048576", "0", "-7", "1e300", "[[[]]]", "\"$(reboot)\"", "18446744073709551616"] {
                let (section, name) = key.split_once('.').unwrap_or(("x", key));
                let text = if key.contains('.') {
                    format!("{{\"{section}\": {{\"{name}\": {value}}}}}")
                } else {
                    format!("{{\"{name}\": {value}}}")
                };
                let mut case = Case::megatron(&text, 64, "dgx-h100").with(launcher, "llama-3.1-8b");
                (case.seq_len, case.global_batch) = (Some(4096), Some(64));
                if let (Ok(given), cluster) = case.read() {
                    let _ = check_given(&given, &cluster, cluster.gpu().memory, None);
                }
            }
        }
    }
}
