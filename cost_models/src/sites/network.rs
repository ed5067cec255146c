//! The hosts of a cluster and the ways between them.

use super::row::Row;
use super::{Sites, Way};
use crate::parallel::ParallelConfig;
use cluster_profiles::topology::{HostId, Path, Topology};
use cluster_profiles::{Cluster, ProfileError};

/// Hosts up to which the ways between all of them are kept.
const MOST_KEPT: usize = 1024;
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

    /// GPUs of every NVLink domain.
    pub(super) fn domains(&self) -> &[u32] {
        &self.domains
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
