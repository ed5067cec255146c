//! The network graph: against pairwise search and maximal flow, with broken links, measured ways and lost hosts.

use cluster_profiles::topology::{Path, Tier, Vertex};
use cluster_profiles::{
    BytesPerSecond, Cluster, HostId, HostMatrix, HostSet, LinkOverride, ProfileError, Seconds, Topology,
    catalog,
};
use petgraph::algo::ford_fulkerson;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;
use proptest::prelude::*;

/// `nodes` nodes of dgx-h100, `per_leaf` below each leaf switch.
fn fat_tree(nodes: u64, per_leaf: u32, oversubscription: f64) -> Result<Cluster, ProfileError> {
    let mut cluster = catalog::cluster("dgx-h100")?.resized(nodes * 8)?;
    cluster.nodes_per_leaf = Some(per_leaf);
    cluster.oversubscription = oversubscription;
    Ok(cluster)
}

fn link(between: [&str; 2]) -> LinkOverride {
    LinkOverride {
        between: between.map(str::to_owned),
        rail: None,
        bandwidth: None,
        latency: None,
        broken: false,
        source: "test".to_owned(),
    }
}

fn gb(rate: BytesPerSecond) -> f64 {
    rate.get() / 1e9
}

#[test]
fn rates_follow_what_the_way_crosses() -> Result<(), ProfileError> {
    let topology = Topology::new(&fat_tree(8, 4, 2.0)?)?;
    let way = |a, b| topology.path(HostId(a), HostId(b));
    let expected = [(0, 0, Tier::Host, 450.0), (0, 3, Tier::Leaf, 50.0), (0, 4, Tier::Spine, 25.0)];
    for (a, b, tier, rate) in expected {
        assert_eq!((way(a, b).tier, gb(way(a, b).bandwidth)), (tier, rate), "{a} to {b}");
    }
    assert_eq!(way(0, 0).latency, Seconds::micros(3.0));
    assert_eq!(way(0, 4).latency, Seconds::micros(9.4));
    Ok(())
}

#[test]
fn a_rack_of_nvlink_is_one_domain() -> Result<(), ProfileError> {
    let topology = Topology::new(&catalog::cluster("gb200-nvl72")?.resized(144)?)?;
    let way = |a, b| topology.path(HostId(a), HostId(b));
    assert_eq!((way(0, 17).tier, gb(way(0, 17).bandwidth)), (Tier::Domain, 900.0));
    assert_eq!((way(17, 18).tier, gb(way(17, 18).bandwidth)), (Tier::Leaf, 50.0));
    Ok(())
}

#[test]
fn the_graph_holds_every_switch_and_wire() -> Result<(), ProfileError> {
    let topology = Topology::new(&fat_tree(8, 4, 2.0)?)?;
    let graph = topology.graph();
    let count = |of: fn(&Vertex) -> bool| graph.node_weights().filter(|v| of(v)).count();
    assert_eq!(count(|v| matches!(v, Vertex::Host(_))), 8);
    assert_eq!(count(|v| matches!(v, Vertex::Domain(_))), 8);
    assert_eq!(count(|v| matches!(v, Vertex::Leaf { .. })), 2 * 8);
    assert_eq!(graph.edge_count(), 8 + 8 * 8 + 2 * 8);
    Ok(())
}

#[test]
fn a_broken_rail_takes_its_share_and_a_broken_way_everything() -> Result<(), ProfileError> {
    let mut cluster = fat_tree(8, 4, 1.0)?;
    cluster.links = vec![
        LinkOverride { rail: Some(3), broken: true, ..link(["node1", "leaf0"]) },
        LinkOverride { broken: true, ..link(["node0", "node5"]) },
        LinkOverride { bandwidth: Some(BytesPerSecond(10e9)), ..link(["leaf1", "spine"]) },
        LinkOverride { bandwidth: Some(BytesPerSecond(200e9)), ..link(["node2", "domain2"]) },
        LinkOverride { latency: Some(Seconds::micros(50.0)), ..link(["node3", "leaf0"]) },
    ];
    let topology = Topology::new(&cluster)?;
    let way = |a, b| topology.path(HostId(a), HostId(b));
    assert_eq!(gb(way(1, 2).bandwidth), 50.0 * 7.0 / 8.0);
    assert_eq!(gb(way(5, 0).bandwidth), 0.0);
    assert_eq!(gb(way(0, 4).bandwidth), 10.0);
    assert_eq!(gb(way(4, 5).bandwidth), 50.0);
    assert_eq!(gb(way(2, 2).bandwidth), 200.0);
    assert_eq!(way(0, 3).latency, Seconds::micros(50.0));
    assert_eq!(topology.slowest(&[HostId(0), HostId(5), HostId(1)]).map(|p| gb(p.bandwidth)), Some(0.0));
    Ok(())
}

#[test]
fn measured_ways_stand_above_the_model() -> Result<(), ProfileError> {
    let mut cluster = fat_tree(4, 4, 1.0)?;
    cluster.matrix = Some(HostMatrix {
        hosts: ["node2", "node0"].map(str::to_owned).into(),
        bandwidth_gb_per_second: vec![vec![0.0, 41.0], vec![42.0, 0.0]],
        latency_us: Vec::new(),
        source: "test".to_owned(),
    });
    let topology = Topology::new(&cluster)?;
    let way = |a: &str, b: &str| {
        let ends = topology.host(a).zip(topology.host(b));
        ends.map(|(a, b)| gb(topology.path(a, b).bandwidth))
    };
    assert_eq!(way("node2", "node0"), Some(41.0));
    assert_eq!(way("node0", "node2"), Some(42.0));
    assert_eq!(way("node0", "node1"), Some(50.0));
    assert_eq!(way("node0", "node9"), None);
    Ok(())
}

#[test]
fn lost_hosts_leave_the_others_where_they_were() -> Result<(), ProfileError> {
    let cluster = catalog::cluster("gb200-nvl72")?.resized(144)?;
    let left = cluster.without(&["node1".to_owned(), "node20".to_owned()])?;
    assert_eq!(left.gpu_count(), 136);
    let topology = Topology::new(&left)?;
    let tier = |a: &str, b: &str| {
        let ends = topology.host(a).zip(topology.host(b));
        ends.map(|(a, b)| topology.path(a, b).tier)
    };
    assert_eq!(tier("node0", "node17"), Some(Tier::Domain));
    assert_eq!(tier("node17", "node18"), Some(Tier::Leaf));
    assert_eq!(tier("node0", "node1"), None);
    assert_eq!(left.group_shape(128, 1).per_domain, 68);
    assert_eq!(catalog::cluster_from_toml("left", &left.to_toml()?)?, left);
    assert!(matches!(cluster.without(&["node144".to_owned()]), Err(ProfileError::UnknownHost { .. })));
    assert!(cluster.without(&cluster.host_names()).is_err());
    Ok(())
}

#[test]
fn resizing_keeps_what_is_said_of_the_hosts_that_stay() -> Result<(), ProfileError> {
    let mut cluster = fat_tree(4, 4, 1.0)?;
    cluster.groups[0].hosts = ["a", "b", "c", "d"].map(str::to_owned).into();
    cluster.leaves = vec![
        HostSet { name: "left".into(), hosts: vec!["a".into(), "b".into()] },
        HostSet { name: "right".into(), hosts: vec!["c".into(), "d".into()] },
    ];
    cluster.links = vec![
        LinkOverride { broken: true, ..link(["a", "left"]) },
        LinkOverride { broken: true, ..link(["d", "right"]) },
    ];
    let cut = cluster.resized(16)?;
    assert_eq!((cut.host_names(), cut.leaves.len(), cut.links.len()), (vec!["a".into(), "b".into()], 1, 1));
    let grown = cluster.resized(48)?;
    assert_eq!(grown.host_names(), ["a", "b", "c", "d", "added0", "added1"]);
    for cluster in [cut, grown] {
        assert_eq!(catalog::cluster_from_toml("resized", &cluster.to_toml()?)?, cluster);
        Topology::new(&cluster)?;
    }
    Ok(())
}

#[test]
fn large_clusters_are_built_and_absurd_ones_refused() -> Result<(), ProfileError> {
    let cluster = catalog::cluster("dgx-h100")?;
    assert_eq!(Topology::new(&cluster.resized(100_000)?)?.hosts().len(), 12_500);
    assert!(Topology::new(&cluster.resized(1 << 24)?).is_err());
    Ok(())
}

/// The network part of the graph as wires in both directions, with the vertices of the hosts.
fn directed(topology: &Topology) -> (DiGraph<(), f64>, Vec<NodeIndex>) {
    let graph = topology.graph();
    let mut directed = DiGraph::new();
    let vertices: Vec<NodeIndex> = graph.node_indices().map(|_| directed.add_node(())).collect();
    for edge in graph.edge_references() {
        if ![edge.source(), edge.target()].iter().any(|v| matches!(graph[*v], Vertex::Domain(_))) {
            let (a, b) = (vertices[edge.source().index()], vertices[edge.target().index()]);
            directed.add_edge(a, b, edge.weight().bandwidth.get());
            directed.add_edge(b, a, edge.weight().bandwidth.get());
        }
    }
    let mut hosts = vec![NodeIndex::end(); topology.hosts().len()];
    for vertex in graph.node_indices() {
        if let Vertex::Host(id) = graph[vertex] {
            hosts[id.0] = vertices[vertex.index()];
        }
    }
    (directed, hosts)
}

/// The most that flows from `left` to `right`.
fn max_flow(topology: &Topology, left: &[HostId], right: &[HostId]) -> f64 {
    let (mut graph, hosts) = directed(topology);
    let (from, to) = (graph.add_node(()), graph.add_node(()));
    for host in left {
        graph.add_edge(from, hosts[host.0], 1e15);
    }
    for host in right {
        graph.add_edge(hosts[host.0], to, 1e15);
    }
    ford_fulkerson(&graph, from, to).0
}

fn by_pairs(topology: &Topology, hosts: &[HostId]) -> Option<Path> {
    let ways = hosts.iter().flat_map(|a| hosts.iter().map(|b| topology.path(*a, *b)));
    ways.reduce(|a, b| Path {
        tier: a.tier.max(b.tier),
        bandwidth: a.bandwidth.min(b.bandwidth),
        latency: a.latency.max(b.latency),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    #[test]
    fn the_slowest_way_is_that_of_the_slowest_pair(
        nodes in 1..20_u64,
        per_leaf in 1..6_u32,
        oversubscription in 1.0..4.0_f64,
        domain in 1..4_u32,
        slow in 0..20_usize,
        picks in prop::collection::vec(0..20_usize, 1..8),
    ) {
        let mut cluster = fat_tree(nodes, per_leaf, oversubscription).map_err(|e| TestCaseError::fail(e.to_string()))?;
        cluster.groups[0].node.domain = 8 * domain;
        let slow = slow % nodes as usize;
        cluster.links = vec![LinkOverride {
            bandwidth: Some(BytesPerSecond(11e9)),
            ..link([&format!("node{slow}"), &format!("leaf{}", slow / per_leaf as usize)])
        }];
        let topology = Topology::new(&cluster).map_err(|e| TestCaseError::fail(e.to_string()))?;
        let hosts: Vec<HostId> = picks.into_iter().map(|h| HostId(h % nodes as usize)).collect();
        prop_assert_eq!(topology.slowest(&hosts), by_pairs(&topology, &hosts));
    }

    #[test]
    fn capacity_is_the_maximal_flow(
        nodes in 2..10_u64,
        per_leaf in 1..5_u32,
        oversubscription in 1.0..4.0_f64,
        slow in 0..10_usize,
        sides in prop::collection::vec(0..3_u8, 10),
    ) {
        let mut cluster = fat_tree(nodes, per_leaf, oversubscription).map_err(|e| TestCaseError::fail(e.to_string()))?;
        cluster.groups[0].node.nics = 2;
        let slow = slow % nodes as usize;
        cluster.links = vec![LinkOverride {
            bandwidth: Some(BytesPerSecond(11e9)),
            ..link([&format!("node{slow}"), &format!("leaf{}", slow / per_leaf as usize)])
        }];
        let topology = Topology::new(&cluster).map_err(|e| TestCaseError::fail(e.to_string()))?;
        let side = |wanted: u8| -> Vec<HostId> {
            (0..nodes as usize).filter(|h| sides[*h] == wanted).map(HostId).collect()
        };
        let (left, right) = (side(0), side(1));
        let (ours, flow) = (topology.capacity(&left, &right).get(), max_flow(&topology, &left, &right));
        prop_assert!((ours - flow).abs() <= 1e-6 * flow.max(1.0), "{} against {}", ours, flow);
    }
}

#[test]
fn the_bisection_of_an_oversubscribed_tree_is_its_uplinks() -> Result<(), ProfileError> {
    let topology = Topology::new(&fat_tree(8, 4, 2.0)?)?;
    let all: Vec<HostId> = (0..8).map(HostId).collect();
    assert_eq!(gb(topology.bisection(&all)), 4.0 * 8.0 * 50.0 / 2.0);
    assert_eq!(gb(topology.bisection(&all[..4])), 2.0 * 8.0 * 50.0);
    assert_eq!(gb(topology.bisection(&all[..1])), 0.0);
    Ok(())
}
