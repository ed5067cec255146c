//! The pipeline rank that is nearest to what its GPUs may hold.

use cluster_profiles::Bytes;
use cost_models::sites::{Sites, rank_limits};
use cost_models::{RankMemory, TrainingRun};

/// A pipeline rank and the room it has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Room {
    /// Its memory.
    pub memory: RankMemory,
    /// What its GPUs may hold.
    pub limit: Bytes,
    /// What they have.
    pub capacity: Bytes,
}

impl Room {
    /// Bytes left below the limit; negative if it does not fit.
    #[must_use]
    pub fn left(&self) -> Bytes {
        self.limit - self.memory.peak_bytes
    }
}

/// The rank with the least room under a limit for the largest GPUs; the first of equal ones.
#[must_use]
pub fn tightest(run: &TrainingRun, memory: &[RankMemory], limit: Bytes) -> Room {
    let sites = Sites::of(run.cluster, run.parallel);
    let capacity = |rank: usize| {
        let site = sites.as_ref().and_then(|sites| sites.list.get(rank));
        site.map_or(run.cluster.gpu().memory, |site| run.cluster.groups[site.smallest].gpu.memory)
    };
    let limits = rank_limits(run, limit);
    let rooms = memory.iter().zip(limits).enumerate().map(|(rank, (memory, limit))| Room {
        memory: *memory,
        limit,
        capacity: capacity(rank),
    });
    let least = rooms.reduce(|a, b| if b.left() < a.left() { b } else { a });
    least.unwrap_or(Room { memory: RankMemory::default(), limit, capacity: capacity(0) })
}
