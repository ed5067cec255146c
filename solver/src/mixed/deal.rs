//! Which kinds of GPU the stages of a pipeline may be on.
//!
//! A stage is a row of whole hosts, or a part of one. An order of the hosts says which kinds are on which stage; orders that give
//! the same stages, one after the other in any way, form a [`Deal`]. Where few orders differ, all are looked at; where there are
//! more, the kinds follow each other one after the other, so that as few stages as can be hold several. A stage of several kinds
//! waits for the slowest and has the memory of the smallest, so that mixing more gains nothing.
//!
//! The ways through a deal are a graph: a node says which stages are used up, an edge which comes next. Stages that share a
//! host follow each other.

use super::kinds::{Kind, Run};
use std::collections::BTreeMap;

/// Orders of the hosts up to which all are looked at.
const FEW_ORDERS: u64 = 120;
/// Nodes of a graph times layers, up to which the stages may follow each other in any order.
const MOST_ENTRIES: u64 = 400_000;

/// Equal stages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageType {
    /// Kinds and numbers of GPUs in rank order.
    pub parts: Vec<Run>,
    /// How many there are.
    pub count: usize,
}

/// Stages in every order that the hosts allow.
#[derive(Debug, Clone)]
pub struct Deal {
    /// Its stages.
    pub types: Vec<StageType>,
    /// Their orders.
    pub graph: Graph,
    /// Whether orders of these stages are left out.
    pub restricted: bool,
}

/// Orders of stages.
#[derive(Debug, Clone)]
pub struct Graph {
    /// Nodes; edges lead to later ones. The first is the start, the last the end.
    pub nodes: Vec<Node>,
    /// Stages on every way from start to end.
    pub stages: usize,
}

/// Stages in front of which others are chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Number of stages in front.
    pub stage: usize,
    /// Type of the stage right in front, where it is the same on every way.
    pub last: Option<usize>,
    /// Types that may come next, and the nodes behind them.
    pub next: Vec<(usize, usize)>,
}

impl Deal {
    /// The stages in order of their place on a way, by index of type.
    pub fn runs(&self, types: &[usize]) -> Vec<Run> {
        types.iter().flat_map(|own| self.types[*own].parts.iter().copied()).collect()
    }
}

/// All deals of hosts to so many equal stages. With `by_last` the nodes tell the last stage apart.
pub fn deals(kinds: &[Kind], stages: u32, layers: usize, by_last: bool) -> Vec<Deal> {
    let world: u64 = kinds.iter().map(|kind| kind.gpus).sum();
    let size = world / u64::from(stages.max(1));
    let (orders, all) = orders(kinds);
    let mut groups: BTreeMap<Vec<Vec<Run>>, Vec<Vec<Vec<Run>>>> = BTreeMap::new();
    let mut list = Vec::new();
    for order in &orders {
        let cut = cut(order, size);
        let whole = cut.iter().all(|parts| is_whole(kinds, parts));
        let mut key: Vec<Vec<Run>> = cut.iter().map(|parts| sorted(parts)).collect();
        if !whole {
            list.push(Deal { restricted: !all, ..chain(&cut) });
            continue;
        }
        key.sort_unstable();
        groups.entry(key).or_default().push(cut);
    }
    for cuts in groups.into_values() {
        let types = types_of(&cuts[0]);
        let nodes = types.iter().fold(1u64, |nodes, own| nodes.saturating_mul(own.count as u64 + 1));
        let width = (layers + 1).saturating_sub(stages as usize).max(1) as u64;
        let lasts = if by_last { types.len() as u64 } else { 1 };
        if nodes.saturating_mul(width).saturating_mul(lasts) <= MOST_ENTRIES {
            let graph = Graph::any(kinds, &types, size, by_last);
            list.push(Deal { types, graph, restricted: false });
        } else {
            list.extend(cuts.iter().map(|cut| Deal { restricted: true, ..chain(cut) }));
        }
    }
    list
}

/// Orders of the hosts that differ in their kinds: all if they are few, else the kinds one after the other in every way.
fn orders(kinds: &[Kind]) -> (Vec<Vec<Run>>, bool) {
    let hosts: Vec<u64> = kinds.iter().map(|kind| kind.hosts.len() as u64).collect();
    let mut few = 1u64;
    let mut placed = 0;
    for count in &hosts {
        for index in 1..=*count {
            placed += 1;
            few = few.saturating_mul(placed) / index;
            if few > FEW_ORDERS {
                return (one_after_the_other(kinds), false);
            }
        }
    }
    (sequences(kinds, &hosts), true)
}

fn sequences(kinds: &[Kind], left: &[u64]) -> Vec<Vec<Run>> {
    if left.iter().all(|count| *count == 0) {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for kind in (0..left.len()).filter(|kind| left[*kind] > 0) {
        let mut rest = left.to_vec();
        rest[kind] -= 1;
        let host = Run { kind, gpus: kinds[kind].host_gpus() };
        all.extend(sequences(kinds, &rest).into_iter().map(|tail| [vec![host], tail].concat()));
    }
    all
}

fn one_after_the_other(kinds: &[Kind]) -> Vec<Vec<Run>> {
    let used: Vec<usize> = (0..kinds.len()).filter(|kind| kinds[*kind].gpus > 0).collect();
    let mut orders: Vec<Vec<usize>> = vec![Vec::new()];
    for _ in &used {
        let more = |order: Vec<usize>| {
            let free: Vec<usize> = used.iter().copied().filter(|kind| !order.contains(kind)).collect();
            free.into_iter().map(move |kind| [order.clone(), vec![kind]].concat())
        };
        orders = orders.into_iter().flat_map(more).collect();
        orders.truncate(MOST_ORDERS);
    }
    let runs = |order: Vec<usize>| order.into_iter().map(|kind| Run { kind, gpus: kinds[kind].gpus });
    orders.into_iter().map(|order| runs(order).collect()).collect()
}

/// Orders of kinds that are looked at.
const MOST_ORDERS: usize = 24;

/// The kinds of every stage under an order of the hosts.
fn cut(order: &[Run], size: u64) -> Vec<Vec<Run>> {
    let mut stages: Vec<Vec<Run>> = vec![Vec::new()];
    let mut room = size;
    for run in order {
        let mut left = run.gpus;
        while left > 0 {
            if room == 0 {
                stages.push(Vec::new());
                room = size;
            }
            let taken = left.min(room);
            let stage = stages.len() - 1;
            match stages[stage].last_mut().filter(|last| last.kind == run.kind) {
                Some(last) => last.gpus += taken,
                None => stages[stage].push(Run { kind: run.kind, gpus: taken }),
            }
            (left, room) = (left - taken, room - taken);
        }
    }
    stages
}

/// Whether a stage is of whole hosts, or one of several that fill a host.
fn is_whole(kinds: &[Kind], parts: &[Run]) -> bool {
    let hosts = |part: &Run| part.gpus.is_multiple_of(kinds[part.kind].host_gpus());
    let share = |part: &Run| kinds[part.kind].host_gpus().is_multiple_of(part.gpus);
    parts.iter().all(hosts) || (parts.len() == 1 && share(&parts[0]))
}

/// Every kind once, in a fixed order.
fn sorted(parts: &[Run]) -> Vec<Run> {
    let mut gpus: BTreeMap<usize, u64> = BTreeMap::new();
    parts.iter().for_each(|part| *gpus.entry(part.kind).or_default() += part.gpus);
    gpus.into_iter().map(|(kind, gpus)| Run { kind, gpus }).collect()
}

/// Equal stages together. Stages of the same kinds in another order count as equal.
fn types_of(cut: &[Vec<Run>]) -> Vec<StageType> {
    let mut types: Vec<StageType> = Vec::new();
    for parts in cut {
        match types.iter_mut().find(|own| sorted(&own.parts) == sorted(parts)) {
            Some(own) => own.count += 1,
            None => types.push(StageType { parts: parts.clone(), count: 1 }),
        }
    }
    types
}

/// Stages in one order.
pub fn chain(cut: &[Vec<Run>]) -> Deal {
    let mut types: Vec<StageType> = Vec::new();
    let mut nodes = Vec::new();
    let mut last = None;
    for (stage, parts) in cut.iter().enumerate() {
        let index = types.iter().position(|own| own.parts == *parts).unwrap_or(types.len());
        if index == types.len() {
            types.push(StageType { parts: parts.clone(), count: 0 });
        }
        types[index].count += 1;
        nodes.push(Node { stage, last, next: vec![(index, stage + 1)] });
        last = Some(index);
    }
    nodes.push(Node { stage: cut.len(), last, next: Vec::new() });
    Deal { types, graph: Graph { nodes, stages: cut.len() }, restricted: false }
}

impl Graph {
    /// Every order of the types in which stages that share a host follow each other.
    fn any(kinds: &[Kind], types: &[StageType], size: u64, by_last: bool) -> Self {
        let shares: Vec<usize> = types.iter().map(|own| shares(kinds, own, size)).collect();
        let stages: usize = types.iter().map(|own| own.count).sum();
        let start = (vec![0usize; types.len()], None);
        let mut nodes = vec![Node { stage: 0, last: None, next: Vec::new() }];
        let mut level: Vec<(Vec<usize>, Option<usize>)> = vec![start];
        for stage in 0..stages {
            let first = nodes.len() - level.len();
            let mut next: BTreeMap<(Vec<usize>, Option<usize>), usize> = BTreeMap::new();
            let mut following = Vec::new();
            for (index, (used, _)) in level.iter().enumerate() {
                let open = (0..types.len()).find(|own| !used[*own].is_multiple_of(shares[*own]));
                for own in (0..types.len()).filter(|own| used[*own] < types[*own].count) {
                    if open.is_some_and(|open| open != own) {
                        continue;
                    }
                    let mut after = used.clone();
                    after[own] += 1;
                    let end = stage + 1 == stages;
                    let key = (after, (by_last && !end).then_some(own));
                    let place = *next.entry(key.clone()).or_insert_with(|| {
                        following.push(key);
                        nodes.push(Node { stage: stage + 1, last: by_last.then_some(own), next: Vec::new() });
                        nodes.len() - 1
                    });
                    nodes[first + index].next.push((own, place));
                }
            }
            level = following;
        }
        Self { nodes, stages }
    }
}

/// Stages of a type that fill a host together; 1 if a stage has whole hosts.
fn shares(kinds: &[Kind], own: &StageType, size: u64) -> usize {
    match own.parts[..] {
        [part] => (kinds[part.kind].host_gpus() / size.max(1)).max(1) as usize,
        _ => 1,
    }
}
