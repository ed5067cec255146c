//! Greedy zero-bubble orders for one stage a rank (arXiv:2401.10241, section 3.1): forwards and input gradients in
//! turn, weight gradients where a rank waits or memory asks for them.

use std::collections::VecDeque;

use super::super::costs::OpCosts;
use super::super::op::Op;
use super::super::orders::{OrderParts, RankOrders, Vocabulary};
use super::super::placement::Placement;
use super::super::refill::MemoryCap;
use super::super::shape::Sizes;
use super::{ScheduleError, Search};

/// Which ranks run one more forward in their warm-up, even if it delays the first input gradient.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Overfill {
    None,
    First,
    All,
}

/// The heuristic's switches.
#[derive(Debug, Clone, Copy)]
struct Switches {
    overfill: Overfill,
    /// The input gradient of a microbatch before the next forward.
    gradient_first: bool,
    /// Weight gradients also in waits shorter than they are, once waits add up to those of the worst rank.
    fill_short_waits: bool,
}

/// Tries all settings of the switches.
pub(super) fn schedules(search: &mut Search) -> Result<(), ScheduleError> {
    let (p, v) = (search.sizes.p, search.sizes.v);
    if v != 1 || !search.placements().contains(&Placement::Loop) {
        return Ok(());
    }
    let cap = search.cap(&Placement::Loop.ranks_of_stages(p, p), 1);
    for overfill in [Overfill::None, Overfill::First, Overfill::All] {
        for (gradient_first, fill_short_waits) in [(false, false), (false, true), (true, false), (true, true)]
        {
            if search.is_done() {
                return Ok(());
            }
            let switches = Switches { overfill, gradient_first, fill_short_waits };
            if let Some(orders) = Greedy::new(search.sizes, search.costs, &cap, switches).run() {
                search.consider_filled(orders, "greedy zero bubble")?;
            }
        }
    }
    Ok(())
}

#[derive(Default)]
struct Rank {
    now: f64,
    started: bool,
    waited: f64,
    held: f64,
    forwards: u32,
    pending: VecDeque<u32>,
    ops: Vec<Op>,
    /// Ends of its forwards and input gradients.
    forward_ends: Vec<f64>,
    gradient_ends: Vec<f64>,
}

struct Greedy<'a> {
    sizes: &'a Sizes,
    costs: &'a OpCosts,
    cap: &'a MemoryCap,
    switches: Switches,
    ranks: Vec<Rank>,
}

impl<'a> Greedy<'a> {
    fn new(sizes: &'a Sizes, costs: &'a OpCosts, cap: &'a MemoryCap, switches: Switches) -> Greedy<'a> {
        let ranks = (0..sizes.p).map(|_| Rank::default()).collect();
        Greedy { sizes, costs, cap, switches, ranks }
    }

    fn run(mut self) -> Option<RankOrders> {
        let (p, m) = (self.sizes.p as usize, self.sizes.m);
        for (rank, count) in self.warmup().into_iter().enumerate() {
            (0..count).for_each(|_| self.forward(rank));
        }
        for microbatch in 0..m {
            let gradient_first = self.switches.gradient_first || microbatch == 0;
            if gradient_first {
                (0..p).rev().for_each(|rank| self.input_grad(rank, microbatch));
            }
            if self.switches.gradient_first || microbatch > 0 {
                (0..p).for_each(|rank| self.forward(rank));
            }
            if !gradient_first {
                (0..p).rev().for_each(|rank| self.input_grad(rank, microbatch));
            }
        }
        (0..p).for_each(|rank| self.all_weight_grads(rank));
        let parts = OrderParts {
            ranks: self.sizes.p,
            stages: self.sizes.p,
            microbatches: m,
            slices: 1,
            vocabulary: Vocabulary::Whole,
            placement: Placement::Loop.ranks_of_stages(self.sizes.p, self.sizes.p),
            orders: self.ranks.into_iter().map(|rank| rank.ops).collect(),
        };
        RankOrders::new(parts).ok()
    }

    /// Forwards of each rank before its first input gradient: from the last rank up, as many as fit into the wait.
    fn warmup(&self) -> Vec<u32> {
        let p = self.sizes.p as usize;
        let stage = |rank: usize| &self.costs.stages[rank];
        let mut arrivals = vec![0.0; p];
        for rank in 1..p {
            arrivals[rank] = arrivals[rank - 1] + stage(rank - 1).forward + self.costs.hop_seconds(rank - 1);
        }
        let mut counts = vec![1; p];
        let mut gradient = arrivals[p - 1] + stage(p - 1).forward + stage(p - 1).input_grad;
        for rank in (0..p - 1).rev() {
            gradient += self.costs.hop_seconds(rank);
            let wait = (gradient - arrivals[rank]) / stage(rank).forward.max(f64::MIN_POSITIVE) + 1e-9;
            let overfilled = match self.switches.overfill {
                Overfill::None => false,
                Overfill::First => rank == 0,
                Overfill::All => true,
            };
            let wanted = if overfilled { (wait - 2e-9).ceil() } else { wait.floor() };
            // Every rank above holds one microbatch more.
            let room = (self.cap.limit[rank] / self.cap.per_stage[rank].max(f64::MIN_POSITIVE)).floor();
            let most = (room - rank as f64).min(self.sizes.m.into()).max(1.0);
            counts[rank] = wanted.max(f64::from(counts[rank + 1] + 1)).min(most) as u32;
            let forwards = arrivals[rank] + f64::from(counts[rank]) * stage(rank).forward;
            gradient = gradient.max(forwards) + stage(rank).input_grad;
        }
        counts
    }

    fn forward(&mut self, rank: usize) {
        let microbatch = self.ranks[rank].forwards;
        if microbatch == self.sizes.m {
            return;
        }
        let ready = match rank.checked_sub(1) {
            None => 0.0,
            Some(above) => match self.ranks[above].forward_ends.get(microbatch as usize) {
                Some(end) => end + self.costs.hop_seconds(above),
                None => return,
            },
        };
        while self.ranks[rank].held + self.cap.per_stage[rank] > self.cap.limit[rank] * (1.0 + 1e-12) {
            if self.ranks[rank].pending.is_empty() {
                return;
            }
            self.weight_grad(rank);
        }
        self.fill_wait(rank, ready);
        let end = self.put(rank, Op::f(rank as u32, microbatch), ready, self.costs.stages[rank].forward);
        let state = &mut self.ranks[rank];
        state.forwards += 1;
        state.held += self.cap.per_stage[rank];
        state.forward_ends.push(end);
    }

    fn input_grad(&mut self, rank: usize, microbatch: u32) {
        let known = |ends: &[f64]| ends.get(microbatch as usize).copied();
        let arrival = if rank + 1 == self.ranks.len() {
            known(&self.ranks[rank].forward_ends)
        } else {
            known(&self.ranks[rank + 1].gradient_ends).map(|end| end + self.costs.hop_seconds(rank))
        };
        let all_forwards = self.ranks[rank].forwards == self.sizes.m;
        let Some(ready) = arrival.filter(|_| self.ranks[rank].forwards > microbatch) else { return };
        if rank == 0 && all_forwards {
            self.all_weight_grads(rank);
        }
        self.fill_wait(rank, ready);
        let end = self.put(rank, Op::i(rank as u32, microbatch), ready, self.costs.stages[rank].input_grad);
        self.ranks[rank].gradient_ends.push(end);
        self.ranks[rank].pending.push_back(microbatch);
    }

    /// Weight gradients while the rank waits for an input.
    fn fill_wait(&mut self, rank: usize, ready: f64) {
        let seconds = self.costs.stages[rank].weight_grad;
        while !self.ranks[rank].pending.is_empty() {
            let state = &self.ranks[rank];
            let wait = ready - state.now;
            let worst = self.ranks.iter().map(|rank| rank.waited).fold(0.0, f64::max);
            let too_long = self.switches.fill_short_waits && wait > 0.0 && wait > worst - state.waited;
            if wait <= 0.0 || (wait < seconds && !too_long) {
                return;
            }
            self.weight_grad(rank);
        }
    }

    fn weight_grad(&mut self, rank: usize) {
        let Some(microbatch) = self.ranks[rank].pending.pop_front() else { return };
        let now = self.ranks[rank].now;
        self.put(rank, Op::w(rank as u32, microbatch), now, self.costs.stages[rank].weight_grad);
        self.ranks[rank].held -= self.cap.per_stage[rank];
    }

    fn all_weight_grads(&mut self, rank: usize) {
        while !self.ranks[rank].pending.is_empty() {
            self.weight_grad(rank);
        }
    }

    fn put(&mut self, rank: usize, op: Op, ready: f64, seconds: f64) -> f64 {
        let state = &mut self.ranks[rank];
        if state.started {
            state.waited += (ready - state.now).max(0.0);
        }
        state.started = true;
        state.now = state.now.max(ready) + seconds;
        state.ops.push(op);
        state.now
    }
}
