//! Schedules on a V built from a repeated block (arXiv:2405.15362): how long a microbatch lives on a rank, counted in
//! blocks, is how much memory the rank needs.

use super::costs::OpCosts;
use super::error::ScheduleError;
use super::op::{Op, OpKind};
use super::orders::{OrderParts, RankOrders, Vocabulary};
use super::placement::Placement;
use super::refill::{MemoryCap, refill};
use super::shape::{Rules, Sizes, searchable};
use super::simulate::simulate;

/// Unit slots of a block: two forwards, two input and two weight gradients.
pub(super) const PERIOD: u32 = 6;

/// Slots of `F` and `I` of the first and the second chunk of one rank for microbatch 0: F_a, F_b, I_b, I_a.
pub(super) type RankBlock = [u32; 4];

/// A block for every rank.
pub(super) struct Block(pub(super) Vec<RankBlock>);

impl Block {
    /// Chunks the worst rank holds in the steady state: lifespans over the period, weight gradients included.
    pub(super) fn steady_peak(&self) -> u32 {
        let peak = |rank: &RankBlock| {
            let weights = weight_slots(rank);
            let spans = [(rank[0], weights[1]), (rank[1], weights[0])];
            spans.iter().map(|(start, end)| (end - start) / PERIOD + 1).sum::<u32>()
        };
        self.0.iter().map(peak).max().unwrap_or(0)
    }

    /// Whether the six operations of every rank have slots of their own and follow their inputs.
    pub(super) fn is_sound(&self) -> bool {
        let p = self.0.len();
        let follows = |earlier: u32, later: u32| earlier < later;
        let chains = (1..p).all(|r| {
            follows(self.0[r - 1][0], self.0[r][0])
                && follows(self.0[r][1], self.0[r - 1][1])
                && follows(self.0[r - 1][2], self.0[r][2])
                && follows(self.0[r][3], self.0[r - 1][3])
        });
        let turns = follows(self.0[p - 1][0], self.0[p - 1][1])
            && follows(self.0[0][1], self.0[0][2])
            && follows(self.0[p - 1][2], self.0[p - 1][3]);
        chains && turns && self.0.iter().all(distinct)
    }

    /// Every rank's operations for all microbatches, sorted by slot.
    pub(super) fn orders(&self, sizes: &Sizes) -> Result<RankOrders, ScheduleError> {
        let orders = self.0.iter().zip(0..).map(|(block, rank)| repeat(block, rank, sizes)).collect();
        from_orders(sizes, orders, Vocabulary::Whole)
    }
}

/// Exactly two stages a rank, and a size that can be rearranged.
pub(super) fn rules(sizes: &Sizes, rules: &mut Rules) {
    super::zb_v::two_chunks(sizes, rules);
    searchable(sizes, rules);
}

/// A schedule on a V from its orders.
pub(super) fn from_orders(
    sizes: &Sizes,
    orders: Vec<Vec<Op>>,
    vocabulary: Vocabulary,
) -> Result<RankOrders, ScheduleError> {
    Ok(RankOrders::new(OrderParts {
        ranks: sizes.p,
        stages: 2 * sizes.p,
        microbatches: sizes.m,
        slices: 1,
        vocabulary,
        placement: Placement::V.ranks_of_stages(sizes.p, 2 * sizes.p),
        orders,
    })?)
}

fn distinct(rank: &RankBlock) -> bool {
    let mut used = [false; PERIOD as usize];
    rank.iter().all(|slot| !std::mem::replace(&mut used[(slot % PERIOD) as usize], true))
}

/// The weight gradients' slots, second chunk first: the first free ones after their input gradients.
fn weight_slots(rank: &RankBlock) -> [u32; 2] {
    let mut used = [false; PERIOD as usize];
    rank.iter().for_each(|slot| used[(slot % PERIOD) as usize] = true);
    let mut place = |after: u32| {
        let free = (after + 1..=after + PERIOD).find(|slot| !used[(slot % PERIOD) as usize]);
        let slot = free.unwrap_or(after + PERIOD);
        used[(slot % PERIOD) as usize] = true;
        slot
    };
    [place(rank[2]), place(rank[3])]
}

/// Slot of every operation of a rank.
pub(super) fn slots(block: &RankBlock, rank: u32, sizes: &Sizes) -> Vec<(u32, Op)> {
    let (a, b) = (rank, 2 * sizes.p - 1 - rank);
    let [weight_b, weight_a] = weight_slots(block);
    let first = [
        (block[0], Op::f(a, 0)),
        (block[1], Op::f(b, 0)),
        (block[2], Op::i(b, 0)),
        (block[3], Op::i(a, 0)),
        (weight_b, Op::w(b, 0)),
        (weight_a, Op::w(a, 0)),
    ];
    let at = |j: u32| first.map(|(slot, op)| (slot + PERIOD * j, Op { microbatch: j, ..op }));
    (0..sizes.m).flat_map(at).collect()
}

fn repeat(block: &RankBlock, rank: u32, sizes: &Sizes) -> Vec<Op> {
    let mut slots = slots(block, rank, sizes);
    slots.sort_by_key(|&(slot, _)| slot);
    slots.into_iter().map(|(_, op)| op).collect()
}

/// Squeezes and reorders at unit times, holding no more than the order itself does, until nothing gets better.
pub(super) fn squeeze(orders: RankOrders, sizes: &Sizes) -> Result<RankOrders, ScheduleError> {
    let costs = OpCosts::uniform(orders.stages(), 1.0, 1.0, 1.0);
    let peak = simulate(&orders, &costs)?.worst_peak();
    let cap = MemoryCap::units(&orders, peak);
    let plain = refill_until_stable(orders, &costs, &cap)?;
    let Ok(warmed) = reorder_warmup(&plain, sizes, peak) else { return Ok(plain) };
    let Ok(timeline) = simulate(&warmed, &costs) else { return Ok(plain) };
    if timeline.worst_peak() > peak {
        return Ok(plain);
    }
    let warmed = refill_until_stable(warmed, &costs, &cap)?;
    let better = simulate(&warmed, &costs)?.makespan < simulate(&plain, &costs)?.makespan;
    Ok(if better { warmed } else { plain })
}

/// The operations before the first `I` of the first chunk, rearranged so that the first microbatches reach the turn
/// sooner: rank r takes `peak` chunks, r + 1 of them (at most half) of the second chunk, before its first backward.
fn reorder_warmup(orders: &RankOrders, sizes: &Sizes, peak: u32) -> Result<RankOrders, ScheduleError> {
    let warmed = orders.orders().iter().zip(0..).map(|(order, rank)| warm(order, rank, sizes, peak));
    from_orders(sizes, warmed.collect(), Vocabulary::Whole)
}

fn warm(order: &[Op], rank: u32, sizes: &Sizes, peak: u32) -> Vec<Op> {
    let (a, b) = (rank as u16, (2 * sizes.p - 1 - rank) as u16);
    let split = order.iter().position(|op| op.kind == OpKind::I && op.stage == a).unwrap_or(order.len());
    let take = |kind: OpKind, stage: u16| {
        order[..split].iter().copied().filter(move |op| op.kind == kind && op.stage == stage)
    };
    let (mut f, mut g) = (take(OpKind::F, a), take(OpKind::F, b));
    let (mut i, mut w) = (take(OpKind::I, b), take(OpKind::W, b));
    let seconds = (rank + 1).min(peak / 2).min(sizes.m) as usize;
    let firsts = (peak as usize - seconds).min(sizes.m as usize);
    let alone = (2 * (sizes.p - 1 - rank) as usize).min(firsts);
    let mut ops: Vec<Op> = f.by_ref().take(alone).collect();
    let mut early_f = f.by_ref().take(firsts - alone).collect::<Vec<_>>().into_iter();
    let mut early_g = g.by_ref().take(seconds).collect::<Vec<_>>().into_iter();
    for _ in 0..=rank {
        ops.extend(early_f.next().into_iter().chain(early_g.next()));
    }
    ops.extend(early_f.chain(early_g));
    while ops.len() < split {
        ops.extend(i.next().into_iter().chain(w.next()).chain(g.next().or_else(|| f.next())));
    }
    ops.extend_from_slice(&order[split..]);
    ops
}

/// Refills until the makespan stays.
pub(super) fn refill_until_stable(
    mut orders: RankOrders,
    costs: &OpCosts,
    cap: &MemoryCap,
) -> Result<RankOrders, ScheduleError> {
    let mut makespan = simulate(&orders, costs)?.makespan;
    loop {
        let next = refill(&orders, costs, cap)?;
        let better = simulate(&next, costs)?.makespan;
        if better >= makespan {
            return Ok(orders);
        }
        (orders, makespan) = (next, better);
    }
}
