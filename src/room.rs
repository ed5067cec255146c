//! The pipeline rank, or the kind of GPU, that is nearest to what its GPUs may hold.

use cluster_profiles::Bytes;
use cost_models::sites::{Sites, rank_limits};
use cost_models::{Estimate, RankMemory, TrainingRun};

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
pub fn tightest(run: &TrainingRun, estimate: &Estimate, limit: Bytes) -> Room {
    let kinds = estimate.kinds.iter().map(|kind| {
        let [capacity, limit] = kind.room(run, limit);
        Room { memory: kind.memory, limit, capacity }
    });
    let less = |a: Room, b: Room| if b.left() < a.left() { b } else { a };
    if let Some(room) = kinds.reduce(less) {
        return room;
    }
    let sites = Sites::of(run.cluster, run.parallel);
    let capacity = |rank: usize| {
        let site = sites.as_ref().and_then(|sites| sites.list.get(rank));
        site.map_or(run.cluster.gpu().memory, |site| run.cluster.groups[site.smallest].gpu.memory)
    };
    let limits = rank_limits(run, limit);
    let rooms = estimate.memory.iter().zip(limits).enumerate().map(|(rank, (memory, limit))| Room {
        memory: *memory,
        limit,
        capacity: capacity(rank),
    });
    rooms.reduce(less).unwrap_or(Room { memory: RankMemory::default(), limit, capacity: capacity(0) })
}
