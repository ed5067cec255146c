//! DualPipe (arXiv:2412.19437, section 3.2.1): two pipelines in opposite directions, forwards combined with backwards.
//!
//! ```text
//! p = 4, 8 microbatches, lower case: the other direction; combined pairs show their backward
//! rank 0 |F0F1F2f0i0w0f1b1----..B0----b2--..B1----b3--I2W2I3W3|
//! rank 1 |..F0f0F1f1F2b0--B0----b1----B1----b2--B2--..i3I3w3W3|
//! rank 2 |..f0F0f1F1f2B0--b0----B1----b1----B2--b2--..I3i3W3w3|
//! rank 3 |f0f1f2F0I0W0F1B1----..b0----B2--..b1----B3--i2w2i3w3|
//! ```
//!
//! Bubble (p/2 - 1)(F&B + tB - 3tW) as long as a combined pair runs as one operation and tF = tI = tW; with unequal
//! times only the simulation is right. Each rank holds p + 1, and the weights of two stages.

use std::collections::VecDeque;

use super::op::Op;
use super::placement::Placement;
use super::registry::{Definition, Generator};
use super::shape::{Rules, Sizes};

/// DualPipe.
pub(super) const DEFINITION: Definition = Definition {
    name: "dualpipe",
    summary: "two opposite pipelines, forwards combined with backwards to hide expert all-to-alls; weights twice",
    source: "deepseek-ai/DualPipe dualpipe.py; arXiv:2412.19437",
    placement: Placement::Bidirectional,
    splits_backward: true,
    combines: true,
    rules,
    orders: Generator::PerRank(order),
    ..Definition::LOOPED
};

fn rules(sizes: &Sizes, rules: &mut Rules) {
    super::one_f_one_b::one_chunk(sizes, rules);
    rules.require(
        sizes.p.is_multiple_of(2),
        "ranks",
        sizes.p,
        "DualPipe needs an even number of ranks",
        "add a rank",
    );
    let enough = sizes.m >= 2 * sizes.p && sizes.m.is_multiple_of(2);
    let hint = format!("use an even number of at least {} microbatches", 2 * sizes.p);
    rules.require(
        enough,
        "microbatches",
        sizes.m,
        "DualPipe needs an even number of at least 2p microbatches",
        &hint,
    );
}

fn order(sizes: &Sizes, rank: u32) -> Vec<Op> {
    let p = sizes.p;
    let mirrored = p - 1 - rank;
    let own = if rank < p / 2 { [rank, p + mirrored] } else { [p + mirrored, rank] };
    eight_steps(own, p / 2, rank.min(mirrored), sizes.m / 2)
}

/// A rank's operations for its two stages: the `near` one enters first, the other is its mirror image.
struct Emitter {
    stages: [u32; 2],
    forwards: [u32; 2],
    backwards: [u32; 2],
    pending: VecDeque<Op>,
    ops: Vec<Op>,
}

impl Emitter {
    fn next_forward(&mut self, phase: usize) -> Op {
        self.forwards[phase] += 1;
        Op::f(self.stages[phase], self.forwards[phase] - 1)
    }

    fn next_backward(&mut self, phase: usize) -> Op {
        self.backwards[phase] += 1;
        Op::b(self.stages[phase], self.backwards[phase] - 1)
    }

    fn forward(&mut self, phase: usize) {
        let op = self.next_forward(phase);
        self.ops.push(op);
    }

    fn backward(&mut self, phase: usize) {
        let op = self.next_backward(phase);
        self.ops.push(op);
    }

    /// `I` now, `W` later.
    fn split_backward(&mut self, phase: usize) {
        let Op { stage, microbatch, .. } = self.next_backward(phase);
        self.ops.push(Op::i(stage.into(), microbatch));
        self.pending.push_back(Op::w(stage.into(), microbatch));
    }

    fn weight(&mut self) {
        self.ops.extend(self.pending.pop_front());
    }

    fn combined(&mut self, forward: usize, backward: usize) {
        let (f, b) = (self.next_forward(forward), self.next_backward(backward));
        self.ops.extend([f.paired(), b]);
    }
}

/// The eight steps shared with DualPipeV: `half` ranks from the end to the turn, this one `at` from the end, and
/// `per_phase` microbatches through each of its stages.
pub(super) fn eight_steps(stages: [u32; 2], half: u32, at: u32, per_phase: u32) -> Vec<Op> {
    let mut e =
        Emitter { stages, forwards: [0; 2], backwards: [0; 2], pending: VecDeque::new(), ops: Vec::new() };
    let (before_turn, after) = (half - at - 1, at + 1);
    (0..2 * before_turn).for_each(|_| e.forward(0));
    for _ in 0..after {
        e.forward(0);
        e.forward(1);
    }
    for _ in 0..before_turn {
        e.split_backward(1);
        e.weight();
        e.forward(1);
    }
    for k in 0..per_phase - 2 * half + after {
        if k == 0 && before_turn == 0 {
            e.forward(0);
            e.backward(1);
        } else {
            e.combined(0, 1);
        }
        e.combined(1, 0);
    }
    for _ in 0..before_turn {
        e.backward(1);
        e.combined(1, 0);
    }
    cool_down(&mut e, before_turn, after);
    e.ops
}

/// The backwards left, the second half of them split so that their weight gradients fill the end.
fn cool_down(e: &mut Emitter, before_turn: u32, after: u32) {
    let mut split = false;
    for k in 0..after {
        let turn = k == after / 2;
        split |= turn && after.is_multiple_of(2);
        if split {
            e.split_backward(1)
        } else {
            e.backward(1)
        }
        split |= turn;
        if split { e.split_backward(0) } else { e.backward(0) }
    }
    for _ in 0..before_turn {
        e.weight();
        e.split_backward(0);
    }
    (0..after).for_each(|_| e.weight());
}
