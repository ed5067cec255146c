//! 1F1B with the output layer split over all ranks (arXiv:2411.05288): the order behind `1f1b-vocab1` and
//! `1f1b-vocab2`.
//!
//! ```text
//! p = 2, one barrier, 4 microbatches: the orders; every rank runs S and T, passes of the output layer, for each
//! rank 0  F0 F1 S0 F2 T0 S1 B0 T1 S2 F3 B1 T2 S3 B2 B3 T3
//! rank 1  F0 S0 F1 B0 T0 S1 F2 B1 T1 S2 F3 B2 T2 S3 B3 T3
//! ```
//!
//! `-vocab1` is the paper's Algorithm 1 (two barriers: the backward waits for every rank's `T`), `-vocab2` its
//! Algorithm 2 (one barrier: it waits for every rank's `S`). Bubble (p - 1)(tF + tB) whatever `S` and `T` take; rank r
//! holds min(m, p - r + 2), or + 1 with one barrier. A barrier shorter than tF is hidden but once.

use super::op::{Op, OpKind};
use super::orders::Vocabulary;
use super::shape::Sizes;

/// In which order a steady rank runs backward, pass and forward.
#[derive(Clone, Copy, PartialEq)]
enum Turn {
    BackwardPassForward,
    BackwardForwardPass,
}

/// Every rank's turn, and how many passes it runs before its first backward.
fn turns(sizes: &Sizes) -> (Vec<Turn>, Vec<u32>) {
    use Turn::{BackwardForwardPass, BackwardPassForward};
    let (forward, backward) = (sizes.times.forward, sizes.times.input_grad + sizes.times.weight_grad);
    let p = sizes.p as usize;
    let (mut turns, mut passes) = (vec![BackwardPassForward; p], vec![0; p]);
    let mut offset = 0.0;
    for rank in (0..p - 1).rev() {
        if turns[rank + 1] == BackwardForwardPass {
            offset += backward - forward;
        } else if offset - forward >= -backward {
            offset -= forward;
        } else {
            turns[rank] = BackwardForwardPass;
        }
        let same = turns[rank + 1] == BackwardForwardPass && turns[rank] == BackwardPassForward;
        passes[rank] = passes[rank + 1] + u32::from(!same);
    }
    (turns, passes)
}

/// All ranks' orders.
pub(super) fn orders(sizes: &Sizes, vocabulary: Vocabulary) -> Vec<Vec<Op>> {
    let (turns, passes) = turns(sizes);
    let two = vocabulary == Vocabulary::TwoBarriers;
    let per_rank = turns.into_iter().zip(passes).zip(0..);
    per_rank.map(|((turn, passes), rank)| order(sizes, rank, turn, passes, two)).collect()
}

fn order(sizes: &Sizes, rank: u32, turn: Turn, early_passes: u32, two_barriers: bool) -> Vec<Op> {
    let (p, m) = (sizes.p, sizes.m);
    let mut next = Next { rank, m, forward: 0, backward: 0, pass: 0, ops: Vec::new() };
    (0..(p - rank).min(m)).for_each(|_| next.forward());
    next.pass();
    next.forward();
    if two_barriers {
        next.pass();
        next.forward();
    }
    // With one barrier the last half pass closes the step.
    let passes = if two_barriers { m + 1 } else { m };
    (0..early_passes.min(passes.saturating_sub(next.pass))).for_each(|_| next.pass());
    while next.backward < m {
        next.backward();
        let forwards = next.forward < m;
        if turn == Turn::BackwardForwardPass && forwards {
            next.forward();
        }
        if next.pass < passes {
            next.pass();
        }
        if turn == Turn::BackwardPassForward && forwards {
            next.forward();
        }
    }
    while next.pass <= m {
        next.pass();
    }
    next.ops
}

/// Appends the next operation of a kind, if there is one.
struct Next {
    rank: u32,
    m: u32,
    forward: u32,
    backward: u32,
    pass: u32,
    ops: Vec<Op>,
}

impl Next {
    fn forward(&mut self) {
        if self.forward < self.m {
            self.ops.push(Op::f(self.rank, self.forward));
            self.forward += 1;
        }
    }

    fn backward(&mut self) {
        self.ops.push(Op::b(self.rank, self.backward));
        self.backward += 1;
    }

    /// `T` of the microbatch before and `S` of the next; the first and the last pass have only one of them.
    fn pass(&mut self) {
        if self.pass > self.m {
            return;
        }
        if self.pass > 0 {
            self.ops.push(Op::new(OpKind::T, self.rank, self.pass - 1));
        }
        if self.pass < self.m {
            self.ops.push(Op::new(OpKind::S, self.rank, self.pass));
        }
        self.pass += 1;
    }
}
