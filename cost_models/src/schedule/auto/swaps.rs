//! Local search: exchange two neighbouring operations of a rank where that could shorten the critical path.

use super::super::op::{Op, OpKind};
use super::super::orders::RankOrders;
use super::super::simulate::record;
use super::super::timeline::{OpSpan, RankTimeline, Timeline};
use super::{Objective, ScheduleError, Search};

/// Swaps as long as one helps and effort is left.
pub(super) fn improve(search: &mut Search) -> Result<(), ScheduleError> {
    let movable = |orders: &RankOrders| orders.orders().iter().flatten().all(|op| !op.paired);
    while let Some(best) = search.best.as_ref().filter(|best| movable(&best.orders)) {
        let (orders, origin, score) = (best.orders.clone(), best.origin.clone(), best.score);
        let timeline = record(&orders, search.costs_of(orders.slices()))?;
        let origin = if origin.ends_with("swaps") { origin } else { format!("{origin}, swaps") };
        for (rank, at) in critical_neighbours(&orders, &timeline, search.options.objective) {
            if search.is_done() {
                return Ok(());
            }
            let mut parts = orders.clone().into_parts();
            parts.orders[rank].swap(at, at + 1);
            if let Ok(swapped) = RankOrders::new(parts) {
                search.spend(3 * swapped.len() as u64);
                search.consider(swapped, origin.as_str());
            }
        }
        if search.best.as_ref().is_none_or(|best| best.score >= score) {
            return Ok(());
        }
    }
    Ok(())
}

/// Pairs of operations of one rank, back to back on the path that decides when the step ends.
fn critical_neighbours(
    orders: &RankOrders,
    timeline: &Timeline,
    objective: Objective,
) -> Vec<(usize, usize)> {
    let index = Index::new(orders);
    let length = |rank: &RankTimeline| match objective {
        Objective::Makespan => rank.last_end,
        Objective::Span => rank.last_end - rank.first_start,
    };
    let ranks = timeline.ranks.iter().enumerate();
    let ends = ranks.max_by(|a, b| length(a.1).total_cmp(&length(b.1)).then(b.0.cmp(&a.0)));
    let Some((mut rank, last)) = ends else { return Vec::new() };
    let mut at = last.spans.len().saturating_sub(1);
    let mut pairs = Vec::new();
    loop {
        let span = timeline.ranks[rank].spans[at];
        let after_own = at > 0 && timeline.ranks[rank].spans[at - 1].end >= span.start;
        if after_own {
            if may_swap(timeline.ranks[rank].spans[at - 1], span) {
                pairs.push((rank, at - 1));
            }
            at -= 1;
        } else if let Some(input) = index.input(orders, span.op) {
            (rank, at) = input;
        } else {
            return pairs;
        }
    }
}

/// Neighbours that neither depend on each other nor are of one kind and stage.
fn may_swap(first: OpSpan, second: OpSpan) -> bool {
    let same_stage = first.op.stage == second.op.stage;
    !(same_stage && (first.op.kind == second.op.kind || first.op.microbatch == second.op.microbatch))
}

/// Where the forwards and input gradients of each stage and microbatch stand.
struct Index {
    units: usize,
    forward: Vec<(usize, usize)>,
    gradient: Vec<(usize, usize)>,
}

impl Index {
    fn new(orders: &RankOrders) -> Index {
        let units = (orders.microbatches() * orders.slices()) as usize;
        let size = units * orders.placement().len();
        let mut index = Index { units, forward: vec![(0, 0); size], gradient: vec![(0, 0); size] };
        for (rank, order) in orders.orders().iter().enumerate() {
            for (at, op) in order.iter().enumerate() {
                let slot = usize::from(op.stage) * units + op.microbatch as usize;
                match op.kind {
                    OpKind::F => index.forward[slot] = (rank, at),
                    OpKind::I | OpKind::B => index.gradient[slot] = (rank, at),
                    OpKind::W | OpKind::S | OpKind::T => {}
                }
            }
        }
        index
    }

    /// The operation of another rank (or stage) this one waits for.
    fn input(&self, orders: &RankOrders, op: Op) -> Option<(usize, usize)> {
        let (stage, depth) = (usize::from(op.stage), orders.depth_of(op.stage));
        let slot = |stage: usize| stage * self.units + op.microbatch as usize;
        match op.kind {
            OpKind::F if depth > 0 => Some(self.forward[slot(stage - 1)]),
            OpKind::I | OpKind::B if depth + 1 < orders.stages() => Some(self.gradient[slot(stage + 1)]),
            _ => None,
        }
    }
}
