//! What every layer costs under every strategy, on one set of degrees: the numbers a search adds up.

use crate::problem::Problem;
use crate::times::run_of;
use cluster_profiles::Seconds;
use cost_models::layer_cost::{LayerContext, LayerCost, Memo, layer_costs};
use cost_models::layerwise::{Sharding, Strategy, config_of, exchange};
use cost_models::memory::{LayerMemory, MemoryContext};
use cost_models::model::Layer;
use cost_models::rules::{Engine, Facts};
use cost_models::step::{OwnedParameters, StageCosts, data_parallel, optimizer_time};
use cost_models::{ParallelConfig, Recompute, StageMap, TrainingRun};

/// Ways to shard, in the order of the table.
pub const SHARDINGS: [Sharding; 3] = [Sharding::Ddp, Sharding::Zero2, Sharding::Zero3];
/// Recomputes, in the order of the table.
pub const RECOMPUTES: [Recompute; 2] = [Recompute::None, Recompute::Full { layers: None }];

/// A layer under a strategy.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Numbers {
    /// Seconds of a microbatch's forward.
    pub forward: f64,
    /// Seconds of its backward.
    pub backward: f64,
    /// Seconds of reducing and gathering outside the microbatches.
    pub sync: f64,
    /// Seconds of the optimizer.
    pub optimizer: f64,
    /// Bytes, what it recomputes taken off.
    pub memory: LayerMemory,
    /// Bytes of buffers that exist once under this layout.
    pub workspace: f64,
}

impl Numbers {
    /// Seconds of a microbatch, forward and backward.
    #[must_use]
    pub fn work(&self) -> f64 {
        self.forward + self.backward
    }

    /// Whether no part of it is larger than `other`'s.
    fn no_worse(&self, other: &Self) -> bool {
        self.parts().iter().zip(other.parts()).all(|(own, other)| *own <= other)
    }

    fn parts(&self) -> [f64; 11] {
        let Self { forward, backward, sync, optimizer, memory, workspace } = *self;
        let state = memory.state;
        [
            forward,
            backward,
            sync,
            optimizer,
            workspace,
            state.resident().get(),
            state.late.get(),
            state.step.get(),
            memory.saved.get(),
            memory.transient.get(),
            memory.unit_parameters,
        ]
    }
}

/// One way for a layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Way {
    /// Index of its tensor parallelism in [`Grid::tps`].
    pub tp: usize,
    /// Index into [`SHARDINGS`].
    pub sharding: usize,
    /// Index into [`RECOMPUTES`].
    pub recompute: usize,
    /// What the layer costs.
    pub numbers: Numbers,
}

/// Redistribution between two degrees.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Hop {
    /// Seconds in the forward.
    pub forward: f64,
    /// Seconds in the backward.
    pub backward: f64,
    /// Bytes meanwhile.
    pub transient: f64,
}

/// The degrees that all layers share, and every layer under every strategy.
#[derive(Debug)]
pub struct Grid {
    /// Pipeline ranks.
    pub pp: u32,
    /// Context-parallel degree.
    pub cp: u32,
    /// Microbatches.
    pub microbatches: u64,
    /// Tensor-parallel degrees that layers may have.
    pub tps: Vec<u32>,
    /// The layouts, by degree and sharding; none where a rule or constraint is broken.
    pub configs: Vec<[Option<ParallelConfig>; 3]>,
    /// The kind of every layer.
    pub kinds: Vec<usize>,
    /// Whether layers of the kind are blocks.
    pub blocks: Vec<bool>,
    /// Numbers by kind, degree, sharding, recompute; none where that is no legal strategy.
    numbers: Vec<Vec<[[Option<Numbers>; 2]; 3]>>,
    /// Redistribution by degrees before and after.
    pub exchanges: Vec<Vec<Hop>>,
}

/// What may be chosen, whatever the degrees.
pub struct Choices<'p, 'a> {
    /// The problem.
    pub problem: &'p Problem<'a>,
    /// What rules know.
    pub facts: Facts,
    /// The engine.
    pub engine: &'static Engine,
}

impl Choices<'_, '_> {
    /// Whether layers may have this layout; recompute is judged with it.
    fn allows(&self, config: &ParallelConfig, recompute: Recompute) -> bool {
        let whole = ParallelConfig { recompute, ..config.clone() };
        self.engine.allows(&self.facts, config)
            && self.problem.constraints.first_broken(&whole, self.problem.cluster).is_none()
    }
}

impl Grid {
    /// The tables of pp x cp ranks of pipeline and context, for a schedule and so many microbatches; none if no layer has a
    /// legal strategy.
    #[must_use]
    pub fn new(choices: &Choices, [pp, cp]: [u32; 2], microbatches: u64, schedule: &str) -> Option<Self> {
        let problem = choices.problem;
        let ranks = u32::try_from(choices.facts.world / u64::from(pp) / u64::from(cp)).ok()?;
        let sequences = choices.facts.global_batch / microbatches;
        let base = ParallelConfig {
            pp,
            cp,
            dp_shard: ranks,
            zero_stage: 2,
            num_microbatches: microbatches,
            micro_batch_size: 1,
            schedule: schedule.to_owned(),
            ..ParallelConfig::default()
        };
        let tps: Vec<u32> =
            (0..=ranks.ilog2()).map(|power| 1 << power).filter(|tp| ranks.is_multiple_of(*tp)).collect();
        let tps: Vec<u32> =
            tps.into_iter().filter(|tp| sequences.is_multiple_of(u64::from(ranks / tp))).collect();
        let config = |tp: u32, sharding: Sharding| ParallelConfig {
            micro_batch_size: sequences / u64::from(ranks / tp),
            ..config_of(&base, &Strategy { tp, sharding, recompute: Recompute::None })
        };
        let legal = |tp: &u32| {
            SHARDINGS.map(|sharding| {
                let config = config(*tp, sharding);
                RECOMPUTES.iter().any(|recompute| choices.allows(&config, *recompute)).then_some(config)
            })
        };
        let configs: Vec<[Option<ParallelConfig>; 3]> = tps.iter().map(legal).collect();
        let keep = |index: usize| configs[index].iter().any(Option::is_some);
        let kept: Vec<usize> = (0..tps.len()).filter(|&index| keep(index)).collect();
        let tps: Vec<u32> = kept.iter().map(|&index| tps[index]).collect();
        let configs: Vec<[Option<ParallelConfig>; 3]> =
            kept.iter().map(|&index| configs[index].clone()).collect();
        if tps.is_empty() {
            return None;
        }
        let (kinds, firsts) = kinds(&problem.model.layers);
        let numbers = numbers(choices, &configs, &firsts);
        let layer = |index: &usize| &problem.model.layers[*index];
        let blocks =
            firsts.iter().map(layer).map(|l| matches!(l, Layer::Block(_) | Layer::Custom(_))).collect();
        let exchanges = exchanges(problem, &configs);
        Some(Self { pp, cp, microbatches, tps, configs, kinds, blocks, numbers, exchanges })
    }

    /// The numbers of a kind under a strategy.
    #[must_use]
    pub fn of(&self, kind: usize, tp: usize, sharding: usize, recompute: usize) -> Option<Numbers> {
        self.numbers[kind][tp][sharding][recompute]
    }

    /// The ways a block of a kind may go when what is not fully sharded is sharded as `default`, none of them worse than another
    /// of its degree in everything.
    #[must_use]
    pub fn options(&self, kind: usize, default: usize) -> Vec<Way> {
        let mut kept: Vec<Way> = Vec::new();
        for tp in 0..self.tps.len() {
            let first = kept.len();
            for (sharding, recompute) in [(default, 0), (2, 0), (default, 1), (2, 1)] {
                let Some(numbers) = self.of(kind, tp, sharding, recompute) else { continue };
                if kept[first..].iter().any(|other| other.numbers.no_worse(&numbers)) {
                    continue;
                }
                let mut index = first;
                while index < kept.len() {
                    if numbers.no_worse(&kept[index].numbers) {
                        kept.remove(index);
                    } else {
                        index += 1;
                    }
                }
                kept.push(Way { tp, sharding, recompute, numbers });
            }
        }
        kept
    }

    /// The least work of a kind, whatever its strategy.
    #[must_use]
    pub fn least_work(&self, kind: usize) -> f64 {
        let all = self.numbers[kind].iter().flatten().flatten().flatten();
        all.map(Numbers::work).fold(f64::INFINITY, f64::min)
    }
}

/// The kind of every layer, and the first layer of every kind.
fn kinds(layers: &[Layer]) -> (Vec<usize>, Vec<usize>) {
    let mut firsts: Vec<usize> = Vec::new();
    let kinds = layers.iter().enumerate().map(|(index, layer)| {
        let known = firsts.iter().position(|&first| layers[first] == *layer);
        known.unwrap_or_else(|| {
            firsts.push(index);
            firsts.len() - 1
        })
    });
    (kinds.collect(), firsts)
}

type Table = Vec<Vec<[[Option<Numbers>; 2]; 3]>>;

fn numbers(choices: &Choices, configs: &[[Option<ParallelConfig>; 3]], firsts: &[usize]) -> Table {
    let problem = choices.problem;
    let memo = Memo::default();
    let mut table: Table = vec![vec![[[None; 2]; 3]; configs.len()]; firsts.len()];
    for (tp, of_tp) in configs.iter().enumerate() {
        let Some(any) = of_tp.iter().flatten().next() else { continue };
        let stages = StageMap(Vec::new());
        let plain = run_of(problem, any, &stages);
        let context = LayerContext { memo: Some(&memo), ..LayerContext::of(&plain) };
        let costs: Vec<[LayerCost; 2]> = firsts
            .iter()
            .map(|&first| layer_costs(&context, &problem.model.layers[first], RECOMPUTES))
            .collect();
        for (sharding, config) in of_tp.iter().enumerate() {
            let Some(config) = config else { continue };
            let run = run_of(problem, config, &stages);
            let Ok(memory) = MemoryContext::of(&run) else { continue };
            for (kind, costs) in costs.iter().enumerate() {
                let bare = memory.layer_memory(firsts[kind]).gathered_by(config);
                for (recompute, cost) in costs.iter().enumerate() {
                    let legal = choices.allows(config, RECOMPUTES[recompute]);
                    let numbers = Numbers {
                        memory: bare.under(RECOMPUTES[recompute]),
                        workspace: memory.workspace_bytes(),
                        ..times(&run, &context, cost)
                    };
                    table[kind][tp][sharding][recompute] = legal.then_some(numbers);
                }
            }
        }
    }
    table
}

/// Seconds of a layer under a run's layout.
fn times(run: &TrainingRun, context: &LayerContext, cost: &LayerCost) -> Numbers {
    let (forward, backward) = data_parallel::sharded_exposure(run, context, cost);
    let owned = vec![OwnedParameters::of(run.parallel, cost.parameters)];
    let stages =
        StageCosts { stages: Vec::new(), ranks: 1, split_head: None, sites: None, owned: Some(owned) };
    let alone = |pass: cost_models::layer_cost::PassCost| pass.total() + pass.ep_hidden;
    let whole = |seconds: Seconds| seconds.get();
    Numbers {
        forward: whole(alone(cost.forward) + forward),
        backward: whole(
            alone(cost.input_gradient) + alone(cost.recompute) + alone(cost.weight_gradient) + backward,
        ),
        sync: whole(data_parallel::layer_sync(run, context, cost.parameters)),
        optimizer: whole(optimizer_time(run, &stages)),
        ..Numbers::default()
    }
}

fn exchanges(problem: &Problem, configs: &[[Option<ParallelConfig>; 3]]) -> Vec<Vec<Hop>> {
    let stages = StageMap(Vec::new());
    let layouts: Vec<&ParallelConfig> =
        configs.iter().filter_map(|of_tp| of_tp.iter().flatten().next()).collect();
    let hop = |from: &ParallelConfig, to: &ParallelConfig| {
        let exchange = exchange(&run_of(problem, from, &stages), from, to);
        Hop {
            forward: exchange.forward.get(),
            backward: exchange.backward.get(),
            transient: exchange.transient.get(),
        }
    };
    layouts.iter().map(|from| layouts.iter().map(|to| hop(from, to)).collect()).collect()
}
