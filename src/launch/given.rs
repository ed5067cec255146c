//! What a launcher's configuration says once it is read.

use super::flags::{FlagFault, FlagSet};
use cluster_profiles::Cluster;
use cost_models::layerwise::LayerStrategies;
use cost_models::rules::{self, Facts, Violation};
use cost_models::{ModelSpec, ParallelConfig, Runtime, StageMap, TrainingRun, Workload};

/// A configuration to be read, and what it does not say itself.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The configuration.
    pub flags: &'a FlagSet,
    /// GPUs of the run.
    pub world_size: u64,
    /// The cluster, with that many GPUs.
    pub cluster: &'a Cluster,
    /// The model, where the user names one.
    pub model: Option<&'a ModelSpec>,
    /// Tokens of a sequence, where the user says.
    pub seq_len: Option<u64>,
    /// Sequences of a step, where the user says.
    pub global_batch: Option<u64>,
    /// Sequences of a microbatch, where the user says.
    pub micro_batch: Option<u64>,
}

/// A run as a launcher's configuration states it.
#[derive(Debug, Clone, PartialEq)]
pub struct Given {
    /// The model.
    pub model: ModelSpec,
    /// The degrees.
    pub parallel: ParallelConfig,
    /// One optimizer step.
    pub workload: Workload,
    /// The engine, with the switches the configuration sets.
    pub runtime: Runtime,
    /// Layers of every stage; none where the configuration makes no stages.
    pub stages: Option<StageMap>,
    /// What every block has of its own, where the configuration says so.
    pub layer_strategies: Option<LayerStrategies>,
    /// Rules of the launcher that the configuration breaks.
    pub broken: Vec<Violation>,
    /// Rules of the engine that the launcher does not have, or that its reader has judged itself.
    pub waived: Vec<&'static str>,
    /// What the configuration leaves open and was assumed.
    pub assumed: Vec<String>,
    /// Flags or keys that the launcher does not have.
    pub unknown: Vec<String>,
}

impl Given {
    /// The run on `cluster`, as the cost models take it.
    #[must_use]
    pub fn run<'a>(&'a self, cluster: &'a Cluster, stages: &'a StageMap) -> TrainingRun<'a> {
        TrainingRun {
            model: &self.model,
            cluster,
            workload: &self.workload,
            runtime: &self.runtime,
            parallel: &self.parallel,
            stages,
        }
    }

    /// Rules of the engine that the degrees alone break and that the reader did not judge.
    #[must_use]
    pub fn engine_rules(&self, cluster: &Cluster) -> Vec<Violation> {
        let facts = Facts::new(&self.model, cluster, &self.workload);
        let judged = |id: &str| self.waived.contains(&id) || self.broken.iter().any(|rule| rule.id == id);
        let broken = rules::engine(&self.runtime.name).broken(&facts, &self.parallel);
        broken.into_iter().filter(|rule| !judged(&rule.id)).collect()
    }
}

/// A configuration that cannot be read as a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadError {
    /// Facts that neither the configuration nor the user gives, each with the option that gives it.
    pub missing: Vec<String>,
    /// Values that make no sense.
    pub faults: Vec<FlagFault>,
    /// What the configuration asks for that is not planned here, such as a low-rank adapter.
    pub not_planned: Option<String>,
}

impl ReadError {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.faults.is_empty() && self.not_planned.is_none()
    }
}

/// Parts of a key that say what is not planned here, and what that is. Only full training of a language model is.
const NOT_PLANNED: &[(&str, &str)] = &[
    ("lora", "low-rank adapters (LoRA)"),
    ("peft", "adapters (PEFT)"),
    ("adapter_", "adapters"),
    ("finetuning_type", "adapters or frozen weights"),
    ("freeze", "runs with frozen weights"),
    ("unet", "diffusion models"),
    ("vae_", "diffusion models"),
    ("gpu_memory_utilization", "serving"),
    ("gpu-memory-utilization", "serving"),
    ("max_num_seqs", "serving"),
    ("max-num-seqs", "serving"),
    ("kv_cache_dtype", "serving"),
    ("kv-cache-dtype", "serving"),
];

/// Whether a configuration asks for something else than full training of a language model, and for what.
/// `known` says which keys the launcher has for other purposes.
#[must_use]
pub fn not_planned(flags: &FlagSet, known: impl Fn(&str) -> bool) -> Option<String> {
    let values = |value: &str| !matches!(value, "false" | "False" | "0" | "none" | "None" | "null" | "full");
    flags.iter().filter(|(key, value)| values(value) && !known(key)).find_map(|(key, _)| {
        let lower = key.to_ascii_lowercase();
        let (_, what) = NOT_PLANNED.iter().find(|(part, _)| lower.contains(part))?;
        let shown: String = key.chars().take(80).collect();
        Some(format!("{shown}: {what}"))
    })
}

/// A broken rule.
#[must_use]
pub fn violation(id: &str, message: impl Into<String>, hint: impl Into<Option<String>>) -> Violation {
    Violation { id: id.to_owned(), message: message.into(), hint: hint.into() }
}

/// The two divisors of `number` nearest to `wanted`, as the words of a hint.
#[must_use]
pub fn nearest_divisors(name: &str, wanted: u64, number: u64) -> Option<String> {
    nearest_values(name, wanted, |value| number.is_multiple_of(value))
}

/// The nearest lower and higher values that work, as the words of a hint.
#[must_use]
pub fn nearest_values(name: &str, wanted: u64, works: impl Fn(u64) -> bool) -> Option<String> {
    const FURTHEST: u64 = 1 << 16;
    let below = (1..wanted.min(FURTHEST)).rev().find(|&value| works(value));
    let above =
        (wanted.saturating_add(1)..wanted.saturating_add(FURTHEST).min(FURTHEST)).find(|&value| works(value));
    let values: Vec<String> = below.into_iter().chain(above).map(|value| value.to_string()).collect();
    (!values.is_empty()).then(|| format!("{name} {} works", values.join(" or ")))
}
