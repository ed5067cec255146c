//! Accelerate 1.15: a configuration file with FSDP2 and `parallelism_config`.

use super::draft::{Draft, left};
use super::flags::{FlagSet, MOST_BATCH};
use super::layers::{Job, Seats};
use super::{
    Exported, Given, LaunchError, LaunchFile, Launcher, Question, ReadError, Setting, degrees, shell,
};
use crate::plan::Plan;
use cluster_profiles::Precision;
use cost_models::{ModelSpec, Optimizer, ParallelConfig, Recompute, Workload};
use std::fmt::Write;

/// The launcher.
#[derive(Debug)]
pub struct Accelerate;

impl Launcher for Accelerate {
    fn name(&self) -> &'static str {
        "accelerate"
    }

    fn summary(&self) -> &'static str {
        "Accelerate 1.15: a configuration with FSDP2 and parallelism_config for a training script of your own"
    }

    fn runtime(&self) -> &'static str {
        "fsdp2"
    }

    fn forbids(&self) -> &'static [&'static str] {
        &["pp>1", "ep>1", "sp=1", "zero<2", "recompute=selective", "unequal-micro-batches"]
    }

    fn refuses(&self, _: &ModelSpec, workload: &Workload) -> Vec<String> {
        let known = matches!(workload.precision, Precision::Bf16 | Precision::Fp16);
        if known {
            Vec::new()
        } else {
            vec![format!("{} (only bf16 and fp16 configurations are written)", workload.precision)]
        }
    }

    fn unstated(&self, plan: &Plan) -> Vec<String> {
        let workload = &plan.inputs.workload;
        let mut facts = vec![
            format!("the model: --model {}", shell::quote(&plan.inputs.model.name)),
            format!("--seq-len {}", workload.seq_len),
            format!("--micro-batch {}", plan.parallel.micro_batch_size),
            format!("--global-batch {}", workload.global_batch),
        ];
        if workload.optimizer != Optimizer::Adamw {
            facts.push(format!("the optimizer {}", workload.optimizer.name()));
        }
        facts
    }

    fn export(&self, plan: &Plan) -> Result<Exported, LaunchError> {
        let mut reasons = unfit(plan);
        reasons.extend(self.refuses(&plan.inputs.model, &plan.inputs.workload));
        let seats = match Seats::of(plan) {
            Ok(seats) if reasons.is_empty() => seats,
            other => {
                reasons.extend(other.err().into_iter().flatten());
                return Err(LaunchError { launcher: self.name(), reasons });
            }
        };
        let job = Job {
            environment: vec![("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True".to_owned())],
            prepare: ": \"${TRAIN_SCRIPT:?set TRAIN_SCRIPT to your training script}\"\n".to_owned(),
            command: "-m accelerate.commands.launch".to_owned(),
        };
        let files = vec![
            LaunchFile::data("accelerate.yaml", config(plan, &seats)),
            LaunchFile::script("accelerate.sh", script(&seats)),
        ];
        let command = "\"$TRAIN_SCRIPT\" \"$@\"".to_owned();
        let prepare = job.prepare.clone() + &environment(plan);
        Ok(Exported { files, job: Job { command, prepare, ..job } })
    }

    fn read(&self, question: &Question) -> Option<Result<Given, ReadError>> {
        Some(read(question))
    }

    fn settings(&self, p: &ParallelConfig, _: u64) -> Vec<Setting> {
        let mut settings = degrees(&[
            ("parallelism_config_tp_size", p.tp),
            ("parallelism_config_cp_size", p.cp),
            ("parallelism_config_dp_replicate_size", p.dp_replicate),
        ]);
        settings.extend([
            ("parallelism_config_dp_shard_size", p.dp_shard.to_string()),
            ("fsdp_reshard_after_forward", (p.zero_stage == 3).to_string()),
            ("fsdp_activation_checkpointing", (p.recompute != Recompute::None).to_string()),
            ("gradient_accumulation_steps", p.num_microbatches.to_string()),
        ]);
        settings
    }
}

fn unfit(plan: &Plan) -> Vec<String> {
    let p = &plan.parallel;
    let mut reasons = Vec::new();
    for (axis, degree) in [("pp", p.pp), ("ep", p.ep), ("etp", p.etp)] {
        if degree > 1 {
            reasons.push(format!("{axis} {degree}: it has no such axis"));
        }
    }
    if p.zero_stage < 2 {
        reasons.push(format!("ZeRO-{} (FSDP2 shards parameters: 2 or 3)", p.zero_stage));
    }
    if p.dp_replicate > 1 && p.dp_shard == 1 && (p.tp > 1 || p.cp > 1) {
        reasons.push("replicas without shards beside tp or cp: dp_shard is 1".to_owned());
    }
    if p.dp_shard * p.cp == 1 {
        reasons.push("FSDP2 with nothing to shard over: dp_shard x cp is 1".to_owned());
    }
    if matches!(p.recompute, Recompute::Selective | Recompute::Full { layers: Some(_) }) {
        reasons.push(format!("recompute {}: it has one switch, for whole layers", p.recompute));
    }
    if p.sequence_parallel && p.tp > 1 {
        reasons.push("sequence parallelism: its tensor-parallel ranks keep the whole sequence".to_owned());
    }
    reasons
}

fn config(plan: &Plan, seats: &Seats) -> String {
    let p = &plan.parallel;
    let yes = |on: bool| if on { "true" } else { "false" };
    let mut text = format!(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: {}\n\
         num_machines: {}\nnum_processes: {}\nmachine_rank: 0\nmain_process_ip: {}\nmain_process_port: 29500\n\
         rdzv_backend: static\nsame_network: true\nmain_training_function: main\ndowncast_bf16: 'no'\nuse_cpu: false\ndebug: false\n\
         enable_cpu_affinity: false\n\
         fsdp_config:\n  fsdp_version: 2\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  \
         fsdp_reshard_after_forward: {}\n  fsdp_state_dict_type: SHARDED_STATE_DICT\n  fsdp_offload_params: false\n  \
         fsdp_cpu_ram_efficient_loading: true\n  fsdp_activation_checkpointing: {}\n\
         parallelism_config:\n  parallelism_config_dp_replicate_size: {}\n  parallelism_config_dp_shard_size: {}\n  \
         parallelism_config_tp_size: {}\n  parallelism_config_cp_size: {}\n",
        plan.inputs.workload.precision,
        seats.hosts.len(),
        p.world_size(),
        seats.hosts[0],
        yes(p.zero_stage == 3),
        yes(matches!(p.recompute, Recompute::Full { .. })),
        p.dp_replicate,
        p.dp_shard,
        p.tp,
        p.cp,
    );
    if p.cp > 1 {
        text.push_str(
            "  parallelism_config_cp_backend: torch\n  parallelism_config_cp_comm_strategy: allgather\n",
        );
    }
    text
}

/// `accelerate launch` once per node.
fn script(seats: &Seats) -> String {
    format!(
        "#!/usr/bin/env bash\n# Run once per node, with NODE_RANK the host's line in hosts.txt (from 0).\nset -euo pipefail\n\
         cd \"$(dirname \"${{BASH_SOURCE[0]}}\")\"\n: \"${{NODE_RANK:?}}\" \"${{TRAIN_SCRIPT:?set TRAIN_SCRIPT to your training script}}\"\n\
         exec accelerate launch --config_file accelerate.yaml --machine_rank \"$NODE_RANK\" \\\n  \
         --main_process_ip \"${{MASTER_ADDR:-{}}}\" \"$TRAIN_SCRIPT\" \"$@\"\n",
        seats.hosts[0]
    )
}

/// What `accelerate launch` hands to the script, so that other launch layers can start it too.
fn environment(plan: &Plan) -> String {
    let p = &plan.parallel;
    let yes = |on: bool| if on { "true" } else { "false" };
    let mut text = String::new();
    let fixed = [
        ("ACCELERATE_USE_FSDP", "true".to_owned()),
        ("ACCELERATE_MIXED_PRECISION", plan.inputs.workload.precision.to_string()),
        ("ACCELERATE_USE_PARALLELISM_CONFIG", "true".to_owned()),
        ("FSDP_VERSION", "2".to_owned()),
        ("FSDP_AUTO_WRAP_POLICY", "TRANSFORMER_BASED_WRAP".to_owned()),
        ("FSDP_RESHARD_AFTER_FORWARD", yes(p.zero_stage == 3).to_owned()),
        ("FSDP_STATE_DICT_TYPE", "SHARDED_STATE_DICT".to_owned()),
        ("FSDP_CPU_RAM_EFFICIENT_LOADING", "true".to_owned()),
        ("FSDP_SYNC_MODULE_STATES", "true".to_owned()),
        ("FSDP_ACTIVATION_CHECKPOINTING", yes(matches!(p.recompute, Recompute::Full { .. })).to_owned()),
        ("PARALLELISM_CONFIG_DP_REPLICATE_SIZE", p.dp_replicate.to_string()),
        ("PARALLELISM_CONFIG_DP_SHARD_SIZE", p.dp_shard.to_string()),
        ("PARALLELISM_CONFIG_TP_SIZE", p.tp.to_string()),
        ("PARALLELISM_CONFIG_CP_SIZE", p.cp.to_string()),
        ("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", p.num_microbatches.to_string()),
    ];
    for (name, value) in fixed {
        let _ = writeln!(text, "export {name}={value}");
    }
    text
}

/// Keys that change nothing here.
const PASSED_OVER: &[&str] = &[
    "compute_environment",
    "debug",
    "downcast_bf16",
    "enable_cpu_affinity",
    "main_",
    "machine_rank",
    "num_machines",
    "rdzv_backend",
    "same_network",
    "tpu_",
    "use_cpu",
    "gpu_ids",
    "mixed_precision",
    "dynamo_config",
    "commands",
    "command_file",
    "use_parallelism_config",
    "fsdp_config.fsdp_",
    "parallelism_config.parallelism_config_cp_",
    "parallelism_config.parallelism_config_sp_",
    "fp8_config",
    "mpirun_config",
    "deepspeed_config.",
    "megatron_lm_config.",
];

fn read(question: &Question) -> Result<Given, ReadError> {
    let flags = question.flags;
    match flags.text("distributed_type") {
        Some("MEGATRON_LM") => {
            return Err(elsewhere("its megatron_lm_config: check the flags with --launcher megatron"));
        }
        Some("DEEPSPEED") => return deepspeed(question),
        _ => {}
    }
    let mut draft = Draft::new(question, "fsdp2", ["A1", "A9"]);
    draft.passed_over = PASSED_OVER;
    draft.waived.extend(["M14", "A3", "E6"]);
    let size = |axis: &str| flags.degree(&format!("parallelism_config.parallelism_config_{axis}_size"));
    let (tp, cp, sp, dp_replicate) = (size("tp"), size("cp"), size("sp"), size("dp_replicate"));
    let stated = flags.text("parallelism_config.parallelism_config_dp_shard_size").is_some();
    let dp_shard =
        if stated { size("dp_shard") } else { left(question.world_size, &[tp, cp, sp, dp_replicate]) };
    let fsdp = flags.text("distributed_type") == Some("FSDP");
    let reshard = flags
        .text("fsdp_config.fsdp_reshard_after_forward")
        .is_none_or(|value| !matches!(value, "false" | "SHARD_GRAD_OP"));
    let checkpointing = flags.text("fsdp_config.fsdp_activation_checkpointing").is_some()
        && flags.has("fsdp_config.fsdp_activation_checkpointing");
    draft.parallel = ParallelConfig {
        tp,
        cp: cp.saturating_mul(sp),
        dp_replicate: if fsdp { dp_replicate } else { 1 },
        dp_shard: if fsdp { dp_shard } else { dp_replicate.saturating_mul(dp_shard) },
        zero_stage: if !fsdp {
            0
        } else if reshard {
            3
        } else {
            2
        },
        recompute: if checkpointing { Recompute::Full { layers: None } } else { Recompute::None },
        ..ParallelConfig::default()
    };
    rules(flags, &mut draft, [tp, cp, sp, dp_replicate, dp_shard], fsdp);
    draft.precision = match flags.text("mixed_precision") {
        Some("fp16") => Precision::Fp16,
        Some("fp8") => Precision::Fp8,
        _ => Precision::Bf16,
    };
    draft.parallel.micro_batch_size = draft.micro_batch();
    draft.finish()
}

fn rules(flags: &FlagSet, draft: &mut Draft, sizes: [u32; 5], fsdp: bool) {
    let [tp, cp, sp, dp_replicate, dp_shard] = sizes;
    if cp > 1 && sp > 1 {
        draft.break_rule("A2", format!("cp {cp} and sp {sp}: one of them"), "sp 1 works".to_owned());
    }
    if (tp > 1 || cp > 1) && dp_replicate > 1 && dp_shard == 1 {
        let hint = format!("dp_shard_size {dp_replicate} with dp_replicate_size 1 works");
        draft.break_rule(
            "A3",
            format!(
                "dp_replicate {dp_replicate} with dp_shard 1 and tp {tp}, cp {cp}: replicas need shards then"
            ),
            hint,
        );
    }
    if fsdp && u64::from(dp_shard) * u64::from(cp) <= 1 {
        draft.break_rule(
            "A4",
            "FSDP has nothing to shard over: dp_shard x cp is 1",
            "lower tp_size".to_owned(),
        );
    }
    for (axis, what) in [("pp", "pipeline"), ("ep", "expert")] {
        let key = format!("parallelism_config.parallelism_config_{axis}_size");
        if flags.text(&key).is_some() && flags.degree(&key) > 1 {
            let hint = "drop the key; long sequences fit with parallelism_config_cp_size".to_owned();
            draft.break_rule("A8", format!("{key}: it has no {what} parallelism"), hint);
        }
    }
    let version = flags.amount("fsdp_config.fsdp_version").unwrap_or(1);
    if fsdp && version < 2 && (tp > 1 || cp > 1 || sp > 1) {
        draft.break_rule(
            "A5",
            format!("fsdp_version {version} with tp {tp}, cp {cp}: parallelism_config needs FSDP2"),
            "fsdp_version 2 works".to_owned(),
        );
    }
    if let Some(processes) =
        flags.at_most("num_processes", 1 << 24).filter(|&n| n != draft.question.world_size)
    {
        let message = format!("num_processes is {processes}, there are {} GPUs", draft.question.world_size);
        draft.break_rule("A1a", message, Some(format!("num_processes {} works", draft.question.world_size)));
    }
}

fn elsewhere(what: &str) -> ReadError {
    ReadError { not_planned: Some(what.to_owned()), ..ReadError::default() }
}

/// DeepSpeed's section, or the file it names.
fn deepspeed(question: &Question) -> Result<Given, ReadError> {
    let flags = question.flags;
    if flags.text("deepspeed_config.deepspeed_config_file").is_some() {
        return Err(elsewhere(
            "deepspeed_config_file names another file: check that one with --launcher deepspeed",
        ));
    }
    let mut draft = Draft::new(question, "megatron-deepspeed", ["A1", "A9"]);
    draft.passed_over = PASSED_OVER;
    draft.waived.extend(["M14", "E2"]);
    let sp = flags.degree("parallelism_config.parallelism_config_sp_size");
    let stage = flags.amount("deepspeed_config.zero_stage").unwrap_or(2).min(3) as u8;
    let dp_shard = left(question.world_size, &[sp]);
    draft.parallel = ParallelConfig { cp: sp, dp_shard, zero_stage: stage, ..ParallelConfig::default() };
    let steps = flags.count("deepspeed_config.gradient_accumulation_steps").unwrap_or(1);
    let dp = u64::from(dp_shard);
    let micro_batch = draft.micro_batch();
    draft.parallel.micro_batch_size = micro_batch;
    let round = dp.saturating_mul(micro_batch);
    draft.global_batch = question.global_batch.or(Some(round.saturating_mul(steps).min(MOST_BATCH)));
    draft.finish()
}
