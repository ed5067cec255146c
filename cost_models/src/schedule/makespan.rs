//! The makespan alone: the longest path through the orders, without memory, streams and links.
//!
//! Ranks run on as in the simulator ([`simulate`](super::simulate)), with the same sums in the same order, so that both say
//! the same to the last bit. What needs more than finish times is left to the simulator.

use super::costs::{OpCosts, Sends};
use super::error::SimulateError;
use super::op::{Op, OpKind};
use super::orders::{RankOrders, Vocabulary};
use super::simulate::simulate;

/// Messages above which the simulator is used, which keeps only those under way.
const MOST_MESSAGES: usize = 1 << 20;

/// Seconds of a step.
///
/// # Errors
/// As [`simulate`].
pub fn makespan(orders: &RankOrders, costs: &OpCosts) -> Result<f64, SimulateError> {
    if let Some(mut paths) = Paths::new(orders, costs) {
        costs.check(orders.stages(), orders.slices())?;
        if let Some(end) = paths.run() {
            return Ok(end + costs.optimizer);
        }
    }
    Ok(simulate(orders, costs)?.makespan)
}

/// A neighbour of a stage.
#[derive(Clone, Copy)]
struct Neighbour {
    rank: usize,
    /// Seconds of a message to it.
    latency: f64,
    /// Where its messages of microbatch 0 lie.
    slots: usize,
}

/// What a stage's operations look up.
struct Stage {
    seconds: [f64; 4],
    pair_saving: [f64; 2],
    /// Where the activations and the gradients of microbatch 0 that it waits for lie.
    inputs: [usize; 2],
    previous: Option<Neighbour>,
    next: Option<Neighbour>,
}

#[derive(Clone, Copy)]
struct Rank {
    position: usize,
    free: f64,
    waits_for: usize,
}

/// What a rank waits for that waits for nothing.
const NOTHING: usize = usize::MAX;

struct Paths<'a> {
    orders: &'a [Vec<Op>],
    stages: Vec<Stage>,
    ranks: Vec<Rank>,
    /// When messages arrive: activations to every stage, then gradients; not a number until they are sent.
    arrivals: Vec<f64>,
    runnable: Vec<usize>,
}

impl<'a> Paths<'a> {
    /// None where finish times are not all that matters.
    fn new(orders: &'a RankOrders, costs: &OpCosts) -> Option<Self> {
        let plain = orders.vocabulary() == Vocabulary::Whole
            && costs.slice_scale.is_empty()
            && costs.sends == Sends::Overlapped
            && costs.hops.iter().all(|hop| hop.transfer == 0.0)
            && costs.stages.iter().all(|stage| stage.parameter_gather == 0.0 && stage.gradient_sync == 0.0);
        let (count, units) = (orders.placement().len(), (orders.microbatches() * orders.slices()) as usize);
        let messages = 2 * count * units;
        let fits = costs.stages.len() == orders.stages() as usize && messages <= MOST_MESSAGES;
        let hops = costs.hops.is_empty() || costs.hops.len() + 1 == costs.stages.len();
        if !plain || !fits || !hops {
            return None;
        }
        let ranks = vec![Rank { position: 0, free: 0.0, waits_for: NOTHING }; orders.ranks() as usize];
        Some(Self {
            orders: orders.orders(),
            stages: (0..count).map(|stage| Stage::new(orders, costs, stage, units)).collect(),
            arrivals: vec![f64::NAN; messages],
            runnable: (0..ranks.len()).rev().collect(),
            ranks,
        })
    }

    /// When the last rank ends; none if ranks wait for each other.
    fn run(&mut self) -> Option<f64> {
        while let Some(rank) = self.runnable.pop() {
            self.advance(rank);
        }
        let mut ends = self.ranks.iter().zip(self.orders);
        ends.try_fold(0.0_f64, |last, (rank, order)| {
            (rank.position == order.len()).then_some(last.max(rank.free))
        })
    }

    /// Runs a rank until its end or until an input is missing.
    fn advance(&mut self, rank: usize) {
        let order = &self.orders[rank];
        let Rank { mut position, mut free, .. } = self.ranks[rank];
        while let Some(&op) = order.get(position) {
            let mate = if op.paired { order.get(position + 1).copied() } else { None };
            let mut ready = 0.0;
            for op in std::iter::once(op).chain(mate) {
                let Some(slot) = self.input(op) else { continue };
                let arrival = self.arrivals[slot];
                if arrival.is_nan() {
                    self.ranks[rank] = Rank { position, free, waits_for: slot };
                    return;
                }
                ready = arrival.max(ready);
            }
            free = free.max(ready) + self.seconds(op, mate);
            position += 1 + usize::from(mate.is_some());
            self.send(op, free);
            if let Some(mate) = mate {
                self.send(mate, free);
            }
        }
        self.ranks[rank] = Rank { position, free, waits_for: NOTHING };
    }

    /// The message that an operation waits for, if any.
    fn input(&self, op: Op) -> Option<usize> {
        let stage = &self.stages[usize::from(op.stage)];
        let waits = match op.kind {
            OpKind::F => stage.previous.map(|_| stage.inputs[0]),
            OpKind::I | OpKind::B => stage.next.map(|_| stage.inputs[1]),
            OpKind::W | OpKind::S | OpKind::T => None,
        };
        waits.map(|slots| slots + op.microbatch as usize)
    }

    fn seconds(&self, op: Op, mate: Option<Op>) -> f64 {
        let seconds = |op: Op| self.stages[usize::from(op.stage)].seconds[op.kind as usize & 3];
        let own = seconds(op);
        let Some(mate) = mate else { return own };
        let saved =
            |op: Op| self.stages[usize::from(op.stage)].pair_saving[usize::from(op.kind != OpKind::F)];
        let saving = saved(op) + saved(mate);
        let other = seconds(mate);
        (own + other - saving).max(own).max(other)
    }

    /// Sends what an operation that ended makes, and lets the rank go on that waits for it.
    fn send(&mut self, op: Op, end: f64) {
        let stage = &self.stages[usize::from(op.stage)];
        let to = match op.kind {
            OpKind::F => stage.next,
            OpKind::I | OpKind::B => stage.previous,
            OpKind::W | OpKind::S | OpKind::T => None,
        };
        let Some(Neighbour { rank, latency, slots }) = to else { return };
        let slot = slots + op.microbatch as usize;
        self.arrivals[slot] = end + latency;
        if self.ranks[rank].waits_for == slot {
            self.ranks[rank].waits_for = NOTHING;
            self.runnable.push(rank);
        }
    }
}

impl Stage {
    fn new(orders: &RankOrders, costs: &OpCosts, stage: usize, units: usize) -> Self {
        let (placement, per_pipeline) = (orders.placement(), orders.stages() as usize);
        let depth = stage % per_pipeline;
        let cost = &costs.stages[depth];
        let [activations, gradients] = [0, placement.len() * units];
        let neighbour = |other: usize, hop: usize, messages: usize| {
            let is_free = placement[stage] == placement[other];
            let latency = costs.hops.get(hop).filter(|_| !is_free).map_or(0.0, |hop| hop.latency);
            Neighbour { rank: usize::from(placement[other]), latency, slots: messages + other * units }
        };
        Self {
            seconds: [cost.forward, cost.input_grad, cost.weight_grad, cost.backward],
            pair_saving: [cost.pair_saving, cost.backward_pair_saving],
            inputs: [activations + stage * units, gradients + stage * units],
            previous: (depth > 0).then(|| neighbour(stage - 1, depth - 1, gradients)),
            next: (depth + 1 < per_pipeline).then(|| neighbour(stage + 1, depth, activations)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{ScheduleKind, ScheduleShape, generate};

    /// Any schedule, with uneven stages and hops and what pairs save, takes as long as in the simulator.
    #[test]
    fn the_makespan_is_that_of_the_simulator() -> Result<(), SimulateError> {
        let mut state = 1u64;
        let mut random = move |high: f64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / (1u64 << 31) as f64 * high
        };
        let (mut plain, mut kinds) = (0, 0);
        for kind in ScheduleKind::ALL {
            let before = plain;
            for (ranks, microbatches, chunks) in [(2, 4, 2), (4, 8, 1), (4, 16, 2), (4, 12, 3), (8, 16, 2)] {
                let shape =
                    ScheduleShape { allow_asynchronous: true, ..ScheduleShape::new(ranks, microbatches) };
                let chunked = shape.with_chunks(chunks);
                let Ok(orders) = generate(*kind, &chunked).or_else(|_| generate(*kind, &shape)) else {
                    continue;
                };
                let mut costs = OpCosts::uniform(orders.stages(), 1.0, 1.0, 1.0).with_latency(0.0);
                for stage in &mut costs.stages {
                    [stage.forward, stage.input_grad, stage.weight_grad] =
                        [random(2.0), random(2.0), random(2.0)];
                    stage.backward = stage.input_grad + stage.weight_grad;
                    [stage.pair_saving, stage.backward_pair_saving] = [random(0.3), random(0.3)];
                    stage.activation_bytes = random(1e9);
                }
                costs.hops.iter_mut().for_each(|hop| hop.latency = random(0.5));
                plain += usize::from(Paths::new(&orders, &costs).is_some());
                assert_eq!(
                    makespan(&orders, &costs)?,
                    simulate(&orders, &costs)?.makespan,
                    "{kind:?} {ranks}"
                );
            }
            kinds += usize::from(plain > before);
        }
        assert!(plain > 60 && kinds > 20, "{plain} orders of {kinds} schedules");
        Ok(())
    }
}
