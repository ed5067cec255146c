//! PipeOffload with all chunks in host memory (PO-F, arXiv:2503.01328).
//!
//! ```text
//! p = 2, v = 2; lower case: the second chunk; every activation leaves after its forward and returns in time
//! rank 0  F0 .. f0 .. .. i0 w0 F1 I0 W0 f1 ...
//! host     └out┘ └out┘ ┌back┐ ┌back┐
//! ```
//!
//! The order is GIS with groups of ceil(p/2); all chunks are offloaded by [`plan_offload`](super::plan_offload). A few
//! chunks are held whatever p is, as long as the link keeps up (a one-way copy under half of a chunk's compute time).

use super::registry::Definition;

/// PO-F.
pub(super) const DEFINITION: Definition = Definition {
    name: "pipeoffload-full",
    summary: "GIS in groups of p/2 with all activations in host memory",
    source: "sail-sg/zero-bubble-pipeline-parallelism offloading.py; arXiv:2503.01328",
    offloaded_chunks: |sizes| sizes.v,
    ..super::generalized_interleaved_half::DEFINITION
};
