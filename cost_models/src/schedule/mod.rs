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
mod expert_pair;
mod fill;
mod mailbox;
mod makespan;
mod offload;
mod op;
mod order_bound;
mod orders;
mod placement;
mod refill;
mod shape;
mod simulate;
mod slices;
mod timeline;
mod torch_csv;
mod v_block;
mod validate;
mod vocabulary;
mod vocabulary_1f1b;

pub use auto::{AutoOptions, AutoSchedule, Objective, auto_schedule};
pub use bound::{BoundInput, bound, lower_bound, memory_bound};
pub use costs::{Hop, OpCosts, Sends, StageCosts, VocabularyCosts};
pub use error::{Blocked, OrderFault, OrdersError, ScheduleError, ShapeFault, SimulateError};
pub use expert_pair::{ExpertLayer, pair_seconds};
pub use fill::{FillItem, Filled, Filling, fill_bubbles, idle_intervals};
pub use makespan::makespan;
pub use offload::{Copies, OffloadPlan, OffloadSpec, plan_offload};
pub use op::{Op, OpKind};
pub use order_bound::{Interleaving, LeastStages, round_trips};
pub use orders::{MAX_OPS, OrderParts, RankOrders, Vocabulary};
pub use pipedream::steady_step;
pub use placement::Placement;
pub use registry::{Definition, Generator, Schedule, VocabularyOrders, generate, generate_for};
pub use shape::{ChunkTimes, GroupRule, MemoryLimit, Rules, ScheduleShape, Sizes};
pub use simulate::{record, simulate};
pub use slices::{MOST_GRANULES, slice_lengths};
pub use timeline::{OpSpan, RankTimeline, Timeline};
pub use torch_csv::{CsvError, from_torch_csv, to_torch_csv};
pub use two_bp::{WeightDelay, delay_weight_gradients};

// A new schedule is a file and a line here.
schedules! {
    Gpipe = gpipe,
    OneFOneB = one_f_one_b,
    Interleaved = interleaved,
    LoopedBfs = looped_bfs,
    ZbH1 = zb_h1,
    ZbH2 = zb_h2,
    InterleavedZb = interleaved_zb,
    ZbV = zb_v,
    VHalf = v_half,
    VMin = v_min,
    VZb = v_zb,
    Zb1p = zb_1p,
    Zb2p = zb_2p,
    Zb2pSync = zb_2p_sync,
    Dualpipe = dualpipe,
    Dualpipev = dualpipev,
    Chimera = chimera,
    Hanayo = hanayo,
    Bitpipe = bitpipe,
    Zeropp = zeropp,
    OneFOneBV = one_f_one_b_v,
    Seq1f1b = seq1f1b,
    Terapipe = terapipe,
    TwoBp = two_bp,
    Combined = combined_1f1b,
    GeneralizedInterleaved = generalized_interleaved,
    GeneralizedInterleavedHalf = generalized_interleaved_half,
    PipeoffloadHalf = pipeoffload_half,
    PipeoffloadFull = pipeoffload_full,
    Interlaced = interlaced,
    Redistributed = redistributed,
    Pipedream = pipedream,
    TwoBw = two_bw,
    Paci = paci,
    Auto = auto,
}
