//! Seconds between stages on different kinds, at least.

use super::deal::{Deal, StageType};
use super::kinds::Kind;
use super::part::Part;
use crate::mesh::{Mesh, Sharding};
use crate::problem::Problem;
use crate::times::run_of;
use cluster_profiles::Bytes;
use cost_models::comm::{Fabric, Way};
use cost_models::layer_cost::{LayerContext, layer_cost};
use cost_models::sites::Network;
use cost_models::{Recompute, StageMap};

/// The best way from any host of one kind to any of another, where it is worse than the links of the first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Far {
    /// The kinds.
    pub between: [usize; 2],
    /// The way.
    pub way: Way,
}

/// Ways between kinds that are worse than a kind's own links, where single ways are stated or measured.
pub fn far(kinds: &[Kind], network: &Network) -> Vec<Far> {
    let mut list = Vec::new();
    if !network.topology().has_own_ways() {
        return list;
    }
    for a in 0..kinds.len() {
        for b in (0..kinds.len()).filter(|b| *b != a) {
            let pairs =
                kinds[a].hosts.iter().flat_map(|&from| kinds[b].hosts.iter().map(move |&to| (from, to)));
            let ways = pairs.map(|(from, to)| {
                let (there, back) = (network.path(from, to), network.path(to, from));
                Way {
                    bandwidth: there.bandwidth.min(back.bandwidth),
                    latency: there.latency.max(back.latency),
                }
            });
            let best = ways.reduce(|known, way| Way {
                bandwidth: known.bandwidth.max(way.bandwidth),
                latency: known.latency.min(way.latency),
            });
            let own = &kinds[a].cluster.main().node.inter;
            let worse = |way: &Way| way.bandwidth < own.bandwidth || way.latency > own.latency;
            list.extend(best.filter(worse).map(|way| Far { between: [a, b], way }));
        }
    }
    list
}

impl Part<'_> {
    /// Seconds of a hop, at least, from every type of stage to every other; nothing between stages that may share an NVLink domain.
    pub fn hops(&self, mesh: &Mesh, deal: &Deal) -> Vec<Vec<f64>> {
        let size = self.problem.cluster.gpu_count() / u64::from(mesh.pp);
        let joined = !self.problem.cluster.domains.is_empty();
        let bytes: Vec<Bytes> = self.alone.iter().map(|alone| self.least_output(alone, mesh)).collect();
        let between = |from: usize, to: usize| {
            let node = &self.kinds[from].cluster.main().node;
            if joined || (from == to && size < u64::from(node.domain)) {
                return 0.0;
            }
            let own = Way { bandwidth: node.inter.bandwidth, latency: node.inter.latency };
            let far = self.far.iter().find(|far| far.between == [from, to]);
            let alone = &self.alone[from];
            let fabric = Fabric::of_group(alone.cluster, alone.cluster.main(), &alone.runtime.shared);
            fabric.over(Some(far.map_or(own, |far| far.way))).send(bytes[from], false).get()
        };
        let hop = |from: &StageType, to: &StageType| {
            let pairs = from.parts.iter().flat_map(|a| to.parts.iter().map(move |b| (a.kind, b.kind)));
            pairs.map(|(a, b)| between(a, b)).fold(f64::INFINITY, f64::min)
        };
        deal.types.iter().map(|from| deal.types.iter().map(|to| hop(from, to)).collect()).collect()
    }

    /// The smallest message between stages.
    fn least_output(&self, alone: &Problem, mesh: &Mesh) -> Bytes {
        let parallel = mesh.sharded(Sharding::NONE);
        let stages = StageMap(Vec::new());
        let run = run_of(alone, &parallel, &stages);
        let context = LayerContext::of(&run);
        let inner = &self.units.as_slice()[..self.units.len().saturating_sub(1)];
        let mut known: Vec<(usize, Bytes)> = Vec::new();
        for unit in inner {
            let layer = alone.model.layers.get(unit.layers.end - 1);
            if let Some(layer) = layer.filter(|_| known.iter().all(|(kind, _)| *kind != unit.kind)) {
                known.push((unit.kind, layer_cost(&context, layer, Recompute::None).output));
            }
        }
        known.into_iter().map(|(_, bytes)| bytes).reduce(Bytes::min).unwrap_or(Bytes::ZERO)
    }
}
