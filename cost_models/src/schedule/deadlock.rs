//! Names the circle in which ranks wait for each other.

use super::engine::{Input, RankState};
use super::error::Blocked;
use super::op::{Op, OpKind};
use super::orders::RankOrders;

/// The circle among the ranks that could not finish.
pub(super) fn cycle(orders: &RankOrders, ranks: &[RankState]) -> Vec<Blocked> {
    let mut path: Vec<Blocked> = Vec::new();
    let first = ranks.iter().position(|state| state.waits_for.is_some());
    let mut next = first;
    while let Some(rank) = next {
        if let Some(start) = path.iter().position(|blocked| blocked.rank == rank) {
            return path.split_off(start);
        }
        let Some(blocked) = blocked(orders, ranks, rank) else { break };
        next = holder(orders, ranks, blocked.waits_for);
        path.push(blocked);
    }
    path
}

fn blocked(orders: &RankOrders, ranks: &[RankState], rank: usize) -> Option<Blocked> {
    let state = &ranks[rank];
    let op = *orders.orders()[rank].get(state.position)?;
    Some(Blocked { rank, op, waits_for: awaited(orders, ranks, state.waits_for?)? })
}

/// The operation that would provide the input.
fn awaited(orders: &RankOrders, ranks: &[RankState], input: Input) -> Option<Op> {
    match input {
        Input::Activation { stage, microbatch } => Some(Op::f(u32::from(stage) - 1, microbatch)),
        Input::Gradient { stage, microbatch } => {
            let at = |kind| Op::new(kind, u32::from(stage) + 1, microbatch);
            [OpKind::I, OpKind::B].map(at).into_iter().find(|&op| holder(orders, ranks, op).is_some())
        }
        Input::Output { microbatch } => Some(Op::f(orders.stages() - 1, microbatch)),
        Input::AllS { microbatch } => missing_pass(orders, ranks, OpKind::S, microbatch),
        Input::AllT { microbatch } => missing_pass(orders, ranks, OpKind::T, microbatch),
    }
}

fn missing_pass(orders: &RankOrders, ranks: &[RankState], kind: OpKind, microbatch: u32) -> Option<Op> {
    let pass = |rank: u32| Op::new(kind, rank, microbatch);
    let behind = |rank: &u32| {
        let state = &ranks[*rank as usize];
        orders.orders()[*rank as usize].iter().skip(state.position + 1).any(|op| same(*op, pass(*rank)))
    };
    (0..orders.ranks()).find(behind).map(pass)
}

/// The rank that has not run the operation yet.
fn holder(orders: &RankOrders, ranks: &[RankState], op: Op) -> Option<usize> {
    let left = |rank: &usize| orders.orders()[*rank].iter().skip(ranks[*rank].position);
    (0..ranks.len()).find(|rank| left(rank).any(|&other| same(other, op)))
}

fn same(a: Op, b: Op) -> bool {
    (a.kind, a.stage, a.microbatch) == (b.kind, b.stage, b.microbatch)
}
