//! Pipeline schedules: who runs what, in which order, and how long that takes.
//!
//! - [`Schedule`] names a schedule; [`ScheduleKind::ALL`] lists them. [`generate`] writes its [`RankOrders`]: per rank
//!   the order of its operations `F`, `I`, `W`, `B` with stage and microbatch.
//! - [`simulate`] adds time: [`OpCosts`] in, a [`Timeline`] out. [`record`] also keeps every start and end.
//! - [`lower_bound`] is never above the simulated time.
//!
//! ```
//! use cost_models::schedule::{OpCosts, ScheduleKind, ScheduleShape, generate, simulate};
//!
//! let orders = generate(ScheduleKind::OneFOneB, &ScheduleShape::new(4, 8))?;
//! let timeline = simulate(&orders, &OpCosts::uniform(orders.stages(), 1.0, 1.0, 1.0))?;
//! assert_eq!(timeline.makespan, 8.0 * 3.0 + 3.0 * 3.0); // m (tF + tB) + (p - 1)(tF + tB)
//! assert_eq!(timeline.peak_activations(), [4, 3, 2, 1]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Symbols in this module's documentation: p ranks, m microbatches, v stages (chunks) on a rank, tF, tI, tW, tB
//! times of one chunk. A *makespan bubble* is the step less the busiest rank, a *span bubble* the idle time between a
//! rank's own first and last operation.

#[macro_use]
mod registry;

mod bound;
mod costs;
mod deadlock;
mod engine;
mod error;
mod mailbox;
mod op;
mod orders;
mod placement;
mod shape;
mod simulate;
mod timeline;
mod validate;
mod vocabulary;

pub use bound::{BoundInput, bound, lower_bound, memory_bound};
pub use costs::{Hop, OpCosts, Sends, StageCosts, VocabularyCosts};
pub use error::{Blocked, OrderFault, OrdersError, ScheduleError, ShapeFault, SimulateError};
pub use op::{Op, OpKind};
pub use orders::{MAX_OPS, OrderParts, RankOrders, Vocabulary};
pub use placement::Placement;
pub use registry::{Definition, Generator, Schedule, generate, generate_for};
pub use shape::{ChunkTimes, GroupRule, Rules, ScheduleShape, Sizes};
pub use simulate::{record, simulate};
pub use timeline::{OpSpan, RankTimeline, Timeline};

// A new schedule is a file and a line here.
schedules! {
    Gpipe = gpipe,
    OneFOneB = one_f_one_b,
    Interleaved = interleaved,
    LoopedBfs = looped_bfs,
}
