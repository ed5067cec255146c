//! Megatron-Bridge: a recipe in Python, made of overrides of `ConfigContainer`; overrides are read as well.
//!
//! Its configuration becomes Megatron-Core's, so its rules are those of Megatron-LM's flags.

use super::document::Document;
use super::flags::FlagSet;
use super::layers::Job;
use super::megatron::{self, Flag};
use super::{Exported, Given, LaunchError, LaunchFile, Launcher, Question, ReadError, Setting};
use crate::plan::Plan;
use cost_models::{ModelSpec, ParallelConfig, Recompute, Workload};
use std::collections::BTreeMap;

/// The launcher.
#[derive(Debug)]
pub struct Bridge;

impl Launcher for Bridge {
    fn name(&self) -> &'static str {
        "megatron-bridge"
    }

    fn summary(&self) -> &'static str {
        "Megatron-Bridge (main, August 2026): overrides of a recipe of yours, as a Python file and as words"
    }

    fn runtime(&self) -> &'static str {
        "megatron-core"
    }

    fn refuses(&self, model: &ModelSpec, workload: &Workload) -> Vec<String> {
        megatron::Megatron.refuses(model, workload)
    }

    fn unstated(&self, plan: &Plan) -> Vec<String> {
        vec![
            format!("the model: --model {}", super::shell::quote(&plan.inputs.model.name)),
            "in overrides.txt, the attention kernel (recipe.py has it)".to_owned(),
        ]
    }

    fn offloads_optimizer(&self) -> bool {
        true
    }

    fn offloads_activations(&self) -> bool {
        true
    }

    fn export(&self, plan: &Plan) -> Result<Exported, LaunchError> {
        let flags = megatron::flags(plan)
            .map_err(|error| LaunchError { launcher: self.name(), reasons: error.reasons })?;
        let fields: Vec<(String, String)> = flags.iter().filter_map(field).chain(extra(plan)).collect();
        let words: String = fields.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        let mut python: String =
            fields.iter().map(|(name, value)| format!("    config.{name} = {value}\n")).collect();
        python.push_str(&attention(&flags));
        let recipe = format!(
            "\"\"\"Sets what the plan decides on a Megatron-Bridge recipe: `configure(llama31_70b_pretrain_config())`.\"\"\"\n\n\
             from megatron.core.transformer.enums import AttnBackend\n\n\n\
             def configure(config):\n{python}    return config\n"
        );
        let job = Job {
            environment: megatron::environment(plan),
            prepare: ": \"${BRIDGE_SCRIPT:?set BRIDGE_SCRIPT to the script that runs your recipe}\"\nmapfile -t overrides < overrides.txt\n".to_owned(),
            command: "\"$BRIDGE_SCRIPT\" \"${overrides[@]}\" \"$@\"".to_owned(),
        };
        let files = vec![LaunchFile::data("recipe.py", recipe), LaunchFile::data("overrides.txt", words)];
        Ok(Exported { files, job })
    }

    fn flags(&self, document: &Document) -> FlagSet {
        flags(document)
    }

    fn read(&self, question: &Question) -> Option<Result<Given, ReadError>> {
        Some(megatron::read::given(question))
    }

    fn settings(&self, parallel: &ParallelConfig, seq_len: u64) -> Vec<Setting> {
        let field = |(flag, value): Setting| {
            let key = FIELDS.iter().chain(LAYOUT).find(|(name, _)| *name == flag).map(|(_, key)| *key)?;
            Some((key, if value.is_empty() { "True".to_owned() } else { value }))
        };
        megatron::Megatron.settings(parallel, seq_len).into_iter().filter_map(field).collect()
    }
}

/// Fields that are not the flag's name with underscores under `model`.
const FIELDS: &[(&str, &str)] = &[
    ("--micro-batch-size", "train.micro_batch_size"),
    ("--global-batch-size", "train.global_batch_size"),
    ("--use-distributed-optimizer", "ddp.use_distributed_optimizer"),
    ("--overlap-grad-reduce", "ddp.overlap_grad_reduce"),
    ("--overlap-param-gather", "ddp.overlap_param_gather"),
    ("--use-megatron-fsdp", "ddp.use_megatron_fsdp"),
    ("--data-parallel-sharding-strategy", "ddp.data_parallel_sharding_strategy"),
    ("--num-distributed-optimizer-instances", "ddp.num_distributed_optimizer_instances"),
    ("--use-tp-pp-dp-mapping", "dist.use_tp_pp_dp_mapping"),
    ("--use-precision-aware-optimizer", "optimizer.use_precision_aware_optimizer"),
    ("--optimizer-cpu-offload", "optimizer.optimizer_cpu_offload"),
    ("--optimizer-offload-fraction", "optimizer.optimizer_offload_fraction"),
    ("--ckpt-format", "checkpoint.ckpt_format"),
    ("--num-virtual-stages-per-pipeline-rank", "model.virtual_pipeline_model_parallel_size"),
    ("--decoder-first-pipeline-num-layers", "model.num_layers_in_first_pipeline_stage"),
    ("--decoder-last-pipeline-num-layers", "model.num_layers_in_last_pipeline_stage"),
    ("--num-experts", "model.num_moe_experts"),
    ("--swiglu", "model.gated_linear_unit"),
    ("--optimizer", "optimizer.optimizer"),
    ("--tp-comm-overlap", "comm_overlap.tp_comm_overlap"),
    ("--overlap-moe-expert-parallel-comm", "comm_overlap.overlap_moe_expert_parallel_comm"),
    ("--delay-wgrad-compute", "comm_overlap.delay_wgrad_compute"),
];

/// Fields of a layout that are the flag's name with underscores.
const LAYOUT: &[(&str, &str)] = &[
    ("--tensor-model-parallel-size", "model.tensor_model_parallel_size"),
    ("--pipeline-model-parallel-size", "model.pipeline_model_parallel_size"),
    ("--context-parallel-size", "model.context_parallel_size"),
    ("--expert-model-parallel-size", "model.expert_model_parallel_size"),
    ("--expert-tensor-parallel-size", "model.expert_tensor_parallel_size"),
    ("--sequence-parallel", "model.sequence_parallel"),
    ("--recompute-granularity", "model.recompute_granularity"),
    ("--recompute-method", "model.recompute_method"),
    ("--recompute-num-layers", "model.recompute_num_layers"),
    ("--recompute-modules", "model.recompute_modules"),
    ("--cpu-offloading-num-layers", "model.cpu_offloading_num_layers"),
    ("--fine-grained-activation-offloading", "model.fine_grained_activation_offloading"),
    ("--offload-modules", "model.offload_modules"),
];

/// What recipes set unless they are told otherwise, where Megatron-LM's own default is another.
const USUAL: &[(&str, &str)] = &[
    ("--attention-dropout", "0.0"),
    ("--hidden-dropout", "0.0"),
    ("--overlap-grad-reduce", ""),
    ("--qk-layernorm", ""),
    ("--moe-grouped-gemm", ""),
    ("--moe-permute-fusion", ""),
    ("--moe-router-dtype", "fp32"),
    ("--moe-aux-loss-coeff", "1e-3"),
    ("--no-create-attention-mask-in-dataloader", ""),
];

/// Flags that a plan decides; the model's sizes are the recipe's.
const DECIDED: &[&str] = &[
    "--tensor-model-parallel-size",
    "--pipeline-model-parallel-size",
    "--context-parallel-size",
    "--expert-model-parallel-size",
    "--expert-tensor-parallel-size",
    "--sequence-parallel",
    "--use-tp-pp-dp-mapping",
    "--micro-batch-size",
    "--global-batch-size",
    "--use-distributed-optimizer",
    "--overlap-grad-reduce",
    "--overlap-param-gather",
    "--use-megatron-fsdp",
    "--data-parallel-sharding-strategy",
    "--num-distributed-optimizer-instances",
    "--ckpt-format",
    "--num-virtual-stages-per-pipeline-rank",
    "--pipeline-model-parallel-layout",
    "--recompute-granularity",
    "--recompute-method",
    "--recompute-num-layers",
    "--recompute-modules",
    "--cpu-offloading-num-layers",
    "--fine-grained-activation-offloading",
    "--offload-modules",
    "--fine-grained-offloading-max-inflight-offloads",
    "--activation-offload-fraction",
    "--moe-token-dispatcher-type",
    "--use-precision-aware-optimizer",
    "--optimizer-cpu-offload",
    "--optimizer-offload-fraction",
];

/// What a switch takes; what is on stands empty.
const SWITCH_VALUES: &[&str] = &["", "false", "False", "0", "1"];

fn field(flag: &Flag) -> Option<(String, String)> {
    if !DECIDED.contains(&flag.name) {
        return None;
    }
    let known = FIELDS.iter().find(|(name, _)| *name == flag.name).map(|(_, field)| (*field).to_owned());
    let name =
        known.unwrap_or_else(|| format!("model.{}", flag.name.trim_start_matches('-').replace('-', "_")));
    let value = match flag.values.as_slice() {
        [] => "True".to_owned(),
        [value] if value.parse::<f64>().is_ok() => value.clone(),
        [value] if !["--recompute-modules", "--offload-modules"].contains(&flag.name) => format!("'{value}'"),
        values => {
            format!("[{}]", values.iter().map(|value| format!("'{value}'")).collect::<Vec<_>>().join(", "))
        }
    };
    Some((name, value))
}

/// The attention kernel, which the configuration takes as an enumeration and not as a word.
fn attention(flags: &[Flag]) -> String {
    let backend = flags.iter().find(|flag| flag.name == "--attention-backend");
    let value = backend.and_then(|flag| flag.values.first());
    value.map_or_else(String::new, |value| {
        format!("    config.model.attention_backend = AttnBackend.{value}\n")
    })
}

fn extra(plan: &Plan) -> Vec<(String, String)> {
    let seq_len = plan.inputs.workload.seq_len.to_string();
    let moves = matches!(plan.parallel.recompute, Recompute::Offload { .. });
    let switch = moves.then(|| ("model.cpu_offloading".to_owned(), "True".to_owned()));
    let lengths = ["model.seq_length", "dataset.seq_length"].map(|name| (name.to_owned(), seq_len.clone()));
    lengths.into_iter().chain(switch).collect()
}

/// `name=value`, also with spaces around the sign as in Python.
fn pairs(words: &[String]) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    for (index, word) in words.iter().enumerate() {
        let beside = |at: Option<usize>| at.and_then(|at| words.get(at)).cloned().unwrap_or_default();
        match word.split_once('=') {
            Some(("", "")) => pairs.push((beside(index.checked_sub(1)), beside(Some(index + 1)))),
            Some((name, value)) => pairs.push((name.to_owned(), value.to_owned())),
            None => {}
        }
    }
    pairs
}

/// Overrides as Megatron-LM's flags: `model.tensor_model_parallel_size=4`, with or without `cfg.` before it.
fn flags(document: &Document) -> FlagSet {
    let mut fields: Vec<(String, String)> = Vec::new();
    let mut variables = BTreeMap::new();
    match document {
        Document::Tree(tree) => fields.extend(super::document::flatten(tree)),
        Document::Words { words, variables: set } => {
            variables.clone_from(set);
            fields.extend(pairs(words));
        }
    }
    let flag = |(name, value): (String, String)| {
        let name = name.trim_start_matches(['+', '-']);
        let name = name.strip_prefix("cfg.").or_else(|| name.strip_prefix("config.")).unwrap_or(name);
        let known = FIELDS.iter().find(|(_, field)| *field == name).map(|(flag, _)| (*flag).to_owned());
        let last = name.rsplit('.').next().unwrap_or(name);
        let flag = known.unwrap_or_else(|| format!("--{}", last.replace('_', "-")));
        let value = value.trim_start_matches("AttnBackend.").trim_matches(['\'', '"']).to_owned();
        (flag, if matches!(value.as_str(), "True" | "true") { String::new() } else { value })
    };
    let mut flags: BTreeMap<String, String> = fields.into_iter().map(flag).collect();
    for (flag, value) in USUAL {
        flags.entry((*flag).to_owned()).or_insert_with(|| (*value).to_owned());
    }
    // Recipes train in mixed bf16 unless they are told otherwise.
    if !["--bf16", "--fp16"].iter().any(|name| flags.contains_key(*name)) {
        let half = flags.get("--mixed-precision").is_some_and(|recipe| recipe.starts_with("fp16"));
        flags.insert(if half { "--fp16" } else { "--bf16" }.to_owned(), String::new());
    }
    let flags = FlagSet::new(flags, variables);
    refuse_strange_switches(&flags);
    flags
}

/// Notes switches of a plan's that are neither on nor off.
fn refuse_strange_switches(flags: &FlagSet) {
    let fields = FIELDS.iter().chain(LAYOUT).map(|(flag, _)| *flag);
    let is_switch = |flag: &str| megatron::flag_list::known(flag).is_some_and(|known| known.words == "0");
    for flag in fields.filter(|flag| is_switch(flag)) {
        if let Some(value) = flags.text(flag).filter(|value| !SWITCH_VALUES.contains(value)) {
            flags.fault(flag, value, "True or False");
        }
    }
}
