//! V-ZB (arXiv:2405.15362): two chunks a rank placed as a V in 1F1B's memory, laid out for the costs at hand.
//!
//! ```text
//! p = 2, 4 microbatches, two columns a unit; lower case: the second chunk
//! rank 0 |F0F1F2f0i0w0f1i1w1F3I0W0f2i2w2I1W1f3i3w3I2W2I3W3..|
//! rank 1 |..F0f0F1f1i0w0F2I0W0f2i1w1F3I1W1f3i2w2I2i3I3W2w3W3|
//! ```
//!
//! Searched among repeated blocks, list schedules and ZB-V for the shortest span within 2p chunks: span bubble 0 at equal
//! times and m >= 2p.

use super::auto::{AutoOptions, Objective, search};
use super::costs::OpCosts;
use super::error::ScheduleError;
use super::orders::RankOrders;
use super::placement::Placement;
use super::registry::{Definition, Generator};
use super::shape::{MemoryLimit, Sizes};

/// V-ZB.
pub(super) const DEFINITION: Definition = Definition {
    name: "v-zb",
    summary: "two chunks a rank as a V, split backward, searched for the costs at hand in 1F1B's memory",
    source: "arXiv:2405.15362; sail-sg/zero-bubble-pipeline-parallelism v_auto_schedule.py; the search is this project's",
    placement: Placement::V,
    splits_backward: true,
    default_chunks: 2,
    rules: super::v_block::rules,
    orders: Generator::Searched(orders),
    ..Definition::LOOPED
};

fn orders(sizes: &Sizes, costs: &OpCosts) -> Result<RankOrders, ScheduleError> {
    let options = AutoOptions {
        objective: Objective::Span,
        memory_limit: Some(MemoryLimit::Chunks(2 * sizes.p)),
        placement: Some(Placement::V),
        ..AutoOptions::default()
    };
    Ok(search(sizes, costs, &options)?.orders)
}
