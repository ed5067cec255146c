//! Reads a DeepSpeed configuration.

use super::{DeepSpeed, rules};
use crate::launch::draft::{Draft, left};
use crate::launch::flags::MOST_BATCH;
use crate::launch::{Given, Launcher, Question, ReadError, nearest_divisors};
use cluster_profiles::Precision;
use cost_models::{Optimizer, ParallelConfig, Recompute};

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

pub fn read(question: &Question) -> Result<Given, ReadError> {
    let flags = question.flags;
    let mut draft = Draft::new(question, "megatron-deepspeed", ["D1", "D1"]);
    draft.passed_over = PASSED_OVER;
    draft.facts = DeepSpeed.facts();
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
    let dp_shard = left(question.world_size, &[tp, sequence, pp]);
    draft.parallel =
        ParallelConfig { tp, pp, cp: sequence, dp_shard, zero_stage: stage, ..ParallelConfig::default() };
    draft.broken.extend(rules::section(flags));
    batch(&mut draft, &stated);
    precision(&mut draft);
    optimizer(&mut draft);
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
    let dp = u64::from(draft.parallel.dp_shard);
    let train = value("train_batch_size");
    let micro = value("train_micro_batch_size_per_gpu");
    let steps = value("gradient_accumulation_steps");
    let micro_batch = match (micro, train) {
        (Some(micro), _) => micro,
        (None, Some(train)) => (train / dp / steps.unwrap_or(1)).max(1),
        (None, None) => unstated_batch(draft),
    };
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

/// The micro batch where no size is a number: a trainer fills in `auto`, and no key at all breaks a rule.
fn unstated_batch(draft: &mut Draft) -> u64 {
    let keys = ["train_batch_size", "train_micro_batch_size_per_gpu"];
    if keys.iter().any(|key| draft.question.flags.text(key).is_some()) {
        return draft.micro_batch();
    }
    let hint = "\"train_micro_batch_size_per_gpu\": 1 works".to_owned();
    draft.break_rule("D1a", "neither train_batch_size nor train_micro_batch_size_per_gpu is set", hint);
    1
}

/// What the file says of the optimizer; AdamW where it says nothing.
fn optimizer(draft: &mut Draft) {
    let kind = draft.question.flags.text("optimizer.type").unwrap_or_default().to_ascii_lowercase();
    draft.optimizer = match kind.as_str() {
        "sgd" => Optimizer::Sgd,
        "muon" => Optimizer::Muon,
        _ => Optimizer::Adamw,
    };
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
                let hint = nearest_divisors("sequence_parallel_size", sp, heads);
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
    let away = |part: &str| {
        let device = flags.text(&format!("zero_optimization.{part}.device"));
        device.is_some_and(|device| !matches!(device, "none" | "None"))
    };
    let state = &mut draft.memory;
    // Reduced gradients go where the optimizer is (`runtime/zero/stage3.py`, `stage_1_and_2.py`).
    if away("offload_optimizer") || flags.has("zero_optimization.cpu_offload") {
        (state.optimizer_offload, state.gradient_offload) = (Some(1.0), Some(1.0));
    }
    if draft.parallel.zero_stage == 3
        && (away("offload_param") || flags.has("zero_optimization.cpu_offload_param"))
    {
        state.parameter_offload = Some(1.0);
    }
    state.live_parameters =
        flags.amount("zero_optimization.stage3_max_live_parameters").map(|count| count as f64);
    if state.parameter_offload.is_some() {
        draft.assumed.push(
            "a step without the time of fetching parameters from host memory: it is not modelled".to_owned(),
        );
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
