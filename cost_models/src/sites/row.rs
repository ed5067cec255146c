//! The row of hosts that a layout's ranks fill: what each pipeline rank runs on, and the slowest way of every group.

use super::network::Network;
use super::{AxisWays, HopWay, Site, Way, speed, worse};
use crate::parallel::ParallelConfig;
use cluster_profiles::topology::{HostId, Tier};
use cluster_profiles::{BytesPerSecond, Gpu, GroupShape};

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

    pub(super) fn site(&mut self, parallel: &ParallelConfig, rank: u32) -> Site {
        let size = parallel.world_size() / u64::from(parallel.pp);
        let ranks = u64::from(rank) * size..u64::from(rank + 1) * size;
        let places = self.place_of(ranks.start)..self.place_of(ranks.end.saturating_sub(1)) + 1;
        let network = self.network;
        let chosen: Vec<usize> = self.hosts
            [places.start.min(self.hosts.len())..places.end.min(self.hosts.len())]
            .iter()
            .copied()
            .flatten()
            .collect();
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
        let shards = parallel.dp_shard * parallel.cp;
        let experts = parallel.ep * parallel.etp;
        let expert_shards = (parallel.expert_dp().max(1) / parallel.dp_replicate.max(1)).max(1);
        let mut way = |count: u32, stride: u32| self.axis(ranks.clone(), domain, count, stride);
        let ways = AxisWays {
            tp: way(parallel.tp, 1),
            cp: way(parallel.cp, parallel.tp),
            ep: way(parallel.ep, parallel.etp),
            etp: way(parallel.etp, 1),
            dense: way(shards, parallel.tp),
            expert: way(expert_shards, experts),
            replicate: way(parallel.dp_replicate, parallel.tp * shards),
        };
        Site { group, smallest, domain, intra, ways }
    }

    /// The slowest way of the groups of an axis inside the ranks of a stage.
    fn axis(&mut self, ranks: std::ops::Range<u64>, domain: u32, count: u32, stride: u32) -> Option<Way> {
        if count <= 1 || GroupShape::within(domain, count, stride).is_local() {
            return None;
        }
        let (count, stride) = (u64::from(count), u64::from(stride.max(1)));
        let mut sets: Vec<Vec<usize>> = Vec::new();
        for first in ranks.clone().filter(|rank| (rank - ranks.start) % (count * stride) < stride) {
            let members = (0..count).map(|index| first + index * stride).filter(|rank| *rank < ranks.end);
            let mut set: Vec<usize> = members.map(|rank| self.place_of(rank)).collect();
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
        Some(slowest.unwrap_or(self.best))
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
        let size = parallel.world_size() / u64::from(parallel.pp);
        let (from, to) = (u64::from(rank) * size, u64::from((rank + 1) % parallel.pp) * size);
        let mut slowest: Option<Way> = None;
        let mut known = (usize::MAX, usize::MAX);
        for place in 0..size {
            let pair = (self.place_of(from + place), self.place_of(to + place));
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
