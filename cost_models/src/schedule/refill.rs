//! Fills the gaps of an order with later operations of the same rank, without making anything later.
//!
//! The third step of "repeat, squeeze, reorder" (arXiv:2405.15362, section 3.3), with real times: a rank that waits runs
//! a later operation whose inputs are there if it ends before the awaited one can start (or would have started), and if
//! a forward does not raise the rank's memory above its cap anywhere. So no operation that others wait for starts later
//! than before. After a rank's last forward, input gradients that can run go before weight gradients.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use super::costs::OpCosts;
use super::error::SimulateError;
use super::op::{Op, OpKind};
use super::orders::{RankOrders, Vocabulary};
use super::simulate::record;

/// How much each rank may hold: weights per stage (of all pipelines) against a limit per rank.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MemoryCap {
    pub(super) per_stage: Vec<f64>,
    pub(super) limit: Vec<f64>,
}

impl MemoryCap {
    /// At most `limit` microbatch-stages on every rank.
    pub(super) fn units(orders: &RankOrders, limit: u32) -> MemoryCap {
        let stages = orders.placement().len();
        MemoryCap { per_stage: vec![1.0; stages], limit: vec![limit.into(); orders.ranks() as usize] }
    }
}

/// How many operations ahead a rank looks for one to fill a gap with.
const WINDOW: usize = 512;

/// The order with its gaps filled. Orders with combined pairs or vocabulary passes come back unchanged: their ranks
/// wait for more than one input.
///
/// # Errors
/// As the simulation of the order itself.
pub(super) fn refill(
    orders: &RankOrders,
    costs: &OpCosts,
    cap: &MemoryCap,
) -> Result<RankOrders, SimulateError> {
    let fixed =
        orders.vocabulary() != Vocabulary::Whole || orders.orders().iter().flatten().any(|op| op.paired);
    let timeline = record(orders, costs)?;
    if fixed {
        return Ok(orders.clone());
    }
    let starts =
        timeline.ranks.iter().map(|rank| rank.spans.iter().map(|span| span.start).collect()).collect();
    let filled = Refill::new(orders, costs, cap, starts).run();
    let mut parts = orders.clone().into_parts();
    parts.orders = filled;
    Ok(RankOrders::new(parts).unwrap_or_else(|_| orders.clone()))
}

struct RankQueue {
    left: Vec<(Op, f64)>,
    head: usize,
    taken: Vec<bool>,
    free: f64,
    held: f64,
    forwards_left: usize,
    /// How many different kinds of operations of different stages there are.
    kinds: usize,
    ran: Vec<Op>,
}

/// Time as an order-preserving integer; times are never negative.
fn key(time: f64) -> u64 {
    (time + 0.0).to_bits()
}

struct Refill<'a> {
    orders: &'a RankOrders,
    costs: &'a OpCosts,
    cap: &'a MemoryCap,
    units: usize,
    ranks: Vec<RankQueue>,
    /// Arrival of activations and gradients per stage and microbatch.
    activations: Vec<Option<f64>>,
    gradients: Vec<Option<f64>>,
    /// Whether the input gradient of a stage and microbatch has run.
    input_done: Vec<bool>,
    events: BinaryHeap<Reverse<(u64, usize)>>,
}

impl<'a> Refill<'a> {
    fn new(
        orders: &'a RankOrders,
        costs: &'a OpCosts,
        cap: &'a MemoryCap,
        starts: Vec<Vec<f64>>,
    ) -> Refill<'a> {
        let units = (orders.microbatches() * orders.slices()) as usize;
        let stages = orders.placement().len();
        let queue = |(order, starts): (&Vec<Op>, Vec<f64>)| RankQueue {
            left: order.iter().copied().zip(starts).collect(),
            head: 0,
            taken: vec![false; order.len()],
            free: 0.0,
            held: 0.0,
            forwards_left: order.iter().filter(|op| op.kind == OpKind::F).count(),
            kinds: order.iter().map(|op| (op.kind, op.stage)).collect::<BTreeSet<_>>().len(),
            ran: Vec::with_capacity(order.len()),
        };
        let mut refill = Refill {
            orders,
            costs,
            cap,
            units,
            ranks: orders.orders().iter().zip(starts).map(queue).collect(),
            activations: vec![None; stages * units],
            gradients: vec![None; stages * units],
            input_done: vec![false; stages * units],
            events: (0..orders.ranks() as usize).map(|rank| Reverse((0, rank))).collect(),
        };
        for stage in (0..stages).step_by(orders.stages() as usize) {
            refill.activations[stage * units..(stage + 1) * units].fill(Some(0.0));
        }
        refill
    }

    fn run(mut self) -> Vec<Vec<Op>> {
        while let Some(Reverse((time, rank))) = self.events.pop() {
            self.step(rank, f64::from_bits(time));
        }
        self.ranks.into_iter().map(|queue| queue.ran).collect()
    }

    /// Runs at most one operation of a rank at this time.
    fn step(&mut self, rank: usize, now: f64) {
        let queue = &self.ranks[rank];
        if queue.free > now || queue.head >= queue.left.len() {
            return;
        }
        let (op, usual_start) = queue.left[queue.head];
        if op.kind == OpKind::W && queue.forwards_left == 0 {
            // Nobody needs the memory any more: gradients others wait for go first.
            let at = self.ready_gradient(rank, now).unwrap_or(queue.head);
            return self.execute(rank, at, now);
        }
        match self.ready(op) {
            Some(ready) if ready <= now => self.execute(rank, queue.head, now),
            ready => {
                if let Some(at) = self.filler(rank, now, ready.unwrap_or(usual_start)) {
                    self.execute(rank, at, now);
                } else if let Some(ready) = ready {
                    self.events.push(Reverse((key(ready), rank)));
                }
            }
        }
    }

    /// When the operation's inputs are there, if that is known.
    fn ready(&self, op: Op) -> Option<f64> {
        let at = usize::from(op.stage) * self.units + op.microbatch as usize;
        match op.kind {
            OpKind::F => self.activations[at],
            OpKind::I | OpKind::B => self.gradients[at],
            OpKind::W => self.input_done[at].then_some(0.0),
            OpKind::S | OpKind::T => Some(0.0),
        }
    }

    /// The first later operation that can run now and ends by `until`.
    fn filler(&self, rank: usize, now: f64, until: f64) -> Option<usize> {
        let queue = &self.ranks[rank];
        let (mut change, mut peak) = (0.0f64, 0.0f64);
        let mut passed: Vec<(OpKind, u16)> = Vec::new();
        for at in queue.head..queue.left.len().min(queue.head + WINDOW) {
            if queue.taken[at] {
                continue;
            }
            let op = queue.left[at].0;
            let fits = now + self.seconds(op) <= until && self.ready(op).is_some_and(|ready| ready <= now);
            // Operations of one kind and stage keep their order.
            let first = !passed.contains(&(op.kind, op.stage));
            let room = op.kind != OpKind::F
                || queue.held + peak + self.bytes(op) <= self.cap.limit[rank] * (1.0 + 1e-12);
            if at > queue.head && first && fits && room {
                return Some(at);
            }
            if first {
                passed.push((op.kind, op.stage));
            }
            if passed.len() == queue.kinds {
                return None;
            }
            change += self.change(op);
            peak = peak.max(change);
        }
        None
    }

    /// The first input gradient that can run now.
    fn ready_gradient(&self, rank: usize, now: f64) -> Option<usize> {
        let queue = &self.ranks[rank];
        let window = queue.head..queue.left.len().min(queue.head + WINDOW);
        let gradients = window.filter(|&at| !queue.taken[at] && queue.left[at].0.kind == OpKind::I);
        let mut stages = Vec::new();
        for at in gradients {
            let op = queue.left[at].0;
            if !stages.contains(&op.stage) && self.ready(op).is_some_and(|ready| ready <= now) {
                return Some(at);
            }
            stages.push(op.stage);
        }
        None
    }

    fn bytes(&self, op: Op) -> f64 {
        self.cap.per_stage[usize::from(op.stage)]
    }

    fn change(&self, op: Op) -> f64 {
        match op.kind {
            OpKind::F => self.bytes(op),
            OpKind::B | OpKind::W => -self.bytes(op),
            OpKind::I | OpKind::S | OpKind::T => 0.0,
        }
    }

    fn seconds(&self, op: Op) -> f64 {
        let scale = self.costs.slice_scale.get((op.microbatch % self.orders.slices()) as usize);
        self.costs.stages[self.orders.depth_of(op.stage) as usize].seconds(op.kind) * scale.unwrap_or(&1.0)
    }

    fn execute(&mut self, rank: usize, at: usize, now: f64) {
        let op = self.ranks[rank].left[at].0;
        let end = now + self.seconds(op);
        let change = self.change(op);
        let queue = &mut self.ranks[rank];
        queue.ran.push(op);
        queue.taken[at] = true;
        queue.held += change;
        queue.forwards_left -= usize::from(op.kind == OpKind::F);
        queue.free = end;
        while queue.taken.get(queue.head).is_some_and(|&taken| taken) {
            queue.head += 1;
        }
        self.events.push(Reverse((key(end), rank)));
        match op.kind {
            OpKind::F => self.send_activation(rank, op, end),
            OpKind::I | OpKind::B => {
                self.input_done[usize::from(op.stage) * self.units + op.microbatch as usize] = true;
                self.send_gradient(rank, op, end);
            }
            OpKind::W | OpKind::S | OpKind::T => {}
        }
    }

    fn send_activation(&mut self, rank: usize, op: Op, end: f64) {
        let (stage, depth) = (usize::from(op.stage), self.orders.depth_of(op.stage) as usize);
        if depth + 1 == self.orders.stages() as usize {
            self.gradients[stage * self.units + op.microbatch as usize] = Some(end);
            return;
        }
        let arrival = self.arrival(rank, stage + 1, depth, end);
        self.activations[(stage + 1) * self.units + op.microbatch as usize] = Some(arrival);
    }

    fn send_gradient(&mut self, rank: usize, op: Op, end: f64) {
        let (stage, depth) = (usize::from(op.stage), self.orders.depth_of(op.stage) as usize);
        if depth > 0 {
            let arrival = self.arrival(rank, stage - 1, depth - 1, end);
            self.gradients[(stage - 1) * self.units + op.microbatch as usize] = Some(arrival);
        }
    }

    /// When a message reaches a stage, which then looks whether it can go on.
    fn arrival(&mut self, rank: usize, to: usize, hop: usize, end: f64) -> f64 {
        let home = usize::from(self.orders.placement()[to]);
        let arrival = if home == rank { end } else { end + self.costs.hop_seconds(hop) };
        self.events.push(Reverse((key(arrival), home)));
        arrival
    }
}
