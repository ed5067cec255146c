//! TeraPipe (arXiv:2102.07988): GPipe over slices of the sequence, of uneven length.
//!
//! ```text
//! p = 2, 2 microbatches, two columns a unit; numbers are slices, four a microbatch
//! rank 0 |F0F1F2F3F4F5F6F7......B3--B2--B1--B0--B7--B6--B5--B4--|
//! rank 1 |..F0F1F2F3F4F5F6F7B3--B2--B1--B0--B7--B6--B5--B4--....|
//! ```
//!
//! Forward time sum(t) + (p - 1) max(t); every rank holds all slices. Later slices attend to more keys, so equal times
//! need shorter slices at the end: [`slice_lengths`](super::slice_lengths) finds the best lengths.

use super::op::Op;
use super::registry::{Definition, Generator};
use super::shape::Sizes;

/// TeraPipe.
pub(super) const DEFINITION: Definition = Definition {
    name: "terapipe",
    summary: "GPipe over uneven slices of the sequence",
    source: "arXiv:2102.07988",
    default_slices: Some(4),
    rules: super::one_f_one_b::one_chunk,
    orders: Generator::PerRank(order),
    ..Definition::LOOPED
};

fn order(sizes: &Sizes, rank: u32) -> Vec<Op> {
    let units = sizes.m * sizes.q;
    let forwards = (0..units).map(|k| Op::f(rank, k));
    forwards.chain((0..units).map(|k| super::seq1f1b::backward(sizes, rank, k))).collect()
}
