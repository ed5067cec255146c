//! Best first: nodes by rising bound, until no bound is below the best values found.
//!
//! Nodes are taken in batches of fixed size and looked at in parallel; what was best before a batch is the cutoff for all of
//! it. So the search takes the same way on any number of threads.

use crate::candidate::{Candidate, Draft};
use crate::expand::{Expansion, Tree};
use crate::layer_works::LayerWorks;
use crate::leaf::Goal;
use crate::mesh::Mesh;
use crate::node::{Kind, Node};
use crate::observer::{Patience, Progress};
use crate::space::Pruned;
use rayon::prelude::*;
use std::collections::{BTreeMap, BinaryHeap};

/// Nodes per batch.
const BATCH: usize = 16;
/// Meshes bounded between two looks at the clock.
const CHUNK: usize = 2048;

/// Meshes tried for a first plan.
const MOST_USUAL: usize = 32;
/// Tensor parallelism that most runs of large models have.
const USUAL_TP: u32 = 8;

/// Layouts that count as one alternative: those with the same degrees of model parallelism.
pub type Class = (u32, u32, u32, u32, u32);

/// When to stop.
pub struct Limits<'a> {
    /// Who may stop it, and the clock.
    pub patience: Patience<'a>,
    /// Classes to rank.
    pub top: usize,
    /// Values from here on do not matter.
    pub cutoff: f64,
    /// Nor do those that are less than a found one by no more than this part of it.
    pub gap: f64,
}

/// What a search found.
#[derive(Debug, Default)]
pub struct Found {
    /// The best of every class, in the order of their values.
    pub best: Vec<Candidate>,
    /// No layout has a smaller value.
    pub bound: f64,
    /// No split into several chunks, balanced or not, has a smaller value.
    pub any_split: f64,
    /// Layouts of the space.
    pub considered: u64,
    /// Layouts excluded, by what.
    pub pruned: Pruned,
    /// Splits simulated.
    pub simulated: u64,
    /// Whether a limit came first.
    pub stopped: bool,
}

fn class_of(mesh: &Mesh) -> Class {
    (mesh.tp, mesh.pp, mesh.cp, mesh.ep, mesh.etp)
}

struct State {
    open: BinaryHeap<Node>,
    order: u64,
    best: BTreeMap<Class, Draft>,
    pruned: Pruned,
    considered: u64,
    looked_at: u64,
    simulated: u64,
    unlisted: f64,
    any_split: f64,
    cutoff: f64,
    gap: f64,
    top: usize,
}

/// Searches a tree.
#[must_use]
pub fn search(tree: &Tree, limits: &Limits) -> Found {
    let meshes = tree.space.meshes();
    let mut state = State {
        open: BinaryHeap::new(),
        order: 0,
        best: BTreeMap::new(),
        pruned: meshes.pruned,
        considered: meshes.considered,
        looked_at: 0,
        simulated: 0,
        unlisted: f64::INFINITY,
        any_split: f64::INFINITY,
        cutoff: limits.cutoff,
        gap: limits.gap.clamp(0.0, 1.0),
        top: limits.top.max(1),
    };
    let bounded = state.add_meshes(tree, &meshes.list, limits);
    let mut stopped = !bounded;
    let mut batches: u64 = 0;
    while !stopped {
        let batch = state.next_batch();
        if batch.is_empty() {
            break;
        }
        let mut expansions: Vec<Expansion> =
            batch.par_iter().map(|(node, goal)| tree.expand(&node.kind, goal)).collect();
        batches += 1;
        if batches.is_power_of_two() {
            state.dive(tree, &mut expansions);
        }
        for ((node, _), expansion) in batch.iter().zip(expansions) {
            state.merge(node.kind.mesh(), expansion);
        }
        limits.patience.observer.progress(state.progress());
        stopped = limits.patience.is_over();
    }
    state.finish(tree, stopped, bounded)
}

impl State {
    /// Adds all meshes with their bounds; false if a limit came first.
    fn add_meshes(&mut self, tree: &Tree, meshes: &[Mesh], limits: &Limits) -> bool {
        let able = self.meshes_that_may_fit(tree, meshes, limits);
        self.first_plan(tree, able.as_deref().unwrap_or(meshes));
        let Some(meshes) = able else { return false };
        let Some(works) = LayerWorks::new(tree, &meshes, || limits.patience.is_over()) else { return false };
        for mesh in &meshes {
            let bound = tree.mesh_bound(mesh, works.of(mesh));
            self.push(bound, Kind::Mesh(*mesh));
        }
        true
    }

    /// Leaves out meshes whose average rank does not fit: those with micro batches from some size on. None if a limit came
    /// first.
    fn meshes_that_may_fit(&mut self, tree: &Tree, meshes: &[Mesh], limits: &Limits) -> Option<Vec<Mesh>> {
        let groups: Vec<&[Mesh]> = meshes.chunk_by(|a, b| same_grid(a) == same_grid(b)).collect();
        let mut able = Vec::new();
        for chunk in groups.chunks(CHUNK) {
            if limits.patience.is_over() {
                return None;
            }
            let fitting = |group: &&[Mesh]| group.partition_point(|mesh| tree.average_may_fit(mesh));
            let counts: Vec<usize> = chunk.par_iter().map(fitting).collect();
            for (group, count) in chunk.iter().zip(counts) {
                able.extend_from_slice(&group[..count]);
                let layouts: u64 = group[count..].iter().map(|mesh| tree.space.layout_count(mesh)).sum();
                if layouts > 0 {
                    *self.pruned.entry("memory".to_owned()).or_default() += layouts;
                }
            }
        }
        Some(able)
    }

    /// A plan of a usual mesh, so that there is one whenever a limit comes: small microbatches, little context parallelism,
    /// tensor parallelism within a node, few stages.
    fn first_plan(&mut self, tree: &Tree, meshes: &[Mesh]) {
        let usual = |mesh: &&Mesh| {
            let tensor = u64::from(mesh.tp.abs_diff(USUAL_TP));
            (mesh.cp, mesh.micro_batch_size, tensor, mesh.pp.max(2), mesh.etp, !mesh.sequence_parallel)
        };
        let mut order: Vec<&Mesh> = meshes.iter().collect();
        let count = order.len().min(MOST_USUAL);
        if count > 0 && count < order.len() {
            order.select_nth_unstable_by_key(count - 1, usual);
        }
        order.truncate(count);
        order.sort_by_key(usual);
        for mesh in order {
            let goal = self.goal(self.cutoff, self.cutoff);
            let mut next = Some((0.0, Kind::Mesh(*mesh)));
            while let Some((_, kind)) = next {
                let mut expansion = tree.expand(&kind, &goal);
                if let Some(draft) = expansion.leaf.and_then(|(leaf, _)| leaf.best) {
                    self.best.insert(class_of(mesh), draft);
                    return;
                }
                next = take_least(&mut expansion.children);
            }
        }
    }

    /// Follows the most promising child of a batch down to a leaf: better plans early, should a limit come.
    fn dive(&mut self, tree: &Tree, expansions: &mut [Expansion]) {
        let of = |expansion: &Expansion| {
            expansion.children.iter().map(|(bound, _)| *bound).fold(f64::INFINITY, f64::min)
        };
        let Some(expansion) = expansions.iter_mut().min_by(|a, b| of(a).total_cmp(&of(b))) else { return };
        let mut next = take_least(&mut expansion.children);
        while let Some((bound, kind)) = next {
            let threshold = self.threshold();
            let cutoff = self.cutoff_of(kind.mesh(), threshold);
            if bound >= cutoff {
                self.push(bound, kind);
                return;
            }
            let best = self.best.values().map(|draft| draft.value).fold(self.cutoff, f64::min);
            let mut expansion = tree.expand(&kind, &self.goal(cutoff, best));
            next = if expansion.leaf.is_none() { take_least(&mut expansion.children) } else { None };
            self.merge(kind.mesh(), expansion);
        }
    }

    fn push(&mut self, bound: f64, kind: Kind) {
        self.open.push(Node { bound, order: self.order, kind });
        self.order += 1;
    }

    /// The value that the last ranked class has: nothing above matters.
    fn threshold(&self) -> f64 {
        let mut values: Vec<f64> = self.best.values().map(|draft| draft.value).collect();
        values.sort_by(f64::total_cmp);
        values.get(self.top - 1).map_or(self.cutoff, |value| self.below(*value).min(self.cutoff))
    }

    /// What a value has to be below to be worth looking for, given one.
    fn below(&self, value: f64) -> f64 {
        value * (1.0 - self.gap)
    }

    fn cutoff_of(&self, mesh: &Mesh, threshold: f64) -> f64 {
        let known = self.best.get(&class_of(mesh));
        known.map_or(threshold, |draft| self.below(draft.value).min(threshold))
    }

    /// The next nodes that may still matter, each with what it has to beat.
    fn next_batch(&mut self) -> Vec<(Node, Goal)> {
        let threshold = self.threshold();
        let best = self.best.values().map(|draft| draft.value).fold(self.cutoff, f64::min);
        let mut batch = Vec::with_capacity(BATCH);
        while batch.len() < BATCH {
            if self.open.peek().is_none_or(|node| node.bound >= threshold) {
                break;
            }
            let Some(node) = self.open.pop() else { break };
            let cutoff = self.cutoff_of(node.kind.mesh(), threshold);
            if node.bound < cutoff {
                batch.push((node, self.goal(cutoff, best)));
            }
        }
        batch
    }

    const fn goal(&self, cutoff: f64, best: f64) -> Goal {
        Goal { cutoff, best, any_split: self.any_split }
    }

    fn merge(&mut self, mesh: &Mesh, expansion: Expansion) {
        for (rule, layouts) in expansion.pruned {
            *self.pruned.entry(rule).or_default() += layouts;
        }
        self.any_split = self.any_split.min(expansion.any_split.unwrap_or(f64::INFINITY));
        for (bound, kind) in expansion.children {
            self.push(bound, kind);
        }
        let Some((leaf, layouts)) = expansion.leaf else { return };
        self.looked_at += layouts;
        self.simulated += leaf.simulated;
        self.unlisted = self.unlisted.min(leaf.open.unwrap_or(f64::INFINITY));
        let Some(draft) = leaf.best else { return };
        let better = |known: &Draft| draft.value < known.value;
        if self.best.get(&class_of(mesh)).is_none_or(better) {
            self.best.insert(class_of(mesh), draft);
        }
    }

    fn progress(&self) -> Progress {
        Progress {
            simulated: self.simulated,
            open: self.open.len() as u64,
            best: self.best.values().map(|draft| draft.value).reduce(f64::min),
            bound: self.open.peek().map_or(f64::INFINITY, |node| node.bound),
        }
    }

    fn finish(mut self, tree: &Tree, stopped: bool, bounded: bool) -> Found {
        let open = self.open.peek().filter(|_| stopped).map_or(f64::INFINITY, |node| node.bound);
        let excluded: u64 = self.pruned.values().sum();
        let by_bound = self.considered.saturating_sub(excluded + self.looked_at);
        if by_bound > 0 {
            self.pruned.insert("bound".to_owned(), by_bound);
        }
        let mut drafts: Vec<Draft> = self.best.into_values().collect();
        drafts.sort_by(|a, b| a.value.total_cmp(&b.value));
        let value = drafts.first().map_or(f64::INFINITY, |draft| draft.value * (1.0 - self.gap));
        let best =
            drafts.into_iter().filter_map(|draft| draft.complete(tree.problem)).take(self.top).collect();
        let bound = if bounded { open.min(self.unlisted).min(value) } else { 0.0 };
        Found {
            best,
            bound,
            any_split: self.any_split.min(bound),
            considered: self.considered,
            pruned: self.pruned,
            simulated: self.simulated,
            stopped,
        }
    }
}

/// Removes the child with the least bound.
fn take_least(children: &mut Vec<(f64, Kind)>) -> Option<(f64, Kind)> {
    let indices = 0..children.len();
    let least = indices.min_by(|&a, &b| children[a].0.total_cmp(&children[b].0))?;
    Some(children.swap_remove(least))
}

/// A mesh without its micro batch; micro batches rise within a grid.
fn same_grid(mesh: &Mesh) -> Mesh {
    Mesh { micro_batch_size: 0, num_microbatches: 0, ..*mesh }
}
