//! The state of a running simulation.

use super::costs::{Hop, OpCosts, Sends};
use super::deadlock;
use super::error::SimulateError;
use super::mailbox::Mailbox;
use super::op::{Op, OpKind};
use super::orders::RankOrders;
use super::timeline::{OpSpan, RankTimeline};
use super::vocabulary::Gates;

/// What a rank can wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Input {
    /// The activations of the previous stage for this stage.
    Activation { stage: u16, microbatch: u32 },
    /// The gradient of the next stage for this stage.
    Gradient { stage: u16, microbatch: u32 },
    /// The last stage's forward, on every rank.
    Output { microbatch: u32 },
    /// All ranks' `S`.
    AllS { microbatch: u32 },
    /// All ranks' `T`.
    AllT { microbatch: u32 },
}

/// What a stage's operations look up: no arithmetic on stage numbers in the loop.
struct StageTable {
    seconds: [f64; 4],
    pair_saving: f64,
    bytes: f64,
    freed_by_input_grad: f64,
    parameter_gather: f64,
    gradient_sync: f64,
    depth: usize,
    previous_rank: Option<usize>,
    next_rank: Option<usize>,
    forwards_left: u32,
    backwards_left: u32,
    activations: Mailbox,
    gradients: Mailbox,
}

#[derive(Default)]
pub(super) struct RankState {
    pub(super) position: usize,
    pub(super) waits_for: Option<Input>,
    free: f64,
    stream_free: f64,
    started: bool,
    live: u32,
    live_bytes: f64,
    totals: RankTimeline,
}

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
            stages: (0..orders.placement().len()).map(|stage| table(orders, costs, stage)).collect(),
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
        let saving = [op, mate].into_iter().filter(|op| op.kind == OpKind::F);
        let saving: f64 = saving.map(|op| self.stages[usize::from(op.stage)].pair_saving).sum();
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

    /// Memory, messages and streams of an operation that has run.
    #[inline]
    fn complete(&mut self, rank: usize, op: Op, start: f64, end: f64) {
        if self.recording {
            self.ranks[rank].totals.spans.push(OpSpan { op, start, end });
        }
        match op.kind {
            OpKind::F => self.complete_forward(rank, op, end),
            OpKind::I => {
                self.ranks[rank].live_bytes -= self.stages[usize::from(op.stage)].freed_by_input_grad;
                self.send_gradient(rank, op, end);
            }
            OpKind::B => {
                self.send_gradient(rank, op, end);
                self.release(rank, op, end, 0.0);
            }
            OpKind::W => {
                let freed = self.stages[usize::from(op.stage)].freed_by_input_grad;
                self.release(rank, op, end, freed);
            }
            OpKind::S => {
                self.ranks[rank].hold_bytes(self.costs.vocabulary.held_bytes);
                let barrier = self.costs.vocabulary.barrier;
                if self.gates.finish_s(op.microbatch, end, barrier) {
                    self.wake_all(Input::AllS { microbatch: op.microbatch });
                }
            }
            OpKind::T => {
                self.ranks[rank].live_bytes -= self.costs.vocabulary.held_bytes;
                if self.gates.finish_t(op.microbatch, end, self.costs.vocabulary.barrier) {
                    self.wake_all(Input::AllT { microbatch: op.microbatch });
                }
            }
        }
    }

    #[inline]
    fn complete_forward(&mut self, rank: usize, op: Op, end: f64) {
        let stage = usize::from(op.stage);
        let table = &mut self.stages[stage];
        table.forwards_left -= 1;
        let (bytes, depth, first, next) =
            (table.bytes, table.depth, table.previous_rank.is_none(), table.next_rank);
        if !first {
            table.activations.take(op.microbatch);
        }
        let state = &mut self.ranks[rank];
        state.live += 1;
        state.totals.peak_activations = state.totals.peak_activations.max(state.live);
        state.hold_bytes(bytes);
        match next {
            Some(next) => {
                let arrival = self.send(rank, next, depth, end);
                self.stages[stage + 1].activations.put(op.microbatch, arrival);
                self.wake(next, Input::Activation { stage: op.stage + 1, microbatch: op.microbatch });
            }
            None => {
                if self.gates.finish_output(op.microbatch, end + self.costs.vocabulary.broadcast) {
                    self.wake_all(Input::Output { microbatch: op.microbatch });
                }
            }
        }
    }

    #[inline]
    fn send_gradient(&mut self, rank: usize, op: Op, end: f64) {
        let stage = usize::from(op.stage);
        let table = &mut self.stages[stage];
        if table.next_rank.is_some() {
            table.gradients.take(op.microbatch);
        }
        if let Some(previous) = table.previous_rank {
            let arrival = self.send(rank, previous, self.stages[stage].depth - 1, end);
            self.stages[stage - 1].gradients.put(op.microbatch, arrival);
            self.wake(previous, Input::Gradient { stage: op.stage - 1, microbatch: op.microbatch });
        }
    }

    /// Arrival of a message over hop `depth`.
    #[inline]
    fn send(&mut self, from: usize, to: usize, depth: usize, end: f64) -> f64 {
        if from == to || self.costs.hops.is_empty() {
            return end;
        }
        let Hop { latency, transfer } = self.costs.hops[depth];
        let sent = match self.links.get_mut(from * self.ranks.len() + to) {
            Some(link) => {
                *link = link.max(end) + transfer;
                *link
            }
            None => end,
        };
        let arrival = sent + latency;
        if self.costs.sends == Sends::Blocking {
            let state = &mut self.ranks[from];
            state.free = state.free.max(arrival);
        }
        arrival
    }

    /// Frees an activation; after a stage's last backward its gradients are reduced on the rank's stream.
    #[inline]
    fn release(&mut self, rank: usize, op: Op, end: f64, freed_before: f64) {
        let table = &mut self.stages[usize::from(op.stage)];
        table.backwards_left -= 1;
        let state = &mut self.ranks[rank];
        state.live -= 1;
        state.live_bytes -= table.bytes - freed_before;
        if table.backwards_left == 0 && table.gradient_sync > 0.0 {
            state.stream_free = state.stream_free.max(end) + table.gradient_sync;
        }
    }

    #[inline]
    fn wake(&mut self, rank: usize, input: Input) {
        let state = &mut self.ranks[rank];
        if state.waits_for == Some(input) {
            state.waits_for = None;
            self.runnable.push(rank);
        }
    }

    fn wake_all(&mut self, input: Input) {
        (0..self.ranks.len()).for_each(|rank| self.wake(rank, input));
    }
}

impl RankState {
    #[inline]
    fn open(&mut self, start: f64, end: f64) {
        if !self.started {
            self.started = true;
            self.totals.first_start = start;
        }
        self.totals.busy += end - start;
        self.totals.last_end = end;
        self.free = end;
    }

    #[inline]
    fn hold_bytes(&mut self, bytes: f64) {
        self.live_bytes += bytes;
        self.totals.peak_activation_bytes = self.totals.peak_activation_bytes.max(self.live_bytes);
    }

    fn finish(mut self) -> RankTimeline {
        self.totals.gradients_ready = self.totals.last_end.max(self.stream_free);
        self.totals
    }
}

fn table(orders: &RankOrders, costs: &OpCosts, stage: usize) -> StageTable {
    let depth = stage % orders.stages() as usize;
    let rank_of = |stage: usize| usize::from(orders.placement()[stage]);
    let units = orders.microbatches() * orders.slices();
    let cost = &costs.stages[depth];
    StageTable {
        seconds: [cost.forward, cost.input_grad, cost.weight_grad, cost.backward],
        pair_saving: cost.pair_saving,
        bytes: cost.activation_bytes,
        freed_by_input_grad: cost.freed_by_input_grad_bytes.min(cost.activation_bytes),
        parameter_gather: cost.parameter_gather,
        gradient_sync: cost.gradient_sync,
        depth,
        previous_rank: (depth > 0).then(|| rank_of(stage - 1)),
        next_rank: (depth + 1 < orders.stages() as usize).then(|| rank_of(stage + 1)),
        forwards_left: units,
        backwards_left: units,
        activations: Mailbox::new(),
        gradients: Mailbox::new(),
    }
}
