//! What a GPU may hold where not all are of one size.

use super::Sites;
use crate::estimate::{Estimate, hosts_fit};
use crate::run::TrainingRun;
use crate::runtime::Runtime;
use cluster_profiles::{Bytes, Cluster};

/// The most a GPU of one group of nodes may hold under a limit for the largest: a smaller GPU keeps its own margin.
#[must_use]
pub fn limit_on(cluster: &Cluster, runtime: &Runtime, limit: Bytes, group: usize) -> Bytes {
    let capacity = cluster.groups[group].gpu.memory;
    let largest = cluster.groups.iter().map(|group| group.gpu.memory).fold(Bytes::ZERO, Bytes::max);
    let own = if capacity < largest {
        Bytes(runtime.memory.reserve.default_limit(capacity.get()))
    } else {
        capacity
    };
    limit.min(own)
}

/// The limit for the largest GPUs of a part of a cluster: that of the whole, or their own where the whole has larger ones.
#[must_use]
pub fn limit_of_part(part: &Cluster, whole: &Cluster, runtime: &Runtime, limit: Bytes) -> Bytes {
    let largest =
        |cluster: &Cluster| cluster.groups.iter().map(|group| group.gpu.memory).fold(Bytes::ZERO, Bytes::max);
    let (own, all) = (largest(part), largest(whole));
    if own < all { limit.min(Bytes(runtime.memory.reserve.default_limit(own.get()))) } else { limit }
}

/// Whether every rank of a run holds no more than its GPU may under a limit for the largest GPUs, and hosts have room for the rest.
#[must_use]
pub fn fits(run: &TrainingRun, estimate: &Estimate, limit: Bytes) -> bool {
    let fit = if estimate.kinds.is_empty() {
        estimate.memory.iter().zip(rank_limits(run, limit)).all(|(rank, limit)| rank.peak_bytes <= limit)
    } else {
        estimate.kinds.iter().all(|kind| kind.memory.peak_bytes <= kind.room(run, limit)[1])
    };
    fit && hosts_fit(run, &estimate.memory)
}

/// The most a GPU of every pipeline rank may hold under a limit for the largest GPUs.
#[must_use]
pub fn rank_limits(run: &TrainingRun, limit: Bytes) -> Vec<Bytes> {
    let count = run.parallel.pp as usize;
    match Sites::of(run.cluster, run.parallel) {
        Some(sites) => {
            sites.list.iter().map(|site| limit_on(run.cluster, run.runtime, limit, site.smallest)).collect()
        }
        None => vec![limit; count],
    }
}
