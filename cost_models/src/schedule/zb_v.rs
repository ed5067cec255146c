//! ZB-V (arXiv:2405.15362, section 4): two chunks a rank placed as a V, split backward.
//!
//! ```text
//! p = 2, 4 microbatches, two columns a unit; lower case: the second chunk
//! rank 0 |F0F1F2f0i0w0f1i1w1F3I0W0f2i2w2I1W1f3i3w3I2W2I3W3..|
//! rank 1 |..F0f0F1f1i0w0F2I0W0f2i1w1F3I1W1f3i2w2I2i3I3W2w3W3|
//! ```
//!
//! Span bubble 0 at tF = tI = tW, makespan bubble (p - 1)tF in chunk times; every rank holds 2p chunks, as much as
//! 1F1B's first rank. The order is fixed: with unequal times it idles where `v-zb` and `auto` do not.

use super::op::{Op, OpKind};
use super::placement::Placement;
use super::registry::{Definition, Generator};
use super::shape::{Rules, Sizes};

/// ZB-V.
pub(super) const DEFINITION: Definition = Definition {
    name: "zb-v",
    summary: "two chunks a rank as a V, split backward: no idle time inside a span in 1F1B's memory",
    source: "torch ScheduleZBVZeroBubble; arXiv:2405.15362",
    placement: Placement::V,
    splits_backward: true,
    staggered: true,
    default_chunks: 2,
    rules: two_chunks,
    orders: Generator::PerRank(order),
    ..Definition::LOOPED
};

/// Exactly two stages a rank.
pub(super) fn two_chunks(sizes: &Sizes, rules: &mut Rules) {
    rules.require(sizes.v == 2, "chunks", sizes.v, "exactly 2 stages a rank, placed as a V", "use 2 chunks");
}

/// Next microbatch of each operation of the two chunks of a rank.
struct Counters {
    ops: Vec<Op>,
    stages: [u32; 2],
    next: [[u32; 2]; 3],
}

impl Counters {
    fn add(&mut self, kind: OpKind, chunk: usize) {
        let next = &mut self.next[kind as usize][chunk];
        self.ops.push(Op::new(kind, self.stages[chunk], *next));
        *next += 1;
    }

    fn all(&mut self, kinds: &[(OpKind, usize)]) {
        kinds.iter().for_each(|&(kind, chunk)| self.add(kind, chunk));
    }

    fn left(&self, kind: OpKind, chunk: usize, total: u32) -> bool {
        self.next[kind as usize][chunk] < total
    }
}

/// The order for at least 2p - 1 microbatches, without those that do not exist.
fn order(sizes: &Sizes, rank: u32) -> Vec<Op> {
    use OpKind::{F, I, W};
    let (p, total) = (sizes.p, sizes.m.max(2 * sizes.p - 1));
    let mut rank_ops = Counters { ops: Vec::new(), stages: [rank, 2 * p - 1 - rank], next: [[0; 2]; 3] };
    (0..2 * (p - rank) - 1).for_each(|_| rank_ops.add(F, 0));
    (0..rank).for_each(|_| rank_ops.all(&[(F, 1), (F, 0)]));
    (0..p - rank).for_each(|_| rank_ops.all(&[(F, 1), (I, 1), (W, 1)]));
    while rank_ops.left(F, 1, rank_ops.next[0][0]) || rank_ops.left(F, 0, total) {
        if rank_ops.left(F, 0, total) {
            rank_ops.add(F, 0);
        }
        rank_ops.all(&[(I, 0), (W, 0), (F, 1), (I, 1), (W, 1)]);
    }
    (0..rank).for_each(|_| rank_ops.all(&[(I, 0), (I, 1)]));
    (0..p - rank).for_each(|_| rank_ops.all(&[(I, 0), (W, 0)]));
    for chunk in [1, 0] {
        while rank_ops.left(W, chunk, total) {
            rank_ops.add(W, chunk);
        }
    }
    rank_ops.ops.retain(|op| op.microbatch < sizes.m);
    rank_ops.ops
}
