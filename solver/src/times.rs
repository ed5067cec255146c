//! What every unit of the model costs on a mesh: the table that bounds and splits are made from.
//!
//! Equal layers are costed once; sums over any contiguous units are differences of running sums.

use crate::copy_bound::least_backward;
use crate::problem::Problem;
use crate::units::{Unit, Units};
use cost_models::layer_cost::{
    LayerContext, LayerCost, Memo, PassCost, RankParameters, layer_costs, layer_seconds,
};
use cost_models::model::Layer;
use cost_models::schedule::StageCosts as OpTimes;
use cost_models::step::data_parallel;
use cost_models::{ParallelConfig, Recompute, StageMap, TrainingRun};
use std::ops::Range;

/// What a unit repeats in the backward, as an index into the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Nothing.
    Keep,
    /// The runtime's selective recompute.
    Selective,
    /// Everything.
    Full,
}

impl Mode {
    /// Every mode, in the order of the table.
    pub const ALL: [Self; 3] = [Self::Keep, Self::Selective, Self::Full];

    /// The mode of layers that are among the recomputed ones.
    #[must_use]
    pub const fn of(recompute: Recompute) -> Self {
        match recompute {
            // How long a layer waits for copies depends on the others; here it does not.
            Recompute::None | Recompute::Offload { .. } | Recompute::Modules(_) => Self::Keep,
            Recompute::Selective => Self::Selective,
            Recompute::Full { .. } => Self::Full,
        }
    }

    /// What a mode means in a layout: what is kept is what a choice of modules makes of it.
    pub(crate) const fn recompute(self, layout: Recompute) -> Recompute {
        match self {
            Self::Keep => match layout {
                Recompute::Modules(_) => layout,
                _ => Recompute::None,
            },
            Self::Selective => Recompute::Selective,
            Self::Full => Recompute::Full { layers: None },
        }
    }
}

/// Running sums over units: entry `u` holds the sum of the units before `u`.
#[derive(Debug, Clone, PartialEq)]
struct Sums(Vec<f64>);

impl Sums {
    fn new(values: impl Iterator<Item = f64>) -> Self {
        let mut sum = 0.0;
        let sums = values.map(|value| {
            sum += value;
            sum
        });
        Self(std::iter::once(0.0).chain(sums).collect())
    }

    fn of(&self, units: &Range<usize>) -> f64 {
        self.0[units.end] - self.0[units.start]
    }
}

/// Times of the units of a model on a mesh, and the parameters a rank computes with.
#[derive(Debug, Clone)]
pub struct UnitTimes {
    forward: Sums,
    weight: Sums,
    input: [Sums; 3],
    /// Forward and backward, by mode.
    work: [Sums; 3],
    /// Expert traffic that combined pairs hide: of forwards, of backwards without what they repeat.
    hidden: [Sums; 2],
    dense: Sums,
    expert: Sums,
    /// Seconds of sending a unit's output to the next pipeline rank.
    hops: Vec<f64>,
    /// Blocks that can be recomputed before each unit.
    recomputable: Vec<u32>,
    leading: usize,
    /// Number of equal units, and the times of one in every mode, for every kind.
    kinds: Vec<(u32, [f64; 3])>,
    /// Whether a unit of the kind is dealt out over stages.
    dealt: Vec<bool>,
    /// The least forward, and the least backward in every mode, of a unit that is dealt out over stages.
    least: [f64; 4],
}

/// What a unit costs.
#[derive(Debug, Clone, Copy)]
struct UnitCost {
    forward: f64,
    weight: f64,
    /// Input gradient and what is repeated first, by mode.
    input: [f64; 3],
    hidden: [f64; 2],
    parameters: RankParameters,
    hop: f64,
}

impl UnitCost {
    fn work(&self, mode: usize) -> f64 {
        self.forward + self.input[mode] + self.weight
    }
}

impl UnitTimes {
    /// The table of a layout. With sharded parameters and no pipeline, gathering them is part of a layer's passes, so
    /// that the table depends on how state is sharded.
    #[must_use]
    pub fn new(problem: &Problem, units: &Units, parallel: &ParallelConfig) -> Self {
        let stages = StageMap(Vec::new());
        let run = run_of(problem, parallel, &stages);
        let memo = Memo::default();
        let context = LayerContext { memo: Some(&memo), ..LayerContext::of(&run) };
        let local = parallel.has_local_pipeline(context.fabric.domain());
        let kinds: Vec<UnitCost> =
            units.kinds().iter().map(|kind| unit_cost(&run, &context, kind.layers.clone(), local)).collect();
        let sums = |part: fn(&UnitCost) -> f64| {
            Sums::new(units.as_slice().iter().map(|unit| part(&kinds[unit.kind])))
        };
        let works = |cost: &UnitCost| [cost.work(0), cost.work(1), cost.work(2)];
        let backward: Vec<f64> = kinds.iter().map(|cost| cost.input[0] + cost.weight).collect();
        let weight: Vec<f64> = kinds.iter().map(|cost| cost.weight).collect();
        let slow = least_backward(problem, units, parallel, &backward, &weight);
        let kept = |part: fn(&UnitCost, f64) -> f64| {
            let least = |(index, unit): (usize, &Unit)| match &slow {
                Some(slow) => part(&kinds[unit.kind], slow[index]),
                None => part(&kinds[unit.kind], backward[unit.kind]),
            };
            Sums::new(units.as_slice().iter().enumerate().map(least))
        };
        let moves = slow.is_some();
        let input = || kept(|cost, backward| backward - cost.weight);
        let work = || kept(|cost, backward| cost.forward + backward);
        Self {
            forward: sums(|cost| cost.forward),
            weight: sums(|cost| cost.weight),
            input: [
                if moves { input() } else { sums(|cost| cost.input[0]) },
                sums(|cost| cost.input[1]),
                sums(|cost| cost.input[2]),
            ],
            work: [
                if moves { work() } else { sums(|cost| cost.work(0)) },
                sums(|cost| cost.work(1)),
                sums(|cost| cost.work(2)),
            ],
            hidden: [sums(|cost| cost.hidden[0]), sums(|cost| cost.hidden[1])],
            dense: sums(|cost| cost.parameters.dense),
            expert: sums(|cost| cost.parameters.expert),
            hops: units.as_slice().iter().map(|unit| kinds[unit.kind].hop).collect(),
            recomputable: blocks_before(units),
            leading: units.leading(),
            kinds: units.kinds().iter().zip(&kinds).map(|(kind, cost)| (kind.count, works(cost))).collect(),
            least: least(units, &kinds),
            dealt: dealt(units),
        }
    }

    /// Number of units.
    #[must_use]
    pub fn len(&self) -> usize {
        self.hops.len()
    }

    /// Whether there is no unit.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hops.is_empty()
    }

    /// The units of a stage that are recomputed, the rest not, when the first `layers` blocks are (all if none). A unit
    /// that is only in part recomputed counts as not.
    #[must_use]
    pub fn recomputed(&self, units: &Range<usize>, layers: Option<u32>) -> Range<usize> {
        let Some(layers) = layers else { return units.clone() };
        let start = units.start.max(self.leading).min(units.end);
        let before = &self.recomputable[start..=units.end];
        start..start + before.partition_point(|blocks| blocks - before[0] <= layers) - 1
    }

    fn input_gradient(&self, units: &Range<usize>, recompute: Recompute) -> f64 {
        let Recompute::Full { layers } = recompute else {
            return self.input[Mode::of(recompute) as usize].of(units);
        };
        let again = self.recomputed(units, layers);
        self.input[Mode::Keep as usize].of(units) + self.repeated(&again)
    }

    /// What full recompute adds.
    fn repeated(&self, units: &Range<usize>) -> f64 {
        self.input[Mode::Full as usize].of(units) - self.input[Mode::Keep as usize].of(units)
    }

    /// Forward of some units.
    #[must_use]
    pub fn forward(&self, units: &Range<usize>) -> f64 {
        self.forward.of(units)
    }

    /// Forward, input gradient with what is repeated first, and weight gradient of a stage.
    #[must_use]
    pub fn stage(&self, units: &Range<usize>, recompute: Recompute) -> [f64; 3] {
        [self.forward.of(units), self.input_gradient(units, recompute), self.weight.of(units)]
    }

    /// Forward and backward of a stage.
    #[must_use]
    pub fn work(&self, units: &Range<usize>, recompute: Recompute) -> f64 {
        match recompute {
            Recompute::Full { layers: Some(_) } => self.stage(units, recompute).iter().sum(),
            other => self.work[Mode::of(other) as usize].of(units),
        }
    }

    /// Work of a microbatch on the rank with most units of some kind, at least: one rank has no fewer than its share, rounded up.
    #[must_use]
    pub fn granular_load(&self, ranks: u32, recompute: Recompute) -> f64 {
        let mode = match recompute {
            Recompute::Full { layers: Some(_) } => Mode::Keep,
            other => Mode::of(other),
        };
        let load = |(count, work): &(u32, [f64; 3])| f64::from(count.div_ceil(ranks)) * work[mode as usize];
        self.kinds.iter().map(load).fold(0.0, f64::max)
    }

    /// Whether selective recompute repeats nothing.
    #[must_use]
    pub fn selects_none(&self) -> bool {
        let [keep, selective] = [Mode::Keep, Mode::Selective].map(|mode| mode as usize);
        self.input[keep] == self.input[selective]
            && self.kinds.iter().all(|(_, work)| work[keep] == work[selective])
    }

    /// What full recompute adds to a unit that is dealt out over stages, at least.
    #[must_use]
    pub fn least_repeat(&self) -> f64 {
        let again =
            self.dealt_kinds().map(|(_, _, work)| work[Mode::Full as usize] - work[Mode::Keep as usize]);
        again.reduce(f64::min).unwrap_or(0.0).max(0.0)
    }

    /// The kinds that are dealt out over stages: which, how many units, and the work of one in every mode.
    pub fn dealt_kinds(&self) -> impl Iterator<Item = (usize, u32, [f64; 3])> + '_ {
        let kinds = self.kinds.iter().zip(&self.dealt).enumerate().filter(|(_, (_, dealt))| **dealt);
        kinds.map(|(kind, ((count, work), _))| (kind, *count, *work))
    }

    /// The least forward and backward of a unit that is dealt out over stages.
    #[must_use]
    pub fn least_block(&self, mode: Mode) -> [f64; 2] {
        [self.least[0], self.least[1 + mode as usize]]
    }

    /// Units before the first that is dealt out over stages.
    #[must_use]
    pub fn leading(&self) -> usize {
        self.leading
    }

    /// Forward and backward of the whole model, without recompute of a counted number of layers.
    #[must_use]
    pub fn whole(&self, recompute: Recompute) -> f64 {
        let recompute = if matches!(recompute, Recompute::Full { layers: Some(_) }) {
            Recompute::None
        } else {
            recompute
        };
        self.work(&(0..self.len()), recompute)
    }

    /// Times of a stage as a simulator takes them: of operations by themselves, and what a combined pair saves of them.
    #[must_use]
    pub fn op_times(&self, units: &Range<usize>, recompute: Recompute) -> OpTimes {
        let [forward, input, weight] = self.stage(units, recompute);
        let [hidden, hidden_back] = [0, 1].map(|pass| self.hidden[pass].of(units).max(0.0));
        let alone = [forward + hidden, input + hidden_back, weight].map(|time| time.max(0.0));
        OpTimes {
            pair_saving: hidden,
            backward_pair_saving: hidden_back,
            ..OpTimes::of_times(alone[0], alone[1], alone[2])
        }
    }

    /// Seconds of the message after a stage that ends before unit `end`.
    #[must_use]
    pub fn hop_after(&self, end: usize) -> f64 {
        end.checked_sub(1).and_then(|unit| self.hops.get(unit)).copied().unwrap_or(0.0)
    }

    /// The shortest message between stages.
    #[must_use]
    pub fn least_hop(&self) -> f64 {
        let inner = &self.hops[..self.hops.len().saturating_sub(1)];
        inner.iter().copied().reduce(f64::min).unwrap_or(0.0)
    }

    /// Parameters of some units on a rank.
    #[must_use]
    pub fn parameters(&self, units: &Range<usize>) -> RankParameters {
        RankParameters { dense: self.dense.of(units), expert: self.expert.of(units) }
    }
}

/// Blocks that can be recomputed before each unit, and in all.
fn blocks_before(units: &Units) -> Vec<u32> {
    let mut sum = 0;
    let sums = units.as_slice().iter().map(|unit| {
        sum += unit.blocks;
        sum
    });
    std::iter::once(0).chain(sums).collect()
}

/// The least forward, and the least backward in every mode, of the units that are dealt out over stages.
fn least(units: &Units, kinds: &[UnitCost]) -> [f64; 4] {
    let of_kind = |cost: &UnitCost| {
        let [keep, selective, full] = cost.input.map(|input| input + cost.weight);
        [cost.forward, keep, selective, full]
    };
    let body = units.as_slice().iter().filter(|unit| unit.body).map(|unit| of_kind(&kinds[unit.kind]));
    body.reduce(|a, b| std::array::from_fn(|part| a[part].min(b[part]))).unwrap_or([0.0; 4])
}

/// For every kind whether all its units are dealt out over stages.
fn dealt(units: &Units) -> Vec<bool> {
    let mut dealt = vec![true; units.kinds().len()];
    for unit in units.as_slice() {
        dealt[unit.kind] &= unit.body;
    }
    dealt
}

/// Seconds of one microbatch through one unit of each kind, forward and backward, and how many there are. A memo may be shared
/// by layouts of one problem.
#[must_use]
pub fn works(problem: &Problem, units: &Units, parallel: &ParallelConfig, memo: &Memo) -> Vec<(u32, f64)> {
    let stages = StageMap(Vec::new());
    let run = run_of(problem, parallel, &stages);
    let context = LayerContext { memo: Some(memo), ..LayerContext::of(&run) };
    let work = |layer: &Layer| layer_seconds(&context, layer).get();
    let of_unit = |layers: Range<usize>| problem.model.layers[layers].iter().map(work).sum();
    units.kinds().iter().map(|kind| (kind.count, of_unit(kind.layers.clone()))).collect()
}

/// Work of a microbatch on the fullest of so many ranks, at least: the average, and for every kind of layer its share, rounded
/// up.
#[must_use]
pub fn least_load(works: &[(u32, f64)], ranks: u32) -> f64 {
    let whole: f64 = works.iter().map(|(count, work)| f64::from(*count) * work).sum();
    let granular = works.iter().map(|(count, work)| f64::from(count.div_ceil(ranks)) * work);
    granular.fold(whole / f64::from(ranks), f64::max)
}

/// The run of a layout, for parts of the cost model that look at no stages.
#[must_use]
pub fn run_of<'a>(
    problem: &Problem<'a>,
    parallel: &'a ParallelConfig,
    stages: &'a StageMap,
) -> TrainingRun<'a> {
    TrainingRun {
        model: problem.model,
        cluster: problem.cluster,
        workload: problem.workload,
        runtime: problem.runtime,
        parallel,
        stages,
    }
}

fn unit_cost(run: &TrainingRun, context: &LayerContext, layers: Range<usize>, local: bool) -> UnitCost {
    let mut sum = UnitCost {
        forward: 0.0,
        weight: 0.0,
        input: [0.0; 3],
        hidden: [0.0; 2],
        parameters: RankParameters::default(),
        hop: 0.0,
    };
    for layer in &run.model.layers[layers] {
        let costs = modes(run, context, layer);
        sum.forward += costs[0].forward.total().get();
        sum.weight += costs[0].weight_gradient.total().get();
        sum.hidden[0] += costs[0].forward.ep_hidden.get();
        sum.hidden[1] += costs[0].input_gradient.ep_hidden.get();
        for (input, cost) in sum.input.iter_mut().zip(&costs) {
            *input += (cost.input_gradient + cost.recompute).total().get();
        }
        sum.parameters += costs[0].parameters;
        sum.hop = context.fabric.send(costs[0].output, local).get();
    }
    sum
}

/// A layer's cost in every mode; layers other than blocks repeat nothing.
fn modes(run: &TrainingRun, context: &LayerContext, layer: &Layer) -> [LayerCost; 3] {
    let mut costs = layer_costs(context, layer, Mode::ALL.map(|mode| mode.recompute(run.parallel.recompute)));
    for cost in &mut costs {
        let (forward, backward) = data_parallel::sharded_exposure(run, context, cost);
        cost.forward += PassCost { dp: forward, ..PassCost::default() };
        cost.input_gradient += PassCost { dp: backward, ..PassCost::default() };
    }
    costs
}
