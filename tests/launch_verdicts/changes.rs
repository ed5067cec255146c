//! Changes that break a configuration, as JSON merge patches of its flags or keys (RFC 7396; null drops a key).

use crate::samples::Random;
use meshwright::plan::Plan;
use serde_json::{Map, Value, json};

/// A change of a configuration.
pub struct Change {
    pub patch: Value,
    pub world_size: Option<u64>,
    pub variables: Map<String, Value>,
}

/// One or two changes of a launcher's configuration.
pub fn draw(random: &mut Random, launcher: &str, plan: &Plan) -> Change {
    let world = plan.parallel.world_size();
    let world_size = random.chance(5).then(|| world + random.pick(&[1, 2, 4, world / 2 + 1]));
    let mut patch = json!({});
    let count = if world_size.is_some() { 0 } else { 1 + random.below(2) };
    for _ in 0..count {
        let one = match launcher {
            "megatron" => megatron(random, plan),
            "torchtitan" => torchtitan(random, plan),
            "deepspeed" => deepspeed(random, plan),
            _ => accelerate(random, plan),
        };
        merge(&mut patch, &one);
    }
    let mut variables = Map::new();
    if launcher == "megatron" && random.chance(5) {
        variables.insert("CUDA_DEVICE_MAX_CONNECTIONS".to_owned(), random.pick(&["1", "8"]).into());
    }
    Change { patch, world_size, variables }
}

/// Lays `patch` over `target`, keeping its nulls, so that patches can be merged as well.
pub fn merge(target: &mut Value, patch: &Value) {
    let (Value::Object(target), Value::Object(patch)) = (&mut *target, patch) else {
        *target = patch.clone();
        return;
    };
    for (key, value) in patch {
        match target.get_mut(key) {
            Some(inner) if inner.is_object() && value.is_object() => merge(inner, value),
            _ => {
                target.insert(key.clone(), value.clone());
            }
        }
    }
}

fn megatron(random: &mut Random, plan: &Plan) -> Value {
    let p = &plan.parallel;
    let blocks = plan.inputs.model.blocks().count() as u64;
    let near =
        |random: &mut Random, value: u64| (value + random.pick(&[0, 2, 3, 4, 6])).saturating_sub(3).max(1);
    let text = |value: u64| Value::String(value.to_string());
    match random.below(54) {
        0 | 1 => json!({ "--tensor-model-parallel-size": text(random.pick(&[3, 5, 6, 7, 16])) }),
        2 | 3 => json!({ "--pipeline-model-parallel-size": text(random.pick(&[3, 5, 6, 7])) }),
        4 | 5 => json!({ "--context-parallel-size": text(random.pick(&[3, 5, 6, 8])) }),
        6 | 7 => json!({ "--expert-model-parallel-size": text(random.pick(&[2, 3, 5, 12, 48, 64])) }),
        8 => json!({ "--expert-tensor-parallel-size": text(random.pick(&[2, 3, 4])) }),
        9 => json!({ "--global-batch-size": text(near(random, plan.inputs.workload.global_batch)) }),
        10 => json!({ "--micro-batch-size": text(random.pick(&[3, 5, 7])) }),
        11 | 12 => json!({ "--num-layers": text(near(random, blocks)) }),
        13 => json!({ "--num-attention-heads": text(random.pick(&[7, 12, 30, 48])) }),
        14 => {
            json!({ "--num-query-groups": text(random.pick(&[3, 5, 6, 16])), "--group-query-attention": "" })
        }
        15 | 16 => json!({ "--num-virtual-stages-per-pipeline-rank": text(random.pick(&[2, 3, 5, 7])) }),
        17 => json!({ "--num-layers-per-virtual-pipeline-stage": text(random.pick(&[1, 2, 3, 7])) }),
        18 => json!({ "--num-layers-per-virtual-pipeline-stage": text(random.pick(&[1, 2, 3, 7])),
            "--num-virtual-stages-per-pipeline-rank": null }),
        19 | 20 => {
            json!({ "--decoder-first-pipeline-num-layers": text(near(random, blocks / u64::from(p.pp))),
            "--decoder-last-pipeline-num-layers": text(near(random, blocks / u64::from(p.pp))),
            "--pipeline-model-parallel-layout": null })
        }
        21 => json!({ "--decoder-last-pipeline-num-layers": text(near(random, blocks / u64::from(p.pp))) }),
        22 => json!({ "--account-for-embedding-in-pipeline-split": "" }),
        23 => {
            json!({ "--account-for-loss-in-pipeline-split": "", "--account-for-embedding-in-pipeline-split": "" })
        }
        24..=26 => {
            let (pp, each) = (u64::from(p.pp), blocks / u64::from(p.pp));
            let layouts = [
                format!("Et*{blocks}L"),
                format!("E|t*{blocks}|L"),
                format!("Et*{each}|{}t*{each}L", format!("t*{each}|").repeat(pp.saturating_sub(2) as usize)),
                format!("t*{each}E|t*{each}L"),
                format!("Et*{each}|t*{each}"),
                format!("E(t*{each}|)*{pp}L"),
                "Etx|tL".to_owned(),
            ];
            let layout = layouts[random.below(layouts.len() as u64) as usize].clone();
            json!({ "--pipeline-model-parallel-layout": layout, "--num-virtual-stages-per-pipeline-rank": null })
        }
        27 => json!({ "--use-tp-pp-dp-mapping": "" }),
        28 => json!({ "--cp-comm-type": random.pick(&["a2a", "a2a+p2p", "p2p a2a", "allgather"]) }),
        29 => json!({ "--hierarchical-context-parallel-sizes": random.pick(&["2 2", "2 1", "4 2"]) }),
        30 => {
            json!({ "--recompute-granularity": "full", "--recompute-method": null, "--recompute-modules": null })
        }
        31 => json!({ "--recompute-granularity": "selective", "--recompute-method": "uniform" }),
        32 => {
            json!({ "--recompute-granularity": "selective", "--recompute-method": null, "--recompute-num-layers": null,
            "--recompute-modules": random.pick(&["moe_act", "mla_up_proj", "layernorm", "mlp", "shared_experts", "moe", "attention"]) })
        }
        33 => json!({ "--distribute-saved-activations": "" }),
        34 => json!({ "--overlap-param-gather": "", "--overlap-grad-reduce": null }),
        35 => json!({ "--use-distributed-optimizer": null }),
        36 => json!({ "--use-torch-fsdp2": "" }),
        37 => {
            json!({ "--use-megatron-fsdp": "", "--ckpt-format": random.pick(&["torch", "fsdp_dtensor", "torch_dist"]) })
        }
        38 => json!({ "--ckpt-format": random.pick(&["fsdp_dtensor", "torch_dcp"]) }),
        39 => json!({ "--tp-comm-overlap": "", "--sequence-parallel": null }),
        40 => json!({ "--overlap-moe-expert-parallel-comm": "" }),
        41 => json!({ "--delay-wgrad-compute": "" }),
        42 => json!({ "--cpu-offloading-num-layers": text(random.pick(&[1, 4, blocks])) }),
        43 => json!({ "--optimizer-cpu-offload": "", "--use-precision-aware-optimizer": null }),
        44 => json!({ "--exp-avg-dtype": "bf16", "--use-precision-aware-optimizer": null }),
        45 => {
            json!({ "--fine-grained-activation-offloading": "", "--offload-modules": random.pick(&["attn_proj", "core_attn", "mlp"]) })
        }
        46 => json!({ "--num-distributed-optimizer-instances": text(random.pick(&[2, 3, 5])) }),
        47 => json!({ "--fp16": "", "--bf16": "" }),
        48 => json!({ "--fp8-format": "hybrid", "--fp4-format": "e2m1" }),
        49 => {
            json!({ "--moe-router-num-groups": text(random.pick(&[3, 5])), "--moe-router-group-topk": "1" })
        }
        50 => json!({ "--moe-router-enable-expert-bias": "", "--moe-router-score-function": null }),
        51 => json!({ "--max-position-embeddings": "1024" }),
        52 => {
            json!({ "--mtp-num-layers": "1", "--position-embedding-type": random.pick(&["learned_absolute", "rope"]) })
        }
        _ => {
            json!({ "--microbatch-group-size-per-virtual-pipeline-stage": text(random.pick(&[1, 3, 5, 100])) })
        }
    }
}

fn torchtitan(random: &mut Random, plan: &Plan) -> Value {
    let p = &plan.parallel;
    let key = |name: &str| format!("--parallelism.{name}");
    let text = |value: u64| Value::String(value.to_string());
    let one = |name: String, value: Value| Value::Object(Map::from_iter([(name, value)]));
    match random.below(13) {
        0 => one(key("tensor_parallel_degree"), text(random.pick(&[3, 5, 16, 0]))),
        1 => one(key("pipeline_parallel_degree"), text(random.pick(&[3, 5, 7]))),
        2 => one(key("context_parallel_degree"), text(random.pick(&[3, 5, 6]))),
        3 => one(key("data_parallel_shard_degree"), text(u64::from(p.dp_shard) + random.pick(&[1, 2, 3]))),
        4 => {
            one(key("data_parallel_replicate_degree"), text(u64::from(p.dp_replicate) + random.pick(&[1, 2])))
        }
        5 => one(key("expert_parallel_degree"), text(random.pick(&[3, 5, 48]))),
        6 => one(
            key("pipeline_parallel_schedule"),
            random.pick(&["1F1B", "ZBVZeroBubble", "DualPipe", "Chimera"]).into(),
        ),
        7 => one(key("pipeline_parallel_layers_per_stage"), text(random.pick(&[1, 2, 5, 7, 100]))),
        8 => one(
            "--training.global_batch_size".to_owned(),
            text(plan.inputs.workload.global_batch + random.pick(&[1, 2, 3])),
        ),
        9 => one("--training.local_batch_size".to_owned(), text(random.pick(&[3, 5, 7, 0]))),
        10 => one(key("pipeline_parallel_microbatch_size"), text(random.pick(&[3, 5, 7]))),
        11 => one("--training.seq_len".to_owned(), text(random.pick(&[4097, 4100, 2050]))),
        _ => one(key("fsdp_reshard_after_forward"), random.pick(&["sometimes", "True"]).into()),
    }
}

fn deepspeed(random: &mut Random, plan: &Plan) -> Value {
    let batch = plan.inputs.workload.global_batch;
    match random.below(16) {
        0 => json!({ "zero_optimization": { "stage": random.pick(&[4, 5, -1]) } }),
        1 => json!({ "bf16": { "enabled": true }, "fp16": { "enabled": true } }),
        2 => json!({ "train_batch_size": batch + random.pick(&[1, 2, 3]) }),
        3 => {
            json!({ "train_micro_batch_size_per_gpu": plan.parallel.micro_batch_size + random.pick(&[1, 2]) })
        }
        4 => json!({ "gradient_accumulation_steps": plan.parallel.num_microbatches + 1 }),
        5 => json!({ "train_batch_size": null, "train_micro_batch_size_per_gpu": null }),
        6 => json!({ "zero_optimization": { "stages": 2 } }),
        7 => json!({ "zero_optimization": { "stage": "three" } }),
        8 => {
            json!({ "zero_optimization": { "offload_optimizer": { "device": random.pick(&["gpu", "disk", "cpu"]) } } })
        }
        9 => json!({ "zero_optimization": { "reduce_bucket_size": random.pick(&[-1, 0]) } }),
        10 => json!({ "gradient_accumulation_steps": random.pick(&[0, -1]) }),
        11 => json!({ "train_micro_batch_size_per_gpu": random.pick(&[0, -2]) }),
        12 => json!({ "gradient_accumulation_steps": null, "train_micro_batch_size_per_gpu": 3 }),
        13 => json!({ "zero_optimization": { "overlap_comm": "sometimes" } }),
        14 => json!({ "zero_optimization": { "stage3_prefetch": 5 } }),
        _ => json!({ "tensor_parallel": { "autotp_size": random.pick(&[3, 16, -1]) } }),
    }
}

fn accelerate(random: &mut Random, plan: &Plan) -> Value {
    let p = &plan.parallel;
    let size = |axis: &str, value: i64| {
        let key = format!("parallelism_config_{axis}_size");
        json!({ "parallelism_config": Map::from_iter([(key, Value::from(value))]) })
    };
    match random.below(11) {
        0 => size("tp", random.pick(&[0, -1, 3])),
        1 => size("cp", random.pick(&[0, -2, 3])),
        2 => size("dp_shard", i64::from(p.dp_shard) + random.pick(&[1, 2])),
        3 => size("dp_replicate", i64::from(p.dp_replicate) + random.pick(&[1, 2])),
        4 => {
            json!({ "parallelism_config": { "parallelism_config_cp_size": 2, "parallelism_config_sp_size": 2 } })
        }
        5 => {
            json!({ "parallelism_config": { "parallelism_config_dp_replicate_size": 2, "parallelism_config_dp_shard_size": 1,
            "parallelism_config_tp_size": p.world_size() / 2 } })
        }
        6 => json!({ "fsdp_config": { "fsdp_version": random.pick(&[1, 3]) } }),
        7 => json!({ "mixed_precision": random.pick(&["bf32", "int4", "fp16"]) }),
        8 => json!({ "num_processes": p.world_size() + random.pick(&[1, 2]) }),
        9 => size("sp", 2),
        _ => {
            json!({ "parallelism_config": { "parallelism_config_cp_comm_strategy": random.pick(&["ring", "alltoall"]) } })
        }
    }
}
