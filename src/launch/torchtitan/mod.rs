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
use cluster_profiles::Precision;
use cost_models::runtime::RuntimeFacts;
use cost_models::{ModelSpec, Optimizer, ParallelConfig, Recompute, Workload};

/// Which field names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// Release 0.3.0.
    Release,
    /// The main branch.
    Main,
}

/// When the releases that are written for came out.
const RELEASE: (u16, u8) = (2026, 8);
/// The last release that read TOML.
const TOML_RELEASE: (u16, u8) = (2025, 12);

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

    /// Releases of 2026; the exported configuration compiles blocks and loss.
    fn facts(&self) -> RuntimeFacts {
        RuntimeFacts { release: Some(RELEASE), compiled: Some(true), ..RuntimeFacts::default() }
    }

    fn forbids(&self) -> &'static [&'static str] {
        &["etp>1", "unequal-micro-batches"]
    }

    fn refuses(&self, model: &ModelSpec, workload: &Workload) -> Vec<String> {
        let mut reasons = Vec::new();
        if models::ours(model).is_none() {
            reasons.push(format!(
                "the model {}: torchtitan has none of its sizes, but {}",
                model.name,
                models::MODELS.iter().map(|model| model.ours).collect::<Vec<_>>().join(", ")
            ));
        }
        if workload.precision != Precision::Bf16 {
            reasons.push(format!("{} (only bf16 configurations are written)", workload.precision));
        }
        if workload.optimizer != Optimizer::Adamw {
            reasons.push(format!("the optimizer {}", workload.optimizer.name()));
        }
        reasons
    }

    fn export(&self, plan: &Plan) -> Result<Exported, LaunchError> {
        let refused = self.refuses(&plan.inputs.model, &plan.inputs.workload);
        write::export(plan, self.0, refused).map_err(|reasons| LaunchError { launcher: self.name(), reasons })
    }

    fn flags(&self, document: &Document) -> FlagSet {
        read::flags(document)
    }

    fn read(&self, question: &Question) -> Option<Result<Given, ReadError>> {
        Some(read::given(question))
    }

    fn settings(&self, parallel: &ParallelConfig, seq_len: u64) -> Vec<Setting> {
        settings(parallel, seq_len, self.0)
    }
}

fn settings(p: &ParallelConfig, seq_len: u64, version: Version) -> Vec<Setting> {
    let mut settings = degrees(&[
        ("--parallelism.tensor_parallel_degree", p.tp),
        ("--parallelism.pipeline_parallel_degree", p.pp),
        ("--parallelism.context_parallel_degree", p.cp),
        ("--parallelism.expert_parallel_degree", p.ep),
        ("--parallelism.data_parallel_replicate_degree", p.dp_replicate),
    ]);
    settings.push(("--parallelism.data_parallel_shard_degree", p.dp_shard.to_string()));
    let per_rank =
        if p.pp > 1 { p.micro_batch_size.saturating_mul(p.num_microbatches) } else { p.micro_batch_size };
    settings.push(match version {
        Version::Release => ("--training.local_batch_size", per_rank.to_string()),
        Version::Main => {
            ("--training.num_tokens_per_microbatch_per_dp_rank", per_rank.saturating_mul(seq_len).to_string())
        }
    });
    if p.pp > 1 {
        settings.push(match version {
            Version::Release => {
                ("--parallelism.pipeline_parallel_microbatch_size", p.micro_batch_size.to_string())
            }
            Version::Main => ("--parallelism.num_pp_microbatches", p.num_microbatches.to_string()),
        });
    }
    if let Some((_, schedule)) = SCHEDULES.iter().find(|(ours, _)| p.pp > 1 && *ours == p.schedule) {
        settings.push(("--parallelism.pipeline_parallel_schedule", (*schedule).to_owned()));
    }
    let reshard = if p.zero_stage == 3 { "always" } else { "never" };
    settings.push(("--parallelism.fsdp_reshard_after_forward", reshard.to_owned()));
    let mode = match p.recompute {
        Recompute::None | Recompute::Offload { .. } | Recompute::Modules(_) => "activation_checkpoint:none",
        Recompute::Selective => "activation_checkpoint:selective",
        Recompute::Full { .. } => "activation_checkpoint:full",
    };
    settings.push((mode, String::new()));
    settings
}

/// The classes of torch that run a schedule file: one stage per rank, and several.
const FILE_SCHEDULES: [&str; 2] = ["PipelineScheduleSingle", "PipelineScheduleMulti"];

/// Chunks per rank that torchtitan makes of a schedule where nothing else is said.
fn usual_chunks(schedule: &str) -> u32 {
    if matches!(schedule, "1f1b" | "gpipe") || schedule == FILE_SCHEDULES[0] { 1 } else { 2 }
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
