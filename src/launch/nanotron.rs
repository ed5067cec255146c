//! nanotron (main branch, April 2026): the parts of its YAML that a plan decides.

use super::draft::Draft;
use super::flags::{FlagFault, MOST_BATCH};
use super::layers::Job;
use super::{Exported, Given, LaunchError, LaunchFile, Launcher, Question, ReadError, Setting, degrees};
use crate::plan::Plan;
use cluster_profiles::Precision;
use cost_models::model::{self, Activation, Attention, Mlp};
use cost_models::{Dtype, ModelSpec, ParallelConfig, Recompute, Workload};
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// The launcher.
#[derive(Debug)]
pub struct Nanotron;

impl Launcher for Nanotron {
    fn name(&self) -> &'static str {
        "nanotron"
    }

    fn summary(&self) -> &'static str {
        "nanotron (main, April 2026): config.yaml for run_train.py; layers are placed by nanotron's own cost balance"
    }

    fn runtime(&self) -> &'static str {
        "nanotron"
    }

    fn refuses(&self, model: &ModelSpec, workload: &Workload) -> Vec<String> {
        let mut reasons: Vec<String> = llama(model).err().into_iter().collect();
        if workload.precision != Precision::Bf16 {
            reasons.push(format!("{} training", workload.precision));
        }
        reasons
    }

    fn forbids(&self) -> &'static [&'static str] {
        &["ep>1", "vpp>1", "recompute=selective", "dp_replicate>1"]
    }

    fn export(&self, plan: &Plan) -> Result<Exported, LaunchError> {
        let mut reasons = unfit(plan);
        reasons.extend(self.refuses(&plan.inputs.model, &plan.inputs.workload));
        let model = llama(&plan.inputs.model);
        match (model, reasons.is_empty()) {
            (Ok(model), true) => Ok(Exported {
                files: vec![LaunchFile::data("config.yaml", config(plan, &model))],
                job: Job {
                    environment: vec![
                        ("CUDA_DEVICE_MAX_CONNECTIONS", "1".to_owned()),
                        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True".to_owned()),
                    ],
                    prepare: String::new(),
                    command: "\"${NANOTRON_PATH:-.}/run_train.py\" --config-file config.yaml \"$@\""
                        .to_owned(),
                },
            }),
            _ => Err(LaunchError { launcher: self.name(), reasons }),
        }
    }

    fn read(&self, question: &Question) -> Option<Result<Given, ReadError>> {
        Some(read(question))
    }

    fn settings(&self, p: &ParallelConfig, _: u64) -> Vec<Setting> {
        let mut settings = degrees(&[
            ("parallelism.tp", p.tp),
            ("parallelism.pp", p.pp),
            ("parallelism.context_parallel_size", p.cp),
        ]);
        settings.extend([
            ("parallelism.dp", p.dp().to_string()),
            ("optimizer.zero_stage", p.zero_stage.to_string()),
            ("tokens.micro_batch_size", p.micro_batch_size.to_string()),
            ("tokens.batch_accumulation_per_replica", p.num_microbatches.to_string()),
            ("parallelism.recompute_layer", (p.recompute != Recompute::None).to_string()),
        ]);
        settings
    }
}

fn unfit(plan: &Plan) -> Vec<String> {
    let p = &plan.parallel;
    let mut reasons = Vec::new();
    if p.ep > 1 || p.etp > 1 && plan.inputs.model.is_moe() {
        reasons.push(format!("expert parallelism (ep {}, etp {})", p.ep, p.etp));
    }
    if p.vpp > 1 || p.pp > 1 && !matches!(p.schedule.as_str(), "1f1b" | "gpipe") {
        reasons.push(format!("schedule {} (it has 1f1b, and gpipe as afab)", p.schedule));
    }
    if p.zero_stage > 1 {
        reasons.push(format!("ZeRO-{} (it has 0 and 1)", p.zero_stage));
    }
    if p.zero_stage == 1 && p.dp_replicate > 1 {
        reasons.push("an optimizer sharded over a part of the data-parallel ranks".to_owned());
    }
    if matches!(p.recompute, Recompute::Selective | Recompute::Full { layers: Some(_) }) {
        reasons.push(format!("recompute {} (it recomputes whole layers, all or none)", p.recompute));
    }
    reasons
}

/// The model as nanotron's Llama configuration.
fn llama(model: &ModelSpec) -> Result<Map<String, Value>, String> {
    let refuse = |what: &str| Err(format!("{what}: nanotron's Llama has none"));
    let mut blocks = model.blocks().map(|(_, block)| *block);
    let Some(first) = blocks.next() else { return refuse("a model without blocks") };
    if blocks.any(|block| block != first) {
        return refuse("blocks of different kinds");
    }
    let Attention::Standard {
        heads,
        kv_heads,
        head_dim,
        window: None,
        qkv_bias: false,
        sinks: false,
        qk_norm: false,
        ..
    } = first.attention
    else {
        return refuse("such attention");
    };
    let Mlp::Dense { ffn, activation: Activation::Swiglu } = first.mlp else { return refuse("such an MLP") };
    if model.mtp_blocks().count() > 0 || head_dim * heads != model.hidden || model.learned_positions.is_some()
    {
        return refuse("such a head width, position table or multi-token prediction");
    }
    let positions = model.max_positions.unwrap_or(8192);
    let mut value = json!({
        "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": model.hidden, "initializer_range": 0.02,
        "intermediate_size": ffn, "is_llama_config": true, "max_position_embeddings": positions, "num_attention_heads": heads,
        "num_hidden_layers": model.blocks().count(), "num_key_value_heads": kv_heads, "pretraining_tp": 1, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": model.tied_embeddings, "use_cache": true, "vocab_size": model.vocab,
    });
    if let Some(base) = model.rotary_base {
        value["rope_theta"] = json!(base as f64);
    }
    match value {
        Value::Object(map) => Ok(map),
        _ => refuse("such a model"),
    }
}

fn config(plan: &Plan, model: &Map<String, Value>) -> String {
    let p = &plan.parallel;
    let yes = |on: bool| if on { "true" } else { "false" };
    let mut text = format!(
        "# The parts that the plan decides; data, checkpoints and logging are nanotron's defaults.\n\
         general:\n  project: meshwright\n  run: plan\n  seed: 42\n\
         parallelism:\n  dp: {}\n  pp: {}\n  tp: {}\n  context_parallel_size: {}\n  expert_parallel_size: 1\n  \
         pp_engine: {}\n  tp_mode: {}\n  tp_linear_async_communication: {}\n  recompute_layer: {}\n\
         tokens:\n  sequence_length: {}\n  micro_batch_size: {}\n  batch_accumulation_per_replica: {}\n  train_steps: 100\n  \
         limit_test_batches: 0\n  limit_val_batches: 0\n  val_check_interval: -1\n\
         optimizer:\n  zero_stage: {}\n  accumulate_grad_in_fp32: true\n  clip_grad: 1.0\n  weight_decay: 0.1\n  \
         learning_rate_scheduler:\n    learning_rate: 3.0e-4\n    lr_decay_starting_step: null\n    lr_decay_steps: 98\n    \
         lr_decay_style: cosine\n    lr_warmup_steps: 2\n    lr_warmup_style: linear\n    min_decay_lr: 3.0e-5\n  \
         optimizer_factory:\n    name: adamW\n    adam_beta1: 0.9\n    adam_beta2: 0.95\n    adam_eps: 1.0e-8\n    torch_adam_is_fused: true\n\
         data_stages:\n- name: stable\n  start_training_step: 1\n  data:\n    dataset: null\n    num_loading_workers: 1\n    seed: 42\n\
         tokenizer:\n  tokenizer_name_or_path: gpt2\n  tokenizer_revision: null\n  tokenizer_max_length: null\n\
         logging:\n  iteration_step_info_interval: 1\n  log_level: info\n  log_level_replica: info\n\
         checkpoints:\n  checkpoint_interval: 1000000\n  checkpoints_path: checkpoints\n\
         model:\n  ddp_bucket_cap_mb: 25\n  dtype: bfloat16\n  init_method:\n    std: 0.02\n  \
         make_vocab_size_divisible_by: {}\n  model_config:\n",
        p.dp(),
        p.pp,
        p.tp,
        p.cp,
        if p.schedule == "gpipe" { "afab" } else { "1f1b" },
        if p.sequence_parallel { "REDUCE_SCATTER" } else { "ALL_REDUCE" },
        yes(p.sequence_parallel),
        yes(matches!(p.recompute, Recompute::Full { .. })),
        plan.inputs.workload.seq_len,
        p.micro_batch_size,
        p.num_microbatches,
        p.zero_stage,
        p.tp,
    );
    for (key, value) in model {
        let _ = writeln!(text, "    {key}: {value}");
    }
    text
}

/// Keys that change nothing here.
const PASSED_OVER: &[&str] = &[
    "general.",
    "data_stages",
    "tokenizer.",
    "logging.",
    "checkpoints.",
    "profiler",
    "lighteval",
    "s3_upload",
    "metrics_logging",
    "optimizer.",
    "model.",
    "parallelism.tp_",
    "parallelism.expert",
    "parallelism.moe",
    "tokens.limit",
    "tokens.val",
    "tokens.train_steps",
    "slurm",
];

fn read(question: &Question) -> Result<Given, ReadError> {
    let flags = question.flags;
    let mut draft = Draft::new(question, "nanotron", ["N0", "N2"]);
    draft.passed_over = PASSED_OVER;
    draft.waived.push("M14");
    let degree = |key: &str| flags.degree(&format!("parallelism.{key}"));
    let (tp, pp, dp, cp) = (degree("tp"), degree("pp"), degree("dp"), degree("context_parallel_size"));
    let zero_stage = flags.amount("optimizer.zero_stage").unwrap_or(0);
    if zero_stage > 1 {
        draft.break_rule(
            "N3",
            format!("optimizer.zero_stage is {zero_stage}: nanotron has 0 and 1"),
            "1 works".to_owned(),
        );
    }
    draft.parallel = ParallelConfig {
        tp,
        pp,
        cp,
        ep: degree("expert_parallel_size"),
        dp_shard: dp,
        zero_stage: zero_stage.min(1) as u8,
        sequence_parallel: tp > 1 && flags.text("parallelism.tp_mode") == Some("REDUCE_SCATTER"),
        micro_batch_size: flags.at_most("tokens.micro_batch_size", 1 << 20).unwrap_or(1),
        schedule: if flags.text("parallelism.pp_engine") == Some("afab") { "gpipe" } else { "1f1b" }
            .to_owned(),
        recompute: if flags.has("parallelism.recompute_layer") {
            Recompute::Full { layers: None }
        } else {
            Recompute::None
        },
        ..ParallelConfig::default()
    };
    draft.seq_len = flags.at_most("tokens.sequence_length", MOST_BATCH);
    let steps = flags.at_most("tokens.batch_accumulation_per_replica", MOST_BATCH).unwrap_or(1);
    let round = draft.parallel.micro_batch_size.saturating_mul(u64::from(dp));
    draft.global_batch = Some(round.saturating_mul(steps).min(MOST_BATCH));
    if flags.text("optimizer.accumulate_grad_in_fp32").is_some_and(|value| value == "false") {
        draft.gradient_dtype = Some(Dtype::Bf16);
    }
    match own_model(question) {
        Ok(model) => draft.model = model,
        Err(message) => draft.faults.push(FlagFault {
            flag: "model.model_config".to_owned(),
            value: message,
            expected: "sizes that a Llama can have".to_owned(),
        }),
    }
    draft.finish()
}

/// The model that the file describes: the fields of a Llama `config.json`.
fn own_model(question: &Question) -> Result<Option<ModelSpec>, String> {
    let prefix = "model.model_config.";
    let field = |(key, text): (&str, &str)| {
        let value = serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
        key.strip_prefix(prefix).map(|key| (key.to_owned(), value))
    };
    let mut fields: Map<String, Value> = question.flags.iter().filter_map(field).collect();
    if !fields.contains_key("num_hidden_layers") {
        return Ok(None);
    }
    let qwen = fields.contains_key("is_qwen2_config");
    let (kind, class) = if qwen { ("qwen2", "Qwen2ForCausalLM") } else { ("llama", "LlamaForCausalLM") };
    fields.insert("model_type".to_owned(), json!(kind));
    fields.insert("architectures".to_owned(), json!([class]));
    model::load("nanotron.json", &Value::Object(fields).to_string())
        .map(Some)
        .map_err(|error| error.to_string())
}
