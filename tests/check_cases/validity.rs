//! Reports about sizes that do not divide, and about features that exclude each other.

use crate::case::{Case, SEVEN, breaks};

/// NVIDIA-NeMo/RL#883 and PrimeIntellect-ai/prime-rl PR#3042: all-to-all context parallelism splits key-value heads.
#[test]
fn c25_c27_all_to_all_needs_key_value_heads() {
    let flags = "--seq-length 131072 --micro-batch-size 1 --global-batch-size 8 --bf16 --use-distributed-optimizer \
        --tensor-model-parallel-size 8 --sequence-parallel --context-parallel-size 4 --cp-comm-type a2a";
    let check = Case::megatron(flags, 64, "dgx-h100").with("megatron", "qwen3-32b").check();
    assert!(breaks(&check, "M8").contains("p2p"));
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
        (case.seq_len, case.micro_batch) = (Some(8192), Some(1));
        case.check()
    };
    assert!(breaks(&of("ep"), "A8").contains("expert"));
    assert!(of("cp").valid);
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
