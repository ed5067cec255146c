//! One set of degrees with the layout of what is no block: the problem that a dynamic program solves.

use super::grid::{Grid, Way};
use crate::problem::Problem;
use crate::times::run_of;
use cluster_profiles::Bytes;
use cost_models::memory::{MemoryContext, RankPeak};
use cost_models::model::Layer;
use cost_models::sharding::StateBytes;
use cost_models::{ParallelConfig, StageMap};

/// A grid whose vocabulary layers have a layout, and whose partly sharded layers one sharding.
pub struct Node<'g> {
    /// The degrees.
    pub grid: &'g Grid,
    /// The layout of embedding, final norm and head.
    pub base: ParallelConfig,
    /// The ways of every kind; of what is no block one.
    pub ways: Vec<Vec<Way>>,
    /// Microbatches in flight on every rank.
    pub in_flight: Vec<f64>,
    /// First layer of every block, in order: between them stages may be cut.
    pub cuts: Vec<usize>,
    /// Bytes that may be allocated on a rank.
    pub room: f64,
    /// What is the same for all.
    pub fixed: Fixed,
    /// Gathered units in all above which more take no more room.
    pub most_units: f64,
}

/// Memory that no choice in a node changes.
#[derive(Debug, Clone, Copy)]
pub struct Fixed {
    /// Pipeline boundary tensors.
    boundary: f64,
    /// The attention mask.
    mask: f64,
    /// Head and loss.
    pub head: f64,
    /// Gradient of the embedding.
    pub embedding_gradient: f64,
    /// The copy of a tied embedding on the last stage.
    copy: StateBytes,
    /// Its unit.
    copy_unit: f64,
    /// Gathered units that exist at once: of parameters, of gradients, and what stays gathered.
    units: [f64; 3],
    /// Bytes per gathered parameter and per whole gradient.
    unit_bytes: [f64; 2],
}

/// What the layers of a stage add up to.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Held {
    /// State.
    pub state: StateBytes,
    /// Saved by one microbatch.
    pub saved: f64,
    /// The largest unit that is gathered.
    pub unit: f64,
    /// All units.
    pub units: f64,
    /// The largest working set.
    pub transient: f64,
    /// Buffers.
    pub workspace: f64,
}

impl<'g> Node<'g> {
    /// The node of a grid with the vocabulary under the degree `tp` and a sharding; none if that is not legal, or a block
    /// has no way.
    #[must_use]
    pub fn new(
        problem: &Problem,
        grid: &'g Grid,
        [tp, sharding, default]: [usize; 3],
        schedule: &str,
    ) -> Option<Self> {
        let base = ParallelConfig { schedule: schedule.to_owned(), ..grid.configs[tp][sharding].clone()? };
        // What is no block repeats nothing, whatever is asked of blocks.
        let way = |kind: usize| {
            let numbers = grid.of(kind, tp, sharding, 0).or_else(|| grid.of(kind, tp, sharding, 1))?;
            Some(vec![Way { tp, sharding, recompute: 0, numbers }])
        };
        let mut ways = Vec::with_capacity(grid.blocks.len());
        for (kind, &block) in grid.blocks.iter().enumerate() {
            let of_kind = if block { grid.options(kind, default) } else { way(kind)? };
            if of_kind.is_empty() {
                return None;
            }
            ways.push(of_kind);
        }
        let stages = StageMap(Vec::new());
        let run = run_of(problem, &base, &stages);
        let context = MemoryContext::of(&run).ok()?;
        let reserve = &problem.runtime.memory.reserve;
        let cuts = (0..grid.kinds.len()).filter(|&layer| grid.blocks[grid.kinds[layer]]).collect();
        let ranks = u64::from(grid.pp);
        let ahead = base.schedule == "gpipe";
        let held = |rank: u64| match (grid.pp, ahead) {
            (1, false) => 1,
            (_, true) => grid.microbatches,
            _ => grid.microbatches.min(ranks - rank),
        };
        let fixed = Fixed::new(problem, &context);
        let units = ways.iter().flatten().map(|way| way.numbers.memory.unit_parameters);
        let most_units = fixed.most_units(units.fold(fixed.copy_unit, f64::max));
        Some(Self {
            in_flight: (0..ranks).map(|rank| held(rank) as f64).collect(),
            cuts,
            room: (problem.limit().get() - reserve.bytes) / reserve.ratio,
            fixed,
            most_units,
            grid,
            base,
            ways,
        })
    }

    /// The ways of a layer.
    #[must_use]
    pub fn ways_of(&self, layer: usize) -> &[Way] {
        &self.ways[self.grid.kinds[layer]]
    }

    /// Number of layers.
    #[must_use]
    pub fn layers(&self) -> usize {
        self.grid.kinds.len()
    }

    /// Forwards that a rank may run before its first backward, at most.
    #[must_use]
    pub fn warm_up(&self, rank: usize) -> f64 {
        if self.base.schedule == "gpipe" { 1.0 } else { self.in_flight[rank] }
    }

    /// Bytes allocated at the peak of a rank that holds this.
    #[must_use]
    pub fn peak(&self, rank: usize, held: &Held, is_first: bool, is_last: bool) -> f64 {
        let fixed = &self.fixed;
        let mut state = held.state;
        let (mut unit, mut units) = (held.unit, held.units);
        if is_last && !is_first {
            state += fixed.copy;
            unit = unit.max(fixed.copy_unit);
            units += fixed.copy_unit;
        }
        let peak = RankPeak {
            rank: rank as u32,
            state,
            workspace: held.workspace,
            shared_gradients: 0.0,
            gathered: fixed.gathered(unit, units),
            saved: self.in_flight[rank] * held.saved,
            boundary: fixed.boundary,
            mask: fixed.mask,
            head: if is_last { fixed.head } else { 0.0 },
            transient: held.transient,
            embedding_gradient: if is_first { fixed.embedding_gradient } else { 0.0 },
            released: held.saved,
            in_host: 0.0,
        };
        peak.allocated()
    }

    /// Room that is left for state and saved activations on a rank, at most.
    #[must_use]
    pub fn spare(&self, is_last: bool) -> f64 {
        let least = self.ways.iter().flatten().map(|way| way.numbers.workspace).fold(f64::INFINITY, f64::min);
        let head = if is_last { self.fixed.head } else { 0.0 };
        self.room - least - self.fixed.boundary - self.fixed.mask - head
    }
}

impl Fixed {
    fn new(problem: &Problem, context: &MemoryContext) -> Self {
        let layers = &problem.model.layers;
        let has = |wanted: fn(&Layer) -> bool| layers.iter().any(wanted);
        let tied = problem.model.tied_embeddings && has(|layer| matches!(layer, Layer::Head));
        let copy = context.embedding_copy().gathered_by(context.parallel);
        let embedding = has(|layer| matches!(layer, Layer::Embedding));
        let head = has(|layer| matches!(layer, Layer::Head));
        let state = &problem.runtime.memory.state;
        Self {
            boundary: context.boundary_bytes(),
            mask: context.mask_bytes(),
            head: if head { context.head_bytes(true) } else { 0.0 },
            embedding_gradient: if embedding { context.embedding_gradient_bytes() } else { 0.0 },
            copy: if tied { copy.state } else { StateBytes::default() },
            copy_unit: if tied { copy.unit_parameters } else { 0.0 },
            units: [state.gathered_units, state.gathered_gradient_units, state.live_parameters],
            unit_bytes: context.unit_bytes(),
        }
    }

    /// Bytes gathered at once, of units of which the largest and all together are known.
    fn gathered(&self, largest: f64, whole: f64) -> f64 {
        let [parameters, gradients, live] = self.units;
        let [parameter, gradient] = self.unit_bytes;
        let parameters = (parameters * largest).max(live).min(whole);
        parameter * parameters + gradient * (gradients * largest).min(whole)
    }

    /// Bytes gathered for a parameter more of the largest unit, and of all units, at most.
    #[must_use]
    pub fn rates(&self) -> [f64; 2] {
        let [parameters, gradients, _] = self.units;
        let [parameter, gradient] = self.unit_bytes;
        [parameter * parameters + gradient * gradients, parameter + gradient]
    }

    /// Above so many parameters in all, more gathered units take no more room.
    #[must_use]
    pub fn most_units(&self, largest: f64) -> f64 {
        let [parameters, gradients, live] = self.units;
        (parameters * largest).max(gradients * largest).max(live)
    }
}

impl Held {
    /// With one layer more, after a redistribution that takes `exchanged` bytes.
    #[must_use]
    pub fn with(&self, way: &Way, exchanged: f64, most_units: f64) -> Self {
        let numbers = &way.numbers;
        let mut state = self.state;
        state += numbers.memory.state;
        let unit = numbers.memory.unit_parameters;
        Self {
            state,
            saved: self.saved + numbers.memory.saved.get(),
            unit: self.unit.max(unit),
            units: (self.units + unit).min(most_units),
            transient: self.transient.max(numbers.memory.transient.get()).max(exchanged),
            workspace: self.workspace.max(numbers.workspace),
        }
    }

    /// What grows with state alone.
    #[must_use]
    pub fn resident(&self) -> Bytes {
        self.state.resident()
    }
}
