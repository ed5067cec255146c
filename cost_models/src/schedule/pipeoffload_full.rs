//! PipeOffload with all chunks in host memory (PO-F, arXiv:2503.01328).
//!
//! ```text
//! p = 2, 3 microbatches, two columns a unit; lower case: the second chunk
//! rank 0 |F0..f0F1..i0w0f1I0W0F2i1w1f2I1W1..i2w2I2W2|
//! rank 1 |..F0..f0i0w0F1I0W0f1i1w1F2I1W1f2i2w2I2W2..|
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
