//! Reads the flags of a Megatron-LM run: the model, the layout, the workload and what the engine keeps in memory.
//!
//! Names and defaults are those of megatron-core 0.19.2 (`megatron/training/arguments.py`). Flags that change nothing
//! here (data, logging, checkpoints, learning rate) are known and passed over; others are listed as unknown.

mod engine;
mod flags;
mod layout;
mod model;

pub use flags::{FlagFault, FlagSet};

use cluster_profiles::{Cluster, Gpu};
use cost_models::stages::SplitError;
use cost_models::{ModelSpec, ParallelConfig, Runtime, StageMap, TrainingRun, Workload};
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
    /// Flags nobody knows.
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
    let model = model::model(flags);
    let (parallel, split) = layout::layout(flags, world_size, &model);
    let workload = engine::workload(flags, &parallel);
    let runtime = engine::runtime(flags, &workload, gpu)?;
    let faults = flags.faults();
    if !faults.is_empty() {
        return Err(ReadError::Faults { faults });
    }
    let stages = split.stages(&model, &parallel)?;
    Ok(MegatronRun { model, parallel, workload, runtime, stages, unknown: flags.unknown() })
}
