//! PipeDream (arXiv:1806.03377): 1F1B that is never flushed. Changes training.
//!
//! ```text
//! p = 3, 4 microbatches, two columns a unit; the window of a stream that goes on
//! rank 0 |F0F1F2........B0--F3B1--..B2--..B3--|
//! rank 1 |..F0F1....B0--F2B1--F3B2--..B3--....|
//! rank 2 |....F0B0--F1B1--F2B2--F3B3--........|
//! ```
//!
//! No bubble in the steady state; rank r holds p - r activations and p - r versions of its weights, so that a
//! microbatch's backward uses the weights of its forward. Updates come up to p - 1 microbatches late. The order is one
//! window of the stream; [`steady_step`](super::steady_step) gives the time of a step in mid-stream.

use super::costs::OpCosts;
use super::error::ScheduleError;
use super::registry::{Definition, Schedule, generate_for};
use super::shape::{ScheduleShape, Sizes};
use super::simulate::simulate;

/// PipeDream.
pub(super) const DEFINITION: Definition = Definition {
    name: "pipedream",
    summary: "1F1B without flushes, a weight version for every microbatch in flight; stale weights",
    source: "arXiv:1806.03377",
    synchronous: false,
    weight_versions: |sizes: &Sizes, rank| sizes.p - rank,
    vocabulary_orders: None,
    ..super::one_f_one_b::DEFINITION
};

/// Seconds of one step of m microbatches in the middle of a stream that is never flushed: what a third step adds to
/// two.
///
/// # Errors
/// As [`generate_for`] and the simulation.
pub fn steady_step(
    schedule: impl Into<Schedule>,
    shape: &ScheduleShape,
    costs: &OpCosts,
) -> Result<f64, ScheduleError> {
    let schedule = schedule.into();
    let makespan = |steps: u32| -> Result<f64, ScheduleError> {
        let microbatches = shape.microbatches.saturating_mul(steps);
        let orders = generate_for(schedule, &ScheduleShape { microbatches, ..*shape }, costs)?;
        Ok(simulate(&orders, costs)?.makespan)
    };
    Ok(makespan(3)? - makespan(2)?)
}
