//! V-ZB (arXiv:2405.15362): two chunks a rank placed as a V in 1F1B's memory, laid out for the costs at hand.
//!
//! ```text
//! p = 2; lower case: the second chunk; at equal times as good as ZB-V
//! rank 0  F0 F1 F2 f0 i0 w0 ...
//! rank 1  .. F0 f0 F1 f1 i0 w0 f1 ...
//! ```
//!
//! Searched among repeated blocks, list schedules and ZB-V for the shortest span within 2p chunks: span bubble 0 at equal
//! times and m >= 2p.

use super::auto::{AutoOptions, Objective, search};
use super::error::ScheduleError;
use super::costs::OpCosts;
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
    rules: super::zb_v::two_chunks,
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
