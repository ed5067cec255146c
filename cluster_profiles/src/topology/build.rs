//! Builds the graph of a cluster and reads off it what each host and leaf switch can carry.

use super::{Host, HostId, Pairs, Path, Reach, Tier, Topology, Vertex, Wire};
use crate::cluster::Cluster;
use crate::hosts::{Layout, SPINE};
use crate::links::{HostMatrix, LinkOverride};
use crate::units::{BytesPerSecond, Seconds};
use petgraph::graph::{EdgeIndex, NodeIndex, UnGraph};
use petgraph::visit::EdgeRef;
use std::collections::BTreeMap;

/// A graph in the making, with the names that overrides use.
pub(super) struct Builder {
    graph: UnGraph<Vertex, Wire>,
    hosts: Vec<Host>,
    host_vertices: Vec<NodeIndex>,
    leaf_count: usize,
    /// Vertices by name; a leaf has one per rail.
    vertices: BTreeMap<String, Vec<NodeIndex>>,
    spine: NodeIndex,
    pairs: Pairs,
}

impl Builder {
    pub(super) fn of(cluster: &Cluster) -> Self {
        let layout = Layout::of(cluster);
        let mut graph = UnGraph::default();
        let spine = graph.add_node(Vertex::Spine);
        let mut builder = Self {
            graph,
            hosts: Vec::new(),
            host_vertices: Vec::new(),
            leaf_count: layout.leaves.len(),
            vertices: BTreeMap::from([(SPINE.to_owned(), vec![spine])]),
            spine,
            pairs: BTreeMap::new(),
        };
        builder.add_switches(cluster, &layout);
        for (index, place) in layout.hosts.iter().enumerate() {
            let host = Host {
                name: place.name.clone(),
                group: place.group,
                gpus: cluster.groups[place.group].node.gpus,
                leaf: place.leaf,
                domain: place.domain,
            };
            builder.add_host(cluster, &layout, HostId(index), host);
        }
        builder.add_uplinks(cluster, &layout);
        builder
    }

    fn add_switches(&mut self, cluster: &Cluster, layout: &Layout) {
        for name in &layout.domains {
            let vertex = self.graph.add_node(Vertex::Domain(name.clone()));
            self.vertices.insert(name.clone(), vec![vertex]);
        }
        let mut rails = vec![0; layout.leaves.len()];
        for host in &layout.hosts {
            rails[host.leaf] = rails[host.leaf].max(cluster.groups[host.group].node.nics);
        }
        for (name, rails) in layout.leaves.iter().zip(rails) {
            let add = |rail| self.graph.add_node(Vertex::Leaf { name: name.clone(), rail });
            let vertices = (0..rails).map(add).collect();
            self.vertices.insert(name.clone(), vertices);
        }
    }

    fn add_host(&mut self, cluster: &Cluster, layout: &Layout, id: HostId, host: Host) {
        let node = &cluster.groups[host.group].node;
        let vertex = self.graph.add_node(Vertex::Host(id));
        let gpus = f64::from(node.gpus);
        if let Some(domain) = self.vertices[&layout.domains[host.domain]].first() {
            let wire = Wire { bandwidth: node.intra.bandwidth * gpus, latency: node.intra.latency };
            self.graph.add_edge(vertex, *domain, wire);
        }
        let rate = node.inter.bandwidth * (gpus / f64::from(node.nics));
        let rails = &self.vertices[&layout.leaves[host.leaf]];
        for rail in rails.iter().take(node.nics as usize) {
            self.graph.add_edge(vertex, *rail, Wire { bandwidth: rate, latency: node.inter.latency });
        }
        self.vertices.insert(host.name.clone(), vec![vertex]);
        self.host_vertices.push(vertex);
        self.hosts.push(host);
    }

    fn add_uplinks(&mut self, cluster: &Cluster, layout: &Layout) {
        for rail in layout.leaves.iter().flat_map(|leaf| &self.vertices[leaf]) {
            let down: Vec<&Wire> = self.graph.edges(*rail).map(|edge| edge.weight()).collect();
            let bandwidth: BytesPerSecond = down.iter().map(|wire| wire.bandwidth).sum();
            let latency = down.iter().map(|wire| wire.latency).fold(Seconds::ZERO, Seconds::max);
            let wire = Wire { bandwidth: bandwidth / cluster.oversubscription, latency };
            self.graph.add_edge(*rail, self.spine, wire);
        }
    }

    /// Changes the wires an override names; between two hosts, the whole way.
    pub(super) fn apply(&mut self, link: &LinkOverride) {
        let [a, b] = link.between.each_ref().map(|name| self.vertices.get(name).cloned().unwrap_or_default());
        if let ([a], [b]) = (a.as_slice(), b.as_slice())
            && let (Vertex::Host(a), Vertex::Host(b)) = (&self.graph[*a], &self.graph[*b])
        {
            let (a, b) = (*a, *b);
            let bandwidth = if link.broken { Some(BytesPerSecond::ZERO) } else { link.bandwidth };
            self.pairs.insert((a, b), (bandwidth, link.latency));
            self.pairs.insert((b, a), (bandwidth, link.latency));
            return;
        }
        let wires: Vec<EdgeIndex> = a
            .iter()
            .flat_map(|a| b.iter().map(move |b| (*a, *b)))
            .filter_map(|(a, b)| self.graph.find_edge(a, b))
            .filter(|edge| link.rail.is_none_or(|rail| self.rail(*edge) == Some(rail)))
            .collect();
        // A rate per GPU becomes that of the wire: all GPUs that use it, over the rails that share the load.
        let shares = if link.rail.is_some() { 1.0 } else { wires.len() as f64 };
        for edge in wires {
            let gpus = if link.rail.is_some() { 1.0 } else { self.gpus_behind(edge) };
            let wire = &mut self.graph[edge];
            if let Some(bandwidth) = link.bandwidth {
                wire.bandwidth = bandwidth * (gpus / shares);
            }
            if let Some(latency) = link.latency {
                wire.latency = latency;
            }
            if link.broken {
                wire.bandwidth = BytesPerSecond::ZERO;
            }
        }
    }

    fn rail(&self, edge: EdgeIndex) -> Option<u32> {
        let (a, b) = self.graph.edge_endpoints(edge)?;
        [a, b].into_iter().find_map(|vertex| match self.graph[vertex] {
            Vertex::Leaf { rail, .. } => Some(rail),
            _ => None,
        })
    }

    /// GPUs of the host at one end, or of all hosts below the leaf switch.
    fn gpus_behind(&self, edge: EdgeIndex) -> f64 {
        let Some((a, b)) = self.graph.edge_endpoints(edge) else { return 0.0 };
        let host = |vertex: NodeIndex| match self.graph[vertex] {
            Vertex::Host(id) => Some(f64::from(self.hosts[id.0].gpus)),
            _ => None,
        };
        let leaf = if a == self.spine { b } else { a };
        host(a).or_else(|| host(b)).unwrap_or_else(|| self.graph.neighbors(leaf).filter_map(host).sum())
    }

    /// Takes over measured ways; those that an override states stay.
    pub(super) fn measure(&mut self, matrix: &HostMatrix) {
        let ids: BTreeMap<&str, HostId> =
            self.hosts.iter().enumerate().map(|(i, host)| (host.name.as_str(), HostId(i))).collect();
        let rows: Vec<Option<HostId>> =
            matrix.hosts.iter().map(|name| ids.get(name.as_str()).copied()).collect();
        for (i, from) in rows.iter().enumerate() {
            for (j, to) in rows.iter().enumerate().filter(|(j, _)| *j != i) {
                let (Some(from), Some(to)) = (from, to) else { continue };
                let way = (matrix.bandwidth(i, j), matrix.latency(i, j));
                self.pairs.entry((*from, *to)).or_insert(way);
            }
        }
    }

    pub(super) fn finish(self) -> Topology {
        let reach = (0..self.hosts.len()).map(|index| self.reach(index)).collect();
        let uplinks = self.uplinks();
        let names = self.hosts.iter().enumerate().map(|(i, host)| (host.name.clone(), HostId(i)));
        let by_name = names.collect();
        Topology { graph: self.graph, by_name, hosts: self.hosts, reach, uplinks, pairs: self.pairs }
    }

    fn reach(&self, index: usize) -> Reach {
        let gpus = f64::from(self.hosts[index].gpus);
        let tier = |tier: Tier, of: &dyn Fn(&Vertex) -> bool| {
            let wires = self.graph.edges(self.host_vertices[index]);
            let wires = wires.filter(|edge| of(&self.graph[edge.target()])).map(|edge| edge.weight());
            let (sum, latency) = wires.fold((BytesPerSecond::ZERO, Seconds::ZERO), |(sum, latency), wire| {
                (sum + wire.bandwidth, latency.max(wire.latency))
            });
            Path { tier, bandwidth: sum / gpus, latency }
        };
        Reach {
            intra: tier(Tier::Host, &|v| matches!(v, Vertex::Domain(_))),
            network: tier(Tier::Leaf, &|v| matches!(v, Vertex::Leaf { .. })),
        }
    }

    fn uplinks(&self) -> Vec<Path> {
        let nowhere = Path { tier: Tier::Spine, bandwidth: BytesPerSecond::ZERO, latency: Seconds::ZERO };
        let mut uplinks = vec![nowhere; self.leaf_count];
        let mut gpus = vec![0.0; self.leaf_count];
        let mut leaf_of: BTreeMap<NodeIndex, usize> = BTreeMap::new();
        for (host, vertex) in self.hosts.iter().zip(&self.host_vertices) {
            gpus[host.leaf] += f64::from(host.gpus);
            for switch in self.graph.neighbors(*vertex) {
                leaf_of.insert(switch, host.leaf);
            }
        }
        for edge in self.graph.edges(self.spine) {
            if let Some(leaf) = leaf_of.get(&edge.target()) {
                uplinks[*leaf].bandwidth += edge.weight().bandwidth;
                uplinks[*leaf].latency = uplinks[*leaf].latency.max(edge.weight().latency);
            }
        }
        for (uplink, gpus) in uplinks.iter_mut().zip(gpus) {
            uplink.bandwidth = uplink.bandwidth / gpus;
        }
        uplinks
    }
}
