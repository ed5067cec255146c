//! The slowest way of every group and hop where links differ.

use super::brute::{Random, groups, layout};
use cluster_profiles::topology::{HostId, Topology};
use cluster_profiles::{Cluster, HostMatrix, catalog};
use cost_models::ParallelConfig;
use cost_models::comm::Way;
use cost_models::grid::coordinates;
use cost_models::order::RankGroup;
use cost_models::sites::Sites;

/// Hosts of 8 GPUs with rates of their own between any two.
fn cluster(random: &mut Random, hosts: u64) -> Cluster {
    let mut cluster =
        catalog::cluster("dgx-h100").and_then(|own| own.resized(8 * hosts)).expect("whole nodes");
    let mut row = |scale: f64| -> Vec<Vec<f64>> {
        let cell = |random: &mut Random| scale * (1.0 + random.below(40) as f64);
        (0..hosts).map(|_| (0..hosts).map(|_| cell(random)).collect()).collect()
    };
    cluster.matrix = Some(HostMatrix {
        hosts: cluster.host_names(),
        bandwidth_gb_per_second: row(1.0),
        latency_us: row(0.5),
        source: "a law".to_owned(),
    });
    cluster
}

fn worse(known: Option<Way>, way: Way) -> Option<Way> {
    Some(known.map_or(way, |known| Way {
        bandwidth: known.bandwidth.min(way.bandwidth),
        latency: known.latency.max(way.latency),
    }))
}

/// The slower direction between the hosts of two ranks; none on one host.
fn between(topology: &Topology, a: u64, b: u64) -> Option<Way> {
    let [a, b] = [a, b].map(|rank| HostId((rank / 8) as usize));
    if a == b {
        return None;
    }
    let (to, back) = (topology.path(a, b), topology.path(b, a));
    Some(Way { bandwidth: to.bandwidth.min(back.bandwidth), latency: to.latency.max(back.latency) })
}

/// The slowest way that any group of a pipeline rank uses.
fn slowest(topology: &Topology, parallel: &ParallelConfig, group: RankGroup, stage: u32) -> Option<Way> {
    let own = groups(parallel, group).into_iter().filter(|ranks| coordinates(parallel, ranks[0]).pp == stage);
    let pairs = own.flat_map(|ranks| {
        let of = |a: u64| ranks.iter().filter_map(move |b| between(topology, a, *b)).collect::<Vec<_>>();
        ranks.iter().flat_map(|a| of(*a)).collect::<Vec<_>>()
    });
    pairs.fold(None, worse)
}

#[test]
fn ways_are_those_of_all_groups_one_by_one() {
    let mut random = Random(3);
    let (mut compared, mut cases) = (0, 0);
    while cases < 150 {
        let parallel = layout(&mut random, 5);
        let world = parallel.world_size();
        // Axes that fill hosts or divide them: a group that is said to stay inside does.
        let inner =
            [parallel.tp, parallel.cp, parallel.pp, parallel.dp_shard, parallel.dp_replicate, parallel.etp];
        if !world.is_multiple_of(8) || world == 8 || world > 128 || inner.contains(&3) {
            continue;
        }
        cases += 1;
        let cluster = cluster(&mut random, world / 8);
        let topology = Topology::new(&cluster).expect("a small cluster");
        let sites = Sites::of(&cluster, &parallel).expect("links differ");
        for stage in 0..parallel.pp {
            let ways = sites.list[stage as usize].ways;
            let found = [ways.tp, ways.cp, ways.ep, ways.etp, ways.dense, ways.expert, ways.replicate];
            let groups = [
                RankGroup::Tp,
                RankGroup::Cp,
                RankGroup::Ep,
                RankGroup::Etp,
                RankGroup::Shards,
                RankGroup::ExpertShards,
                RankGroup::Replicas,
            ];
            for (group, found) in groups.into_iter().zip(found) {
                let expected = slowest(&topology, &parallel, group, stage);
                assert_eq!(found, expected, "{group:?} of stage {stage}: {parallel:?}");
                compared += u32::from(found.is_some());
            }
            let next = (stage + 1) % parallel.pp;
            let hops = groups_of_hop(&parallel, stage, next);
            let hop = hops.iter().filter_map(|&[a, b]| between(&topology, a, b)).fold(None, worse);
            assert_eq!(sites.hops[stage as usize].way, hop, "hop from {stage}: {parallel:?}");
        }
    }
    assert!(compared > 500, "only {compared} groups leave a host");
}

/// The ranks at the same place of two stages.
fn groups_of_hop(parallel: &ParallelConfig, from: u32, to: u32) -> Vec<[u64; 2]> {
    let of = |ranks: &Vec<u64>, stage: u32| {
        ranks.iter().copied().find(|rank| coordinates(parallel, *rank).pp == stage)
    };
    let pairs = groups(parallel, RankGroup::Pp);
    pairs.iter().filter_map(|ranks| Some([of(ranks, from)?, of(ranks, to)?])).collect()
}
