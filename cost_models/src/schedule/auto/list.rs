//! List schedules: whenever a rank is free it takes the ready operation its policy likes best.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::super::costs::OpCosts;
use super::super::op::{Op, OpKind};
use super::super::orders::{OrderParts, RankOrders, Vocabulary};
use super::super::placement::Placement;
use super::super::refill::MemoryCap;
use super::super::shape::Sizes;
use super::{ScheduleError, Search};

/// How a rank chooses.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Policy {
    placement: Placement,
    /// Forwards before input gradients once there are enough microbatches in flight.
    forward_first: bool,
    /// Waits for an input that is on its way rather than start a weight gradient that would delay it.
    patient: bool,
    /// How far forwards may run ahead of input gradients on a rank.
    ahead: Ahead,
}

/// Forwards of a rank less its input gradients, at most, per chunk.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ahead {
    /// As memory allows.
    Any,
    /// p - r, as 1F1B.
    OneFOneB,
    /// 2 (p - r) - 1, as ZB-H2.
    ZbH2,
    /// As many as fill the time until the first gradient comes back, and this many more.
    RoundTrip(u32),
}

/// Policies that a pilot leaves for the whole number of microbatches.
const FINALISTS: usize = 6;
/// Work of making a list schedule, in simulations.
const MAKING: u64 = 6;

/// Tries every policy; with many microbatches those that do best with a few of them.
pub(super) fn schedules(search: &mut Search) -> Result<(), ScheduleError> {
    let mut policies = policies(search);
    if let Some(pilot) = search.pilot() {
        let mut timed: Vec<(f64, Policy)> = Vec::new();
        let reserve = search.effort / 2;
        for policy in policies {
            if search.effort <= reserve {
                break;
            }
            let Some(orders) = listed(search, &pilot, policy) else { continue };
            timed.extend(search.pilot_time(&orders).map(|time| (time, policy)));
        }
        timed.sort_by(|a, b| a.0.total_cmp(&b.0));
        policies = timed.into_iter().take(FINALISTS).map(|(_, policy)| policy).collect();
    }
    for policy in policies {
        if search.is_done() {
            break;
        }
        let Some(orders) = listed(search, search.sizes, policy) else { continue };
        search.consider_filled(orders, "list schedule")?;
    }
    Ok(())
}

fn listed(search: &mut Search, sizes: &Sizes, policy: Policy) -> Option<RankOrders> {
    if search.is_done() {
        return None;
    }
    let cap = search.cap(&policy.placement.ranks_of_stages(sizes.p, sizes.p * sizes.v), 1);
    search.spend(MAKING * 3 * u64::from(sizes.p * sizes.v) * u64::from(sizes.m));
    List::new(sizes, search.costs, &cap, policy).run()
}

fn policies(search: &Search) -> Vec<Policy> {
    let mut placements = search.placements();
    placements.retain(|placement| placement.pipelines() == 1);
    let aims = [Ahead::Any, Ahead::OneFOneB, Ahead::ZbH2, Ahead::RoundTrip(0), Ahead::RoundTrip(1)];
    let mut policies = Vec::new();
    for placement in placements {
        for (forward_first, patient) in [(false, false), (false, true), (true, false), (true, true)] {
            let aimed = aims.map(|ahead| Policy { placement, forward_first, patient, ahead });
            policies.extend(aimed);
        }
    }
    policies
}

/// Counts of what a stage has done: its next microbatch per kind.
#[derive(Default, Clone, Copy)]
struct Done {
    forward: u32,
    input: u32,
    weight: u32,
}

#[derive(Clone, Copy, PartialEq)]
enum Choice {
    Run(Op),
    WaitUntil(f64),
    Idle,
}

struct List<'a> {
    sizes: &'a Sizes,
    costs: &'a OpCosts,
    cap: &'a MemoryCap,
    policy: Policy,
    placement: Vec<u16>,
    stages_of: Vec<Vec<usize>>,
    done: Vec<Done>,
    /// Arrival times per stage, appended in microbatch order.
    activations: Vec<Vec<f64>>,
    gradients: Vec<Vec<f64>>,
    free: Vec<f64>,
    held: Vec<f64>,
    /// Forwards less input gradients, now and at most.
    ahead: Vec<u32>,
    most_ahead: Vec<u32>,
    orders: Vec<Vec<Op>>,
    events: BinaryHeap<Reverse<(u64, usize)>>,
}

impl<'a> List<'a> {
    fn new(sizes: &'a Sizes, costs: &'a OpCosts, cap: &'a MemoryCap, policy: Policy) -> List<'a> {
        let (p, stages) = (sizes.p as usize, (sizes.p * sizes.v) as usize);
        let placement = policy.placement.ranks_of_stages(sizes.p, sizes.p * sizes.v);
        let of_rank =
            |rank: usize| (0..stages).filter(|&stage| usize::from(placement[stage]) == rank).collect();
        let mut activations = vec![Vec::new(); stages];
        activations[0] = vec![0.0; sizes.m as usize];
        List {
            sizes,
            costs,
            cap,
            policy,
            stages_of: (0..p).map(of_rank).collect(),
            done: vec![Done::default(); stages],
            activations,
            gradients: vec![Vec::new(); stages],
            free: vec![0.0; p],
            held: vec![0.0; p],
            ahead: vec![0; p],
            most_ahead: (0..sizes.p).map(|rank| most_ahead(sizes, costs, policy, rank)).collect(),
            orders: vec![Vec::new(); p],
            events: (0..p).map(|rank| Reverse((0, rank))).collect(),
            placement,
        }
    }

    /// The schedule, or nothing where the memory limit stops it.
    fn run(mut self) -> Option<RankOrders> {
        while let Some(Reverse((time, rank))) = self.events.pop() {
            let now = f64::from_bits(time);
            if self.free[rank] > now {
                continue;
            }
            match self.choose(rank, now) {
                Choice::Run(op) => self.execute(rank, op, now),
                Choice::WaitUntil(time) => self.events.push(Reverse((time.to_bits(), rank))),
                Choice::Idle => {}
            }
        }
        let (p, stages) = (self.sizes.p, self.sizes.p * self.sizes.v);
        let parts = OrderParts {
            ranks: p,
            stages,
            microbatches: self.sizes.m,
            slices: 1,
            vocabulary: Vocabulary::Whole,
            placement: self.placement,
            orders: self.orders,
        };
        RankOrders::new(parts).ok()
    }

    fn choose(&self, rank: usize, now: f64) -> Choice {
        let input = self.next_input_grad(rank);
        let forward = self.next_forward(rank);
        let ready =
            |candidate: Option<(f64, Op)>| candidate.filter(|&(time, _)| time <= now).map(|(_, op)| op);
        let (first, second) = if self.policy.forward_first { (forward, input) } else { (input, forward) };
        if let Some(op) = ready(first).or_else(|| ready(second)) {
            return Choice::Run(op);
        }
        let next = [first, second].into_iter().flatten().map(|(time, _)| time).fold(f64::INFINITY, f64::min);
        match self.next_weight_grad(rank) {
            Some(op) if !self.policy.patient || now + self.seconds(op) <= next => Choice::Run(op),
            _ if next.is_finite() => Choice::WaitUntil(next),
            _ => Choice::Idle,
        }
    }

    /// The earliest input gradient whose gradient is on its way or there: later stages first among equals.
    fn next_input_grad(&self, rank: usize) -> Option<(f64, Op)> {
        let known = self.stages_of[rank].iter().rev().filter_map(|&stage| {
            let j = self.done[stage].input;
            let arrival = *self.gradients[stage].get(j as usize)?;
            Some((arrival, Op::i(stage as u32, j)))
        });
        known.min_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// The forward of the latest chunk whose input is known and that memory has room for.
    fn next_forward(&self, rank: usize) -> Option<(f64, Op)> {
        let chunks = self.stages_of[rank].len();
        let known = self.stages_of[rank].iter().enumerate().rev().filter_map(|(chunk, &stage)| {
            let j = self.done[stage].forward;
            let arrival = *self.activations[stage].get(j as usize)?;
            self.has_room(rank, stage, chunks - 1 - chunk).then_some((arrival, Op::f(stage as u32, j)))
        });
        known.min_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// Whether a forward leaves room for one microbatch of every later chunk, so that those can always go on.
    fn has_room(&self, rank: usize, stage: usize, later: usize) -> bool {
        let later_stages = self.stages_of[rank].iter().rev().take(later);
        let reserved: f64 = later_stages.map(|&stage| self.cap.per_stage[stage]).sum();
        let needed = self.held[rank] + self.cap.per_stage[stage] + reserved;
        let limit = self.most_ahead[rank].max(later as u32 + 1);
        needed <= self.cap.limit[rank] && self.ahead[rank] + (later as u32) < limit
    }

    fn next_weight_grad(&self, rank: usize) -> Option<Op> {
        let pending = |&&stage: &&usize| self.done[stage].weight < self.done[stage].input;
        let stage = *self.stages_of[rank].iter().rev().find(pending)?;
        Some(Op::w(stage as u32, self.done[stage].weight))
    }

    fn seconds(&self, op: Op) -> f64 {
        self.costs.stages[usize::from(op.stage)].seconds(op.kind)
    }

    fn execute(&mut self, rank: usize, op: Op, now: f64) {
        let (stage, end) = (usize::from(op.stage), now + self.seconds(op));
        let bytes = self.cap.per_stage[stage];
        self.orders[rank].push(op);
        self.free[rank] = end;
        self.events.push(Reverse((end.to_bits(), rank)));
        match op.kind {
            OpKind::F => {
                self.done[stage].forward += 1;
                self.held[rank] += bytes;
                self.ahead[rank] += 1;
                match stage + 1 == self.done.len() {
                    true => self.gradients[stage].push(end),
                    false => self.deliver(rank, stage + 1, stage, end, true),
                }
            }
            OpKind::I => {
                self.done[stage].input += 1;
                self.ahead[rank] -= 1;
                if stage > 0 {
                    self.deliver(rank, stage - 1, stage - 1, end, false);
                }
            }
            _ => {
                self.done[stage].weight += 1;
                self.held[rank] -= bytes;
            }
        }
    }

    fn deliver(&mut self, rank: usize, to: usize, hop: usize, end: f64, activation: bool) {
        let home = usize::from(self.placement[to]);
        let arrival = if home == rank { end } else { end + self.costs.hop_seconds(hop) };
        let inbox = if activation { &mut self.activations } else { &mut self.gradients };
        inbox[to].push(arrival);
        self.events.push(Reverse((arrival.to_bits(), home)));
    }
}

/// The policy's limit for a rank, all its chunks together.
fn most_ahead(sizes: &Sizes, costs: &OpCosts, policy: Policy, rank: u32) -> u32 {
    let to_end = sizes.p - rank;
    match policy.ahead {
        Ahead::Any => u32::MAX,
        Ahead::OneFOneB => to_end * sizes.v,
        Ahead::ZbH2 => (2 * to_end - 1) * sizes.v,
        Ahead::RoundTrip(more) => round_trip(sizes, costs, policy.placement, rank).saturating_add(more),
    }
}

/// Forwards of the rank that fit between its first forward and the return of the first gradient, rounded up.
fn round_trip(sizes: &Sizes, costs: &OpCosts, placement: Placement, rank: u32) -> u32 {
    let stages = (sizes.p * sizes.v) as usize;
    let placed = placement.ranks_of_stages(sizes.p, stages as u32);
    let own = |stage: &usize| u32::from(placed[*stage]) == rank;
    let first = (0..stages).find(own).unwrap_or(0);
    let last = (0..stages).rfind(own).unwrap_or(0);
    let forward = |stage: usize| costs.stages[stage].forward;
    let hops = |range: std::ops::Range<usize>| -> f64 { range.map(|stage| costs.hop_seconds(stage)).sum() };
    let there: f64 = (first..stages).map(forward).sum::<f64>() + hops(first..stages - 1);
    let back: f64 =
        (last + 1..stages).map(|stage| costs.stages[stage].input_grad).sum::<f64>() + hops(last..stages - 1);
    let own_forwards: Vec<f64> = (0..stages).filter(own).map(forward).collect();
    let mean = own_forwards.iter().sum::<f64>() / own_forwards.len().max(1) as f64;
    if mean > 0.0 { ((there + back) / mean - 1e-9).ceil().min(1e9) as u32 } else { u32::MAX }
}
