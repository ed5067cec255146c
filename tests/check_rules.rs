//! Every rule of Megatron-LM's flags: a configuration that keeps all of them, and one change that breaks each.

use cost_models::rules::Violation;
use meshwright::check::{Check, check_given};
use meshwright::launch::megatron::rules;
use meshwright::launch::{self, Given, Question, document};
use std::collections::BTreeSet;

const DENSE: &str = "CUDA_DEVICE_MAX_CONNECTIONS=1 pretrain_gpt.py --num-layers 80 --hidden-size 8192 \
    --ffn-hidden-size 28672 --num-attention-heads 64 --group-query-attention --num-query-groups 8 --seq-length 8192 \
    --max-position-embeddings 8192 --vocab-size 128256 --position-embedding-type rope --normalization RMSNorm --swiglu \
    --disable-bias-linear --untie-embeddings-and-output-weights --micro-batch-size 1 --global-batch-size 128 --bf16 \
    --tensor-model-parallel-size 8 --pipeline-model-parallel-size 4 --sequence-parallel --use-distributed-optimizer \
    --attention-dropout 0 --hidden-dropout 0";

const EXPERTS: &str = "CUDA_DEVICE_MAX_CONNECTIONS=1 pretrain_gpt.py --num-layers 48 --hidden-size 2048 \
    --ffn-hidden-size 6144 --num-attention-heads 32 --kv-channels 128 --group-query-attention --num-query-groups 4 \
    --seq-length 4096 --max-position-embeddings 4096 --vocab-size 151936 --position-embedding-type rope \
    --normalization RMSNorm --swiglu --disable-bias-linear --untie-embeddings-and-output-weights --micro-batch-size 1 \
    --global-batch-size 512 --bf16 --num-experts 128 --moe-router-topk 8 --moe-ffn-hidden-size 768 --moe-grouped-gemm \
    --moe-token-dispatcher-type alltoall --tensor-model-parallel-size 1 --pipeline-model-parallel-size 2 \
    --expert-model-parallel-size 8 --expert-tensor-parallel-size 1 --use-distributed-optimizer";

const EXPERTS_WITH_BIASES: &str = "pretrain_gpt.py --num-layers 24 --hidden-size 2880 --ffn-hidden-size 2880 \
    --num-attention-heads 64 --kv-channels 64 --group-query-attention --num-query-groups 8 --seq-length 4096 \
    --max-position-embeddings 4096 --vocab-size 201088 --position-embedding-type rope --normalization RMSNorm \
    --quick-geglu --untie-embeddings-and-output-weights --micro-batch-size 1 --global-batch-size 128 --bf16 \
    --num-experts 32 --moe-router-topk 4 --moe-ffn-hidden-size 2880 --moe-grouped-gemm \
    --expert-model-parallel-size 8 --use-distributed-optimizer";

/// Rule, base, what is put behind it (a later flag wins).
const BREAKS: &[(&str, &str, &str)] = &[
    ("M1", DENSE, "--tensor-model-parallel-size 6"),
    ("M3", EXPERTS, "--use-tp-pp-dp-mapping"),
    ("M3", DENSE, "--context-parallel-size 2 --use-tp-pp-dp-mapping"),
    ("M6", DENSE, "--num-attention-heads 48"),
    ("M7a", DENSE, "--context-parallel-size 2 --hierarchical-context-parallel-sizes 2 2"),
    ("M7b", DENSE, "--cp-comm-type a2a+p2p"),
    ("M7c", DENSE, "--cp-comm-type p2p a2a"),
    ("M8", DENSE, "--context-parallel-size 2 --cp-comm-type a2a"),
    ("M9a", DENSE, "--expert-model-parallel-size 2"),
    ("M12", DENSE, "--global-batch-size 127"),
    ("M13a", EXPERTS, "--moe-router-num-groups 3"),
    ("M20", DENSE, "--max-position-embeddings 4096"),
    ("M21", DENSE, "--multi-latent-attention"),
    ("P1", DENSE, "--num-virtual-stages-per-pipeline-rank 5 --num-layers-per-virtual-pipeline-stage 4"),
    ("P2", DENSE, "--num-layers 79"),
    ("P3", DENSE, "--decoder-first-pipeline-num-layers 18 --decoder-last-pipeline-num-layers 19"),
    ("P3a", DENSE, "--pipeline-model-parallel-size 1 --decoder-first-pipeline-num-layers 18"),
    ("P3b", DENSE, "--decoder-last-pipeline-num-layers 17 --account-for-loss-in-pipeline-split"),
    ("P4", DENSE, "--pipeline-model-parallel-layout 'Et*40|t*20|t*20L'"),
    ("P4", DENSE, "--pipeline-model-parallel-layout 'Et*19|t*20|t*20|t*20L'"),
    (
        "P4a",
        DENSE,
        "--pipeline-model-parallel-layout 'Et*20|t*20|t*20|t*20L' --account-for-loss-in-pipeline-split",
    ),
    (
        "P5",
        DENSE,
        "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 --no-overlap-p2p-communication",
    ),
    (
        "P6",
        DENSE,
        "--num-virtual-stages-per-pipeline-rank 5 --microbatch-group-size-per-virtual-pipeline-stage 3",
    ),
    ("P7", DENSE, "--overlap-param-gather-with-optimizer-step"),
    ("S1", DENSE, "--overlap-param-gather"),
    ("S2", DENSE, "--use-torch-fsdp2"),
    ("S3", DENSE, "--use-megatron-fsdp"),
    ("S3a", DENSE, "--ckpt-format fsdp_dtensor"),
    ("S4", DENSE, "CUDA_DEVICE_MAX_CONNECTIONS=8"),
    ("S5", EXPERTS, "--tp-comm-overlap"),
    ("S6", EXPERTS, "--overlap-moe-expert-parallel-comm"),
    ("S7", DENSE, "--delay-wgrad-compute"),
    ("S8", DENSE, "--optimizer-cpu-offload"),
    ("S9", DENSE, "--optimizer muon --use-megatron-fsdp --ckpt-format fsdp_dtensor"),
    ("S10", EXPERTS, "--fake-process-group --moe-token-dispatcher-type flex"),
    ("S12a", DENSE, "--num-distributed-optimizer-instances 3"),
    ("R1", DENSE, "--recompute-granularity full"),
    ("R1", DENSE, "--recompute-granularity selective --recompute-method block"),
    ("R2", DENSE, "--recompute-granularity selective --recompute-modules moe_act"),
    ("R3", DENSE, "--distribute-saved-activations"),
    ("R4", DENSE, "--cpu-offloading-num-layers 4"),
    ("R5", DENSE, "--fine-grained-activation-offloading --offload-modules attn_proj"),
    (
        "R5",
        DENSE,
        "NVTE_CPU_OFFLOAD_V1=1 --fine-grained-activation-offloading --offload-modules core_attn mlp_input",
    ),
    (
        "R5",
        EXPERTS,
        "NVTE_CPU_OFFLOAD_V1=1 --fine-grained-activation-offloading --offload-modules moe_act --recompute-granularity selective --recompute-modules moe",
    ),
    ("R5", DENSE, "NVTE_CPU_OFFLOAD_V1=0 --fine-grained-activation-offloading --offload-modules qkv_linear"),
    (
        "R5",
        DENSE,
        "--fine-grained-activation-offloading --offload-modules qkv_linear --activation-offload-fraction 2",
    ),
    (
        "R5",
        DENSE,
        "--fine-grained-activation-offloading --offload-modules qkv_linear --activation-offload-fraction -1",
    ),
    (
        "R5",
        DENSE,
        "--fine-grained-activation-offloading --offload-modules qkv_linear --fine-grained-offloading-max-inflight-offloads -5",
    ),
    (
        "R7",
        DENSE,
        "NVTE_CPU_OFFLOAD_V1=1 --fine-grained-activation-offloading --offload-modules core_attn --cuda-graph-impl local",
    ),
    (
        "R6",
        DENSE,
        "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1 --cuda-graph-impl transformer_engine",
    ),
    ("V1", DENSE, "--fp16"),
    ("V2", DENSE, "--fp8-format hybrid --fp4-format e2m1"),
    ("V3", DENSE, "--cross-entropy-loss-fusion --cross-entropy-fusion-impl te"),
    ("V4", EXPERTS, "--moe-router-enable-expert-bias"),
    ("V5", EXPERTS, "--moe-pad-expert-input-to-capacity"),
    ("V6", DENSE, "--mtp-num-layers 1 --position-embedding-type learned_absolute"),
    ("V7", DENSE, "--moe-ffn-hidden-size 768"),
    ("V8", EXPERTS_WITH_BIASES, ""),
];

/// Rules of the degrees themselves, which the engine states, as a launcher's flags break them.
const ENGINE: &[(&str, &str, &str)] = &[
    ("M2", EXPERTS, "--expert-model-parallel-size 64 --expert-tensor-parallel-size 2"),
    ("M5", DENSE, "--tensor-model-parallel-size 3"),
    ("M7", DENSE, "--context-parallel-size 3"),
    ("M9", EXPERTS, "--expert-model-parallel-size 48"),
    ("M10", EXPERTS, "--tensor-model-parallel-size 2"),
    ("V0", DENSE, "--transformer-impl te"),
];

fn given(text: &str, world_size: u64) -> Given {
    let launcher = launch::named("megatron").unwrap();
    let flags = launcher.flags(&document::parse("train.sh", text).unwrap());
    let cluster = cluster_profiles::catalog::cluster("dgx-h100").unwrap().resized(world_size).unwrap();
    let question = Question {
        flags: &flags,
        world_size,
        cluster: &cluster,
        model: None,
        seq_len: None,
        global_batch: None,
        micro_batch: None,
    };
    launcher.read(&question).unwrap().unwrap()
}

fn verdict(text: &str, world_size: u64) -> Check {
    let cluster = cluster_profiles::catalog::cluster("dgx-h100").unwrap().resized(world_size).unwrap();
    check_given(&given(text, world_size), &cluster, cluster.gpu().memory, launch::named("megatron"))
}

fn ids(broken: &[Violation]) -> BTreeSet<&str> {
    broken.iter().map(|rule| rule.id.as_str()).collect()
}

#[test]
fn the_bases_keep_every_rule() {
    for base in [DENSE, EXPERTS] {
        let check = verdict(base, 128);
        assert!(check.valid && check.unknown.is_empty(), "{:?} {:?}", check.broken_rules, check.unknown);
        assert!(check.peak_bytes.get() > 1e10 && check.step_time_seconds.is_some());
    }
}

#[test]
fn each_rule_is_broken_by_its_change_and_says_what_works() {
    for (id, base, change) in BREAKS.iter().chain(ENGINE) {
        let check = verdict(&format!("{base} {change}"), 128);
        let rule = check.broken_rules.iter().find(|rule| rule.id == *id);
        let rule = rule.unwrap_or_else(|| panic!("{id}: `{change}` breaks {:?}", ids(&check.broken_rules)));
        assert!(!check.valid && rule.message.len() > 10, "{id}");
    }
}

#[test]
fn every_rule_has_a_change_that_breaks_it() {
    let tested: BTreeSet<&str> = BREAKS.iter().map(|(id, ..)| *id).collect();
    let stated: BTreeSet<&str> = rules::all().map(|rule| rule.id).collect();
    assert_eq!(tested, stated);
}

#[test]
fn all_broken_rules_are_named_at_once() {
    let text = include_str!("data/launch/megatron/wrong-70b.sh");
    let check = verdict(text, 64);
    let wanted = ["M1", "M2", "M5", "M7", "M7b", "M16", "M20", "P2", "R1", "S1", "S4", "V0", "V1", "V3"];
    assert_eq!(ids(&check.broken_rules), BTreeSet::from(wanted));
    assert_eq!(check.unknown, ["--num-layer"]);
}

/// Changes that the hints name, applied, repair the rule.
#[test]
fn hints_work() {
    let repaired = [
        ("M12", "--global-batch-size 127", "--global-batch-size 124"),
        (
            "P3",
            "--decoder-first-pipeline-num-layers 18 --decoder-last-pipeline-num-layers 19",
            "--decoder-first-pipeline-num-layers 18 --decoder-last-pipeline-num-layers 18",
        ),
        (
            "M8",
            "--context-parallel-size 2 --cp-comm-type a2a",
            "--context-parallel-size 2 --cp-comm-type p2p",
        ),
    ];
    for (id, change, repair) in repaired {
        let broken = verdict(&format!("{DENSE} {change}"), 128).broken_rules;
        let rule = broken.iter().find(|rule| rule.id == id).unwrap();
        let value = repair.rsplit(' ').next().unwrap();
        assert!(rule.hint.as_ref().is_some_and(|hint| hint.contains(value)), "{id}: {:?}", rule.hint);
        assert!(verdict(&format!("{DENSE} {repair}"), 128).valid, "{repair}");
    }
}

/// A variable that the flags do not show is assumed; a hint names only what is wrong.
#[test]
fn modules_in_host_memory_need_nothing_that_flags_cannot_show() {
    let offload = "--fine-grained-activation-offloading --offload-modules";
    for (modules, word) in [
        ("qkv_linear", "NVTE_CPU_OFFLOAD_V1=1"),
        ("qkv_linear --activation-offload-fraction 0", "--activation-offload-fraction"),
        ("qkv_linear --fine-grained-offloading-max-inflight-offloads 0", "--fine-grained-offloading"),
        ("core_attn --recompute-granularity selective", "core_attn is recomputed"),
    ] {
        let text = format!("{DENSE} {offload} {modules}");
        let assumed = given(&text, 128).assumed.join("\n");
        assert!(verdict(&text, 128).valid && assumed.contains(word), "{modules}: {assumed}");
    }
    let broken = verdict(&format!("NVTE_CPU_OFFLOAD_V1=0 {DENSE} {offload} qkv_linear"), 128).broken_rules;
    let hints: Vec<&str> = broken.iter().filter_map(|rule| rule.hint.as_deref()).collect();
    assert_eq!(hints, ["set NVTE_CPU_OFFLOAD_V1=1"]);
}

#[test]
fn the_same_flags_as_script_yaml_and_json_say_the_same() {
    let script = given(include_str!("data/launch/megatron/llama-70b.sh"), 64);
    let yaml = "ENV_VARS:\n  CUDA_DEVICE_MAX_CONNECTIONS: 1\nMODEL_ARGS:\n  --num-layers: 80\n  --hidden-size: 8192\n  \
        --ffn-hidden-size: 28672\n  --num-attention-heads: 64\n  --group-query-attention: true\n  --num-query-groups: 8\n  \
        --seq-length: 8192\n  --max-position-embeddings: 8192\n  --vocab-size: 128256\n  --position-embedding-type: rope\n  \
        --normalization: RMSNorm\n  --swiglu: true\n  --disable-bias-linear: true\n  \
        --untie-embeddings-and-output-weights: true\n  --attention-dropout: 0.0\n  --hidden-dropout: 0.0\n  \
        --micro-batch-size: 1\n  --global-batch-size: 128\n  --bf16: true\n  --tensor-model-parallel-size: 4\n  \
        --pipeline-model-parallel-size: 4\n  --sequence-parallel: true\n  --num-virtual-stages-per-pipeline-rank: 5\n  \
        --use-distributed-optimizer: true\n  --overlap-grad-reduce: true\n  --overlap-param-gather: true\n";
    assert_eq!(given(yaml, 64), script);
    let json = r#"{"num_layers": 80, "hidden_size": 8192, "ffn_hidden_size": 28672, "num_attention_heads": 64,
        "group_query_attention": true, "num_query_groups": 8, "seq_length": 8192, "max_position_embeddings": 8192,
        "vocab_size": 128256, "position_embedding_type": "rope", "normalization": "RMSNorm", "swiglu": true,
        "disable_bias_linear": true, "untie_embeddings_and_output_weights": true, "attention_dropout": 0.0,
        "hidden_dropout": 0.0, "micro_batch_size": 1, "global_batch_size": 128, "bf16": true, "fp16": false,
        "tensor_model_parallel_size": 4, "pipeline_model_parallel_size": 4, "sequence_parallel": true,
        "num_virtual_stages_per_pipeline_rank": 5, "use_distributed_optimizer": true, "overlap_grad_reduce": true,
        "overlap_param_gather": true}"#;
    assert_eq!(given(json, 64), script);
}

/// A head count that no model has is one broken rule among the others, told once.
#[test]
fn impossible_sizes_hide_no_other_rule() {
    let check = verdict(&format!("{DENSE} --num-attention-heads 33 --fp16 --num-layers 79"), 128);
    let found = ids(&check.broken_rules);
    assert!(["M22", "M5", "M6", "V1", "P2"].iter().all(|id| found.contains(id)), "{found:?}");
    assert_eq!(check.broken_rules.iter().filter(|rule| rule.id == "M22").count(), 1);
    let told: usize = check.broken_rules.iter().map(|rule| rule.message.len()).sum();
    assert!(told < 2500 && check.step_time_seconds.is_none(), "{told}");
}

/// A hint keeps every rule about the same axis: 32 heads and a width of 28,672 leave powers of two.
#[test]
fn hints_keep_the_other_rules_of_an_axis() {
    let change =
        "--num-attention-heads 32 --num-query-groups 8 --tensor-model-parallel-size 6 --kv-channels 256";
    let check = verdict(&format!("{DENSE} {change}"), 128);
    for id in ["M5", "M16"] {
        let rule = check.broken_rules.iter().find(|rule| rule.id == id).unwrap();
        assert_eq!(rule.hint.as_deref(), Some("tp 4 or 8 works"), "{id}");
    }
}
