//! Memory where the ranks of a data-parallel group take shares of their own: of state and of activations.

use super::context::MemoryContext;
use super::error::MemoryError;
use super::peak::RankPeak;
use super::table::MemoryTable;
use crate::run::TrainingRun;
use crate::shares::{KindShare, slowest_group};

/// The peak of a rank on every kind of the run's shares, in their order.
///
/// # Errors
/// As [`super::rank_memory`]; a kind that the cluster does not have.
pub fn kind_peaks(run: &TrainingRun) -> Result<Vec<RankPeak>, MemoryError> {
    run.parallel.shares.iter().map(|share| kind_peak(run, share)).collect()
}

/// The peak of a rank on one kind with its share.
///
/// # Errors
/// As [`kind_peaks`].
pub fn kind_peak(run: &TrainingRun, share: &KindShare) -> Result<RankPeak, MemoryError> {
    let unknown = || MemoryError::Faults { faults: vec![format!("the cluster has no {}", share.gpu)] };
    let group = slowest_group(run.cluster, &share.gpu).ok_or_else(unknown)?;
    let parallel = run.parallel.like(share);
    let own = TrainingRun { parallel: &parallel, ..*run };
    let context = MemoryContext::of(&own)?;
    let shards = context.shards.with_share(parallel.relative_state(share.state));
    let context = MemoryContext { gpu: &run.cluster.groups[group].gpu, shards, ..context };
    let peaks = MemoryTable::new(context)?.peaks(run.stages)?;
    Ok(peaks.first().copied().unwrap_or_default())
}

/// The peak of the kind with the least room below its own limit.
pub(super) fn tightest(run: &TrainingRun) -> Result<Vec<RankPeak>, MemoryError> {
    let reserve = &run.runtime.memory.reserve;
    let capacity = |share: &KindShare| {
        slowest_group(run.cluster, &share.gpu).map_or(0.0, |group| run.cluster.groups[group].gpu.memory.get())
    };
    let peaks = kind_peaks(run)?.into_iter().zip(&run.parallel.shares);
    let rooms = peaks.map(|(peak, share)| {
        (reserve.default_limit(capacity(share)) - reserve.reserved_bytes(peak.allocated()), peak)
    });
    let least = rooms.reduce(|a, b| if b.0 < a.0 { b } else { a });
    Ok(least.into_iter().map(|(_, peak)| peak).collect())
}
