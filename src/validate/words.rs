//! The words that columns of the table are limited to.

use cost_models::{Dtype, Recompute};
use serde::Serialize;

/// What a row reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// A step time or rate.
    #[default]
    Throughput,
    /// A step time or rate, and a memory figure.
    ThroughputMemory,
    /// A memory figure.
    Memory,
    /// The run died for lack of memory.
    OutOfMemory,
    /// The run died for another reason.
    Failed,
    /// The time of one layer.
    LayerTime,
}

/// How far a row can be trusted; not at all where it does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Quality {
    /// Everything that matters is stated.
    A,
    /// Something minor is assumed.
    B,
    /// Not to be scored.
    #[default]
    C,
    /// A failed run.
    X,
}

/// What a memory figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MemoryQuantity {
    /// Bytes the framework's allocator handed out.
    Allocated,
    /// Bytes the framework's allocator holds.
    Reserved,
    /// Bytes in use on the device, as nvidia-smi shows them.
    Device,
    /// Peak less the value at the start of the iteration.
    Activations,
}

/// The attention kernel, as far as a source says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlashAttention {
    /// Scores are written to memory.
    No,
    /// FlashAttention 1.
    Flash1,
    /// FlashAttention 2.
    Flash2,
    /// Transformer Engine or cuDNN.
    Fused,
    /// Some fused kernel.
    Yes,
}

/// What overlaps with compute, in the words of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommOverlap {
    /// Nothing.
    None,
    /// Tensor-parallel collectives, by asynchronous launch.
    AsyncTp,
    /// Gradients, and tensor-parallel collectives through user buffers.
    UserBuffers,
    /// The same, user buffers only for Llama of 70B and more and Nemotron-15B.
    UserBuffersSome,
    /// Expert dispatch.
    Expert,
}

pub(super) const KINDS: &[(&str, Kind)] = &[
    ("throughput", Kind::Throughput),
    ("throughput+memory", Kind::ThroughputMemory),
    ("memory", Kind::Memory),
    ("oom", Kind::OutOfMemory),
    ("failed", Kind::Failed),
    ("layer-time", Kind::LayerTime),
];
pub(super) const QUALITIES: &[(&str, Quality)] =
    &[("A", Quality::A), ("B", Quality::B), ("C", Quality::C), ("X", Quality::X)];
pub(super) const QUANTITIES: &[(&str, MemoryQuantity)] = &[
    ("allocated", MemoryQuantity::Allocated),
    ("reserved", MemoryQuantity::Reserved),
    ("device", MemoryQuantity::Device),
    ("activations", MemoryQuantity::Activations),
];
pub(super) const MEMORY_UNITS: &[(&str, f64)] = &[("GB", 1e9), ("GiB", 1_073_741_824.0)];
pub(super) const FLASH: &[(&str, FlashAttention)] = &[
    ("no", FlashAttention::No),
    ("flash1", FlashAttention::Flash1),
    ("flash2", FlashAttention::Flash2),
    ("fused", FlashAttention::Fused),
    ("yes", FlashAttention::Yes),
];
pub(super) const OVERLAPS: &[(&str, CommOverlap)] = &[
    ("none", CommOverlap::None),
    ("async-tp", CommOverlap::AsyncTp),
    ("dp+tp-user-buffers", CommOverlap::UserBuffers),
    ("dp+tp-user-buffers-some", CommOverlap::UserBuffersSome),
    ("ep", CommOverlap::Expert),
];
pub(super) const RECOMPUTES: &[(&str, Recompute)] = &[
    ("none", Recompute::None),
    ("selective", Recompute::Selective),
    ("full", Recompute::Full { layers: None }),
];
pub(super) const DTYPES: &[(&str, Dtype)] =
    &[("fp32", Dtype::Fp32), ("bf16", Dtype::Bf16), ("fp16", Dtype::Fp16)];
