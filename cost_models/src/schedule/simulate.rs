//! The one simulator: adds time to an order.
//!
//! Every rank runs its operations in their order; each starts as soon as the rank is free and its inputs are there.
//! That fixes every start, so no event queue is needed: a rank runs on until it meets an input that is not known
//! yet, and goes on when that input's operation has run. Each operation is looked at a constant number of times.

use super::costs::OpCosts;
use super::engine::Engine;
use super::error::SimulateError;
use super::orders::RankOrders;
use super::timeline::Timeline;

/// Runs a step and keeps only totals: memory in proportion to the messages in flight.
///
/// # Errors
/// Costs that do not fit the schedule, and orders that deadlock, with the circle of waiting operations.
pub fn simulate(orders: &RankOrders, costs: &OpCosts) -> Result<Timeline, SimulateError> {
    run(orders, costs, false)
}

/// Runs a step and keeps the start and end of every operation.
///
/// # Errors
/// As [`simulate`].
pub fn record(orders: &RankOrders, costs: &OpCosts) -> Result<Timeline, SimulateError> {
    run(orders, costs, true)
}

fn run(orders: &RankOrders, costs: &OpCosts, recording: bool) -> Result<Timeline, SimulateError> {
    costs.check(orders.stages(), orders.slices())?;
    let ranks = Engine::new(orders, costs, recording).run()?;
    let all_ready = ranks.iter().map(|rank| rank.gradients_ready).fold(0.0, f64::max);
    Ok(Timeline { makespan: all_ready + costs.optimizer, optimizer: costs.optimizer, ranks })
}
