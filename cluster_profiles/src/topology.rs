//! The network of a cluster as a graph: hosts, NVLink domains, leaf switches by rail, the spine.
//!
//! ```text
//!                    spine
//!                 /    |    \            uplinks: downlinks of the leaf / oversubscription
//!         leaf0/rail0 ... leaf1/rail0
//!           |      \                     one link per host and rail (network interface)
//!         node0   node1   node2 ...
//!           |       |                    NVLink of all GPUs of the host
//!        domain0 domain1
//! ```
//!
//! Rates are per direction. Inside the graph they are those of the whole wire; [`Topology::path`] and the rest of the
//! interface give them per GPU, with every GPU of the hosts busy at once.

mod build;

use crate::cluster::Cluster;
use crate::error::ProfileError;
use crate::units::{BytesPerSecond, Seconds};
use build::Builder;
use petgraph::graph::UnGraph;
use std::collections::{BTreeMap, BTreeSet};

/// Most links of hosts to leaf switches that a graph is built of.
const MOST_LINKS: u64 = 1 << 20;

/// Index of a host, in rank order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub usize);

/// A host and where it hangs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Index of its group of nodes in [`Cluster::groups`].
    pub group: usize,
    /// GPUs.
    pub gpus: u32,
    /// Number of its leaf switch.
    pub leaf: usize,
    /// Number of its NVLink domain.
    pub domain: usize,
}

/// A vertex of the graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Vertex {
    /// A host.
    Host(HostId),
    /// An NVLink (or PCIe) domain.
    Domain(String),
    /// The switch of one rail above the hosts of one leaf.
    Leaf {
        /// Name of the leaf.
        name: String,
        /// The network interface of the hosts that it serves.
        rail: u32,
    },
    /// Everything above the leaf switches.
    Spine,
}

/// An edge of the graph: a wire, or several taken together.
#[derive(Debug, Clone, PartialEq)]
pub struct Wire {
    /// Rate per direction; zero if broken.
    pub bandwidth: BytesPerSecond,
    /// Time of the smallest message over the tier this wire belongs to.
    pub latency: Seconds,
}

/// What the way between two hosts crosses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// One host.
    Host,
    /// One NVLink domain.
    Domain,
    /// One leaf switch.
    Leaf,
    /// The spine.
    Spine,
}

/// The way between two hosts, or the worst of several.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Path {
    /// What it crosses.
    pub tier: Tier,
    /// Rate per GPU per direction; zero where nothing passes.
    pub bandwidth: BytesPerSecond,
    /// Time of the smallest message.
    pub latency: Seconds,
}

impl Path {
    /// The worse of two in each respect.
    fn worse(self, other: Self) -> Self {
        Self {
            tier: self.tier.max(other.tier),
            bandwidth: self.bandwidth.min(other.bandwidth),
            latency: self.latency.max(other.latency),
        }
    }
}

/// What a host can use, per GPU.
#[derive(Debug, Clone, Copy)]
struct Reach {
    intra: Path,
    network: Path,
}

/// The network of a cluster.
#[derive(Debug, Clone)]
pub struct Topology {
    graph: UnGraph<Vertex, Wire>,
    hosts: Vec<Host>,
    by_name: BTreeMap<String, HostId>,
    reach: Vec<Reach>,
    /// Uplink of each leaf, per GPU below it.
    uplinks: Vec<Path>,
    /// Whole ways that are stated or measured, by (from, to).
    pairs: Pairs,
}

/// Rate and latency of whole ways, as far as they are known.
type Pairs = BTreeMap<(HostId, HostId), (Option<BytesPerSecond>, Option<Seconds>)>;

impl Topology {
    /// Builds the network of `cluster`.
    ///
    /// # Errors
    /// [`ProfileError::Size`] if it has more than a million network interfaces.
    pub fn new(cluster: &Cluster) -> Result<Self, ProfileError> {
        let links: u64 = cluster.groups.iter().map(|g| u64::from(g.nodes) * u64::from(g.node.nics)).sum();
        if links > MOST_LINKS {
            return Err(ProfileError::Size {
                cluster: cluster.name.clone(),
                gpus: cluster.gpu_count(),
                reason: format!(
                    "{links} network interfaces are too many for a topology, at most {MOST_LINKS}"
                ),
            });
        }
        let mut builder = Builder::of(cluster);
        cluster.links.iter().for_each(|link| builder.apply(link));
        cluster.matrix.iter().for_each(|matrix| builder.measure(matrix));
        Ok(builder.finish())
    }

    /// The graph itself, for drawing and for algorithms on it.
    #[must_use]
    pub const fn graph(&self) -> &UnGraph<Vertex, Wire> {
        &self.graph
    }

    /// Every host, in rank order.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The host called `name`.
    #[must_use]
    pub fn host(&self, name: &str) -> Option<HostId> {
        self.by_name.get(name).copied()
    }

    /// The way from one host to another, per GPU, while every GPU of the cluster is busy: uplinks of a leaf switch are
    /// shared by all GPUs below it. A host to itself is its NVLink. A measured way takes the place of the model.
    #[must_use]
    pub fn path(&self, from: HostId, to: HostId) -> Path {
        let (a, b) = (&self.hosts[from.0], &self.hosts[to.0]);
        let (reach_a, reach_b) = (self.reach[from.0], self.reach[to.0]);
        let path = if from == to {
            reach_a.intra
        } else if a.domain == b.domain {
            Path { tier: Tier::Domain, ..reach_a.intra.worse(reach_b.intra) }
        } else if a.leaf == b.leaf {
            reach_a.network.worse(reach_b.network)
        } else {
            let uplinks = self.uplinks[a.leaf].worse(self.uplinks[b.leaf]);
            reach_a.network.worse(reach_b.network).worse(uplinks)
        };
        let (bandwidth, latency) = self.pairs.get(&(from, to)).copied().unwrap_or_default();
        Path {
            bandwidth: bandwidth.unwrap_or(path.bandwidth),
            latency: latency.unwrap_or(path.latency),
            ..path
        }
    }

    /// Whether some ways between hosts are stated or measured as a whole.
    #[must_use]
    pub fn has_own_ways(&self) -> bool {
        !self.pairs.is_empty()
    }

    /// The worst way between any two of `hosts` (the NVLink of one alone): what a ring or an all-to-all over them
    /// runs at. `None` of no host.
    #[must_use]
    pub fn slowest(&self, hosts: &[HostId]) -> Option<Path> {
        if self.pairs.is_empty() {
            return self.slowest_by_tier(hosts);
        }
        let alone = hosts.iter().map(|h| self.path(*h, *h)).reduce(Path::worse)?;
        let ways = hosts.iter().flat_map(|a| hosts.iter().map(move |b| (a, b)));
        let worst = ways.filter(|(a, b)| a != b).map(|(a, b)| self.path(*a, *b)).reduce(Path::worse);
        Some(worst.map_or(alone, |path| path.worse(alone)))
    }

    /// The same in linear time, where no pair is special: if the hosts span domains, each host has one outside of its
    /// own; if they span leaves, each uses its uplink.
    fn slowest_by_tier(&self, hosts: &[HostId]) -> Option<Path> {
        let first = &self.hosts[hosts.first()?.0];
        let all = |same: &dyn Fn(&Host) -> bool| hosts.iter().all(|h| same(&self.hosts[h.0]));
        let intra = hosts.iter().map(|h| self.reach[h.0].intra).reduce(Path::worse)?;
        if all(&|h| h.domain == first.domain) {
            let several = hosts.iter().any(|h| h != &hosts[0]);
            return Some(Path { tier: if several { Tier::Domain } else { Tier::Host }, ..intra });
        }
        let network = hosts.iter().map(|h| self.reach[h.0].network).reduce(Path::worse)?;
        let path = intra.worse(network);
        if all(&|h| h.leaf == first.leaf) {
            return Some(path);
        }
        hosts.iter().map(|h| self.uplinks[self.hosts[h.0].leaf]).reduce(Path::worse).map(|up| path.worse(up))
    }

    /// Most bytes per second that can pass from `left` to `right` over the network at once, nobody else sending: the
    /// minimal cut of the tree of switches. NVLink between hosts is not counted.
    ///
    /// With the spine on either side of the cut, each leaf switch goes to the side where it costs less: its hosts of
    /// the other side, and its uplink where the spine is on the other side.
    #[must_use]
    pub fn capacity(&self, left: &[HostId], right: &[HostId]) -> BytesPerSecond {
        let sums = |hosts: &[HostId]| {
            let mut sums: BTreeMap<usize, f64> = BTreeMap::new();
            for id in hosts {
                let host = &self.hosts[id.0];
                *sums.entry(host.leaf).or_default() +=
                    self.reach[id.0].network.bandwidth.get() * f64::from(host.gpus);
            }
            sums
        };
        let (left, right) = (sums(left), sums(right));
        let leaves: BTreeSet<usize> = left.keys().chain(right.keys()).copied().collect();
        let below = self.gpus_below();
        let cut = |spine_left: bool| -> f64 {
            let leaf = |leaf: &usize| {
                let uplink = self.uplinks[*leaf].bandwidth.get() * below[*leaf];
                let of = |side: &BTreeMap<usize, f64>| side.get(leaf).copied().unwrap_or(0.0);
                let with_left = of(&right) + if spine_left { 0.0 } else { uplink };
                let with_right = of(&left) + if spine_left { uplink } else { 0.0 };
                with_left.min(with_right)
            };
            leaves.iter().map(leaf).sum()
        };
        BytesPerSecond(cut(true).min(cut(false)))
    }

    /// [`capacity`](Self::capacity) between the first and the second half of `hosts`, hosts of one leaf switch and
    /// domain kept together: what a collective over all of them can move across the middle.
    #[must_use]
    pub fn bisection(&self, hosts: &[HostId]) -> BytesPerSecond {
        let mut sorted = hosts.to_vec();
        sorted.sort_by_key(|id| (self.hosts[id.0].leaf, self.hosts[id.0].domain, *id));
        sorted.dedup();
        let (left, right) = sorted.split_at(sorted.len() / 2);
        self.capacity(left, right)
    }

    fn gpus_below(&self) -> Vec<f64> {
        let mut below = vec![0.0; self.uplinks.len()];
        self.hosts.iter().for_each(|host| below[host.leaf] += f64::from(host.gpus));
        below
    }
}
