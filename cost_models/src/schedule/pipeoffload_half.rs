//! PipeOffload with half of the chunks in host memory (PO-H, arXiv:2503.01328).
//!
//! ```text
//! p = 2, 3 microbatches, two columns a unit; lower case: the second chunk
//! rank 0 |F0..f0F1..i0w0f1I0W0F2i1w1f2I1W1..i2w2I2W2|
//! rank 1 |..F0..f0i0w0F1I0W0f1i1w1F2I1W1f2i2w2I2W2..|
//! ```
//!
//! The order is GIS with groups of ceil(p/2); the first ceil(v/2) chunks of every rank are offloaded by
//! [`plan_offload`](super::plan_offload). About (v - 1)g + p - o g chunks are held as long as the link keeps up
//! (2 k o <= v, with k the one-way copy time over a chunk's compute time).
//!
//! Inferred: that half means the first half of the chunks, with the smaller groups.

use super::registry::Definition;

/// PO-H.
pub(super) const DEFINITION: Definition = Definition {
    name: "pipeoffload-half",
    summary: "GIS in groups of p/2 with half of the chunks' activations in host memory",
    source: "sail-sg/zero-bubble-pipeline-parallelism offloading.py; arXiv:2503.01328; which half is inferred",
    offloaded_chunks: |sizes| sizes.v.div_ceil(2),
    ..super::generalized_interleaved_half::DEFINITION
};
