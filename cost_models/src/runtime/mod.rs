//! What a training engine does with a layout: one profile per engine, with the physical switches that make the same
//! layout faster or larger in one than in another.

mod memory_traits;
mod time_traits;

pub use memory_traits::MemoryTraits;
pub use time_traits::TimeTraits;

use crate::workload::Dtype;
use serde::{Deserialize, Serialize};

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
    /// What it keeps in memory.
    pub memory: MemoryTraits,
    /// What it costs in time.
    pub time: TimeTraits,
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
