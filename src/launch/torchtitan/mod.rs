//! torchtitan: command-line overrides and a Python configuration for `torchtitan.train`.
//!
//! Field names are those of `torchtitan/config/configs.py`; they differ between the release 0.3.0 and the main branch
//! (August 2026), which counts tokens instead of sequences. Configurations of releases up to 0.2 (TOML) are read as well.

mod models;
mod read;
mod write;

use super::document::Document;
use super::flags::FlagSet;
use super::{Exported, Given, LaunchError, Launcher, Question, ReadError};
use crate::plan::Plan;

/// Which field names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// Release 0.3.0.
    Release,
    /// The main branch.
    Main,
}

/// The launcher.
#[derive(Debug)]
pub struct Torchtitan(pub Version);

impl Launcher for Torchtitan {
    fn name(&self) -> &'static str {
        match self.0 {
            Version::Release => "torchtitan",
            Version::Main => "torchtitan-main",
        }
    }

    fn summary(&self) -> &'static str {
        match self.0 {
            Version::Release => {
                "torchtitan 0.3.0: a Python configuration, the same as overrides, and a schedule CSV where torch has none"
            }
            Version::Main => {
                "torchtitan's main branch of August 2026, which counts tokens instead of sequences"
            }
        }
    }

    fn runtime(&self) -> &'static str {
        "fsdp2"
    }

    fn forbids(&self) -> &'static [&'static str] {
        &["etp>1"]
    }

    fn export(&self, plan: &Plan) -> Result<Exported, LaunchError> {
        write::export(plan, self.0).map_err(|reasons| LaunchError { launcher: self.name(), reasons })
    }

    fn flags(&self, document: &Document) -> FlagSet {
        read::flags(document)
    }

    fn read(&self, question: &Question) -> Option<Result<Given, ReadError>> {
        Some(read::given(question))
    }

    fn axis(&self, axis: &str) -> Option<&'static str> {
        AXES.iter().find(|(name, _)| *name == axis).map(|(_, key)| *key)
    }
}

const AXES: &[(&str, &str)] = &[
    ("tp", "--parallelism.tensor_parallel_degree"),
    ("pp", "--parallelism.pipeline_parallel_degree"),
    ("cp", "--parallelism.context_parallel_degree"),
    ("ep", "--parallelism.expert_parallel_degree"),
    ("dp_replicate", "--parallelism.data_parallel_replicate_degree"),
    ("dp_shard", "--parallelism.data_parallel_shard_degree"),
    ("micro_batch_size", "--training.local_batch_size"),
    ("recompute", "activation_checkpoint:"),
    ("zero_stage", "--parallelism.fsdp_reshard_after_forward, as ZeRO stage"),
];

/// Schedules that torch has by name.
const SCHEDULES: &[(&str, &str)] = &[
    ("1f1b", "1F1B"),
    ("interleaved-1f1b", "Interleaved1F1B"),
    ("gpipe", "GPipe"),
    ("looped-bfs", "LoopedBFS"),
    ("interleaved-zb", "InterleavedZeroBubble"),
    ("zb-v", "ZBVZeroBubble"),
    ("dualpipev", "DualPipeV"),
];
