//! A running simulation: ranks run on until an input is missing, and are woken when it is there.

mod effects;
mod state;

pub(super) use state::{Input, RankState};

use super::costs::OpCosts;
use super::deadlock;
use super::error::SimulateError;
use super::op::{Op, OpKind};
use super::orders::RankOrders;
use super::timeline::RankTimeline;
use super::vocabulary::Gates;
use state::StageTable;

pub(super) struct Engine<'a> {
    orders: &'a RankOrders,
    costs: &'a OpCosts,
    recording: bool,
    stages: Vec<StageTable>,
    ranks: Vec<RankState>,
    gates: Gates,
    /// When the link from one rank to another is free again; used where messages take link time.
    links: Vec<f64>,
    runnable: Vec<usize>,
}

impl<'a> Engine<'a> {
    pub(super) fn new(orders: &'a RankOrders, costs: &'a OpCosts, recording: bool) -> Engine<'a> {
        let ranks = orders.ranks() as usize;
        let queueing = costs.hops.iter().any(|hop| hop.transfer > 0.0);
        Engine {
            orders,
            costs,
            recording,
            stages: (0..orders.placement().len())
                .map(|stage| StageTable::new(orders, costs, stage))
                .collect(),
            ranks: (0..ranks).map(|_| RankState::default()).collect(),
            gates: Gates::new(orders),
            links: if queueing { vec![0.0; ranks * ranks] } else { Vec::new() },
            runnable: (0..ranks).rev().collect(),
        }
    }

    /// Runs every rank to its end.
    pub(super) fn run(mut self) -> Result<Vec<RankTimeline>, SimulateError> {
        while let Some(rank) = self.runnable.pop() {
            self.advance(rank);
        }
        let unfinished =
            |(rank, state): (usize, &RankState)| state.position < self.orders.orders()[rank].len();
        if self.ranks.iter().enumerate().any(unfinished) {
            return Err(SimulateError::Deadlock { cycle: deadlock::cycle(self.orders, &self.ranks) });
        }
        Ok(self.ranks.into_iter().map(RankState::finish).collect())
    }

    /// Runs a rank until its end or until an input is missing.
    fn advance(&mut self, rank: usize) {
        let order: &'a [Op] = &self.orders.orders()[rank];
        while let Some(&op) = order.get(self.ranks[rank].position) {
            let mate = if op.paired { order.get(self.ranks[rank].position + 1).copied() } else { None };
            let ready = self.input(rank, op).and_then(|ready| match mate {
                Some(mate) => self.input(rank, mate).map(|other| ready.max(other)),
                None => Ok(ready),
            });
            match ready {
                Err(missing) => {
                    self.ranks[rank].waits_for = Some(missing);
                    return;
                }
                Ok(ready) => self.execute(rank, op, mate, ready),
            }
        }
    }

    /// When the operation's inputs are there, or the one that is missing.
    #[inline]
    fn input(&mut self, rank: usize, op: Op) -> Result<f64, Input> {
        let (stage, microbatch) = (op.stage, op.microbatch);
        match op.kind {
            OpKind::W => Ok(0.0),
            OpKind::F => {
                let table = &self.stages[usize::from(stage)];
                match table.previous_rank {
                    None => Ok(0.0),
                    Some(_) => {
                        table.activations.peek(microbatch).ok_or(Input::Activation { stage, microbatch })
                    }
                }
            }
            OpKind::I | OpKind::B => {
                let table = &self.stages[usize::from(stage)];
                match table.next_rank {
                    None => self.gates.backward(microbatch),
                    Some(_) => table.gradients.peek(microbatch).ok_or(Input::Gradient { stage, microbatch }),
                }
            }
            OpKind::S => self.start_pass(rank, microbatch),
            OpKind::T => self.gates.all_s(microbatch),
        }
    }

    fn start_pass(&mut self, rank: usize, microbatch: u32) -> Result<f64, Input> {
        let ready = self.gates.output(microbatch)?.max(self.ranks[rank].free);
        if self.gates.arrive(rank, microbatch, ready)? {
            self.wake_all(Input::AllS { microbatch });
        }
        Ok(self.gates.meeting(microbatch).unwrap_or(ready))
    }

    #[inline]
    fn execute(&mut self, rank: usize, op: Op, mate: Option<Op>, ready: f64) {
        let ready = ready.max(self.gather(rank, op)).max(mate.map_or(0.0, |mate| self.gather(rank, mate)));
        let start = self.ranks[rank].free.max(ready);
        let end = start + self.seconds(op, mate);
        let state = &mut self.ranks[rank];
        state.open(start, end);
        state.position += 1 + usize::from(mate.is_some());
        self.complete(rank, op, start, end);
        if let Some(mate) = mate {
            self.complete(rank, mate, start, end);
        }
    }

    fn seconds(&self, op: Op, mate: Option<Op>) -> f64 {
        let own = self.op_seconds(op);
        let Some(mate) = mate else { return own };
        let saved =
            |op: Op| self.stages[usize::from(op.stage)].pair_saving[usize::from(op.kind != OpKind::F)];
        let saving = saved(op) + saved(mate);
        let other = self.op_seconds(mate);
        (own + other - saving).max(own).max(other)
    }

    #[inline]
    fn op_seconds(&self, op: Op) -> f64 {
        match op.kind {
            OpKind::S => self.costs.vocabulary.s,
            OpKind::T => self.costs.vocabulary.t,
            kind => {
                let seconds = self.stages[usize::from(op.stage)].seconds[kind as usize];
                match self.costs.slice_scale.get((op.microbatch % self.orders.slices()) as usize) {
                    Some(scale) => seconds * scale,
                    None => seconds,
                }
            }
        }
    }

    /// The first forward of a stage waits for the stage's parameters.
    #[inline]
    fn gather(&mut self, rank: usize, op: Op) -> f64 {
        if op.kind != OpKind::F {
            return 0.0;
        }
        let table = &mut self.stages[usize::from(op.stage)];
        if table.forwards_left != self.gates.units() || table.parameter_gather == 0.0 {
            return 0.0;
        }
        let state = &mut self.ranks[rank];
        state.stream_free += table.parameter_gather;
        state.stream_free
    }
}
