//! DeepSpeed 0.19: `ds_config.json` with ZeRO, and AutoTP where tensor parallelism is planned; and, with a pipeline, what
//! `PipelineModule` has to be given.

mod read;
mod rules;

use super::layers::Job;
use super::{
    Exported, Given, LaunchError, LaunchFile, Launcher, Question, ReadError, Setting, degrees, shell,
};
use crate::plan::Plan;
use cluster_profiles::Precision;
use cost_models::rules::RecomputeFreedom;
use cost_models::runtime::{AttentionKernel, RuntimeFacts};
use cost_models::{ModelSpec, Optimizer, ParallelConfig, Recompute, Workload};
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

    /// Training scripts of today call fused attention; what DeepSpeed wraps does not change that.
    fn facts(&self) -> RuntimeFacts {
        RuntimeFacts { attention: Some(AttentionKernel::Flash2), ..RuntimeFacts::default() }
    }

    fn refuses(&self, _: &ModelSpec, workload: &Workload) -> Vec<String> {
        let known = matches!(workload.precision, Precision::Bf16 | Precision::Fp16 | Precision::Fp32);
        if known { Vec::new() } else { vec![format!("{} training", workload.precision)] }
    }

    /// The script recomputes every block or none: the file has no count.
    fn recompute(&self) -> Option<RecomputeFreedom> {
        Some(RecomputeFreedom::AllOrNone)
    }

    fn unstated(&self, plan: &Plan) -> Vec<String> {
        let mut facts = vec![
            format!("the model: --model {}", shell::quote(&plan.inputs.model.name)),
            format!("--seq-len {}", plan.inputs.workload.seq_len),
        ];
        if plan.inputs.workload.optimizer == Optimizer::AdamwBf16 {
            facts.push("the 16-bit moments of adamw-bf16".to_owned());
        }
        facts
    }

    fn forbids(&self) -> &'static [&'static str] {
        &["cp>1", "ep>1", "vpp>1", "pp>1", "recompute=selective"]
    }

    fn export(&self, plan: &Plan) -> Result<Exported, LaunchError> {
        let mut reasons = unfit(plan);
        reasons.extend(self.refuses(&plan.inputs.model, &plan.inputs.workload));
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
        Some(read::read(question))
    }

    fn settings(&self, p: &ParallelConfig, _: u64) -> Vec<Setting> {
        let mut settings =
            degrees(&[("tensor_parallel.autotp_size", p.tp), ("sequence_parallel_size", p.cp)]);
        settings.extend([
            ("zero_optimization.stage", p.zero_stage.to_string()),
            ("train_micro_batch_size_per_gpu", p.micro_batch_size.to_string()),
            ("gradient_accumulation_steps", p.num_microbatches.to_string()),
        ]);
        if p.recompute != Recompute::None {
            settings.push(("activation_checkpointing", "{}".to_owned()));
        }
        settings
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
    if p.pp > 1 {
        config["pipeline"] = json!({ "stages": p.pp });
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
