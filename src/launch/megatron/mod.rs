//! Megatron-LM (`pretrain_gpt.py`), flags of megatron-core 0.19.2.

pub mod flag_list;
mod input;
mod layout;
mod mlp_flags;
mod model_flags;
mod offload;
pub mod read;
pub mod rules;
mod run_flags;
mod verify;
mod zero_bubble;

pub use zero_bubble::ZeroBubble;

use super::document::Document;
use super::flags::FlagSet;
use super::layers::Job;
use super::{Exported, Given, LaunchError, LaunchFile, Launcher, Question, ReadError, Setting, shell};
use crate::plan::Plan;
use cost_models::{ModelSpec, ParallelConfig, Recompute, Workload};

/// The launcher.
#[derive(Debug)]
pub struct Megatron;

/// Name of the file that holds the flags, one per line, its words quoted for the shell.
pub const ARGS: &str = "megatron.args";

impl Launcher for Megatron {
    fn name(&self) -> &'static str {
        "megatron"
    }

    fn summary(&self) -> &'static str {
        "Megatron-LM: pretrain_gpt.py with the flags of megatron-core 0.19.2, torchrun and Slurm scripts"
    }

    fn runtime(&self) -> &'static str {
        "megatron-core"
    }

    fn refuses(&self, model: &ModelSpec, workload: &Workload) -> Vec<String> {
        let mut reasons = Vec::new();
        model_flags::flags(model, workload.seq_len, Vec::new(), &mut reasons);
        run_flags::precision(workload.precision, &mut reasons);
        reasons
    }

    fn offloads_optimizer(&self) -> bool {
        true
    }

    fn offloads_activations(&self) -> bool {
        true
    }

    fn export(&self, plan: &Plan) -> Result<Exported, LaunchError> {
        Ok(folder(plan, &flags(plan)?))
    }

    fn flags(&self, document: &Document) -> FlagSet {
        input::flags(document)
    }

    fn read(&self, question: &Question) -> Option<Result<Given, ReadError>> {
        Some(read::given(question))
    }

    fn settings(&self, parallel: &ParallelConfig, _: u64) -> Vec<Setting> {
        layout::settings(parallel).into_iter().map(|flag| (flag.name, flag.values.join(" "))).collect()
    }
}

/// The files of a plan with these flags.
fn folder(plan: &Plan, flags: &[Flag]) -> Exported {
    let job = Job {
        environment: environment(plan),
        prepare: "eval \"args=($(< megatron.args))\"  # every word is quoted in the file\n".to_owned(),
        command: "\"${MEGATRON_PATH:-.}/pretrain_gpt.py\" \"${args[@]}\" \"$@\"".to_owned(),
    };
    let args = flags.iter().map(|flag| flag.line() + "\n").collect();
    let verify = verify::script(plan);
    Exported { files: vec![LaunchFile::data(ARGS, args), LaunchFile::data(super::verify::NAME, verify)], job }
}

/// A flag with its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flag {
    /// With its dashes.
    pub name: &'static str,
    /// None for a switch.
    pub values: Vec<String>,
}

impl Flag {
    /// A switch.
    #[must_use]
    pub const fn switch(name: &'static str) -> Self {
        Self { name, values: Vec::new() }
    }

    /// A flag with one value.
    #[must_use]
    pub fn value(name: &'static str, value: impl ToString) -> Self {
        Self { name, values: vec![value.to_string()] }
    }

    /// The flag and its values, quoted for the shell.
    #[must_use]
    pub fn line(&self) -> String {
        let values = self.values.iter().map(|value| format!(" {}", shell::quote(value)));
        format!("{}{}", self.name, values.collect::<String>())
    }
}

/// Every flag of the plan: model, layout, run.
///
/// # Errors
/// Every part of the plan that Megatron-LM cannot express.
pub fn flags(plan: &Plan) -> Result<Vec<Flag>, LaunchError> {
    let mut reasons = Vec::new();
    let (model, seq_len) = (&plan.inputs.model, plan.inputs.workload.seq_len);
    let mut flags = model_flags::flags(model, seq_len, mlp_flags::dispatcher(plan), &mut reasons);
    flags.extend(layout::flags(plan, &mut reasons));
    flags.extend(run_flags::flags(plan, &mut reasons));
    if reasons.is_empty() { Ok(flags) } else { Err(LaunchError { launcher: "megatron", reasons }) }
}

/// Variables that decide speed or correctness. `CUDA_DEVICE_MAX_CONNECTIONS` must be 1 for TP or CP before Blackwell
/// (megatron/training/arguments.py), and must not be 1 for FSDP.
#[must_use]
pub fn environment(plan: &Plan) -> Vec<(&'static str, String)> {
    let parallel = &plan.parallel;
    let blackwell = plan.inputs.cluster.gpu().compute_capability.is_some_and(|c| c >= 100);
    let sharded = parallel.zero_stage >= 2;
    let mut variables = vec![
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
        ("NCCL_NVLS_ENABLE", "0"),
        ("NVTE_FWD_LAYERNORM_SM_MARGIN", "16"),
        ("NVTE_BWD_LAYERNORM_SM_MARGIN", "16"),
    ];
    if sharded {
        variables.push(("CUDA_DEVICE_MAX_CONNECTIONS", "8"));
    } else if !blackwell && (parallel.tp > 1 || parallel.cp > 1) {
        variables.push(("CUDA_DEVICE_MAX_CONNECTIONS", "1"));
    }
    if matches!(parallel.recompute, Recompute::Modules(choice) if !choice.moved.is_empty()) {
        variables.push(offload::VARIABLE);
    }
    variables.into_iter().map(|(name, value)| (name, value.to_owned())).collect()
}
