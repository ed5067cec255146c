//! All sets of several kinds at once: meshes and layouts by rising bound, until no bound is below the best.
//!
//! Nodes are taken in batches of fixed size and looked at in parallel; what was best before a batch is the cutoff for all of
//! it, so that the search takes the same way on any number of threads.

use super::alone::{self, Alone};
use super::order::ask;
use super::part::{Layout, Part, shared};
use super::queue::{Item, Limits, Node};
use super::split::{Choice, Found};
use crate::expand::Tree;
use crate::layer_works::LayerWorks;
use crate::mesh::Mesh;
use crate::observer::Progress;
use crate::space::Pruned;
use rayon::prelude::*;
use std::collections::BinaryHeap;

/// Nodes looked at between two looks at the best.
const BATCH: usize = 16;
/// Meshes tried for a first plan.
const MOST_USUAL: usize = 32;
/// Plans for which HiGHS is asked for an order of the kinds.
const ASKED: usize = 3;
/// Plans that are kept.
const KEPT: usize = 32;

/// What a search found.
#[derive(Debug)]
pub struct Searched {
    /// Plans on several kinds, each with the index of its part, by rising value.
    pub plans: Vec<(usize, Choice)>,
    /// What came of kinds alone that may have been better.
    pub alone: Vec<Alone>,
    /// No layout has a smaller value.
    pub bound: f64,
    /// Layouts of the space.
    pub considered: u64,
    /// Layouts excluded, by what.
    pub pruned: Pruned,
    /// Splits simulated.
    pub simulated: u64,
    /// Whether a limit came first.
    pub stopped: bool,
}

/// What became of a node.
enum Expanded {
    Layouts(Vec<(f64, Layout)>),
    Split(Layout, Box<Found>),
    Alone(Box<Alone>),
    /// Nothing below the cutoff after so many simulations.
    Nothing(u64),
}

struct Search<'s, 'a> {
    parts: &'s [Part<'a>],
    limits: &'s Limits<'s>,
    open: BinaryHeap<Node>,
    order: u64,
    /// Plans with the layouts they are splits of.
    plans: Vec<(usize, Layout, Choice)>,
    alone: Vec<Alone>,
    best: f64,
    unlisted: f64,
    simulated: u64,
}

/// Searches the layouts of all parts. At least one plan is looked for, whatever the limits, where the cutoff is infinite.
pub fn search(parts: &[Part], limits: &Limits) -> Searched {
    let mut search = Search {
        parts,
        limits,
        open: BinaryHeap::new(),
        order: 0,
        plans: Vec::new(),
        alone: Vec::new(),
        best: limits.cutoff,
        unlisted: f64::INFINITY,
        simulated: 0,
    };
    let mut spaces = Spaces::default();
    let lists: Vec<Vec<Mesh>> = parts.iter().map(|part| spaces.add(part)).collect();
    if search.best.is_infinite() {
        search.first_plan(&lists);
    }
    let unequal: Vec<Vec<Mesh>> = parts.iter().map(|part| spaces.add_unequal(part)).collect();
    let bounded = search.add_meshes(&lists) && search.add_unequal(&unequal);
    let stopped = !bounded || search.run();
    if !stopped {
        search.ask_for_orders();
    }
    let open = search.open.peek().filter(|_| stopped).map_or(f64::INFINITY, |node| node.bound);
    let bound = if bounded { open.min(search.unlisted).min(search.best) } else { 0.0 };
    let plans = search.plans.into_iter().map(|(part, _, choice)| (part, choice)).collect();
    let Spaces { considered, pruned } = spaces;
    Searched { plans, alone: search.alone, bound, considered, pruned, simulated: search.simulated, stopped }
}

/// Layouts that there are, and that are excluded from the start.
#[derive(Default)]
struct Spaces {
    considered: u64,
    pruned: Pruned,
}

impl Spaces {
    /// The meshes of a part. Tensor-parallel groups of several kinds stay inside nodes of each.
    fn add(&mut self, part: &Part) -> Vec<Mesh> {
        let meshes = part.space.meshes();
        if part.is_alone() {
            return meshes.list;
        }
        self.considered += meshes.considered;
        meshes.pruned.into_iter().for_each(|(rule, count)| *self.pruned.entry(rule).or_default() += count);
        let (able, others): (Vec<Mesh>, Vec<Mesh>) =
            meshes.list.into_iter().partition(|mesh| part.is_inside_nodes(mesh));
        let layouts: u64 = others.iter().map(|mesh| part.space.layout_count(mesh)).sum();
        if layouts > 0 {
            *self.pruned.entry("mixed-tp".to_owned()).or_default() += layouts;
        }
        able
    }
}

impl Spaces {
    /// The meshes of a part whose ranks may have micro batches of different sizes.
    fn add_unequal(&mut self, part: &Part) -> Vec<Mesh> {
        let meshes = part.unequal_meshes();
        self.considered += meshes.considered;
        meshes.list
    }
}

impl Search<'_, '_> {
    /// A plan of a usual mesh of the first part: small microbatches, little context parallelism.
    fn first_plan(&mut self, lists: &[Vec<Mesh>]) {
        let Some((part, list)) = self.parts.first().zip(lists.first()) else { return };
        let usual =
            |mesh: &&Mesh| (mesh.cp, mesh.micro_batch_size, mesh.tp.abs_diff(8), mesh.pp.max(2), mesh.etp);
        let mut order: Vec<&Mesh> = list.iter().collect();
        order.sort_by_key(usual);
        for mesh in order.into_iter().take(MOST_USUAL) {
            for (_, layout) in part.layouts(mesh, f64::INFINITY) {
                let found = part.split(&layout, &part.deals(mesh.pp)[layout.deal], f64::INFINITY, true);
                self.add(0, layout, found);
                if !self.plans.is_empty() {
                    return;
                }
            }
        }
    }

    /// Adds all meshes with their bounds; false if a limit came first.
    fn add_meshes(&mut self, lists: &[Vec<Mesh>]) -> bool {
        let (parts, limits) = (self.parts, self.limits);
        let all: Vec<Mesh> = lists.iter().flatten().copied().collect();
        let mut works = Vec::new();
        for (part, kind) in self.kinds() {
            limits.patience.observer.progress(self.progress());
            let part = &parts[part];
            let tree = Tree { problem: &part.alone[kind], units: part.units, space: &part.space };
            let Some(own) = LayerWorks::new(&tree, &all, || limits.patience.is_over()) else { return false };
            works.push(own);
        }
        let whole = |ids: &[usize], mesh: &Mesh| -> Vec<f64> {
            let kinds = ids.iter().map(|&id| works[id].of(mesh));
            let mut layers: Vec<Vec<(u32, f64)>> = Vec::new();
            for own in kinds {
                layers.resize(own.len().max(layers.len()), Vec::new());
                layers.iter_mut().zip(own).for_each(|(layer, work)| layer.push(*work));
            }
            shared(&layers)
        };
        for (index, list) in lists.iter().enumerate() {
            let part = &parts[index];
            let bound = |mesh: &Mesh| part.mesh_bound(mesh, &whole(part.ids, mesh));
            let bounds: Vec<f64> = list.par_iter().map(bound).collect();
            if part.is_alone() {
                self.push(bounds.into_iter().fold(f64::INFINITY, f64::min), index, Item::Alone);
                continue;
            }
            for (mesh, bound) in list.iter().zip(bounds) {
                self.push(bound, index, Item::Mesh(*mesh));
            }
        }
        true
    }

    /// Adds the meshes whose ranks may have micro batches of different sizes; false if a limit came first.
    fn add_unequal(&mut self, lists: &[Vec<Mesh>]) -> bool {
        for (index, list) in lists.iter().enumerate() {
            for some in list.chunks(BATCH) {
                if self.limits.patience.is_over() {
                    return false;
                }
                let part = &self.parts[index];
                let bounds: Vec<f64> = some.par_iter().map(|mesh| part.unequal_bound(mesh)).collect();
                for (mesh, bound) in some.iter().zip(bounds) {
                    self.push(bound, index, Item::Unequal(*mesh));
                }
            }
        }
        true
    }

    /// A part and an index in it for every kind there is.
    fn kinds(&self) -> Vec<(usize, usize)> {
        let most = self.parts.iter().flat_map(|part| part.ids.iter()).max().map_or(0, |id| id + 1);
        let place = |id: usize| {
            let of_part = |part: &Part| part.ids.iter().position(|own| *own == id);
            self.parts.iter().enumerate().find_map(|(index, part)| Some((index, of_part(part)?)))
        };
        (0..most).map(|id| place(id).unwrap_or_default()).collect()
    }

    fn push(&mut self, bound: f64, part: usize, item: Item) {
        if bound < self.best {
            self.open.push(Node { bound, order: self.order, part, item });
            self.order += 1;
        }
    }

    /// Looks at nodes until none can be better; true if a limit came first.
    fn run(&mut self) -> bool {
        loop {
            let batch = self.next_batch();
            if batch.is_empty() {
                return false;
            }
            let (parts, best, limits) = (self.parts, self.best, self.limits);
            let expand = |node: &Node| match node.item {
                Item::Alone => Expanded::Alone(Box::new(alone::plan(parts[node.part].problem, limits, best))),
                Item::Unequal(mesh) => match parts[node.part].unequal(&mesh, best) {
                    (Some(pipeline), found) => {
                        Expanded::Split(Layout { mesh, pipeline, deal: 0 }, Box::new(found))
                    }
                    (None, found) => Expanded::Nothing(found.simulated),
                },
                Item::Mesh(mesh) => Expanded::Layouts(parts[node.part].layouts(&mesh, best)),
                Item::Layout(layout) => {
                    let part = &parts[node.part];
                    let deals = part.deals(layout.mesh.pp);
                    Expanded::Split(layout, Box::new(part.split(&layout, &deals[layout.deal], best, false)))
                }
            };
            let expanded: Vec<Expanded> = batch.par_iter().map(expand).collect();
            for (node, expanded) in batch.iter().zip(expanded) {
                match expanded {
                    Expanded::Layouts(layouts) => layouts
                        .into_iter()
                        .for_each(|(bound, layout)| self.push(bound, node.part, Item::Layout(layout))),
                    Expanded::Split(layout, found) => self.add(node.part, layout, *found),
                    Expanded::Alone(alone) => self.add_alone(*alone),
                    Expanded::Nothing(simulated) => self.simulated += simulated,
                }
            }
            self.limits.patience.observer.progress(self.progress());
            if self.limits.patience.is_over() {
                return true;
            }
        }
    }

    /// The next nodes that may still matter.
    fn next_batch(&mut self) -> Vec<Node> {
        let mut batch = Vec::with_capacity(BATCH);
        while batch.len() < BATCH && self.open.peek().is_some_and(|node| node.bound < self.best) {
            batch.extend(self.open.pop());
        }
        batch
    }

    fn add(&mut self, part: usize, layout: Layout, found: Found) {
        self.simulated += found.simulated;
        self.unlisted = self.unlisted.min(found.open);
        let Some(choice) = found.best else { return };
        self.best = self.best.min(choice.value);
        self.plans.push((part, layout, choice));
        self.plans.sort_by(|a, b| a.2.value.total_cmp(&b.2.value));
        self.plans.truncate(KEPT);
    }

    fn add_alone(&mut self, alone: Alone) {
        self.simulated += alone.simulated;
        self.unlisted = self.unlisted.min(alone.bound);
        let value = alone.plan.as_ref().map_or(f64::INFINITY, |(candidate, _)| candidate.value);
        self.best = self.best.min(value);
        self.alone.push(alone);
    }

    /// The best layouts once more with the kinds in the order that the integer program finds, where there were too many orders
    /// to look at all.
    fn ask_for_orders(&mut self) {
        let restricted = |(part, layout, _): &&(usize, Layout, Choice)| {
            self.parts[*part].deals(layout.mesh.pp)[layout.deal].restricted
        };
        let plans = self.plans.iter().filter(restricted);
        let asked: Vec<(usize, Layout)> =
            plans.take(ASKED).map(|(part, layout, _)| (*part, *layout)).collect();
        let (parts, best, limits) = (self.parts, self.best, self.limits);
        let found: Vec<Option<Found>> = asked
            .par_iter()
            .map(|(part, layout)| {
                let deal = ask(&parts[*part], layout, limits.patience.left())?;
                Some(parts[*part].split(layout, &deal, best, false))
            })
            .collect();
        for ((part, layout), found) in asked.into_iter().zip(found) {
            if let Some(found) = found {
                // The bound of all orders is known from the search.
                self.add(part, layout, Found { open: f64::INFINITY, ..found });
            }
        }
    }

    fn progress(&self) -> Progress {
        Progress {
            simulated: self.simulated,
            open: self.open.len() as u64,
            best: self.best.is_finite().then_some(self.best),
            bound: self.open.peek().map_or(0.0, |node| node.bound),
        }
    }
}
