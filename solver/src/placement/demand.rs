//! Seconds of communication between slots, for every pair of hosts.

use crate::outside::{RankShare, outside_of};
use crate::problem::Problem;
use crate::times::run_of;
use cluster_profiles::topology::{HostId, Path, Topology};
use cluster_profiles::{Cluster, Seconds};
use cost_models::comm::{Fabric, Way};
use cost_models::grid::RankGrid;
use cost_models::layer_cost::{LayerContext, PassCost, layer_cost};
use cost_models::order::RankGroup;
use cost_models::step::StageCosts;
use cost_models::{ParallelConfig, StageMap};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Slots that communicate with each other, and the table of what that takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The slots.
    pub slots: Vec<usize>,
    /// Index of the table of seconds.
    pub table: usize,
}

/// A part of a step's communication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Traffic {
    /// Groups that work at the same time, each at the speed of its slowest pair; the slowest group counts.
    Collective(Vec<Group>),
    /// Ways from slot to slot, each as long as its hops together; the longest counts.
    Ways(Vec<Group>),
}

/// All communication of a step that leaves hosts.
#[derive(Debug, Clone, PartialEq)]
pub struct Demands {
    slots: usize,
    hosts: usize,
    traffic: Vec<Traffic>,
    /// Tables of seconds by pair of hosts, `hosts x hosts`, the slower direction for both.
    tables: Vec<Vec<f64>>,
    /// The hosts of the topology that each host of the tables stands for: those of its NVLink domain.
    members: Vec<Vec<usize>>,
}

/// Seconds where nothing passes.
const NEVER: f64 = 1e9;

impl Demands {
    /// Demands of given traffic over given tables of `hosts x hosts` seconds.
    #[must_use]
    pub fn new(slots: usize, hosts: usize, traffic: Vec<Traffic>, mut tables: Vec<Vec<f64>>) -> Self {
        for table in &mut tables {
            for a in 0..hosts {
                for b in 0..a {
                    let slower = table[a * hosts + b].max(table[b * hosts + a]);
                    (table[a * hosts + b], table[b * hosts + a]) = (slower, slower);
                }
            }
        }
        Self { slots, hosts, traffic, tables, members: (0..hosts).map(|host| vec![host]).collect() }
    }

    /// The hosts of the topology in rank order under a placement. Hosts that share an NVLink domain stay together.
    #[must_use]
    pub fn host_order(&self, placed: &[usize]) -> Vec<usize> {
        placed.iter().flat_map(|&host| self.members.get(host).cloned().unwrap_or_default()).collect()
    }

    /// Slots to fill.
    #[must_use]
    pub const fn slots(&self) -> usize {
        self.slots
    }

    /// Hosts there are.
    #[must_use]
    pub const fn hosts(&self) -> usize {
        self.hosts
    }

    /// The parts.
    #[must_use]
    pub fn traffic(&self) -> &[Traffic] {
        &self.traffic
    }

    /// Seconds of a table between two hosts, the slower direction.
    #[must_use]
    pub fn pair(&self, table: usize, a: usize, b: usize) -> f64 {
        self.tables[table][a * self.hosts + b]
    }

    /// Seconds of a group under a placement.
    #[must_use]
    pub fn group(&self, kind: &Traffic, group: &Group, hosts: &[usize]) -> f64 {
        let host = |slot: &usize| hosts[*slot];
        match kind {
            Traffic::Collective(_) => {
                let slots = &group.slots;
                let pairs =
                    slots.iter().enumerate().flat_map(|(i, a)| slots[i + 1..].iter().map(move |b| (a, b)));
                pairs.map(|(a, b)| self.pair(group.table, host(a), host(b))).fold(0.0, f64::max)
            }
            Traffic::Ways(_) => {
                group.slots.windows(2).map(|hop| self.pair(group.table, host(&hop[0]), host(&hop[1]))).sum()
            }
        }
    }

    /// Seconds of all communication under a placement.
    #[must_use]
    pub fn seconds(&self, hosts: &[usize]) -> f64 {
        let part = |kind: &Traffic| {
            kind.groups().iter().map(|group| self.group(kind, group, hosts)).fold(0.0, f64::max)
        };
        self.traffic.iter().map(part).sum()
    }

    /// No placement has less: for every part, the group that has least to gain.
    #[must_use]
    pub fn bound(&self) -> f64 {
        self.traffic.iter().map(|kind| self.part_bound(kind)).sum()
    }

    /// A group of n hosts needs n hosts with n - 1 neighbours each at its speed; a way of n hops needs n of the fastest.
    fn part_bound(&self, kind: &Traffic) -> f64 {
        let mut known: BTreeMap<(usize, usize), f64> = BTreeMap::new();
        let groups = kind.groups().iter().map(|group| {
            let size = group.slots.len();
            *known.entry((group.table, size)).or_insert_with(|| match kind {
                Traffic::Collective(groups) => {
                    self.collective_bound(group.table, size, self.is_cover(groups, size))
                }
                Traffic::Ways(_) => self.least_pair(group.table) * size.saturating_sub(1) as f64,
            })
        });
        groups.fold(0.0, f64::max)
    }

    fn least_pair(&self, table: usize) -> f64 {
        let pairs = (0..self.hosts).flat_map(|a| (a + 1..self.hosts).map(move |b| (a, b)));
        pairs.map(|(a, b)| self.pair(table, a, b)).reduce(f64::min).unwrap_or(0.0)
    }

    /// Whether groups of one size and table hold every slot once.
    fn is_cover(&self, groups: &[Group], size: usize) -> bool {
        let mut slots: Vec<usize> = groups.iter().flat_map(|group| group.slots.iter().copied()).collect();
        slots.sort_unstable();
        let alike = |group: &Group| group.slots.len() == size && group.table == groups[0].table;
        groups.iter().all(alike) && slots.iter().copied().eq(0..self.slots)
    }

    /// The least seconds for which `size` hosts have `size - 1` neighbours each; for which as many hosts as there are slots
    /// have, if groups hold every slot.
    fn collective_bound(&self, table: usize, size: usize, cover: bool) -> f64 {
        if size < 2 {
            return 0.0;
        }
        let mut needed: Vec<f64> = (0..self.hosts)
            .map(|host| {
                let others = (0..self.hosts).filter(|other| *other != host);
                let mut seconds: Vec<f64> = others.map(|other| self.pair(table, host, other)).collect();
                seconds.sort_by(f64::total_cmp);
                seconds.get(size - 2).copied().unwrap_or(NEVER)
            })
            .collect();
        needed.sort_by(f64::total_cmp);
        let hosts = if cover { self.slots } else { size };
        needed.get(hosts - 1).copied().unwrap_or(0.0)
    }
}

impl Traffic {
    /// Its groups.
    #[must_use]
    pub fn groups(&self) -> &[Group] {
        match self {
            Self::Collective(groups) | Self::Ways(groups) => groups,
        }
    }
}

/// An axis whose groups may span hosts inside a stage.
struct InnerAxis {
    /// Its part of a pass.
    part: fn(&PassCost) -> Seconds,
    /// Its groups.
    group: RankGroup,
}

const INNER_AXES: [InnerAxis; 3] = [
    InnerAxis { part: |cost| cost.tp, group: RankGroup::Tp },
    InnerAxis { part: |cost| cost.cp, group: RankGroup::Cp },
    InnerAxis { part: |cost| cost.ep, group: RankGroup::Ep },
];

/// One layout on a cluster, for making demands.
struct Maker<'a, 'p> {
    problem: &'a Problem<'p>,
    parallel: &'a ParallelConfig,
    stages: &'a StageMap,
    grid: RankGrid,
    paths: Vec<Path>,
    hosts: usize,
    node: u64,
}

impl Demands {
    /// The demands of a layout on the hosts of a topology; none if ranks do not fill whole NVLink domains of one size.
    #[must_use]
    pub fn of_layout(
        problem: &Problem,
        topology: &Topology,
        parallel: &ParallelConfig,
        stages: &StageMap,
    ) -> Option<Self> {
        let members = domains(topology)?;
        let gpus = |hosts: &Vec<usize>| {
            hosts.iter().map(|&host| topology.hosts()[host].gpus as usize).sum::<usize>()
        };
        let node = members.first().map(gpus).filter(|&node| node > 0)?;
        let world = usize::try_from(parallel.world_size()).ok()?;
        let fills = world.is_multiple_of(node) && world / node <= members.len();
        if !fills || members.iter().any(|hosts| gpus(hosts) != node) {
            return None;
        }
        let pairs = (0..members.len()).flat_map(|a| (0..members.len()).map(move |b| (a, b)));
        let paths = pairs
            .map(|(a, b)| worst_path(topology, &members[a], &members[b]).map(rounded))
            .collect::<Option<Vec<Path>>>()?;
        let cluster = even_twin(problem.cluster, None);
        let problem = &Problem { cluster: &cluster, ..problem.clone() };
        let grid = RankGrid::of(parallel);
        let maker = Maker { problem, parallel, stages, grid, paths, hosts: members.len(), node: node as u64 };
        let demands = maker.demands(world / node)?;
        Some(Self { members, ..demands })
    }
}

/// The hosts of every NVLink domain, in rank order.
fn domains(topology: &Topology) -> Option<Vec<Vec<usize>>> {
    let count = topology.hosts().iter().map(|host| host.domain).max()? + 1;
    let mut members = vec![Vec::new(); count];
    topology.hosts().iter().enumerate().for_each(|(index, host)| members[host.domain].push(index));
    members.retain(|hosts| !hosts.is_empty());
    Some(members)
}

/// To three digits, so that measured ways fall into few kinds.
fn rounded(path: Path) -> Path {
    let round = |value: f64| {
        let unit = 10f64.powf(value.abs().max(1e-12).log10().floor() - 2.0);
        (value / unit).round() * unit
    };
    let bandwidth = cluster_profiles::BytesPerSecond(round(path.bandwidth.get()));
    Path { bandwidth, latency: Seconds(round(path.latency.get())), ..path }
}

/// The slowest way from one of these hosts to one of those.
fn worst_path(topology: &Topology, from: &[usize], to: &[usize]) -> Option<Path> {
    let ways = from.iter().flat_map(|&a| to.iter().map(move |&b| topology.path(HostId(a), HostId(b))));
    ways.min_by(|a, b| {
        a.bandwidth.get().total_cmp(&b.bandwidth.get()).then(b.latency.get().total_cmp(&a.latency.get()))
    })
}

impl Maker<'_, '_> {
    fn demands(&self, slots: usize) -> Option<Demands> {
        let (mut traffic, mut tables) = (Vec::new(), Vec::new());
        self.data_parallel(&mut traffic, &mut tables)?;
        for axis in &INNER_AXES {
            self.inside_stages(axis, &mut traffic, &mut tables);
        }
        self.pipeline(&mut traffic, &mut tables);
        Some(Demands::new(slots, self.hosts, traffic, tables))
    }

    /// Seconds of something for every pair of hosts; equal paths are computed once.
    fn table(&self, seconds: impl Fn(&Problem) -> f64 + Sync) -> Vec<f64> {
        let key = |path: &Path| (path.bandwidth.get().to_bits(), path.latency.get().to_bits());
        let mut distinct: Vec<Path> = self.paths.clone();
        distinct.sort_by_key(key);
        distinct.dedup_by_key(|path| key(path));
        let values: Vec<f64> = distinct
            .par_iter()
            .map(|path| {
                if path.bandwidth.get() <= 0.0 {
                    return NEVER;
                }
                let cluster = with_link(self.problem.cluster, path);
                seconds(&Problem { cluster: &cluster, ..self.problem.clone() })
            })
            .collect();
        let value =
            |path: &Path| distinct.binary_search_by_key(&key(path), key).map_or(NEVER, |index| values[index]);
        self.paths.iter().map(value).collect()
    }

    /// The slot of a rank of a pipeline rank.
    const fn slot(&self, pipeline_rank: u64, index: u64) -> usize {
        (self.grid.rank(pipeline_rank, index) / self.node) as usize
    }

    /// Slots of ranks `first, first + stride, ...` of a pipeline rank, each once.
    fn slots_of(&self, pipeline_rank: u64, first: u64, stride: u64, ranks: u64) -> Vec<usize> {
        let slot = |index: u64| self.slot(pipeline_rank, first + index * stride);
        let mut slots: Vec<usize> = (0..ranks).map(slot).collect();
        slots.dedup();
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// Every stage reduces its gradients over all its hosts; the last one ready is waited for.
    fn data_parallel(&self, traffic: &mut Vec<Traffic>, tables: &mut Vec<Vec<f64>>) -> Option<()> {
        let run = run_of(self.problem, self.parallel, self.stages);
        let costs = StageCosts::of(&run).ok()?;
        let mut known: Vec<(RankShare, usize)> = Vec::new();
        let mut groups = Vec::new();
        for rank in 0..self.parallel.pp as usize {
            let passes = costs.rank_passes(rank);
            let backward = passes.input_gradient.total() + passes.weight_gradient.total();
            let times = Some((passes.forward.total().get(), backward.get()));
            let share = RankShare { parameters: costs.rank_parameters(rank), times };
            let table =
                known.iter().find(|(own, _)| *own == share).map(|(_, table)| *table).unwrap_or_else(|| {
                    tables.push(self.table(|problem| outside_of(problem, self.parallel, &[share])));
                    known.push((share, tables.len() - 1));
                    tables.len() - 1
                });
            let slots = self.slots_of(rank as u64, 0, 1, self.grid.stage_ranks());
            groups.push(Group { slots, table });
        }
        groups.retain(|group| group.slots.len() > 1 && self.parallel.dp() * self.parallel.cp > 1);
        if !groups.is_empty() {
            traffic.push(Traffic::Collective(groups));
        }
        Some(())
    }

    /// Groups of an axis that span hosts, for all microbatches of a step.
    fn inside_stages(&self, axis: &InnerAxis, traffic: &mut Vec<Traffic>, tables: &mut Vec<Vec<f64>>) {
        let [ranks, stride] = axis.group.inside(self.parallel).map(|number| u64::from(number.max(1)));
        let row = ranks * stride;
        let stage = self.grid.stage_ranks();
        let firsts = (0..stage).filter(|index| index % row < stride);
        let ranks_of = |first| (0..u64::from(self.parallel.pp)).map(move |rank| (rank, first));
        let groups = firsts.flat_map(ranks_of);
        let mut slots: Vec<Vec<usize>> =
            groups.map(|(rank, first)| self.slots_of(rank, first, stride, ranks)).collect();
        slots.retain(|slots| slots.len() > 1);
        slots.sort_unstable();
        slots.dedup();
        if slots.is_empty() {
            return;
        }
        tables.push(self.table(|problem| self.axis_seconds(problem, axis)));
        let table = tables.len() - 1;
        traffic.push(Traffic::Collective(slots.into_iter().map(|slots| Group { slots, table }).collect()));
    }

    /// Seconds of a step that the fullest stage spends on an axis.
    fn axis_seconds(&self, problem: &Problem, axis: &InnerAxis) -> f64 {
        let run = run_of(problem, self.parallel, self.stages);
        let context = LayerContext::of(&run);
        let mut known: Vec<(usize, f64)> = Vec::new();
        let mut seconds = |index: usize, recompute| {
            let layers = &problem.model.layers;
            let same =
                known.iter().find(|(own, _)| layers[*own] == layers[index]).map(|(_, seconds)| *seconds);
            same.unwrap_or_else(|| {
                let cost = layer_cost(&context, &layers[index], recompute);
                let seconds = (axis.part)(&(cost.forward + cost.backward())).get();
                known.push((index, seconds));
                seconds
            })
        };
        let mut ranks = vec![0.0; self.parallel.pp as usize];
        for stage in &self.stages.0 {
            ranks[stage.rank as usize] +=
                stage.layer_range().map(|index| seconds(index, stage.recompute)).sum::<f64>();
        }
        ranks.into_iter().fold(0.0, f64::max) * self.parallel.num_microbatches as f64
    }

    /// Microbatches go from stage to stage over the hosts that hold the same place in each. A hop is exposed twice for every
    /// chunk, in 1F1B once more for every p microbatches (SCHEDULES, section 2).
    fn pipeline(&self, traffic: &mut Vec<Traffic>, tables: &mut Vec<Vec<f64>>) {
        let parallel = self.parallel;
        let places = (0..self.grid.stage_ranks()).map(|index| {
            let mut slots: Vec<usize> =
                (0..u64::from(parallel.pp)).map(|rank| self.slot(rank, index)).collect();
            slots.dedup();
            slots
        });
        let mut ways: Vec<Vec<usize>> = places.filter(|slots| slots.len() > 1).collect();
        ways.sort_unstable();
        ways.dedup();
        if ways.is_empty() {
            return;
        }
        let rounds = parallel.num_microbatches as f64 / f64::from(parallel.pp);
        let exposed = 2.0 * if parallel.vpp > 1 { f64::from(parallel.vpp) } else { rounds.max(1.0) };
        let bytes = self.hop_bytes();
        let hop = |problem: &Problem| {
            exposed * Fabric::new(problem.cluster, &problem.runtime.shared).send(bytes, false).get()
        };
        tables.push(self.table(hop));
        let table = tables.len() - 1;
        traffic.push(Traffic::Ways(ways.into_iter().map(|slots| Group { slots, table }).collect()));
    }

    fn hop_bytes(&self) -> cluster_profiles::Bytes {
        let run = run_of(self.problem, self.parallel, self.stages);
        let outputs =
            StageCosts::of(&run).map(|costs| costs.stages.iter().map(|stage| stage.output.get()).collect());
        let outputs: Vec<f64> = outputs.unwrap_or_default();
        cluster_profiles::Bytes(outputs.into_iter().fold(0.0, f64::max))
    }
}

/// The cluster with every link between domains as this path.
fn with_link(cluster: &Cluster, path: &Path) -> Cluster {
    even_twin(cluster, Some(Way { bandwidth: path.bandwidth, latency: path.latency }))
}

/// The cluster as if its links were all alike: those of its nodes, or as given.
#[must_use]
pub fn even_twin(cluster: &Cluster, way: Option<Way>) -> Cluster {
    let mut twin = Cluster {
        name: cluster.name.clone(),
        aliases: Vec::new(),
        title: cluster.title.clone(),
        groups: cluster.groups.clone(),
        oversubscription: 1.0,
        nodes_per_leaf: None,
        source: cluster.source.clone(),
        leaves: Vec::new(),
        domains: cluster.domains.clone(),
        links: Vec::new(),
        matrix: None,
        measured: cluster.measured.clone(),
        collectives: cluster.collectives.clone(),
        layers: cluster.layers.clone(),
        optimizers: cluster.optimizers.clone(),
    };
    for group in &mut twin.groups {
        if let Some(way) = way {
            group.node.inter.bandwidth = way.bandwidth;
            group.node.inter.latency = way.latency;
        }
    }
    twin
}
