//! Bytes of parameters and optimizer state that have to reach every rank of a new plan.
//!
//! A layer's state is a line from 0 to 1, of which a rank holds the slices that the sharding table gives it: parameters by
//! tensor (or expert) rank, optimizer state by data-parallel shard inside that ([`cost_models::sharding`]). What a GPU held
//! under the old plan stays; the rest of its slices moves. Gradients are made anew.

use crate::plan::{Plan, RankPlacement};
use cluster_profiles::{Bytes, Seconds};
use cost_models::grid::RankGrid;
use cost_models::model::Sharding;
use cost_models::sharding::{Residence, State, StateFormats, StateShards, data_residence};
use cost_models::{ModelSpec, ParallelConfig};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What moves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Moved {
    /// All bytes that reach a rank they were not on.
    pub total_bytes: Bytes,
    /// The host that receives most.
    pub busiest_host: String,
    /// What it receives.
    pub busiest_host_bytes: Bytes,
    /// Bytes of state that no remaining GPU holds: they come from the checkpoint.
    pub from_checkpoint_bytes: Bytes,
    /// Time until the busiest host has received its part over its network interfaces.
    pub seconds: Seconds,
    /// Every rank that receives something.
    pub ranks: Vec<RankMove>,
}

/// What one rank receives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RankMove {
    /// Global rank of the new plan.
    pub rank: u64,
    /// Bytes of parameters.
    pub parameters_bytes: Bytes,
    /// Bytes of optimizer state.
    pub optimizer_bytes: Bytes,
}

/// How a part of a layer is split.
const PARTS: usize = 3;
/// Weights that every tensor-parallel rank has whole; weights split over tp; experts.
const WHOLE: usize = 0;
const TENSOR: usize = 1;
const EXPERT: usize = 2;

/// A part of the line.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Slice {
    from: f64,
    to: f64,
}

impl Slice {
    const ALL: Self = Self { from: 0.0, to: 1.0 };

    /// Piece `index` of `count`.
    fn piece(self, index: u64, count: u64) -> Self {
        let width = (self.to - self.from) / count.max(1) as f64;
        let from = self.from + width * index as f64;
        Self { from, to: from + width }
    }

    fn length(self) -> f64 {
        self.to - self.from
    }

    /// What of it is not in the other.
    fn beyond(self, other: Self) -> f64 {
        let common = (self.to.min(other.to) - self.from.max(other.from)).max(0.0);
        (self.length() - common).max(0.0)
    }
}

/// The slices of a rank, for every part of a layer: parameters and optimizer state.
type Slices = [(Slice, Slice); PARTS];

/// Whole bytes of every layer and part: parameters and optimizer state.
struct LayerBytes(Vec<[(f64, f64); PARTS]>);

impl LayerBytes {
    fn of(plan: &Plan) -> Self {
        let model = &plan.inputs.model;
        let formats = StateFormats::new(&plan.inputs.workload, &plan.inputs.runtime);
        let shards = StateShards::new(&ParallelConfig::default(), &plan.inputs.runtime.memory);
        let of_layer = |layer: &cost_models::model::Layer| {
            let mut parts = [(0.0, 0.0); PARTS];
            for weight in layer.weights(model) {
                let bytes = formats.bytes(&weight, model, &shards, 0.0);
                let part = &mut parts[part_of(weight.sharding)];
                part.0 += bytes.parameters.get();
                part.1 += bytes.optimizer.get();
            }
            parts
        };
        Self(model.layers.iter().map(of_layer).collect())
    }
}

const fn part_of(sharding: Sharding) -> usize {
    match sharding {
        Sharding::Replicated | Sharding::Positions => WHOLE,
        Sharding::Expert | Sharding::ExpertReplicated => EXPERT,
        Sharding::Tensor | Sharding::TensorKv { .. } | Sharding::Vocabulary => TENSOR,
    }
}

/// The slices of a rank of a plan.
fn slices(plan: &Plan, seat: &RankPlacement) -> Slices {
    let parallel = &plan.parallel;
    let at = &seat.coordinates;
    let (tp, cp) = (u64::from(parallel.tp), u64::from(parallel.cp));
    let shards = u64::from(parallel.dp_shard.max(1));
    let over_context = plan.inputs.runtime.memory.state.shard_over_context;
    let shard = u64::from(at.dp) % shards;
    let (index, count) =
        if over_context { (shard * cp + u64::from(at.cp), shards * cp) } else { (shard, shards) };
    let (_, inside) = RankGrid::of(parallel).place(seat.rank);
    let (ep, etp) = (u64::from(parallel.ep.max(1)), u64::from(parallel.etp.max(1)));
    let expert_shards = (u64::from(parallel.expert_dp()) / u64::from(parallel.dp_replicate.max(1))).max(1);
    let expert = Slice::ALL.piece(u64::from(at.ep), ep).piece(inside % etp, etp);
    let tensor = Slice::ALL.piece(u64::from(at.tp), tp);
    let divided = |state| data_residence(parallel.zero_stage, state) != Residence::Replicated;
    let held = |slice: Slice, index: u64, count: u64| {
        let part = slice.piece(index, count);
        let of = |state| if divided(state) { part } else { slice };
        (of(State::Parameters), of(State::Master))
    };
    let expert_index = inside / (ep * etp) % expert_shards;
    [held(Slice::ALL, index, count), held(tensor, index, count), held(expert, expert_index, expert_shards)]
}

/// Layers of every pipeline rank.
fn layers(plan: &Plan) -> Vec<Vec<usize>> {
    let mut layers = vec![Vec::new(); plan.parallel.pp as usize];
    for stage in &plan.stages.0 {
        if let Some(own) = layers.get_mut(stage.rank as usize) {
            own.extend(stage.layer_range());
        }
    }
    layers
}

/// What the GPUs of a plan hold, by host and GPU.
struct Held {
    seats: BTreeMap<(String, u32), (u32, Slices)>,
    /// The pipeline rank of every layer.
    rank_of: Vec<u32>,
}

impl Held {
    fn of(plan: &Plan, lost: &BTreeSet<&String>) -> Self {
        let mut rank_of = vec![u32::MAX; plan.inputs.model.layers.len()];
        for (rank, own) in layers(plan).into_iter().enumerate() {
            own.into_iter().for_each(|layer| rank_of[layer] = rank as u32);
        }
        let mut seats = BTreeMap::new();
        for seat in &plan.placement.ranks {
            let Some(host) = plan.placement.hosts.get(seat.host as usize) else { continue };
            if !lost.contains(host) {
                seats.insert((host.clone(), seat.gpu), (seat.coordinates.pp, slices(plan, seat)));
            }
        }
        Self { seats, rank_of }
    }

    /// Bytes of parameters and optimizer state that a seat lacks of these layers and slices.
    fn lacking(&self, at: &(String, u32), own: &[usize], wanted: &Slices, bytes: &LayerBytes) -> (f64, f64) {
        let here = self.seats.get(at);
        let mut lacking = (0.0, 0.0);
        for &layer in own {
            let known = here.filter(|(rank, _)| self.rank_of[layer] == *rank).map(|(_, slices)| slices);
            for part in 0..PARTS {
                let (parameters, optimizer) = bytes.0[layer][part];
                let (want, optim) = wanted[part];
                let beyond =
                    |slice: Slice, held: Option<Slice>| held.map_or(slice.length(), |h| slice.beyond(h));
                lacking.0 += parameters * beyond(want, known.map(|slices| slices[part].0));
                lacking.1 += optimizer * beyond(optim, known.map(|slices| slices[part].1));
            }
        }
        lacking
    }

    /// Bytes that no seat holds.
    fn missing(&self, model: &ModelSpec, bytes: &LayerBytes) -> f64 {
        let mut of_rank: BTreeMap<u32, Vec<Slices>> = BTreeMap::new();
        for (rank, slices) in self.seats.values() {
            of_rank.entry(*rank).or_default().push(*slices);
        }
        let shares: BTreeMap<u32, [(f64, f64); PARTS]> = of_rank
            .into_iter()
            .map(|(rank, all)| {
                let share = |part: usize| {
                    let parameters = all.iter().map(|slices| slices[part].0).collect();
                    let optimizer = all.iter().map(|slices| slices[part].1).collect();
                    (uncovered(parameters), uncovered(optimizer))
                };
                (rank, [share(WHOLE), share(TENSOR), share(EXPERT)])
            })
            .collect();
        let whole = [(1.0, 1.0); PARTS];
        (0..model.layers.len())
            .map(|layer| {
                let share = shares.get(&self.rank_of[layer]).unwrap_or(&whole);
                let parts = bytes.0[layer].iter().zip(share);
                parts.map(|((p, o), (gone_p, gone_o))| p * gone_p + o * gone_o).sum::<f64>()
            })
            .sum()
    }
}

/// How much of the line no slice covers.
fn uncovered(mut slices: Vec<Slice>) -> f64 {
    slices.sort_by(|a, b| a.from.total_cmp(&b.from));
    let (mut reached, mut gap) = (0.0f64, 0.0);
    for slice in slices {
        gap += (slice.from - reached).max(0.0);
        reached = reached.max(slice.to);
    }
    let gap = gap + (1.0 - reached).max(0.0);
    if gap < ROUNDING { 0.0 } else { gap }
}

/// Slices closer than this meet.
const ROUNDING: f64 = 1e-9;

/// What has to move from one plan to another of the same model, with the hosts in `lost` gone.
#[must_use]
pub fn movement(old: &Plan, new: &Plan, lost: &[String]) -> Moved {
    let lost: BTreeSet<&String> = lost.iter().collect();
    let (held, bytes, own) = (Held::of(old, &lost), LayerBytes::of(new), layers(new));
    let mut ranks = Vec::new();
    let mut hosts: BTreeMap<u32, f64> = BTreeMap::new();
    for seat in &new.placement.ranks {
        let host = new.placement.hosts.get(seat.host as usize).cloned().unwrap_or_default();
        let layers = own.get(seat.coordinates.pp as usize).map(Vec::as_slice).unwrap_or_default();
        let (parameters, optimizer) = held.lacking(&(host, seat.gpu), layers, &slices(new, seat), &bytes);
        if parameters + optimizer < 1.0 {
            continue;
        }
        *hosts.entry(seat.host).or_default() += parameters + optimizer;
        ranks.push(RankMove {
            rank: seat.rank,
            parameters_bytes: Bytes(parameters),
            optimizer_bytes: Bytes(optimizer),
        });
    }
    let busiest = hosts.iter().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(a.0)));
    let (host, most) = busiest.map_or((0, 0.0), |(host, bytes)| (*host, *bytes));
    Moved {
        total_bytes: Bytes(hosts.values().sum()),
        busiest_host: if most > 0.0 { new.placement.hosts[host as usize].clone() } else { String::new() },
        busiest_host_bytes: Bytes(most),
        from_checkpoint_bytes: Bytes(held.missing(&old.inputs.model, &bytes)),
        seconds: hosts
            .iter()
            .map(|(host, bytes)| seconds(new, *host, *bytes))
            .fold(Seconds::ZERO, Seconds::max),
        ranks,
    }
}

/// Time of so many bytes over the network interfaces of a host.
fn seconds(plan: &Plan, host: u32, bytes: f64) -> Seconds {
    let mut first = 0;
    for group in &plan.inputs.cluster.groups {
        first += group.nodes;
        if host < first {
            let rate = group.node.inter.bandwidth * f64::from(group.node.gpus);
            return Bytes(bytes) / (rate * plan.inputs.runtime.shared.nic_efficiency);
        }
    }
    Seconds::ZERO
}

/// The hosts in the order in which most of their state stays: the pair of place and host that keeps most first.
#[must_use]
pub fn best_order(old: &Plan, new: &Plan, hosts: &[String]) -> Vec<String> {
    let (held, bytes, own) = (Held::of(old, &BTreeSet::new()), LayerBytes::of(new), layers(new));
    let places = new.placement.hosts.len();
    let mut seats: Vec<Vec<(&RankPlacement, Slices)>> = vec![Vec::new(); places];
    for seat in &new.placement.ranks {
        seats[seat.host as usize].push((seat, slices(new, seat)));
    }
    let mut gains: Vec<(f64, usize, usize)> = Vec::with_capacity(places * hosts.len());
    for (place, seats) in seats.iter().enumerate() {
        for (index, host) in hosts.iter().enumerate() {
            let lacking = seats.iter().map(|(seat, wanted)| {
                let layers = own.get(seat.coordinates.pp as usize).map(Vec::as_slice).unwrap_or_default();
                let (parameters, optimizer) = held.lacking(&(host.clone(), seat.gpu), layers, wanted, &bytes);
                parameters + optimizer
            });
            gains.push((lacking.sum(), place, index));
        }
    }
    gains.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
    let mut order: Vec<Option<usize>> = vec![None; places];
    let mut taken = vec![false; hosts.len()];
    for (_, place, host) in gains {
        if order[place].is_none() && !taken[host] {
            order[place] = Some(host);
            taken[host] = true;
        }
    }
    order.into_iter().flatten().map(|host| hosts[host].clone()).collect()
}
