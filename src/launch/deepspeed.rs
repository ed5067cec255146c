//! DeepSpeed 0.19: `ds_config.json` with ZeRO, and AutoTP where tensor parallelism is planned; and, with a pipeline, what
//! `PipelineModule` has to be given.

use super::draft::{Draft, left, shards};
use super::flags::MOST_BATCH;
use super::layers::Job;
use super::{Exported, Given, LaunchError, LaunchFile, Launcher, Question, ReadError};
use crate::plan::Plan;
use cluster_profiles::Precision;
use cost_models::{Optimizer, ParallelConfig, Recompute};
use serde_json::{Value, json};

/// The launcher.
#[derive(Debug)]
pub struct DeepSpeed;

impl Launcher for DeepSpeed {
    fn name(&self) -> &'static str {
        "deepspeed"
    }

    fn summary(&self) -> &'static str {
        "DeepSpeed 0.19: ds_config.json (ZeRO, AutoTP) for a training script of your own, and the pipeline's sizes"
    }

    fn runtime(&self) -> &'static str {
        "megatron-deepspeed"
    }

    fn forbids(&self) -> &'static [&'static str] {
        &["cp>1", "ep>1", "vpp>1", "pp>1", "recompute=selective"]
    }

    fn export(&self, plan: &Plan) -> Result<Exported, LaunchError> {
        let reasons = unfit(plan);
        if !reasons.is_empty() {
            return Err(LaunchError { launcher: self.name(), reasons });
        }
        let text = serde_json::to_string_pretty(&config(plan)).unwrap_or_default() + "\n";
        let mut files = vec![LaunchFile::data("ds_config.json", text)];
        if plan.parallel.pp > 1 {
            files.push(LaunchFile::data("pipeline.py", pipeline(plan)));
        }
        let job = Job {
            environment: vec![("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True".to_owned())],
            prepare: ": \"${TRAIN_SCRIPT:?set TRAIN_SCRIPT to your training script}\"\n".to_owned(),
            command: "\"$TRAIN_SCRIPT\" --deepspeed --deepspeed_config ds_config.json \"$@\"".to_owned(),
        };
        Ok(Exported { files, job })
    }

    fn read(&self, question: &Question) -> Option<Result<Given, ReadError>> {
        Some(read(question))
    }

    fn axis(&self, axis: &str) -> Option<&'static str> {
        let names = [
            ("tp", "tensor_parallel.autotp_size"),
            ("zero_stage", "zero_optimization.stage"),
            ("micro_batch_size", "train_micro_batch_size_per_gpu"),
            ("num_microbatches", "gradient_accumulation_steps"),
        ];
        names.into_iter().find(|(name, _)| *name == axis).map(|(_, key)| key)
    }
}

fn unfit(plan: &Plan) -> Vec<String> {
    let p = &plan.parallel;
    let mut reasons = Vec::new();
    for (axis, degree) in [("cp", p.cp), ("ep", p.ep), ("etp", p.etp), ("vpp", p.vpp)] {
        if degree > 1 && !(axis == "etp" && degree == p.tp) {
            reasons.push(format!("{axis} {degree}: a configuration file cannot ask for it"));
        }
    }
    if p.pp > 1 && p.tp > 1 {
        reasons.push("tp with pp: that takes a model-parallel unit of the training script".to_owned());
    }
    if p.dp_replicate > 1 && p.zero_stage > 0 && p.dp_shard > 1 {
        reasons.push("sharding over a part of the data-parallel ranks".to_owned());
    }
    if !matches!(plan.inputs.workload.precision, Precision::Bf16 | Precision::Fp16 | Precision::Fp32) {
        reasons.push(format!("{} training", plan.inputs.workload.precision));
    }
    let even = plan.stages.0.iter().map(|stage| stage.layer_range().len()).collect::<Vec<_>>();
    if p.pp > 1 && even.len() > 2 && even[1..even.len() - 1].iter().any(|&layers| layers != even[1]) {
        reasons.push("stages of different sizes: PipelineModule partitions by its own rules".to_owned());
    }
    if matches!(p.recompute, Recompute::Selective | Recompute::Full { layers: Some(_) }) {
        reasons.push(format!("recompute {}: the training script decides what is recomputed", p.recompute));
    }
    if plan.stages.0.iter().any(|stage| stage.recompute != p.recompute) {
        reasons.push("recompute that differs between stages".to_owned());
    }
    reasons
}

fn config(plan: &Plan) -> Value {
    let p = &plan.parallel;
    let workload = &plan.inputs.workload;
    let (name, precision) =
        (if workload.precision == Precision::Fp16 { "fp16" } else { "bf16" }, workload.precision);
    let mut config = json!({
        "train_batch_size": workload.global_batch,
        "train_micro_batch_size_per_gpu": p.micro_batch_size,
        "gradient_accumulation_steps": p.num_microbatches,
        "gradient_clipping": 1.0,
        "steps_per_print": 1,
        "zero_optimization": zero(p.zero_stage),
        "optimizer": optimizer(workload.optimizer),
    });
    if precision != Precision::Fp32 {
        config[name] = json!({ "enabled": true });
    }
    if p.tp > 1 {
        config["tensor_parallel"] = json!({ "autotp_size": p.tp });
    }
    if matches!(p.recompute, Recompute::Full { .. }) {
        config["activation_checkpointing"] = json!({ "partition_activations": p.tp > 1 });
    }
    config
}

fn zero(stage: u8) -> Value {
    match stage {
        0 => json!({ "stage": 0 }),
        3 => json!({
            "stage": 3,
            "overlap_comm": true,
            "contiguous_gradients": true,
            "stage3_gather_16bit_weights_on_model_save": true,
        }),
        stage => json!({ "stage": stage, "overlap_comm": true, "contiguous_gradients": true }),
    }
}

fn optimizer(optimizer: Optimizer) -> Value {
    match optimizer {
        Optimizer::Sgd => json!({ "type": "SGD", "params": { "lr": 0.01, "momentum": 0.9 } }),
        Optimizer::Muon => json!({ "type": "Muon", "params": { "lr": 3e-4, "weight_decay": 0.1 } }),
        Optimizer::Adamw | Optimizer::AdamwBf16 => json!({
            "type": "AdamW",
            "params": { "lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1 },
        }),
    }
}

fn pipeline(plan: &Plan) -> String {
    let p = &plan.parallel;
    format!(
        "\"\"\"What the training script gives to `deepspeed.pipe.PipelineModule`, from the plan.\"\"\"\n\n\
         from deepspeed.runtime.pipe.topology import PipeDataParallelTopology\n\n\
         NUM_STAGES = {}\nTOPOLOGY = PipeDataParallelTopology(num_pp={}, num_dp={})\nPARTITION_METHOD = \"uniform\"\n\
         ACTIVATION_CHECKPOINT_INTERVAL = {}\n",
        p.pp,
        p.pp,
        p.dp(),
        u32::from(matches!(p.recompute, Recompute::Full { .. })),
    )
}

/// Keys that change nothing here.
const PASSED_OVER: &[&str] = &[
    "optimizer",
    "scheduler",
    "gradient_clipping",
    "steps_per_print",
    "wall_clock_breakdown",
    "prescale_gradients",
    "zero_optimization.",
    "fp16.",
    "bf16.",
    "bfloat16.",
    "amp",
    "flops_profiler",
    "tensorboard",
    "wandb",
    "csv_monitor",
    "comet",
    "comms_logger",
    "aio",
    "autotuning",
    "elasticity",
    "checkpoint",
    "data_types",
    "communication_data_type",
    "gradient_predivide_factor",
    "sparse_gradients",
    "zero_allow_untrusted_optimizer",
    "zero_force_ds_cpu_optimizer",
    "dump_state",
    "memory_breakdown",
    "data_efficiency",
    "pipeline.",
    "compression_training",
    "curriculum_learning",
    "tensor_parallel.",
    "compile",
    "seq_parallel",
    "eigenvalue",
    "nebula",
    "zero_quant",
    "load_universal_checkpoint",
    "use_data_before_expert_parallel_",
];

fn read(question: &Question) -> Result<Given, ReadError> {
    let flags = question.flags;
    let mut draft = Draft::new(question, "megatron-deepspeed", ["D1", "D1"]);
    draft.passed_over = PASSED_OVER;
    let stated = |key: &str| flags.text(key).is_some_and(|value| value != "auto");
    let tp = match flags.first(&[
        "tensor_parallel.autotp_size",
        "tensor_parallel.tp.tp_size",
        "tensor_parallel.tp_size",
    ]) {
        Some(key) => flags.amount(key).unwrap_or(1).clamp(1, 1 << 16) as u32,
        None => 1,
    };
    let sequence = if stated("sequence_parallel_size") { flags.degree("sequence_parallel_size") } else { 1 };
    let pp = if stated("pipeline.stages") { flags.degree("pipeline.stages") } else { 1 };
    let stage = if stated("zero_optimization.stage") {
        flags.amount("zero_optimization.stage").unwrap_or(0)
    } else {
        0
    };
    if stage > 3 {
        draft.break_rule(
            "D2",
            format!("zero_optimization.stage is {stage}: it is 0, 1, 2 or 3"),
            "3 works".to_owned(),
        );
    }
    let stage = stage.min(3) as u8;
    let (dp_replicate, dp_shard) = shards(left(question.world_size, &[tp, sequence, pp]), stage);
    draft.parallel = ParallelConfig {
        tp,
        pp,
        cp: sequence,
        dp_replicate,
        dp_shard,
        zero_stage: stage,
        ..ParallelConfig::default()
    };
    batch(&mut draft, &stated);
    precision(&mut draft);
    ulysses(&mut draft, sequence);
    recompute(&mut draft);
    expand_zero(&mut draft);
    draft.waived.extend(["E2", "M14"]);
    draft.finish()
}

/// `train_batch_size = micro x accumulation x dp`; two of them, or one, give the rest.
fn batch(draft: &mut Draft, stated: &dyn Fn(&str) -> bool) {
    let flags = draft.question.flags;
    let value = |key: &str| stated(key).then(|| flags.at_most(key, MOST_BATCH)).flatten();
    let dp = u64::from(draft.parallel.dp_replicate).saturating_mul(u64::from(draft.parallel.dp_shard));
    let train = value("train_batch_size");
    let micro = value("train_micro_batch_size_per_gpu");
    let steps = value("gradient_accumulation_steps");
    let micro_batch = micro.unwrap_or_else(|| match (train, steps) {
        (Some(train), steps) => (train / dp / steps.unwrap_or(1)).max(1),
        (None, _) => {
            draft
                .assumed
                .push("1 sequence per microbatch: train_micro_batch_size_per_gpu is not set".to_owned());
            1
        }
    });
    draft.parallel.micro_batch_size = micro_batch;
    let made = micro_batch.saturating_mul(steps.unwrap_or(1)).saturating_mul(dp);
    draft.global_batch = Some(train.or(draft.question.global_batch).unwrap_or(made));
    if let (Some(train), Some(micro), Some(steps)) = (train, micro, steps) {
        let made = micro.saturating_mul(steps).saturating_mul(dp);
        if made != train {
            let rest = micro.saturating_mul(steps).max(1);
            let replicas = (train / rest).max(1);
            let staged = train.is_multiple_of(rest) && dp.is_multiple_of(replicas) && replicas < dp;
            let more = if staged {
                format!(
                    ", or a script that runs {} GPUs as one pipeline or tensor-parallel group",
                    dp / replicas
                )
            } else {
                String::new()
            };
            let hint = format!("train_batch_size {made} works{more}");
            draft.break_rule(
                "D1",
                format!("train_batch_size {train} is not micro batch {micro} x accumulation {steps} x dp {dp} = {made}"),
                hint,
            );
            draft.global_batch = Some(made);
        }
    }
}

fn precision(draft: &mut Draft) {
    let flags = draft.question.flags;
    let on = |key: &str| flags.text(key).is_some() && flags.has(key);
    let (bf16, fp16) = (on("bf16.enabled") || on("bfloat16.enabled"), on("fp16.enabled"));
    if bf16 && fp16 {
        draft.break_rule("D2a", "bf16 and fp16 are both enabled: one of them", "drop fp16".to_owned());
    }
    draft.precision = if bf16 {
        Precision::Bf16
    } else if fp16 {
        Precision::Fp16
    } else {
        Precision::Bf16
    };
    if !bf16 && !fp16 {
        draft.assumed.push("bf16: neither bf16.enabled nor fp16.enabled is set".to_owned());
    }
}

/// Ulysses splits heads over the sequence ranks.
fn ulysses(draft: &mut Draft, sequence: u32) {
    let Some(model) = draft.question.model.filter(|_| sequence > 1) else { return };
    let sp = u64::from(sequence);
    for (_, block) in model.blocks().take(1) {
        if let cost_models::model::Attention::Standard { heads, kv_heads, .. } = block.attention {
            let keys = kv_heads.is_multiple_of(sp) || sp.is_multiple_of(kv_heads.max(1));
            if !heads.is_multiple_of(sp) || !keys {
                let hint = super::nearest_divisors("sequence_parallel_size", sp, heads);
                draft.break_rule("D5", format!("sequence_parallel_size {sp} with {heads} heads and {kv_heads} key-value heads: it divides them"), hint);
            }
        }
    }
}

fn recompute(draft: &mut Draft) {
    let flags = draft.question.flags;
    let keys = [
        "activation_checkpointing.partition_activations",
        "activation_checkpointing.cpu_checkpointing",
        "activation_checkpointing.number_checkpoints",
        "activation_checkpointing.contiguous_memory_optimization",
        "activation_checkpointing.synchronize_checkpoint_boundary",
        "activation_checkpointing.profile",
    ];
    let stated = keys.iter().filter(|key| flags.text(key).is_some()).count() > 0;
    let what = if stated {
        "full recompute, since activation_checkpointing is configured"
    } else {
        "no recompute: activation_checkpointing is not configured"
    };
    draft.parallel.recompute = if stated { Recompute::Full { layers: None } } else { Recompute::None };
    draft.assumed.push(format!("{what} (the training script decides)"));
}

/// Offload and hierarchical partitions.
fn expand_zero(draft: &mut Draft) {
    let flags = draft.question.flags;
    for (key, what) in [
        ("zero_optimization.offload_optimizer.device", "the optimizer in host memory"),
        ("zero_optimization.offload_param.device", "parameters in host memory"),
    ] {
        if flags.text(key).is_some_and(|device| !matches!(device, "none" | "None")) {
            draft.assumed.push(format!(
                "no offload: {what} ({key}) is not modelled, the estimate is for state on the GPU"
            ));
        }
    }
    let hpz = flags
        .text("zero_optimization.zero_hpz_partition_size")
        .and_then(|_| flags.count("zero_optimization.zero_hpz_partition_size"));
    if hpz.is_some_and(|size| size > 1) {
        draft.assumed.push(
            "no second partition of the parameters: zero_hpz_partition_size is not modelled".to_owned(),
        );
    }
}
