//! GIS, generalized interleaved schedule (PipeOffload, arXiv:2503.01328): interleaving by building blocks with groups
//! of ceil(p/2) to p microbatches, gradients sent after `I`.
//!
//! ```text
//! p = 2, 4 microbatches, two columns a unit; lower case: the second chunk
//! rank 0 |F0F1f0f1..i0w0F2i1w1F3I0W0f2I1W1f3i2w2..i3w3I2W2I3W3|
//! rank 1 |..F0F1f0i0w0f1i1w1F2I0W0F3I1W1f2i2w2f3i3w3I2W2I3W3..|
//! ```
//!
//! Bubble (p - 1)(tF + tI) at g = p; at unit times (p - g)v + g + p - 2 for any g >= p/2 that divides m. Rank r holds
//! (v - 1)g + p - r: fewer microbatches a group cost bubble and save memory.

use super::op::Op;
use super::registry::{Definition, Generator};
use super::shape::Sizes;

/// GIS with groups of p.
pub(super) const DEFINITION: Definition = Definition {
    name: "generalized-interleaved",
    summary: "interleaving by building blocks with groups of up to p microbatches",
    source: "sail-sg/zero-bubble-pipeline-parallelism group_interleaved_1f1b.py; arXiv:2503.01328",
    splits_backward: true,
    default_chunks: 2,
    grouped: true,
    orders: Generator::PerRank(|sizes, rank| order(sizes, rank, sizes.group.unwrap_or(sizes.p))),
    ..Definition::LOOPED
};

/// Slots of the building block of a group.
struct Block {
    /// Between the starts of two chunks of the same group.
    chunk_step: u64,
    /// After how many chunks the block has to be moved by one group to keep its slots free.
    chunks_to_jump: u64,
    jump: u64,
    /// Between two groups.
    period: u64,
}

impl Block {
    fn new(sizes: &Sizes, g: u64) -> Block {
        let v = u64::from(sizes.v);
        let k = least_group(sizes).div_ceil(g);
        let chunks_to_jump = v / gcd(v, k);
        Block { chunk_step: 3 * k * g, chunks_to_jump, jump: 3 * g, period: 3 * g * v }
    }

    /// Slot of member `i` of the group in the c-th chunk to run, from the first one.
    fn slot(&self, c: u64, i: u64) -> u64 {
        self.chunk_step * c + 3 * i + self.jump * (c / self.chunks_to_jump)
    }
}

/// The smallest group a microbatch can cross all ranks within.
fn least_group(sizes: &Sizes) -> u64 {
    let (p, times) = (u64::from(sizes.p), sizes.times);
    let whole = times.forward + times.input_grad + times.weight_grad;
    let across = f64::from(sizes.p) * times.forward.max(times.input_grad);
    (p.div_ceil(2)..=p).find(|&group| group as f64 * whole >= across).unwrap_or(p)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The order for groups of `group` (at most p) microbatches: all operations sorted by their slot.
pub(super) fn order(sizes: &Sizes, rank: u32, group: u32) -> Vec<Op> {
    let g = u64::from(group.min(sizes.p));
    let block = Block::new(sizes, g);
    let (p, v, r) = (u64::from(sizes.p), u64::from(sizes.v), u64::from(rank));
    let first_backward = block.slot(v - 1, 0) + r + 3 * (p - 1 - r) + 1;
    let mut slots: Vec<(u64, Op)> = Vec::with_capacity(3 * (sizes.m * sizes.v) as usize);
    for j in 0..u64::from(sizes.m) {
        let (start, i) = (block.period * (j / g), j % g);
        for c in 0..v {
            let stage = |chunk: u64| (chunk * p + r) as u32;
            let backward = start + first_backward + block.slot(c, i);
            slots.push((start + block.slot(c, i) + r, Op::f(stage(c), j as u32)));
            slots.push((backward, Op::i(stage(v - 1 - c), j as u32)));
            slots.push((backward + 1, Op::w(stage(v - 1 - c), j as u32)));
        }
    }
    slots.sort_by_key(|&(slot, _)| slot);
    slots.into_iter().map(|(_, op)| op).collect()
}
