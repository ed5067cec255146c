//! PipeOffload with half of the chunks in host memory (PO-H, arXiv:2503.01328).
//!
//! ```text
//! p = 2, v = 2; lower case: the second chunk; the first chunk's activations leave after F and return before i
//! rank 0  F0 .. f0 .. .. i0 w0 F1 I0 W0 f1 ...
//! host     └out┘  ..   └back┘
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
