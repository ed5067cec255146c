//! What every pipeline rank runs on, where that makes a difference: GPUs of several kinds, or links that are not all alike.
//!
//! Ranks fill the hosts of a cluster in order, so that a pipeline rank is a row of hosts. All its GPUs wait for the
//! slowest of them, and every group of an axis for its slowest way; [`Sites`] holds both for each pipeline rank. An even
//! cluster needs none of it ([`Cluster::is_even`]).

use crate::comm::Way;
use crate::parallel::ParallelConfig;
use crate::run::TrainingRun;
use crate::runtime::Runtime;
use cluster_profiles::topology::{HostId, Path, Tier, Topology};
use cluster_profiles::{Bytes, BytesPerSecond, Cluster, Gpu, GroupShape, ProfileError, Seconds};

/// Hosts up to which the ways between all of them are kept.
const MOST_KEPT: usize = 1024;
/// Hosts from which on their slowest way is read off the tiers they use, not off every pair.
const MANY: usize = 64;

/// The hosts of a cluster and the ways between them.
#[derive(Debug)]
pub struct Network<'a> {
    cluster: &'a Cluster,
    topology: Topology,
    /// Ways by pair, if the hosts are not too many.
    ways: Vec<Path>,
    /// GPUs of every NVLink domain.
    domains: Vec<u32>,
}

/// What one pipeline rank runs on.
#[derive(Debug, Clone, PartialEq)]
pub struct Site {
    /// Index of the group of nodes with the slowest GPUs.
    pub group: usize,
    /// Index of the group of nodes with the least memory.
    pub smallest: usize,
    /// GPUs of an NVLink domain that every group of ranks may count on.
    pub domain: u32,
    /// Rate inside a domain.
    pub intra: BytesPerSecond,
    /// The slowest way of every axis; none for an axis that stays in domains.
    pub ways: AxisWays,
}

/// The slowest way between domains that the groups of every axis use.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[allow(missing_docs)]
pub struct AxisWays {
    pub tp: Option<Way>,
    pub cp: Option<Way>,
    pub ep: Option<Way>,
    pub etp: Option<Way>,
    /// Shards of dense state.
    pub dense: Option<Way>,
    /// Shards of expert state.
    pub expert: Option<Way>,
    /// Replicas of sharded state.
    pub replicate: Option<Way>,
}

/// The way from one pipeline rank to the next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HopWay {
    /// The slowest between GPUs of the same place; none if all share domains.
    pub way: Option<Way>,
}

/// The sites of all pipeline ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct Sites {
    /// One per pipeline rank.
    pub list: Vec<Site>,
    /// From every pipeline rank to the next, the last to the first.
    pub hops: Vec<HopWay>,
    /// Two hosts that have to reach each other and cannot.
    pub broken: Option<[String; 2]>,
}

/// The row of hosts that a layout's ranks fill. A place may still be open: it counts as the best host there is.
#[derive(Debug)]
struct Row<'n, 'a> {
    network: &'n Network<'a>,
    /// The host of every GPU place of the row, by node.
    hosts: &'n [Option<usize>],
    /// First global rank of every place.
    first_rank: Vec<u64>,
    best: Way,
    broken: Option<[String; 2]>,
}

impl<'a> Network<'a> {
    /// The network of a cluster.
    ///
    /// # Errors
    /// [`ProfileError::Size`] if it is too large for a topology.
    pub fn new(cluster: &'a Cluster) -> Result<Self, ProfileError> {
        let topology = Topology::new(cluster)?;
        let count = topology.hosts().len();
        let mut domains = vec![0; topology.hosts().iter().map(|host| host.domain + 1).max().unwrap_or(0)];
        topology.hosts().iter().for_each(|host| domains[host.domain] += host.gpus);
        let mut network = Self { cluster, topology, ways: Vec::new(), domains };
        if count <= MOST_KEPT {
            let pairs = (0..count).flat_map(|a| (0..count).map(move |b| (a, b)));
            network.ways = pairs.map(|(a, b)| network.topology.path(HostId(a), HostId(b))).collect();
        }
        Ok(network)
    }

    /// The cluster.
    #[must_use]
    pub const fn cluster(&self) -> &'a Cluster {
        self.cluster
    }

    /// Its topology.
    #[must_use]
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The way from one host to another.
    #[must_use]
    pub fn path(&self, from: usize, to: usize) -> Path {
        let count = self.topology.hosts().len();
        let kept = self.ways.get(from * count + to).copied();
        kept.unwrap_or_else(|| self.topology.path(HostId(from), HostId(to)))
    }

    /// The best rate and the best latency of any way between domains.
    #[must_use]
    pub fn best(&self) -> Way {
        self.extreme(|a, b| Way {
            bandwidth: a.bandwidth.max(b.bandwidth),
            latency: a.latency.min(b.latency),
        })
    }

    /// The worst rate at which something passes, and the worst latency, of any way between domains.
    #[must_use]
    pub fn worst(&self) -> Way {
        self.extreme(|a, b| Way {
            bandwidth: a.bandwidth.min(b.bandwidth),
            latency: a.latency.max(b.latency),
        })
    }

    fn extreme(&self, choose: impl Fn(Way, Way) -> Way) -> Way {
        let hosts = self.topology.hosts();
        let count = hosts.len().min(MOST_KEPT);
        let pairs = (0..count).flat_map(|a| (0..count).map(move |b| (a, b)));
        let between = pairs.filter(|(a, b)| hosts[*a].domain != hosts[*b].domain);
        let ways = between.map(|(a, b)| self.path(a, b)).filter(|path| path.bandwidth.get() > 0.0);
        let node = &self.cluster.main().node;
        let way = |path: Path| Way { bandwidth: path.bandwidth, latency: path.latency };
        ways.map(way)
            .reduce(choose)
            .unwrap_or(Way { bandwidth: node.inter.bandwidth, latency: node.inter.latency })
    }

    /// The sites of a layout whose ranks fill these hosts in order; a host that is not chosen yet counts as the best.
    #[must_use]
    pub fn sites(&self, hosts: &[Option<usize>], parallel: &ParallelConfig, best: Way) -> Sites {
        let first = self.topology.hosts().first().map_or(1, |host| host.gpus);
        let mut next = 0;
        let mut first_rank = Vec::with_capacity(hosts.len() + 1);
        for host in hosts {
            first_rank.push(next);
            next += u64::from(host.map_or(first, |host| self.topology.hosts()[host].gpus));
        }
        let mut row = Row { network: self, hosts, first_rank, best, broken: None };
        let list = (0..parallel.pp).map(|rank| row.site(parallel, rank)).collect();
        let hops = (0..parallel.pp).map(|rank| row.hop(parallel, rank)).collect();
        Sites { list, hops, broken: row.broken }
    }
}

impl Row<'_, '_> {
    fn place_of(&self, rank: u64) -> usize {
        self.first_rank.partition_point(|first| *first <= rank).saturating_sub(1)
    }

    fn domain_of(&self, host: usize) -> usize {
        self.network.topology.hosts()[host].domain
    }

    fn site(&mut self, parallel: &ParallelConfig, rank: u32) -> Site {
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
        let groups = &network.cluster.groups;
        let group_of = |host: &usize| network.topology.hosts()[*host].group;
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
            let counted = network.domains[self.domain_of(*host)];
            if network.cluster.domains.is_empty() { nominal } else { counted.min(nominal) }
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
        if hosts.len() < MANY || self.network.topology.has_own_ways() {
            return None;
        }
        let ids: Vec<HostId> = hosts.iter().copied().map(HostId).collect();
        let path = self.network.topology.slowest(&ids)?;
        let passes = path.bandwidth.get() > 0.0 && matches!(path.tier, Tier::Leaf | Tier::Spine);
        passes.then_some(Way { bandwidth: path.bandwidth, latency: path.latency })
    }

    fn hop(&mut self, parallel: &ParallelConfig, rank: u32) -> HopWay {
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
            let name = |host: usize| self.network.topology.hosts()[host].name.clone();
            self.broken = Some([name(a), name(b)]);
        }
        Some(way)
    }
}

fn worse(a: Way, b: Way) -> Way {
    Way { bandwidth: a.bandwidth.min(b.bandwidth), latency: a.latency.max(b.latency) }
}

/// Sustained 16-bit rate.
#[must_use]
pub fn speed(gpu: &Gpu) -> f64 {
    gpu.kernels.gemm_16bit.rate.get() * gpu.kernels.sustained_16bit
}

impl Sites {
    /// The sites of a layout on a cluster, whose hosts are in rank order; none if the cluster is even, or too large for a
    /// topology.
    #[must_use]
    pub fn of(cluster: &Cluster, parallel: &ParallelConfig) -> Option<Self> {
        if cluster.is_even() || cluster.groups.is_empty() || parallel.pp == 0 {
            return None;
        }
        let network = Network::new(cluster).ok()?;
        let hosts: Vec<Option<usize>> = (0..network.topology.hosts().len()).map(Some).collect();
        Some(network.sites(&hosts, parallel, network.best()))
    }

    /// The way of a message between the stages of two pipeline ranks, in either direction.
    #[must_use]
    pub fn hop(&self, from: usize, to: usize) -> HopWay {
        let count = self.hops.len().max(1);
        if from == to {
            return HopWay { way: None };
        }
        if (from + 1) % count == to {
            return self.hops[from];
        }
        if (to + 1) % count == from {
            return self.hops[to];
        }
        let all = self.hops.iter().filter_map(|hop| hop.way);
        HopWay { way: all.reduce(worse) }
    }
}

impl Default for Way {
    fn default() -> Self {
        Self { bandwidth: BytesPerSecond::ZERO, latency: Seconds::ZERO }
    }
}

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
