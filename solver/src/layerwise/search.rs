//! Nodes by rising bound.

use super::bound::Bounds;
use super::grid::{Choices, Grid, SHARDINGS};
use super::node::Node;
use super::pipeline::{Pipeline, Search};
use super::price::Prices;
use super::queue::Entry;
use super::stage::Order;
use crate::candidate::Candidate;
use crate::choices::schedules;
use crate::divisors::divisors;
use crate::observer::{Observer, Patience, Progress};
use crate::problem::Problem;
use crate::search::Found;
use crate::solve;
use crate::term::Field;
use crate::times::run_of;
use cluster_profiles::Seconds;
use cost_models::layerwise::{self, LayerStrategies, LayeredRun, Sharding, Strategy};
use cost_models::model::Layer;
use cost_models::rules::{Axis, engine};
use cost_models::{Estimate, ParallelConfig, Recompute, Stage, StageMap, estimate};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::collections::BinaryHeap;
use std::time::Instant;

/// What is left to do for a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Its bound.
    Bound,
    /// Good pipelines: what the bound tells apart.
    Good,
    /// All pipelines.
    All,
}

/// A set of degrees, schedule and vocabulary's layout.
#[derive(Debug, Clone, Copy)]
struct Spec {
    grid: usize,
    /// Degree and sharding of the vocabulary, and the default sharding.
    choice: [usize; 3],
    schedule: usize,
    step: Step,
}

/// Searches all layouts with strategies by layer whose value is below the cutoff.
pub fn run(problem: &Problem, observer: &dyn Observer, deadline: Option<Instant>, cutoff: f64) -> Found {
    let patience = Patience { observer, deadline };
    let engine = engine(&problem.runtime.name);
    let choices = Choices { problem, facts: problem.facts(), engine };
    let names: Vec<String> =
        schedules(engine, &problem.constraints).iter().map(ToString::to_string).collect();
    let Some(first) = names.first() else { return Found::default() };
    let known = layers_alike(problem, patience);
    let grids: Vec<Grid> = degrees(&choices)
        .into_par_iter()
        .filter(|_| !patience.is_over())
        .filter_map(|(axes, microbatches)| Grid::new(&choices, axes, microbatches, first))
        .collect();
    // Degrees that time did not suffice to tabulate may be better by any amount.
    let open = if patience.is_over() { 0.0 } else { f64::INFINITY };
    let mut state = State {
        problem,
        patience,
        cutoff,
        grids: &grids,
        names: &names,
        best: BTreeMap::new(),
        value: f64::INFINITY,
        open,
        simulated: 0,
        infeasible: 0,
        effort: [0; 2],
    };
    state.start_with(known);
    let specs = state.specs();
    let considered = specs.len() as u64;
    let stopped = state.search(specs);
    state.found(considered, stopped)
}

/// Degrees of pipeline and context, and numbers of microbatches, that constraints on them alone allow.
fn degrees(choices: &Choices) -> Vec<([u32; 2], u64)> {
    let (facts, constraints) = (&choices.facts, &choices.problem.constraints);
    let allowed = |axis: Axis, value: u64| constraints.allows_number(Field::Axis(axis), value);
    let mut list = Vec::new();
    for pp in divisors(facts.world).into_iter().filter(|&pp| pp <= facts.blocks && allowed(Axis::Pp, pp)) {
        for cp in divisors(facts.world / pp).into_iter().filter(|&cp| allowed(Axis::Cp, cp)) {
            if cp > 1 && !facts.seq_len.is_multiple_of(2 * cp) {
                continue;
            }
            for m in divisors(facts.global_batch) {
                if let (true, Ok(pp), Ok(cp)) =
                    (allowed(Axis::Microbatches, m), u32::try_from(pp), u32::try_from(cp))
                {
                    list.push(([pp, cp], m));
                }
            }
        }
    }
    list
}

/// The best layouts whose layers are all alike, where every stage has a block: what strategies by layer have to beat.
fn layers_alike(problem: &Problem, patience: Patience) -> Vec<Candidate> {
    let alike = Problem { layers_alike: true, nearest: false, ..problem.clone() };
    let layers = &problem.model.layers;
    let has_block = |stage: &Stage| layers[stage.layer_range()].iter().any(is_block);
    let mut best = solve::run(&alike, patience.observer, patience.deadline, f64::INFINITY).best;
    best.retain(|candidate| candidate.stages.0.iter().all(has_block));
    best
}

const fn is_block(layer: &Layer) -> bool {
    matches!(layer, Layer::Block(_) | Layer::Custom(_))
}

/// Good pipelines are looked for with this much haste.
const HASTE: f64 = 0.05;

/// What a step takes at least whose microbatches take `work` on all ranks together: rank i takes m times its own part and waits for
/// those before it, which is least where all take equally long, `w_i = T / m (1 - 1/m)^i`.
fn shared(work: f64, microbatches: u64, ranks: u32) -> f64 {
    let share = 1.0 - 1.0 / microbatches as f64;
    work / (1.0 - share.powi(ranks as i32))
}

/// Labels and partial pipelines compared in one node, and in all, to find good pipelines.
const MOST_FOR_GOOD: [u64; 2] = [1_000_000, 100_000_000];
/// The same to close nodes. A count and not a clock, so that the same problem has the same answer.
const MOST_FOR_ALL: [u64; 2] = [6_000_000, 40_000_000];

struct State<'s, 'p> {
    problem: &'s Problem<'p>,
    patience: Patience<'s>,
    /// Of values, not steps.
    cutoff: f64,
    grids: &'s [Grid],
    names: &'s [String],
    /// The best of every grid.
    best: BTreeMap<usize, (f64, Candidate)>,
    /// The shortest step so far.
    value: f64,
    /// A bound on what was not looked at.
    open: f64,
    simulated: u64,
    /// Nodes in which nothing fits.
    infeasible: u64,
    /// Labels and partial pipelines compared.
    effort: [u64; 2],
}

impl State<'_, '_> {
    /// Takes layouts that are known already.
    fn start_with(&mut self, candidates: Vec<Candidate>) {
        for candidate in candidates {
            let p = &candidate.parallel;
            let of = |grid: &Grid| (grid.pp, grid.cp, grid.microbatches) == (p.pp, p.cp, p.num_microbatches);
            let apart = self.grids.len() + self.best.len();
            let grid = self.grids.iter().position(of).unwrap_or(apart);
            self.keep(grid, candidate);
        }
    }

    /// Keeps a candidate that is the best of its degrees; its step.
    fn keep(&mut self, grid: usize, candidate: Candidate) -> f64 {
        let step = (candidate.estimate.step_time_seconds + candidate.estimate.edge_penalty_seconds).get();
        if self.best.get(&grid).is_none_or(|(best, _)| step < *best) {
            self.best.insert(grid, (step, candidate));
        }
        self.value = self.value.min(step);
        step
    }

    /// Seconds of a step that no layout changes.
    fn fixed(&self) -> f64 {
        self.problem.runtime.time.step.get()
    }

    /// Every node, bounded by its grid.
    fn specs(&self) -> Vec<(f64, Spec)> {
        let mut list = Vec::new();
        for (grid, of) in self.grids.iter().enumerate() {
            let work: f64 = of.kinds.iter().map(|&kind| of.least_work(kind)).sum();
            let bound = shared(work, of.microbatches, of.pp) + self.fixed();
            let schedules = if of.pp == 1 { 1 } else { self.names.len() };
            for (tp, configs) in of.configs.iter().enumerate() {
                for default in 0..2 {
                    for sharding in [default, 2] {
                        let Some(config) = &configs[sharding] else { continue };
                        let alone = config.dp_shard == 1 && config.cp == 1;
                        if sharding == 2 && alone && configs[default].is_some() {
                            continue;
                        }
                        for schedule in 0..schedules {
                            let choice = [tp, sharding, default];
                            list.push((bound, Spec { grid, choice, schedule, step: Step::Bound }));
                        }
                    }
                }
            }
        }
        list
    }

    /// Looks at nodes by rising bound; whether a limit came first.
    fn search(&mut self, specs: Vec<(f64, Spec)>) -> bool {
        let mut list: Vec<Spec> = specs.iter().map(|(_, spec)| *spec).collect();
        let entry = |(index, (bound, _)): (usize, &(f64, Spec))| Entry {
            bound: *bound,
            order: index as u64,
            item: index as u32,
        };
        let mut queue: BinaryHeap<Entry<u32>> = specs.iter().enumerate().map(entry).collect();
        let mut order = queue.len() as u64;
        // First good layouts everywhere, then proofs.
        let mut later = BinaryHeap::new();
        while let Some(Entry { bound, item, .. }) = queue.pop().or_else(|| later.pop()) {
            if bound >= self.limit() {
                continue;
            }
            if self.patience.is_over() {
                let rest = queue.iter().chain(&later).map(|entry| entry.bound);
                self.open = rest.fold(self.open.min(bound), f64::min);
                return true;
            }
            self.report(bound, queue.len() as u64);
            let spec = list[item as usize];
            let Some((step, next)) = self.look(&spec, bound) else { continue };
            let spec = Spec { step, ..spec };
            let first = step == Step::Good && self.value.is_infinite();
            let left = if first { self.look(&spec, next) } else { Some((step, next)) };
            if let Some((step, bound)) = left {
                list[item as usize].step = step;
                let to = if step == Step::All { &mut later } else { &mut queue };
                to.push(Entry { bound, order, item });
                order += 1;
            }
        }
        false
    }

    /// Steps at or above this do not matter.
    fn limit(&self) -> f64 {
        self.value
    }

    fn report(&self, bound: f64, open: u64) {
        let best = self.value.is_finite().then_some(self.value);
        self.patience.observer.progress(Progress { simulated: self.simulated, open, best, bound });
    }

    /// Does a node's next step; what is left to do, and its bound then.
    fn look(&mut self, spec: &Spec, bound: f64) -> Option<(Step, f64)> {
        let grid = &self.grids[spec.grid];
        let node = Node::new(self.problem, grid, spec.choice, &self.names[spec.schedule])?;
        let fixed = self.fixed();
        let bounds = Bounds::new(&node, self.limit() - fixed);
        if spec.step == Step::Bound {
            let next = bound.max(bounds.least() + fixed);
            self.infeasible += u64::from(next.is_infinite());
            return next.is_finite().then_some((Step::Good, next));
        }
        let prices = (grid.pp == 1).then(|| Prices::new(&node));
        if let Some(prices) = prices.as_ref().filter(|prices| prices.whole(&bounds) + fixed >= self.limit()) {
            self.infeasible += u64::from(prices.whole(&bounds).is_infinite());
            return None;
        }
        let all = spec.step == Step::All;
        // Without a pipeline the bound is the step itself.
        let order = if all && grid.pp > 1 { Order::Everything } else { Order::Bound };
        let [most, total] = if all { MOST_FOR_ALL } else { MOST_FOR_GOOD };
        let search = Search {
            node: &node,
            bounds: &bounds,
            prices: prices.as_ref(),
            fixed,
            order,
            patience: self.patience,
            haste: if all { 0.0 } else { HASTE },
            effort: most.min(total.saturating_sub(self.effort[usize::from(all)])),
        };
        let before = self.value;
        let closed = search.run(self.limit(), |pipeline| self.judge(spec.grid, &node, pipeline));
        self.effort[usize::from(all)] += closed.effort;
        self.infeasible += u64::from(closed.least.is_infinite() && before.is_infinite());
        let open = closed.open.is_some() || grid.pp > 1;
        let least = bound.max(closed.least.min(closed.open.unwrap_or(f64::INFINITY)));
        if !all && open && least < self.limit() {
            return Some((Step::All, least));
        }
        if all {
            self.open = self.open.min(closed.open.unwrap_or(f64::INFINITY));
        }
        None
    }

    /// What a pipeline takes, kept if it is the best of its degrees.
    fn judge(&mut self, grid: usize, node: &Node, pipeline: &Pipeline) -> f64 {
        self.simulated += 1;
        let Some(candidate) = candidate(self.problem, node, pipeline) else { return f64::INFINITY };
        self.keep(grid, candidate)
    }

    fn found(self, considered: u64, stopped: bool) -> Found {
        let problem = self.problem;
        let bound = self.value.min(self.open);
        let objective = |step: f64| problem.objective.bound(problem.cluster, Seconds(step), Seconds::ZERO);
        let mut best: Vec<(usize, Candidate)> =
            self.best.into_iter().map(|(grid, (_, candidate))| (grid, candidate)).collect();
        best.retain(|(_, candidate)| candidate.value < self.cutoff);
        best.sort_by(|(a, first), (b, second)| first.value.total_cmp(&second.value).then(a.cmp(b)));
        best.truncate(problem.top.max(1));
        let by_bound = considered.saturating_sub(self.infeasible).saturating_sub(best.len() as u64);
        let mut pruned = BTreeMap::new();
        for (what, count) in [("memory", self.infeasible), ("bound", by_bound)] {
            if count > 0 {
                pruned.insert(what.to_owned(), count);
            }
        }
        Found {
            best: best.into_iter().map(|(_, candidate)| candidate).collect(),
            bound: if bound.is_finite() { objective(bound) } else { f64::INFINITY },
            any_split: f64::INFINITY,
            considered,
            pruned,
            simulated: self.simulated,
            stopped,
        }
    }
}

/// A pipeline as a layout with its prediction; none if it cannot be predicted or does not fit.
fn candidate(problem: &Problem, node: &Node, pipeline: &Pipeline) -> Option<Candidate> {
    let (parallel, stages, strategies) = layout(node, pipeline);
    let run = run_of(problem, &parallel, &stages);
    let predicted: Estimate = match &strategies {
        None => estimate(&run).ok()?,
        Some(strategies) => layerwise::estimate(&LayeredRun::new(run, strategies).ok()?).ok()?,
    };
    let fits = predicted.memory.iter().all(|rank| rank.peak_bytes <= problem.limit());
    let step = predicted.step_time_seconds + predicted.edge_penalty_seconds;
    let value = problem.objective.value(problem.cluster, step, Seconds::ZERO);
    fits.then_some(Candidate { value, parallel, stages, estimate: predicted, layer_strategies: strategies })
}

/// Degrees, stages, and what blocks have of their own where they differ from that.
fn layout(node: &Node, pipeline: &Pipeline) -> (ParallelConfig, StageMap, Option<LayerStrategies>) {
    let grid = node.grid;
    let strategy = |(layer, way): (usize, &usize)| {
        let way = node.ways_of(layer)[*way];
        let recompute = super::grid::RECOMPUTES[way.recompute];
        Strategy { tp: grid.tps[way.tp], sharding: SHARDINGS[way.sharding], recompute }
    };
    let is_block = |(layer, _): &(usize, &usize)| grid.blocks[grid.kinds[*layer]];
    let blocks: Vec<Strategy> = pipeline.ways.iter().enumerate().filter(is_block).map(strategy).collect();
    let strategies = LayerStrategies::of_blocks(&blocks);
    let same = |own: &Strategy| {
        own.tp == node.base.tp && Sharding::of_stage(node.base.zero_stage) == Some(own.sharding)
    };
    let alike = strategies.uniform().filter(same);
    let recompute = alike.map_or(Recompute::None, |own| own.recompute);
    let starts = std::iter::once(0).chain(pipeline.ends.iter().copied());
    let stages = starts.zip(&pipeline.ends).enumerate().map(|(rank, (start, &end))| Stage {
        rank: rank as u32,
        chunk: 0,
        layers: Some([start as u32, end as u32 - 1]),
        recompute,
    });
    let parallel = ParallelConfig { recompute, ..node.base.clone() };
    (parallel, StageMap(stages.collect()), alike.is_none().then_some(strategies))
}
