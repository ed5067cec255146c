//! What a training engine does with a layout: one profile per engine, with the physical switches that make the same
//! layout faster or larger in one than in another.
//!
//! Profiles are the TOML files of `cost_models/runtimes`, embedded. A run that states more about its engine (release,
//! attention kernel, overlap, CUDA graphs) adapts the profile through [`RuntimeFacts`]; what differs between two runs
//! of one engine comes from such facts only.

mod facts;
mod memory_traits;
mod shared;
mod time_traits;

pub use facts::{
    ContextExchange, CudaGraph, ExpertDispatcher, Overlap, RecomputeModules, RuntimeFacts, Scaling,
    TensorOverlap,
};
pub use memory_traits::{
    ActivationTraits, CompiledLoss, ExpertTraits, LossTraits, MemoryTraits, PipelineTraits, RecomputeModule,
    ReserveTraits, SplitPolicy, StateTraits, WorkspaceTraits,
};
pub use shared::SharedTraits;
pub use time_traits::{Bucket, SelectiveRecompute, TimeTraits};

use crate::parallel::ParallelConfig;
use crate::rules::engine;
use crate::schedule::ScheduleShape;
use crate::workload::{Dtype, Workload};
use include_dir::{Dir, include_dir};
use serde::{Deserialize, Serialize};
use thiserror::Error;

static PROFILES: Dir = include_dir!("$CARGO_MANIFEST_DIR/runtimes");
static SHARED: &str = include_str!("../../shared.toml");

/// The engine assumed where none is named.
pub const DEFAULT: &str = "megatron-core";

/// A training engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Runtime {
    /// Name, as in [`names`].
    pub name: String,
    /// One line for people.
    pub title: String,
    /// Format gradients are accumulated in.
    pub gradient_accumulation: Dtype,
    /// Format gradients are reduced over data-parallel ranks in.
    pub gradient_reduction: Dtype,
    /// The attention kernel.
    pub attention: AttentionKernel,
    /// Whether norms are fused kernels (unfused ones keep and move fp32 copies).
    pub fused_norm: bool,
    /// Release as (year, month), where behaviour changed between releases.
    #[serde(default)]
    pub release: Option<(u16, u8)>,
    /// Whether ranks of a data-parallel group may hold shards of different sizes ([`crate::shares`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uneven_shards: bool,
    /// What the run states beyond the profile.
    #[serde(default)]
    pub facts: RuntimeFacts,
    /// What it keeps in memory.
    #[serde(default)]
    pub memory: MemoryTraits,
    /// What it costs in time.
    pub time: TimeTraits,
    /// Numbers that all engines share.
    pub shared: SharedTraits,
}

/// A runtime that cannot be used.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum RuntimeError {
    /// No profile has this name.
    #[error("unknown runtime `{name}`: use one of {}", names().join(", "))]
    Unknown {
        /// The name asked for.
        name: String,
    },
    /// A profile does not parse; the message has line and column.
    #[error("runtime profile `{name}`: {message}")]
    Syntax {
        /// Name of the profile.
        name: String,
        /// What is wrong.
        message: String,
    },
}

/// The attention kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttentionKernel {
    /// Two batched matrix products around an unfused softmax.
    Unfused,
    /// The same with a fused softmax kernel.
    FusedSoftmax,
    /// FlashAttention 1.
    Flash1,
    /// FlashAttention 2.
    Flash2,
    /// cuDNN or Transformer Engine fused attention (FlashAttention-3 class).
    Cudnn,
}

impl AttentionKernel {
    /// Whether the scores are ever written to memory.
    #[must_use]
    pub const fn stores_scores(self) -> bool {
        matches!(self, Self::Unfused | Self::FusedSoftmax)
    }
}

/// Names of all profiles, sorted.
#[must_use]
pub fn names() -> Vec<String> {
    let mut names: Vec<String> =
        PROFILES.files().filter_map(|file| file.path().file_stem()?.to_str().map(str::to_owned)).collect();
    names.sort_unstable();
    names
}

impl Runtime {
    /// The profile called `name`.
    ///
    /// # Errors
    /// [`RuntimeError::Unknown`] with all names.
    pub fn named(name: &str) -> Result<Self, RuntimeError> {
        let wanted = name.to_ascii_lowercase();
        let text = PROFILES
            .get_file(format!("{wanted}.toml"))
            .and_then(|file| file.contents_utf8())
            .ok_or_else(|| RuntimeError::Unknown { name: name.to_owned() })?;
        parse(text).map_err(|error| RuntimeError::Syntax { name: wanted, message: error.to_string() })
    }

    /// The profile that `text` holds, as the files of `cost_models/runtimes` do; `origin` names it in errors. Its `name` says
    /// which engine's rules layouts are held to.
    ///
    /// # Errors
    /// [`RuntimeError::Syntax`] with line and column, [`RuntimeError::Unknown`] for the name of no engine.
    pub fn from_toml(origin: &str, text: &str) -> Result<Self, RuntimeError> {
        let syntax = |message: String| RuntimeError::Syntax { name: origin.to_owned(), message };
        let runtime = parse(text).map_err(|error| syntax(error.to_string()))?;
        if !names().contains(&runtime.name) {
            return Err(RuntimeError::Unknown { name: runtime.name });
        }
        let faults = runtime.faults();
        if faults.is_empty() { Ok(runtime) } else { Err(syntax(faults.join("; "))) }
    }

    /// Numbers that no engine can have: negative ones, infinite ones, a memory that shrinks when reserved.
    fn faults(&self) -> Vec<String> {
        let time = &self.time;
        let reserve = &self.memory.reserve;
        let numbers = [
            ("time.hidden_bytes", time.hidden_bytes, 1e4),
            ("time.hidden_bytes_unfused", time.hidden_bytes_unfused, 1e4),
            ("time.tp_exposed", time.tp_exposed, 10.0),
            ("time.dp_overlap", time.dp_overlap, 1.0),
            ("time.step", time.step.get(), 3600.0),
            ("time.host", time.host.get(), 3600.0),
            ("time.host_tp", time.host_tp.get(), 3600.0),
            ("time.host_tp_pipeline", time.host_tp_pipeline.get(), 3600.0),
            ("time.host_experts", time.host_experts.get(), 3600.0),
            ("time.host_experts_8bit", time.host_experts_8bit.get(), 3600.0),
            ("time.shard_broadcast", time.shard_broadcast.get(), 3600.0),
            ("time.flash_speed", time.flash_speed, 10.0),
            ("time.fused_expert_traffic", time.fused_expert_traffic, 10.0),
            ("time.weight_gradient_bytes", time.weight_gradient_bytes, 1e3),
            ("time.loss_bytes", time.loss_bytes, 1e3),
            ("memory.reserve.ratio", reserve.ratio, 10.0),
            ("memory.reserve.bytes", reserve.bytes, 1e12),
            ("memory.reserve.context_bytes", reserve.context_bytes, 1e12),
            ("memory.reserve.margin_bytes", reserve.margin_bytes, 1e12),
            ("memory.reserve.scatter", reserve.scatter, 1.0),
        ];
        let wrong = |(_, value, high): &&(&str, f64, f64)| !(0.0..=*high).contains(value);
        let mut faults: Vec<String> = numbers
            .iter()
            .filter(wrong)
            .map(|(key, value, high)| format!("{key} is {value}, expected 0 to {high}"))
            .collect();
        if time.flash_speed <= 0.0 {
            faults.push(format!("time.flash_speed is {}, expected more than 0", time.flash_speed));
        }
        if reserve.ratio < 1.0 {
            faults.push(format!("memory.reserve.ratio is {}, expected at least 1", reserve.ratio));
        }
        faults
    }

    /// The profile called `name`, adapted to what a run states.
    ///
    /// # Errors
    /// [`RuntimeError::Unknown`] with all names.
    pub fn for_run(name: &str, facts: &RuntimeFacts) -> Result<Self, RuntimeError> {
        Ok(Self::named(name)?.with_facts(facts))
    }

    /// This runtime, adapted to what a run states.
    #[must_use]
    pub fn with_facts(mut self, facts: &RuntimeFacts) -> Self {
        self.attention = facts.attention.unwrap_or(self.attention);
        self.fused_norm = facts.fused_norm.or(facts.compiled).unwrap_or(self.fused_norm);
        self.release = facts.release.or(self.release);
        if self.attention == AttentionKernel::Flash2 && self.calls_cudnn() {
            self.attention = AttentionKernel::Cudnn;
        }
        if let Some(dtype) = facts.gradient_dtype {
            self.gradient_accumulation = dtype;
            self.gradient_reduction = dtype;
        }
        self.facts = facts.clone();
        self
    }

    /// Whether the release's `scaled_dot_product_attention` picks cuDNN's kernel.
    fn calls_cudnn(&self) -> bool {
        matches!((self.time.cudnn_from, self.release), (Some(from), Some(release)) if release >= from)
    }

    /// Format gradients are reduced in for `workload`.
    #[must_use]
    pub fn reduction_dtype(&self, workload: &Workload) -> Dtype {
        workload.gradient_dtype.unwrap_or(self.gradient_reduction)
    }

    /// How tokens travel to their experts; a fixed capacity needs the plain all-to-all.
    #[must_use]
    pub fn dispatcher(&self) -> ExpertDispatcher {
        let default = if self.facts.capacity_factor.is_some() {
            ExpertDispatcher::AllToAll
        } else {
            self.time.dispatcher
        };
        self.facts.dispatcher.unwrap_or(default)
    }

    /// The shape in which it runs a layout's schedule for so many microbatches: chunks, and groups by its engine's rule.
    #[must_use]
    pub fn schedule_shape(&self, parallel: &ParallelConfig, microbatches: u64) -> ScheduleShape {
        let microbatches = u32::try_from(microbatches).unwrap_or(u32::MAX);
        ScheduleShape {
            group_size: self.memory.pipeline.group_size,
            group_rule: engine(&self.name).groups,
            chunks: (parallel.vpp > 1 || parallel.pp == 1).then_some(parallel.vpp),
            ..ScheduleShape::new(parallel.pp, microbatches)
        }
    }

    /// How keys and values meet the queries of other context-parallel ranks.
    #[must_use]
    pub fn context_exchange(&self) -> ContextExchange {
        self.facts.context_exchange.unwrap_or(self.time.context_exchange)
    }

    /// Bytes moved per token and hidden channel by the norms and residuals of a block's forward.
    #[must_use]
    pub fn hidden_bytes(&self) -> f64 {
        if self.fused_norm { self.time.hidden_bytes } else { self.time.hidden_bytes_unfused }
    }
}

/// A profile together with the numbers that all engines share.
fn parse(text: &str) -> Result<Runtime, toml::de::Error> {
    let mut profile: toml::Table = toml::from_str(text)?;
    profile.insert("shared".to_owned(), toml::from_str(SHARED)?);
    profile.try_into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_parses_and_has_its_files_name() -> Result<(), RuntimeError> {
        for name in names() {
            assert_eq!(Runtime::named(&name)?.name, name);
        }
        assert!(names().contains(&DEFAULT.to_owned()));
        assert!(Runtime::named("no-such-engine").is_err());
        Ok(())
    }

    #[test]
    fn facts_that_are_absent_change_nothing() -> Result<(), RuntimeError> {
        for name in names() {
            assert_eq!(Runtime::for_run(&name, &RuntimeFacts::default())?, Runtime::named(&name)?);
        }
        Ok(())
    }
}
