//! Collectives over one group.

use crate::runtime::SharedTraits;
use cluster_profiles::{
    Bytes, BytesPerSecond, Cluster, Collective, CollectiveCurve, GroupShape, MeasuredCollectives,
    MeasuredLayer, NodeGroup, NodeShape, Seconds,
};

/// Share of a domain link's nominal rate that a collective can reach at best.
const LINK_CEILING: f64 = 0.92;
/// A ring step inside a domain adds this share of the two-rank latency.
const RING_STEP: f64 = 0.22;
/// Latency of an all_reduce relative to the one-way ring collectives, inside a domain.
const REDUCE_LATENCY: f64 = 1.25;
/// The same of an all_to_all, whose messages start together: a peer more adds little.
const EXCHANGE_LATENCY: f64 = 1.15;
/// What a peer of an all_to_all adds.
const EXCHANGE_STEP: f64 = 0.06;
/// The same width as [`CollectiveCurve::transition`] of an all_reduce across domains (two-node curves of `links.csv`).
const REMOTE_TRANSITION: Seconds = Seconds(1.1e-4);
/// A message whose time is all transfer.
const LARGE: Bytes = Bytes(1e9);
/// Size of the message a start-up bandwidth test uses, in bytes.
const START_UP_MESSAGE: f64 = 180e6;

/// The slowest way between domains that a group of ranks uses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Way {
    /// Rate per GPU and direction.
    pub bandwidth: BytesPerSecond,
    /// Time of the smallest message.
    pub latency: Seconds,
}

/// The links of a cluster as collectives see them.
#[derive(Debug, Clone, Copy)]
pub struct Fabric<'a> {
    cluster: &'a Cluster,
    curve: &'a CollectiveCurve,
    node: &'a NodeShape,
    /// Rate and latency between domains, rate inside one; those of the node unless a way is known.
    way: Way,
    intra: BytesPerSecond,
    shared: &'a SharedTraits,
    measured: Option<&'a MeasuredCollectives>,
    oversubscription: f64,
    /// Oversubscription of the cluster's switches, whatever the way.
    uplinks: f64,
    domains: f64,
}

impl<'a> Fabric<'a> {
    /// The links of `cluster`; a mixed cluster counts as its slowest group.
    #[must_use]
    pub fn new(cluster: &'a Cluster, shared: &'a SharedTraits) -> Self {
        let slowest = cluster.groups.iter().reduce(|slow, group| {
            if group.node.inter.bandwidth < slow.node.inter.bandwidth { group } else { slow }
        });
        Self::of_group(cluster, slowest.unwrap_or_else(|| cluster.main()), shared)
    }

    /// The links of one of the cluster's groups of nodes.
    #[must_use]
    pub fn of_group(cluster: &'a Cluster, group: &'a NodeGroup, shared: &'a SharedTraits) -> Self {
        let domains = cluster.gpu_count() as f64 / f64::from(group.node.domain.max(1));
        let leaf = cluster.nodes_per_leaf.map_or(f64::INFINITY, f64::from);
        let spread = cluster.node_count() as f64 > leaf;
        let oversubscription = if spread { cluster.oversubscription.max(1.0) } else { 1.0 };
        Self {
            cluster,
            curve: &group.gpu.kernels.collective,
            node: &group.node,
            way: Way { bandwidth: group.node.inter.bandwidth, latency: group.node.inter.latency },
            intra: group.node.intra.bandwidth,
            shared,
            measured: cluster.measured.as_ref(),
            oversubscription,
            uplinks: oversubscription,
            domains: domains.max(1.0),
        }
    }

    /// The same links with other kernels at their ends.
    #[must_use]
    pub const fn with_curve(self, curve: &'a CollectiveCurve) -> Self {
        Self { curve, ..self }
    }

    /// Layers measured on the cluster.
    #[must_use]
    pub fn measured_layers(&self) -> &'a [MeasuredLayer] {
        &self.cluster.layers
    }

    /// The same links where the way between domains is known: it holds the share of the switches already.
    #[must_use]
    pub fn over(self, way: Option<Way>) -> Self {
        way.map_or(self, |way| Self { way, oversubscription: 1.0, measured: None, ..self })
    }

    /// The same links with another rate inside a domain.
    #[must_use]
    pub const fn with_intra(self, intra: BytesPerSecond) -> Self {
        Self { intra, ..self }
    }

    /// GPUs of a domain.
    #[must_use]
    pub fn domain(&self) -> u32 {
        self.node.domain
    }

    /// Nominal rate of the domain's link, per GPU and direction.
    #[must_use]
    pub fn link(&self) -> BytesPerSecond {
        self.intra
    }

    /// Rate one GPU's network interface reaches.
    #[must_use]
    pub fn interface(&self) -> BytesPerSecond {
        self.way.bandwidth * (self.shared.nic_efficiency / self.oversubscription)
    }

    /// Bus bandwidth inside a domain.
    #[must_use]
    pub fn local_bandwidth(&self, collective: Collective) -> BytesPerSecond {
        let measured = match collective {
            Collective::AllReduce => self.curve.reduce_bandwidth,
            _ => self.curve.gather_bandwidth,
        };
        measured.min(self.intra * LINK_CEILING)
    }

    /// The links as they are where nothing is known of single ones.
    pub(super) fn plain(&self) -> Self {
        let inter = &self.node.inter;
        Self {
            way: Way { bandwidth: inter.bandwidth, latency: inter.latency },
            intra: self.node.intra.bandwidth,
            oversubscription: self.uplinks,
            ..*self
        }
    }

    pub(super) const fn cluster(&self) -> &'a Cluster {
        self.cluster
    }

    /// Time of `collective` on a tensor of `bytes` over a group: the cluster's own measurement where it has one of this
    /// shape, else the model at the level of what was measured on such links.
    #[must_use]
    pub fn time(&self, collective: Collective, bytes: Bytes, group: GroupShape) -> Seconds {
        self.time_in_buckets(collective, bytes, group, 1.0)
    }

    /// The same in `buckets` calls, each with its own latency.
    #[must_use]
    pub fn time_in_buckets(
        &self,
        collective: Collective,
        bytes: Bytes,
        group: GroupShape,
        buckets: f64,
    ) -> Seconds {
        if group.ranks <= 1 || bytes.get() <= 0.0 {
            return Seconds::ZERO;
        }
        let slower = self.way.bandwidth < self.node.inter.bandwidth;
        let measured = self.cluster.measured_collective(collective, group);
        if let Some(measured) = measured.filter(|_| group.is_local() || !slower) {
            return measured.time(bytes / buckets) * buckets;
        }
        self.modelled(collective, bytes, group, buckets) * self.level(collective, bytes / buckets, group)
    }

    /// The same by the model alone.
    pub(super) fn modelled(
        &self,
        collective: Collective,
        bytes: Bytes,
        group: GroupShape,
        buckets: f64,
    ) -> Seconds {
        let ranks = f64::from(group.ranks);
        if group.is_local() {
            let wire = bytes * collective.wire_factor(group.ranks);
            return self.local_latency(collective, ranks) * buckets
                + self.local_transfer(collective, wire, buckets);
        }
        self.remote_latency(collective, group) * buckets
            + self.remote_transfer(collective, bytes, group, buckets)
    }

    /// A ring passes its wire bytes through every interface. An all_reduce whose members share domains reduces inside each
    /// first (NCCL's trees): only `2 (D - 1)/D` of the tensor crosses, spread over the interfaces of the members, while
    /// `2 (l - 1)/l` of it moves inside.
    fn remote_transfer(
        &self,
        collective: Collective,
        bytes: Bytes,
        group: GroupShape,
        calls: f64,
    ) -> Seconds {
        let (members, domains) = (f64::from(group.per_domain), f64::from(group.domains));
        if collective != Collective::AllReduce || group.per_domain <= 1 {
            let wire = bytes * collective.wire_factor(group.ranks);
            return wire / self.remote_bandwidth(collective, group);
        }
        let across = bytes * (2.0 * (domains - 1.0) / domains) / (self.interface() * members);
        let inside = bytes * (2.0 * (members - 1.0) / members) / self.local_bandwidth(collective);
        let slower = across.max(inside);
        slower + Seconds((REMOTE_TRANSITION.get() * slower.get() * calls).sqrt())
    }

    /// One step of a ring: a message to the neighbour, while another comes from the other side.
    #[must_use]
    pub fn ring_step(&self, bytes: Bytes, group: GroupShape) -> Seconds {
        let pass = Collective::SendRecv;
        let level = self.level(pass, bytes, GroupShape::neighbours(group.is_local()));
        if group.is_local() {
            return (self.local_latency(pass, 2.0) + self.local_transfer(pass, bytes, 1.0)) * level;
        }
        (self.node.inter.latency + bytes / self.remote_bandwidth(pass, group)) * level
    }

    fn local_latency(&self, collective: Collective, ranks: f64) -> Seconds {
        let (base, step) = match collective {
            Collective::AllReduce => (REDUCE_LATENCY, RING_STEP),
            Collective::AllToAll => (EXCHANGE_LATENCY, EXCHANGE_STEP),
            _ => (1.0, RING_STEP),
        };
        self.curve.latency * (base * (1.0 + step * (ranks - 1.0)))
    }

    /// `v/bw + sqrt(transition v/bw)`: the root stands for NCCL's change from its small-message protocols to Simple.
    fn local_transfer(&self, collective: Collective, wire: Bytes, calls: f64) -> Seconds {
        let transfer = wire / self.local_bandwidth(collective);
        transfer + Seconds((self.curve.transition.get() * transfer.get() * calls).sqrt())
    }

    /// Bus bandwidth of a group that spans domains: its members in one domain share that many interfaces.
    #[must_use]
    pub fn remote_bandwidth(&self, collective: Collective, group: GroupShape) -> BytesPerSecond {
        let local = self.local_bandwidth(collective);
        let interfaces = self.interface() * f64::from(group.per_domain);
        local.min(interfaces)
    }

    /// A ring passes every domain once per direction; a tree of all_reduce only its logarithm.
    fn remote_latency(&self, collective: Collective, group: GroupShape) -> Seconds {
        let (ranks, domains) = (f64::from(group.ranks), f64::from(group.domains));
        let inside = self.shared.intra_hop * (ranks - domains).max(0.0);
        let ring = self.way.latency * domains + inside;
        if collective != Collective::AllReduce {
            return ring;
        }
        let depth = domains.log2().ceil() + 1.0;
        let per_domain = f64::from(group.per_domain);
        let tree = self.way.latency * depth + self.shared.intra_hop * (per_domain - 1.0);
        ring.min(tree) * 2.0
    }

    /// Time of one message between two pipeline ranks.
    #[must_use]
    pub fn send(&self, bytes: Bytes, local: bool) -> Seconds {
        if bytes.get() <= 0.0 {
            return Seconds::ZERO;
        }
        let shape = GroupShape::neighbours(local);
        let slower = !local && self.way.bandwidth < self.node.inter.bandwidth;
        let measured = self.cluster.measured_collective(Collective::SendRecv, shape);
        if let Some(measured) = measured.filter(|_| !slower) {
            return measured.time(bytes);
        }
        let rate = if local { self.local_bandwidth(Collective::SendRecv) } else { self.interface() };
        let farther = (self.way.latency - self.node.inter.latency).max(Seconds::ZERO);
        // Rates of collectives carry over to a send; what starts them does not.
        self.shared.pipeline_hop + farther + bytes / rate * self.level(Collective::SendRecv, LARGE, shape)
    }

    /// Time by the bandwidth that the cluster's own start-up test found over all its GPUs, where there is one and the
    /// group spans domains: the smaller of two readings. One takes the figure for the wire's rate, shared by the
    /// groups of a domain and better for groups that touch fewer domains. The other takes it for latency: start-up
    /// tests use a message of moderate size, so `S0 (1/measured - 1/local)` was lost per call, in proportion to the
    /// domains touched, and the transfer itself runs at the links' rate.
    #[must_use]
    pub fn measured_time(
        &self,
        collective: Collective,
        bytes: Bytes,
        group: GroupShape,
        calls: f64,
    ) -> Option<Seconds> {
        let own = self.cluster.measured_collective(collective, group);
        let measured = self.measured.filter(|_| !group.is_local() && own.is_none())?;
        let whole = match collective {
            Collective::ReduceScatter => measured.reduce_scatter,
            Collective::AllReduce => measured.all_reduce,
            _ => measured.all_gather,
        };
        let local = self.local_bandwidth(Collective::AllGather);
        let wire = bytes * collective.wire_factor(group.ranks);
        let reach = f64::from(group.domains) / self.domains;
        let share = f64::from(group.per_domain) / f64::from(self.node.domain.max(1));
        let shared_wire = local.min(whole * (share / reach));
        let as_rate = self.remote_latency(collective, group) * calls + wire / shared_wire;
        let lost = (1.0 / whole.get().max(1.0) - 1.0 / local.get()).max(0.0);
        let passes = if collective == Collective::AllReduce { 2.0 } else { 1.0 };
        let latency = Seconds(passes * START_UP_MESSAGE * lost * reach * calls);
        let as_latency = latency + wire / self.remote_bandwidth(collective, group);
        Some(as_rate.min(as_latency))
    }
}
