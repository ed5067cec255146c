//! 1F1B-V (arXiv:2405.15362, appendix): two chunks a rank placed as a V, fused backward, two thirds of 1F1B's memory.
//!
//! ```text
//! p = 2, 3 microbatches, two columns a unit; lower case: the second chunk
//! rank 0 |F0F1F2f0b0--f1b1--..B0--f2b2--..B1--....B2--|
//! rank 1 |..F0f0F1f1..b0--B0--F2f2b1--B1--b2--B2--....|
//! ```
//!
//! A building block of six slots (a backward takes two) is repeated for every microbatch; then every operation moves
//! left as far as its inputs, and for forwards the block's peak memory, allow. Worst rank: 2(floor(2p/3) + 1) chunks;
//! bubble for m >= p: 5(p - 1) for p mod 3 = 1, 5p - 7 for p mod 3 = 2 (4 for p = 2).

use super::op::{Op, OpKind};
use super::placement::Placement;
use super::registry::{Definition, Generator};
use super::shape::Sizes;

/// 1F1B-V.
pub(super) const DEFINITION: Definition = Definition {
    name: "1f1b-v",
    summary: "1F1B over two chunks a rank placed as a V: two thirds of 1F1B's activations",
    source: "sail-sg/zero-bubble-pipeline-parallelism v1f1b.py; arXiv:2405.15362",
    placement: Placement::V,
    default_chunks: 2,
    rules: super::zb_v::two_chunks,
    orders: Generator::Whole(orders),
    ..Definition::LOOPED
};

const PERIOD: usize = 6;

/// First slot of each stage's forward and backward for microbatch 0.
fn block(p: usize) -> (Vec<usize>, Vec<usize>) {
    let mut slot = 2 * p + if p.is_multiple_of(3) { 3 } else { 0 };
    let mut phase = (3 - (p + 2) % 3) % 3;
    let mut backward = vec![0; 2 * p];
    for stage in (0..2 * p).rev() {
        backward[stage] = slot;
        slot += 2;
        phase += 1;
        if phase == 3 {
            phase = 0;
            slot += 3;
        }
    }
    ((0..2 * p).collect(), backward)
}

fn orders(sizes: &Sizes) -> Vec<Vec<Op>> {
    let (p, m) = (sizes.p as usize, sizes.m as usize);
    let mut grid = Grid::new(p, m);
    let peak = grid.peak();
    let columns = grid.ranks.first().map_or(0, |rank| rank.cells.len());
    for column in 0..columns {
        for rank in 0..p {
            match grid.ranks[rank].cells[column] {
                Some(op) if op.kind == OpKind::F => grid.move_forward(rank, column, op, peak),
                Some(op) if op.kind == OpKind::B => grid.move_backward(rank, column, op),
                _ => {}
            }
        }
    }
    let ops = |rank: GridRank| rank.cells.into_iter().flatten().filter(|op| op.kind != OpKind::W).collect();
    grid.ranks.into_iter().map(ops).collect()
}

/// Slots of one rank; a backward fills its first slot with `B` and its second with `W`.
struct GridRank {
    cells: Vec<Option<Op>>,
    /// Microbatch-chunks in flight after each column.
    held: Vec<i32>,
}

/// All slots, and where every operation ended up: per stage and microbatch the last slot of forward and backward.
struct Grid {
    p: usize,
    m: usize,
    ranks: Vec<GridRank>,
    forward_at: Vec<Option<usize>>,
    backward_at: Vec<Option<usize>>,
}

impl Grid {
    fn new(p: usize, m: usize) -> Grid {
        let (forward, backward) = block(p);
        let columns = backward[0] + 2 + PERIOD * (m - 1);
        let empty = || GridRank { cells: vec![None; columns], held: vec![0; columns] };
        let mut ranks: Vec<GridRank> = (0..p).map(|_| empty()).collect();
        for stage in 0..2 * p {
            let home = &mut ranks[if stage < p { stage } else { 2 * p - 1 - stage }];
            for j in 0..m {
                let (f, b) = (forward[stage] + PERIOD * j, backward[stage] + PERIOD * j);
                let (stage, j) = (stage as u32, j as u32);
                home.cells[f] = Some(Op::f(stage, j));
                home.cells[b] = Some(Op::b(stage, j));
                home.cells[b + 1] = Some(Op::w(stage, j));
            }
        }
        ranks.iter_mut().for_each(GridRank::count);
        Grid { p, m, ranks, forward_at: vec![None; 2 * p * m], backward_at: vec![None; 2 * p * m] }
    }

    fn peak(&self) -> i32 {
        self.ranks.iter().flat_map(|rank| rank.held.iter().copied()).max().unwrap_or(0)
    }

    fn index(&self, stage: usize, microbatch: usize) -> usize {
        stage * self.m + microbatch
    }

    /// The first slot after the operations this one follows: its input and its predecessor on the same stage.
    fn earliest(&self, placed: &[Option<usize>], stage: usize, j: usize, input: Option<usize>) -> usize {
        let before = if j > 0 { placed[self.index(stage, j - 1)] } else { None };
        before.max(input).map_or(0, |slot| slot + 1)
    }

    fn move_forward(&mut self, rank: usize, column: usize, op: Op, peak: i32) {
        let (stage, j) = (usize::from(op.stage), op.microbatch as usize);
        let input = if stage > 0 { self.forward_at[self.index(stage - 1, j)] } else { None };
        let earliest = self.earliest(&self.forward_at, stage, j, input);
        let cells = &mut self.ranks[rank];
        let mut place = column;
        while place > earliest && cells.held[place - 1] < peak {
            place -= 1;
        }
        while place < column && cells.cells[place].is_some() {
            place += 1;
        }
        cells.cells.swap(place, column);
        cells.held[place..column].iter_mut().for_each(|held| *held += 1);
        let at = self.index(stage, j);
        self.forward_at[at] = Some(place);
    }

    fn move_backward(&mut self, rank: usize, column: usize, op: Op) {
        let (stage, j) = (usize::from(op.stage), op.microbatch as usize);
        let last = 2 * self.p - 1;
        let input = if stage < last {
            self.backward_at[self.index(stage + 1, j)]
        } else {
            self.forward_at[self.index(last, j)]
        };
        let own = if j > 0 { self.backward_at[self.index(stage, j - 1)].map(|end| end - 1) } else { None };
        let earliest = own.max(input).map_or(0, |slot| slot + 1);
        let cells = &mut self.ranks[rank];
        let free = |at: &usize| cells.cells[*at].is_none() && cells.cells[at + 1].is_none();
        let place = (earliest..column).find(free).unwrap_or(column);
        cells.cells.swap(place, column);
        cells.cells.swap(place + 1, column + 1);
        cells.held[place + 1..column + 1].iter_mut().for_each(|held| *held -= 1);
        let at = self.index(stage, j);
        self.backward_at[at] = Some(place + 1);
    }
}

impl GridRank {
    fn count(&mut self) {
        let mut held = 0;
        for (cell, count) in self.cells.iter().zip(&mut self.held) {
            held += match cell.map(|op| op.kind) {
                Some(OpKind::F) => 1,
                Some(OpKind::W) => -1,
                _ => 0,
            };
            *count = held;
        }
    }
}
