//! torchtitan: command-line overrides and a Python configuration for `torchtitan.train`.
//!
//! Field names are those of `torchtitan/config/configs.py`; they differ between the release 0.3.0 and the main branch
//! (August 2026), which counts tokens instead of sequences. Configurations of releases up to 0.2 (TOML) are read as well.

mod models;
mod read;
mod write;

use super::document::Document;
use super::flags::FlagSet;
use super::{Exported, Given, LaunchError, Launcher, Question, ReadError, Setting, degrees};
use crate::plan::Plan;
use cost_models::{ParallelConfig, Recompute};

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

    fn settings(&self, parallel: &ParallelConfig) -> Vec<Setting> {
        settings(parallel, self.0)
    }
}

fn settings(p: &ParallelConfig, version: Version) -> Vec<Setting> {
    let mut settings = degrees(&[
        ("--parallelism.tensor_parallel_degree", p.tp),
        ("--parallelism.pipeline_parallel_degree", p.pp),
        ("--parallelism.context_parallel_degree", p.cp),
        ("--parallelism.expert_parallel_degree", p.ep),
        ("--parallelism.data_parallel_replicate_degree", p.dp_replicate),
    ]);
    settings.push(("--parallelism.data_parallel_shard_degree", p.dp_shard.to_string()));
    let per_rank = if p.pp > 1 { p.micro_batch_size * p.num_microbatches } else { p.micro_batch_size };
    if version == Version::Release {
        settings.push(("--training.local_batch_size", per_rank.to_string()));
        if p.pp > 1 {
            settings
                .push(("--parallelism.pipeline_parallel_microbatch_size", p.micro_batch_size.to_string()));
        }
    } else if p.pp > 1 {
        settings.push(("--parallelism.num_pp_microbatches", p.num_microbatches.to_string()));
    }
    if let Some((_, schedule)) = SCHEDULES.iter().find(|(ours, _)| p.pp > 1 && *ours == p.schedule) {
        settings.push(("--parallelism.pipeline_parallel_schedule", (*schedule).to_owned()));
    }
    let reshard = if p.zero_stage == 3 { "always" } else { "never" };
    settings.push(("--parallelism.fsdp_reshard_after_forward", reshard.to_owned()));
    let mode = match p.recompute {
        Recompute::None => "activation_checkpoint:none",
        Recompute::Selective => "activation_checkpoint:selective",
        Recompute::Full { .. } => "activation_checkpoint:full",
    };
    settings.push((mode, String::new()));
    settings
}

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
