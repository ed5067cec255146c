//! Reads the flags of a Megatron-LM run: the model, the layout, the workload and what the engine keeps in memory.
//!
//! Names and defaults are those of megatron-core 0.19.2 (`megatron/training/arguments.py`). Of its flags only those that
//! change sizes, state or traffic are read; a flag that it does not have is listed as unknown.

mod engine;
mod layout;
mod model;

pub use crate::launch::flags::{FlagFault, FlagSet};

use super::{offload, rules};
use crate::launch::{self, Given, Question};
use cluster_profiles::{Cluster, Gpu};
use cost_models::rules::Violation;
use cost_models::stages::SplitError;
use cost_models::{ModelSpec, ParallelConfig, Recompute, Runtime, StageMap, TrainingRun, Workload};
use thiserror::Error;

/// A run as its flags state it.
#[derive(Debug, Clone, PartialEq)]
pub struct MegatronRun {
    /// The model.
    pub model: ModelSpec,
    /// The degrees.
    pub parallel: ParallelConfig,
    /// One optimizer step.
    pub workload: Workload,
    /// Megatron-Core with the switches the flags set.
    pub runtime: Runtime,
    /// Layers of every stage.
    pub stages: StageMap,
    /// Flags that megatron-core 0.19.2 does not have.
    pub unknown: Vec<String>,
}

impl MegatronRun {
    /// The run on `cluster`, as the cost models take it.
    #[must_use]
    pub fn training_run<'a>(&'a self, cluster: &'a Cluster) -> TrainingRun<'a> {
        TrainingRun {
            model: &self.model,
            cluster,
            workload: &self.workload,
            runtime: &self.runtime,
            parallel: &self.parallel,
            stages: &self.stages,
        }
    }
}

/// Flags that describe no run.
#[derive(Debug, Error)]
pub enum ReadError {
    /// Values that are missing or senseless.
    #[error("{}\n\nhint: flags are those of megatron-core 0.19.2", faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Faults {
        /// All of them.
        faults: Vec<FlagFault>,
    },
    /// The layers cannot be split as asked.
    #[error("the pipeline cannot be split as the flags say")]
    Split(#[from] SplitError),
    /// The runtime profile is missing.
    #[error("the runtime profile cannot be read")]
    Runtime(#[from] cost_models::RuntimeError),
}

/// Reads the flags of a run of `world_size` GPUs of kind `gpu`.
///
/// # Errors
/// [`ReadError`] with every missing or senseless value.
pub fn read(flags: &FlagSet, world_size: u64, gpu: &Gpu) -> Result<MegatronRun, ReadError> {
    let Parts { model, parallel, split, workload, runtime } = parts(flags, world_size, gpu, None)?;
    let faults = flags.faults();
    if !faults.is_empty() {
        return Err(ReadError::Faults { faults });
    }
    let stages = split.stages(&model, &parallel)?;
    Ok(MegatronRun { model, parallel, workload, runtime, stages, unknown: unknown(flags) })
}

/// What the flags say, part by part; faults are noted in the flags.
struct Parts {
    model: ModelSpec,
    parallel: ParallelConfig,
    split: layout::Split,
    workload: Workload,
    runtime: Runtime,
}

fn parts(
    flags: &FlagSet,
    world_size: u64,
    gpu: &Gpu,
    named: Option<&ModelSpec>,
) -> Result<Parts, cost_models::RuntimeError> {
    let model = match named.filter(|_| flags.text("--num-layers").is_none()) {
        Some(model) => model.clone(),
        None => model::model(flags),
    };
    let (parallel, split) = layout::layout(flags, world_size, &model);
    let workload = engine::workload(flags, &parallel);
    let runtime = engine::runtime(flags, &workload, gpu, &model, &parallel)?;
    Ok(Parts { model, parallel, split, workload, runtime })
}

/// Flags that torchrun, srun and their like take before the script.
const STARTERS: &[&str] = &[
    "--nproc",
    "--nnodes",
    "--node-rank",
    "--node_rank",
    "--master-addr",
    "--master_addr",
    "--master-port",
    "--master_port",
    "--rdzv",
    "--standalone",
    "--max-restarts",
    "--max_restarts",
    "--tee",
    "--redirects",
    "--log-dir",
    "--log_dir",
    "--ntasks",
    "--nodes",
    "--gpus-per",
    "--distribution",
    "--cpu-bind",
    "--gpu-bind",
    "--container",
    "--mpi",
    "--export",
    "--output",
    "--job-name",
];

fn unknown(flags: &FlagSet) -> Vec<String> {
    flags.unknown(|flag| {
        super::flag_list::is_known(flag) || STARTERS.iter().any(|start| flag.starts_with(start))
    })
}

/// Reads a run, with every rule of Megatron-LM that it breaks, rather than refusing it.
///
/// # Errors
/// Facts that are missing, and values that make no sense.
pub fn given(question: &Question) -> Result<Given, launch::ReadError> {
    let flags = question.flags.clone();
    let flags = flags.or("--seq-length", question.seq_len).or("--global-batch-size", question.global_batch);
    let mut error = launch::ReadError { not_planned: not_planned(&flags), ..launch::ReadError::default() };
    let read = parts(&flags, question.world_size, question.cluster.gpu(), question.model);
    let parts = read.map_err(|fault| launch::ReadError {
        faults: vec![FlagFault {
            flag: "runtime".to_owned(),
            value: fault.to_string(),
            expected: "a profile".to_owned(),
        }],
        ..launch::ReadError::default()
    })?;
    let (missing, mut faults): (Vec<FlagFault>, Vec<FlagFault>) =
        flags.faults().into_iter().partition(|fault| fault.value.is_empty());
    faults.retain(|fault| super::flag_list::known(&fault.flag).is_none_or(|known| known.choices.is_empty()));
    error.missing = missing.iter().map(|fault| missing_text(&fault.flag)).collect();
    error.faults = faults;
    if !error.is_empty() {
        return Err(error);
    }
    Ok(assemble(&flags, question, parts))
}

fn missing_text(flag: &str) -> String {
    match flag {
        "--seq-length" => "the sequence length: --seq-length in the flags, or --seq-len here".to_owned(),
        "--num-layers" | "--hidden-size" | "--num-attention-heads" => {
            format!("the model: {flag} in the flags, or --model here")
        }
        other => format!("{other} in the flags"),
    }
}

/// Runs of Megatron-LM that do not train a whole language model.
fn not_planned(flags: &FlagSet) -> Option<String> {
    let unlike = [
        ("--hybrid-layer-pattern", "models with Mamba layers"),
        ("--hybrid-override-pattern", "models with Mamba layers"),
        ("--perform-rl-step", "reinforcement learning"),
        ("--skip-train", "runs without training"),
        ("--heterogeneous-layers-config-path", "layers that a file of its own describes"),
    ];
    let own = unlike.into_iter().find(|(flag, _)| flags.has(flag));
    own.map(|(flag, what)| format!("{flag}: {what}"))
        .or_else(|| launch::not_planned(flags, super::flag_list::is_known))
}

fn assemble(flags: &FlagSet, question: &Question, parts: Parts) -> Given {
    let Parts { model, parallel, split, workload, runtime } = parts;
    let facts = rules::FlagFacts::new(flags, question, &model, &parallel);
    let mut broken = rules::broken(&facts);
    let sizes = impossible_sizes(&model);
    let few = sizes.is_empty()
        && u64::from(parallel.pp).saturating_mul(u64::from(parallel.vpp)) <= facts.blocks + 2;
    let stages = match few.then(|| split.stages(&model, &parallel)) {
        Some(Ok(stages)) => Some(stages),
        Some(Err(error)) if !broken.iter().any(|rule| rule.id.starts_with('P')) => {
            let text = error.to_string();
            let (message, hint) = text.split_once("\n\nhint: ").unwrap_or((&text, ""));
            let hint = (!hint.is_empty()).then(|| hint.to_owned());
            broken.push(launch::violation("P4", message, hint));
            None
        }
        _ => None,
    };
    broken.extend(sizes);
    let assumed = assumed(flags, &parallel);
    let waived = rules::waived(flags);
    Given {
        model,
        parallel,
        workload,
        runtime,
        stages,
        layer_strategies: None,
        broken,
        waived,
        assumed,
        unknown: unknown(flags),
    }
}

/// What makes the sizes no model, each once whatever the layer.
fn impossible_sizes(model: &ModelSpec) -> Vec<Violation> {
    let mut found: Vec<String> = Vec::new();
    for fault in model.faults() {
        let plain = match fault.split_once(": ") {
            Some((layer, fault)) if layer.starts_with("layer ") => fault.to_owned(),
            _ => fault,
        };
        if !found.contains(&plain) {
            found.push(plain);
        }
    }
    found
        .into_iter()
        .map(|fault| launch::violation("M22", format!("{fault}: no model has such sizes"), None))
        .collect()
}

fn assumed(flags: &FlagSet, parallel: &ParallelConfig) -> Vec<String> {
    let mut assumed = Vec::new();
    if flags.text("--global-batch-size").is_none() {
        assumed.push(format!(
            "a global batch of {}, one microbatch per rank: --global-batch-size is not set",
            parallel.global_batch()
        ));
    }
    if flags.has("--num-experts") && flags.text("--expert-tensor-parallel-size").is_none() && parallel.tp > 1
    {
        assumed.push(format!(
            "expert tensor parallelism of {} as tp: --expert-tensor-parallel-size is not set",
            parallel.tp
        ));
    }
    if flags.has("--sequence-parallel") && parallel.tp == 1 {
        assumed.push("no sequence parallelism: Megatron-LM turns it off at tp 1".to_owned());
    }
    let choice = match parallel.recompute {
        Recompute::Modules(choice) => Some(choice),
        _ => None,
    };
    assumed.extend(offload::assumed(flags, choice));
    assumed
}
