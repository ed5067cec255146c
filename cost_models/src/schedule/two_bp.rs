//! 2BP (arXiv:2405.18047): the backward of any schedule in two, the weight gradients later.
//!
//! ```text
//! p = 2, 4 microbatches, two columns a unit
//! rank 0 |F0F1..I0F2I1F3I2..I3W0W1W2W3|
//! rank 1 |..F0I0F1I1F2I2F3I3W0W1W2W3..|
//! ```
//!
//! Bubble (p - 1)(tF + tI), every rank holds m; with a group size g the weight gradients follow every g microbatches:
//! the same bubble, at most 2p - 1 held at g = p.
//!
//! Inferred: the paper's abstract says what is split and delayed; where exactly the `W` go was not found in code.

use super::error::OrdersError;
use super::op::{Op, OpKind};
use super::orders::RankOrders;
use super::registry::{Definition, Generator};
use super::shape::Sizes;

/// 1F1B with delayed weight gradients.
pub(super) const DEFINITION: Definition = Definition {
    name: "2bp",
    summary: "1F1B with the weight gradients after all input gradients",
    source: "arXiv:2405.18047; the place of the weight gradients is inferred",
    splits_backward: true,
    grouped: true,
    rules: super::one_f_one_b::one_chunk,
    orders: Generator::PerRank(order),
    ..Definition::LOOPED
};

fn order(sizes: &Sizes, rank: u32) -> Vec<Op> {
    let delay = sizes.group.map_or(WeightDelay::Last, WeightDelay::Every);
    delay_weights(&super::one_f_one_b::order(sizes, rank), delay)
}

/// When the weight gradients of a split backward run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightDelay {
    /// After everything else.
    Last,
    /// After this many input gradients, those of all of them.
    Every(u32),
    /// One before each input gradient that no forward precedes any more, the rest at the end.
    InCooldown,
}

/// Splits every fused backward of a schedule and delays its weight gradients.
///
/// # Errors
/// None for a schedule whose backwards are fused and unpaired; combined pairs cannot be split.
pub fn delay_weight_gradients(orders: RankOrders, delay: WeightDelay) -> Result<RankOrders, OrdersError> {
    let mut parts = orders.into_parts();
    for order in &mut parts.orders {
        *order = delay_weights(order, delay);
    }
    RankOrders::new(parts)
}

fn delay_weights(order: &[Op], delay: WeightDelay) -> Vec<Op> {
    let last_forward = order.iter().rposition(|op| op.kind == OpKind::F).unwrap_or(0);
    let mut pending = std::collections::VecDeque::new();
    let mut ops = Vec::with_capacity(order.len() * 3 / 2);
    for (at, &op) in order.iter().enumerate() {
        if op.kind != OpKind::B {
            ops.push(op);
            continue;
        }
        if delay == WeightDelay::InCooldown && at > last_forward + 1 {
            ops.extend(pending.pop_front());
        }
        ops.push(Op { kind: OpKind::I, ..op });
        pending.push_back(Op { kind: OpKind::W, ..op });
        if matches!(delay, WeightDelay::Every(g) if pending.len() >= g as usize) {
            ops.extend(pending.drain(..));
        }
    }
    ops.extend(pending);
    ops
}
