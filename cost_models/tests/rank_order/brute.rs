//! Ranks and their groups, one after the other.

use cost_models::order::RankGroup;
use cost_models::{ParallelConfig, RankOrder};
use std::collections::BTreeMap;

#[path = "../../../solver/tests/random/mod.rs"]
mod random;

pub use random::Random;

type Coordinates = BTreeMap<&'static str, u64>;

/// A layout with degrees below `high` and inner axes of both grids alike, as [`RankOrder::PpInside`] asks for.
pub fn layout(random: &mut Random, high: u64) -> ParallelConfig {
    let mut degree = || 1 + random.below(high - 1) as u32;
    let [tp, cp, pp, dp_shard, dp_replicate] = [(); 5].map(|()| degree());
    let inner = tp * cp;
    let divisors: Vec<u32> = (1..=inner).filter(|divisor| inner.is_multiple_of(*divisor)).collect();
    let etp = divisors[random.below(divisors.len() as u64) as usize];
    let rank_order = RankOrder::ALL[random.below(2) as usize];
    ParallelConfig {
        tp,
        cp,
        pp,
        dp_shard,
        dp_replicate,
        etp,
        ep: inner / etp,
        rank_order,
        ..ParallelConfig::default()
    }
}

fn peel(axes: Vec<(&'static str, u32)>, mut rank: u64) -> Coordinates {
    let mut at = Coordinates::new();
    for (axis, size) in axes {
        at.insert(axis, rank % u64::from(size));
        rank /= u64::from(size);
    }
    at
}

/// Puts the sizes of dp and pp in the order in which the order's name has them.
fn ordered(
    parallel: &ParallelConfig,
    inner: [(&'static str, u32); 2],
    dp: [(&'static str, u32); 2],
) -> Vec<(&'static str, u32)> {
    let mut axes = inner.to_vec();
    for axis in parallel.rank_order.name().split('-') {
        match axis {
            "dp" => axes.extend(dp),
            "pp" => axes.push(("pp", parallel.pp)),
            _ => {}
        }
    }
    axes
}

/// Where a rank stands in the grid of dense layers.
pub fn dense(parallel: &ParallelConfig, rank: u64) -> Coordinates {
    let dp = [("shard", parallel.dp_shard), ("replica", parallel.dp_replicate)];
    peel(ordered(parallel, [("tp", parallel.tp), ("cp", parallel.cp)], dp), rank)
}

/// Where a rank stands in the grid of experts.
pub fn experts(parallel: &ParallelConfig, rank: u64) -> Coordinates {
    let shards = parallel.expert_dp() / parallel.dp_replicate;
    let dp = [("shard", shards), ("replica", parallel.dp_replicate)];
    peel(ordered(parallel, [("etp", parallel.etp), ("ep", parallel.ep)], dp), rank)
}

/// All groups, each with its ranks in rising order: the ranks that differ along the group's axes alone.
pub fn groups(parallel: &ParallelConfig, group: RankGroup) -> Vec<Vec<u64>> {
    type Grid = fn(&ParallelConfig, u64) -> Coordinates;
    let (grid, along): (Grid, &[&str]) = match group {
        RankGroup::Tp => (dense, &["tp"]),
        RankGroup::Cp => (dense, &["cp"]),
        RankGroup::Shards => (dense, &["cp", "shard"]),
        RankGroup::Data => (dense, &["cp", "shard", "replica"]),
        RankGroup::Replicas => (dense, &["replica"]),
        RankGroup::Pp => (dense, &["pp"]),
        RankGroup::Etp => (experts, &["etp"]),
        RankGroup::Ep => (experts, &["ep"]),
        RankGroup::ExpertShards => (experts, &["shard"]),
    };
    let mut found: BTreeMap<Coordinates, Vec<u64>> = BTreeMap::new();
    for rank in 0..parallel.world_size() {
        let mut others = grid(parallel, rank);
        others.retain(|axis, _| !along.contains(axis));
        found.entry(others).or_default().push(rank);
    }
    found.into_values().collect()
}
