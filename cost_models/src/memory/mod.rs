//! How many bytes a training run needs on every pipeline rank.
//!
//! ```text
//! peak(rank) = workspace + state + shared gradients + gathered parameters
//!            + sum over chunks (in flight x saved) + boundary + mask + max(head, transient of one layer)
//! ```
//!
//! or the end of the backward or the optimizer step, whichever is largest. The parts:
//!
//! - [`MemoryContext`]: a layout without stages; [`MemoryContext::layer_memory`] gives one layer's [`LayerMemory`].
//! - [`InFlight`]: how many microbatches of which chunk a rank holds.
//! - [`MemoryTable`]: all layers once; [`MemoryTable::rank_peak`] answers for any stages in about a microsecond.
//! - [`RankPeak`]: every term of one rank, and what frameworks log of it.
//! - [`rank_memory`]: the report of a run.
//!
//! State comes from [`crate::sharding`], engine differences from [`crate::runtime::MemoryTraits`].

mod attention;
mod buffers;
mod chosen;
mod context;
mod error;
mod head;
mod in_flight;
mod layer;
mod layered;
mod mlp;
mod modules;
mod moves;
mod peak;
mod shares;
mod table;

pub use chosen::ModuleBytes;
pub use context::MemoryContext;
pub use error::MemoryError;
pub use in_flight::{InFlight, placement as schedule_placement};
pub use layer::LayerMemory;
pub use layered::{layered_contexts, layered_memory, layered_table};
pub use peak::RankPeak;
pub use shares::{kind_peak, kind_peaks};
pub use table::MemoryTable;

use crate::estimate::RankMemory;
use crate::run::TrainingRun;

/// The memory of every pipeline rank of a run, all terms; with shares by kind of GPU, that of the kind with the least room.
///
/// # Errors
/// [`MemoryError`] for degrees or sizes of 0, an unknown schedule or one whose rules the layout breaks, and stages that are
/// not the model's.
pub fn rank_memory(run: &TrainingRun) -> Result<Vec<RankMemory>, MemoryError> {
    let peaks = rank_peaks(run)?;
    Ok(peaks.iter().map(|peak| peak.report(&run.runtime.memory.reserve)).collect())
}

/// The same as single terms, and with what frameworks log.
///
/// # Errors
/// As [`rank_memory`].
pub fn rank_peaks(run: &TrainingRun) -> Result<Vec<RankPeak>, MemoryError> {
    if !run.parallel.shares.is_empty() {
        return shares::tightest(run);
    }
    MemoryTable::new(MemoryContext::of(run)?)?.peaks(run.stages)
}
