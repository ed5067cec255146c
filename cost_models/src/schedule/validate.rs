//! Checks that a set of rank orders is a complete schedule.

use super::error::{OrderFault, OrdersError};
use super::op::{Op, OpKind};
use super::orders::{Faults, MAX_OPS, OrderParts, Vocabulary};

const F: u8 = 1;
const I: u8 = 2;
const W: u8 = 4;

/// The faults of `parts`, all together.
pub(super) fn check(parts: &OrderParts) -> Result<(), OrdersError> {
    check_sizes(parts)?;
    let mut faults = Faults::default();
    let mut ledger = Ledger::new(parts);
    for (rank, order) in parts.orders.iter().enumerate() {
        check_pairs(rank, order, &mut faults);
        order.iter().for_each(|&op| ledger.run(rank, op, &mut faults));
    }
    ledger.report_missing(&mut faults);
    faults.into_result()
}

fn check_sizes(parts: &OrderParts) -> Result<(), OrdersError> {
    let mut faults = Faults::default();
    let counts = [
        ("ranks", parts.ranks),
        ("stages", parts.stages),
        ("microbatches", parts.microbatches),
        ("slices", parts.slices),
    ];
    for (field, _) in counts.into_iter().filter(|&(_, count)| count == 0) {
        faults.add(OrderFault::Zero { field });
    }
    if parts.orders.len() != parts.ranks as usize {
        faults.add(OrderFault::RankCount { expected: parts.ranks, found: parts.orders.len() });
    }
    if let Some(&rank) = parts.placement.iter().find(|&&rank| u32::from(rank) >= parts.ranks) {
        faults.add(OrderFault::PlacementRank { rank: rank.into(), ranks: parts.ranks });
    }
    let stages = parts.placement.len();
    let whole = parts.stages != 0 && stages != 0 && stages.is_multiple_of(parts.stages as usize);
    if !whole || stages > usize::from(u16::MAX) {
        faults.add(OrderFault::PlacementLength { stages: parts.stages, found: stages });
    }
    let units = stages as u64 * u64::from(parts.microbatches) * u64::from(parts.slices);
    if units > MAX_OPS {
        faults.add(OrderFault::TooLarge { ops: units, limit: MAX_OPS });
    }
    faults.into_result()
}

/// A pair is one forward and one backward, next to each other, of different microbatch or stage.
fn check_pairs(rank: usize, order: &[Op], faults: &mut Faults) {
    for (at, op) in order.iter().enumerate().filter(|(_, op)| op.paired) {
        let mate = order.get(at + 1).filter(|mate| !mate.paired);
        let fits = mate.is_some_and(|mate| is_pair(op.kind, mate.kind));
        let doubled = at > 0 && order[at - 1].paired;
        if !fits || doubled {
            faults.add(OrderFault::Pair { rank, op: *op });
        }
    }
}

fn is_pair(first: OpKind, second: OpKind) -> bool {
    let forward = [first, second].iter().filter(|&&kind| kind == OpKind::F).count();
    let backward = [first, second].iter().filter(|&&kind| matches!(kind, OpKind::B | OpKind::I)).count();
    forward == 1 && backward == 1
}

/// What has run so far, one byte per stage and microbatch, and one per rank and microbatch for vocabulary passes.
struct Ledger<'a> {
    parts: &'a OrderParts,
    units: usize,
    done: Vec<u8>,
    passes: Vec<u8>,
}

impl<'a> Ledger<'a> {
    fn new(parts: &'a OrderParts) -> Ledger<'a> {
        let units = parts.microbatches as usize * parts.slices as usize;
        let passes = if parts.vocabulary == Vocabulary::Whole { 0 } else { units * parts.ranks as usize };
        Ledger { parts, units, done: vec![0; parts.placement.len() * units], passes: vec![0; passes] }
    }

    fn run(&mut self, rank: usize, op: Op, faults: &mut Faults) {
        if op.microbatch as usize >= self.units {
            return faults.add(OrderFault::UnknownMicrobatch { rank, op, microbatches: self.units });
        }
        if op.kind.is_vocabulary() {
            return self.run_pass(rank, op, faults);
        }
        match self.parts.placement.get(usize::from(op.stage)) {
            None => {
                return faults.add(OrderFault::UnknownStage { rank, op, stages: self.parts.placement.len() });
            }
            Some(&home) if usize::from(home) != rank => {
                return faults.add(OrderFault::WrongRank { rank, op, home: home.into() });
            }
            Some(_) => {}
        }
        let (needs, adds) = needs_and_adds(op.kind);
        let at = usize::from(op.stage) * self.units + op.microbatch as usize;
        if self.done[at] & adds != 0 {
            faults.add(OrderFault::Doubled { rank, op });
        } else if self.done[at] & needs != needs || !self.slices_in_order(op, at) {
            faults.add(OrderFault::TooEarly { rank, op });
        }
        self.done[at] |= adds;
    }

    /// Attention reads the keys of earlier slices, so slices go forward ascending and backward descending.
    fn slices_in_order(&self, op: Op, at: usize) -> bool {
        let (slice, last) = (op.microbatch % self.parts.slices, self.parts.slices - 1);
        match op.kind {
            OpKind::F => slice == 0 || self.done[at - 1] & F != 0,
            OpKind::B | OpKind::I => slice == last || self.done[at + 1] & I != 0,
            OpKind::W | OpKind::S | OpKind::T => true,
        }
    }

    fn run_pass(&mut self, rank: usize, op: Op, faults: &mut Faults) {
        let allowed = match self.parts.vocabulary {
            Vocabulary::Whole => false,
            Vocabulary::Interlaced => op.kind == OpKind::S,
            Vocabulary::OneBarrier | Vocabulary::TwoBarriers => true,
        };
        if !allowed || usize::from(op.stage) != rank {
            return faults.add(OrderFault::WrongRank { rank, op, home: op.stage.into() });
        }
        let (needs, adds) = if op.kind == OpKind::S { (0, 1) } else { (1, 2) };
        let done = &mut self.passes[rank * self.units + op.microbatch as usize];
        if *done & adds != 0 {
            faults.add(OrderFault::Doubled { rank, op });
        } else if *done & needs != needs {
            faults.add(OrderFault::TooEarly { rank, op });
        }
        *done |= adds;
    }

    fn report_missing(&self, faults: &mut Faults) {
        for (at, &done) in self.done.iter().enumerate().filter(|&(_, &done)| done != F | I | W) {
            let kind = match done {
                done if done & F == 0 => OpKind::F,
                done if done & I == 0 => OpKind::I,
                _ => OpKind::W,
            };
            let op = Op::new(kind, (at / self.units) as u32, (at % self.units) as u32);
            faults.add(OrderFault::Missing { rank: self.parts.placement[at / self.units].into(), op });
        }
        let full = if self.parts.vocabulary == Vocabulary::Interlaced { 1 } else { 3 };
        for (at, &done) in self.passes.iter().enumerate().filter(|&(_, &done)| done != full) {
            let kind = if done & 1 == 0 { OpKind::S } else { OpKind::T };
            let op = Op::new(kind, (at / self.units) as u32, (at % self.units) as u32);
            faults.add(OrderFault::Missing { rank: at / self.units, op });
        }
    }
}

fn needs_and_adds(kind: OpKind) -> (u8, u8) {
    match kind {
        OpKind::F => (0, F),
        OpKind::I => (F, I),
        OpKind::W => (F | I, W),
        OpKind::B => (F, I | W),
        OpKind::S | OpKind::T => (0, 0),
    }
}
