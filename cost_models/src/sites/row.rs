//! The row of hosts that a layout's ranks fill: what each pipeline rank runs on, and the slowest way of every group.

use super::network::Network;
use super::{AxisWays, HopWay, Site, Way, speed, worse};
use crate::grid::RankGrid;
use crate::order::RankGroup;
use crate::parallel::ParallelConfig;
use cluster_profiles::topology::{HostId, Tier};
use cluster_profiles::{BytesPerSecond, Gpu};

/// Hosts from which on their slowest way is read off the tiers they use, not off every pair.
const MANY: usize = 64;

/// The row of hosts that a layout's ranks fill. A place may still be open: it counts as the best host there is.
#[derive(Debug)]
pub(super) struct Row<'n, 'a> {
    pub(super) network: &'n Network<'a>,
    /// The host of every GPU place of the row, by node.
    pub(super) hosts: &'n [Option<usize>],
    /// First global rank of every place.
    pub(super) first_rank: Vec<u64>,
    pub(super) best: Way,
    pub(super) broken: Option<[String; 2]>,
}

impl Row<'_, '_> {
    fn place_of(&self, rank: u64) -> usize {
        self.first_rank.partition_point(|first| *first <= rank).saturating_sub(1)
    }

    fn domain_of(&self, host: usize) -> usize {
        self.network.topology().hosts()[host].domain
    }

    /// The places that the ranks of a pipeline rank stand on, each once, in rising order.
    fn places(&self, grid: &RankGrid, rank: u64) -> Vec<usize> {
        let (block, ranks) = (grid.block(), grid.stage_ranks());
        let mut places: Vec<usize> = Vec::new();
        for first in (0..ranks).step_by(usize::try_from(block).unwrap_or(usize::MAX)) {
            let first = grid.rank(rank, first);
            let own = self.place_of(first)..self.place_of(first + block - 1) + 1;
            places.extend(own.filter(|place| *place < self.hosts.len()));
        }
        places.dedup();
        places
    }

    pub(super) fn site(&mut self, parallel: &ParallelConfig, rank: u32) -> Site {
        let grid = RankGrid::of(parallel);
        let network = self.network;
        let places = self.places(&grid, rank.into());
        let chosen: Vec<usize> = places.into_iter().filter_map(|place| self.hosts[place]).collect();
        let groups = &network.cluster().groups;
        let group_of = |host: &usize| network.topology().hosts()[*host].group;
        let by = |less: &dyn Fn(&Gpu) -> f64| {
            let own = chosen.iter().map(group_of);
            own.min_by(|a, b| less(&groups[*a].gpu).total_cmp(&less(&groups[*b].gpu)))
        };
        let fastest =
            || (0..groups.len()).max_by(|a, b| speed(&groups[*a].gpu).total_cmp(&speed(&groups[*b].gpu)));
        let largest = || {
            let memory = |index: &usize| groups[*index].gpu.memory.get();
            (0..groups.len()).max_by(|a, b| memory(a).total_cmp(&memory(b)))
        };
        let group = by(&speed).or_else(fastest).unwrap_or(0);
        let smallest = by(&|gpu: &Gpu| gpu.memory.get()).or_else(largest).unwrap_or(0);
        let own_domain = |host: &usize| {
            let nominal = groups[group_of(host)].node.domain;
            let counted = network.domains()[self.domain_of(*host)];
            if network.cluster().domains.is_empty() { nominal } else { counted.min(nominal) }
        };
        let nominal = &groups[group].node;
        let domain = chosen.iter().map(own_domain).min().unwrap_or(nominal.domain).max(1);
        let intra = chosen.iter().map(|host| network.path(*host, *host).bandwidth);
        let intra = intra.reduce(BytesPerSecond::min).unwrap_or(nominal.intra.bandwidth);
        let mut way = |group: RankGroup| {
            let crosses = !parallel.group_shape(group, domain).is_local();
            crosses.then(|| self.axis(&grid, rank.into(), group.inside(parallel)))
        };
        let ways = AxisWays {
            tp: way(RankGroup::Tp),
            cp: way(RankGroup::Cp),
            ep: way(RankGroup::Ep),
            etp: way(RankGroup::Etp),
            dense: way(RankGroup::Shards),
            expert: way(RankGroup::ExpertShards),
            replicate: way(RankGroup::Replicas),
        };
        Site { group, smallest, domain, intra, ways }
    }

    /// The slowest way of groups of `count` ranks, `stride` apart among the ranks of a stage.
    fn axis(&mut self, grid: &RankGrid, rank: u64, [count, stride]: [u32; 2]) -> Way {
        let (count, stride) = (u64::from(count), u64::from(stride.max(1)));
        let size = grid.stage_ranks();
        let mut sets: Vec<Vec<usize>> = Vec::new();
        for first in (0..size).filter(|index| index % (count * stride) < stride) {
            let members = (0..count).map(|index| first + index * stride).filter(|index| *index < size);
            let mut set: Vec<usize> = members.map(|index| self.place_of(grid.rank(rank, index))).collect();
            set.dedup();
            if sets.last() != Some(&set) {
                sets.push(set);
            }
        }
        sets.sort_unstable();
        sets.dedup();
        let mut slowest: Option<Way> = None;
        for set in sets {
            let hosts: Vec<usize> =
                set.iter().filter_map(|place| self.hosts.get(*place).copied().flatten()).collect();
            if let Some(way) = self.by_tier(&hosts) {
                slowest = Some(slowest.map_or(way, |known| worse(known, way)));
                continue;
            }
            for (index, &a) in hosts.iter().enumerate() {
                for &b in &hosts[index + 1..] {
                    if let Some(way) = self.between(a, b) {
                        slowest = Some(slowest.map_or(way, |known| worse(known, way)));
                    }
                }
            }
        }
        slowest.unwrap_or(self.best)
    }

    /// The slowest way of many hosts of different domains, in linear time; none where single ways are known.
    fn by_tier(&self, hosts: &[usize]) -> Option<Way> {
        if hosts.len() < MANY || self.network.topology().has_own_ways() {
            return None;
        }
        let ids: Vec<HostId> = hosts.iter().copied().map(HostId).collect();
        let path = self.network.topology().slowest(&ids)?;
        let passes = path.bandwidth.get() > 0.0 && matches!(path.tier, Tier::Leaf | Tier::Spine);
        passes.then_some(Way { bandwidth: path.bandwidth, latency: path.latency })
    }

    pub(super) fn hop(&mut self, parallel: &ParallelConfig, rank: u32) -> HopWay {
        let grid = RankGrid::of(parallel);
        let (from, to) = (u64::from(rank), u64::from((rank + 1) % parallel.pp));
        let mut slowest: Option<Way> = None;
        let mut known = (usize::MAX, usize::MAX);
        for index in 0..grid.stage_ranks() {
            let pair = (self.place_of(grid.rank(from, index)), self.place_of(grid.rank(to, index)));
            if pair.0 == pair.1 || pair == known {
                continue;
            }
            known = pair;
            let host = |place: usize| self.hosts.get(place).copied().flatten();
            let way = match (host(pair.0), host(pair.1)) {
                (Some(a), Some(b)) => self.between(a, b),
                _ => Some(self.best),
            };
            slowest = match (slowest, way) {
                (Some(a), Some(b)) => Some(worse(a, b)),
                (a, b) => a.or(b),
            };
        }
        HopWay { way: slowest }
    }

    /// The slower direction between two hosts; none if they share an NVLink domain.
    fn between(&mut self, a: usize, b: usize) -> Option<Way> {
        if self.domain_of(a) == self.domain_of(b) {
            return None;
        }
        let (to, back) = (self.network.path(a, b), self.network.path(b, a));
        let way = Way { bandwidth: to.bandwidth.min(back.bandwidth), latency: to.latency.max(back.latency) };
        if way.bandwidth.get() <= 0.0 && self.broken.is_none() {
            let name = |host: usize| self.network.topology().hosts()[host].name.clone();
            self.broken = Some([name(a), name(b)]);
        }
        Some(way)
    }
}
