//! Interlaced 1F1B (arXiv:2411.05288, the baseline; nnScaler): the output layer runs on all ranks at the same time,
//! as tensor parallelism, between the operations of 1F1B.
//!
//! ```text
//! p = 2, 4 microbatches, two columns a unit; S runs on all ranks at once
//! rank 0 |F0F1F2S0....S1B0--..S2F3B1--S3B2--B3--|
//! rank 1 |..F0F1S0B0--S1B1--F2S2B2--F3S3B3--....|
//! ```
//!
//! Bubble (p - 1)(tF + tB) and the all-reduces of every `S`, which nothing hides; rank 0 holds 3p/2.

use super::op::{Op, OpKind};
use super::orders::Vocabulary;
use super::registry::{Definition, Generator};
use super::shape::Sizes;

/// Interlaced 1F1B.
pub(super) const DEFINITION: Definition = Definition {
    name: "1f1b-interlaced",
    summary: "1F1B with the output layer as tensor parallelism over all ranks",
    source: "sail-sg/VocabularyParallelism interlaced_schedule.py; arXiv:2411.05288",
    vocabulary: Vocabulary::Interlaced,
    rules: super::one_f_one_b::one_chunk,
    orders: Generator::PerRank(order),
    ..Definition::LOOPED
};

fn order(sizes: &Sizes, rank: u32) -> Vec<Op> {
    let (p, m) = (sizes.p, sizes.m);
    let warmup = (3 * p / 2 - rank).min(m);
    let passes = (p - rank).min(m);
    let early = (warmup - passes).saturating_sub((p - rank - 1) / 2);
    let mut next = Next { rank, counts: [0; 3], ops: Vec::new() };
    next.add("F", warmup);
    next.add("S", passes);
    next.add("BS", early);
    next.add(if rank % 2 == p % 2 { "FBS" } else { "BFS" }, m - warmup);
    next.add("BS", warmup - passes - early);
    next.add("B", passes);
    next.ops
}

/// Appends the next operation of each kind.
struct Next {
    rank: u32,
    counts: [u32; 3],
    ops: Vec<Op>,
}

impl Next {
    fn add(&mut self, pattern: &str, times: u32) {
        for letter in pattern.repeat(times as usize).chars() {
            let (kind, at) = match letter {
                'F' => (OpKind::F, 0),
                'B' => (OpKind::B, 1),
                _ => (OpKind::S, 2),
            };
            self.ops.push(Op::new(kind, self.rank, self.counts[at]));
            self.counts[at] += 1;
        }
    }
}
