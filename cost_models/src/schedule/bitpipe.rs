//! BitPipe (arXiv:2410.19367): two V-shaped interleaved pipelines in opposite directions.
//!
//! ```text
//! p = 4, 4 microbatches, two columns a unit; lower case: second chunks, of either direction
//! rank 0 |F0F1..F0f0F1f1f0b0--f1b1--..b0--B0--b1--B1--B0--....B1--|
//! rank 1 |..F0F0F1F1f0f0f1f1..b0--b0--b1--b1--B0--B0--B1--B1--....|
//! rank 2 |..F0F0F1F1f0f0f1f1..b0--b0--b1--b1--B0--B0--B1--B1--....|
//! rank 3 |F0F1..F0f0F1f1f0b0--f1b1--..b0--B0--b1--B1--B0--....B1--|
//! ```
//!
//! Four chunks of 1/(2p) of the model and so twice the weights a rank. Bubble (p - 2)(n tB - (n - 1) tF) for n = m/p
//! units: it grows with m where tB > tF. Rank r holds p + p/2 + 1 + min(r, p - 1 - r).

use super::op::Op;
use super::placement::Placement;
use super::registry::{Definition, Generator};
use super::shape::{Rules, Sizes};

/// BitPipe.
pub(super) const DEFINITION: Definition = Definition {
    name: "bitpipe",
    summary: "two opposite V-shaped pipelines; weights twice",
    source: "wuhouming/BitPipe bitpipe_schedule.py; arXiv:2410.19367",
    placement: Placement::BidirectionalV,
    default_chunks: 2,
    rules,
    orders: Generator::PerRank(order),
    ..Definition::LOOPED
};

fn rules(sizes: &Sizes, rules: &mut Rules) {
    rules.require(sizes.v == 2, "chunks", sizes.v, "2 chunks for each direction", "use 2 chunks");
    units_of_p(sizes, rules, "BitPipe");
}

/// Even p, and whole units of p microbatches.
pub(super) fn units_of_p(sizes: &Sizes, rules: &mut Rules, name: &str) {
    let rule = format!("{name} needs an even number of ranks");
    rules.require(sizes.p.is_multiple_of(2), "ranks", sizes.p, &rule, "add a rank");
    let rule = format!("{name} needs a multiple of the number of ranks");
    let hint = format!("use {} microbatches", sizes.m.next_multiple_of(sizes.p));
    rules.require(sizes.m.is_multiple_of(sizes.p), "microbatches", sizes.m, &rule, &hint);
}

fn order(sizes: &Sizes, rank: u32) -> Vec<Op> {
    let (p, h) = (sizes.p, sizes.p / 2);
    let mirrored = p - 1 - rank;
    let stages = [[rank, 2 * p - 1 - rank], [2 * p + mirrored, 2 * p + p + rank]];
    let view = RankView::new(sizes, rank);
    let sequence = |first: usize, second: usize| {
        let (x, y, z) = (view.near, view.far, view.alone);
        let at = |direction: usize, chunk: usize| stages[direction][chunk];
        let mut unit = vec![at(x, first); z];
        unit.extend([at(y, first), at(x, first)].repeat(h as usize - z));
        unit.extend([at(y, first), at(y, second)].repeat(z));
        unit.extend([at(x, second), at(y, second)].repeat(h as usize - z));
        unit.extend(vec![at(x, second); z]);
        unit
    };
    let warmup = p + h + rank.min(mirrored);
    concatenated(sizes, &sequence(0, 1), &sequence(1, 0), warmup as usize)
}

/// How a rank sees the two directions: `near` is the one it is closer to the entry of.
pub(super) struct RankView {
    pub(super) near: usize,
    pub(super) far: usize,
    /// How many operations of the nearer direction come first.
    pub(super) alone: usize,
}

impl RankView {
    pub(super) fn new(sizes: &Sizes, rank: u32) -> RankView {
        let h = sizes.p / 2;
        if rank < h {
            RankView { near: 0, far: 1, alone: (h - rank) as usize }
        } else {
            RankView { near: 1, far: 0, alone: (rank - h + 1) as usize }
        }
    }
}

/// Units of p microbatches one into the other: the forwards of a unit start among the backwards of the one before.
/// `forwards` and `backwards` list the stages of a unit in order; each stage takes its microbatches in order.
pub(super) fn concatenated(sizes: &Sizes, forwards: &[u32], backwards: &[u32], warmup: usize) -> Vec<Op> {
    let units = (sizes.m / sizes.p) as usize;
    let half = sizes.p / 2;
    let listed = |stages: &[u32], op: fn(u32, u32) -> Op| {
        let mut seen = std::collections::BTreeMap::new();
        let all = stages.iter().cycle().take(stages.len() * units);
        let numbered = all.map(|&stage| {
            let next: &mut u32 = seen.entry(stage).or_default();
            *next += 1;
            op(stage, *next - 1)
        });
        numbered.collect::<Vec<Op>>()
    };
    debug_assert_eq!(forwards.len() % half as usize, 0);
    let (f, b) = (listed(forwards, Op::f), listed(backwards, Op::b));
    let mut turn = Turns { f: f.into_iter(), b: b.into_iter(), ops: Vec::new() };
    let ahead = forwards.len() - warmup;
    turn.forwards(warmup);
    for _ in 1..units {
        turn.both(ahead);
        turn.backwards(warmup - ahead + 1);
        turn.both(ahead - 1);
        turn.forwards(warmup - ahead + 1);
    }
    turn.both(ahead);
    turn.ops.extend(turn.b);
    turn.ops
}

/// Takes from the lists in turn.
struct Turns {
    f: std::vec::IntoIter<Op>,
    b: std::vec::IntoIter<Op>,
    ops: Vec<Op>,
}

impl Turns {
    fn forwards(&mut self, count: usize) {
        self.ops.extend(self.f.by_ref().take(count));
    }

    fn backwards(&mut self, count: usize) {
        self.ops.extend(self.b.by_ref().take(count));
    }

    fn both(&mut self, count: usize) {
        for _ in 0..count {
            self.forwards(1);
            self.backwards(1);
        }
    }
}
