//! A run whose layers have layouts of their own.

use super::rules::faults;
use super::{LayerStrategies, Strategy};
use crate::model::Layer;
use crate::parallel::{ParallelConfig, Recompute};
use crate::rules::Violation;
use crate::run::TrainingRun;

/// A run with layer strategies that keep every rule: each layer's own layout.
#[derive(Debug, Clone)]
pub struct LayeredRun<'a> {
    run: TrainingRun<'a>,
    /// The layouts that layers have: first the run's own, that of all but the blocks.
    configs: Vec<ParallelConfig>,
    /// Which of them every layer has, and what it recomputes.
    layers: Vec<(usize, Recompute)>,
}

impl<'a> LayeredRun<'a> {
    /// The layouts of all layers.
    ///
    /// # Errors
    /// Every rule that the strategies break. Those of the run by itself are [`crate::rules::broken`].
    pub fn new(run: TrainingRun<'a>, strategies: &LayerStrategies) -> Result<Self, Vec<Violation>> {
        let broken = faults(&run, strategies);
        if !broken.is_empty() {
            return Err(broken);
        }
        let blocks = run.model.layers.iter().filter(|layer| is_block(layer)).count();
        let mut of_block = strategies.by_block(blocks).unwrap_or_default().into_iter();
        let mut configs = vec![run.parallel.clone()];
        let mut layer = |layer: &Layer| {
            let Some(strategy) = is_block(layer).then(|| of_block.next()).flatten() else {
                return (0, Recompute::None);
            };
            let config = config_of(run.parallel, &strategy);
            let known = configs.iter().position(|own| *own == config);
            let index = known.unwrap_or(configs.len());
            if known.is_none() {
                configs.push(config);
            }
            (index, strategy.recompute)
        };
        let layers = run.model.layers.iter().map(&mut layer).collect();
        Ok(Self { run, configs, layers })
    }

    /// The run, with the layout of what is no block.
    #[must_use]
    pub const fn run(&self) -> TrainingRun<'a> {
        self.run
    }

    /// The layouts that layers have; the first is the run's own.
    #[must_use]
    pub fn configs(&self) -> &[ParallelConfig] {
        &self.configs
    }

    /// Which of the layouts a layer has, and what it recomputes.
    #[must_use]
    pub fn layer(&self, index: usize) -> (usize, Recompute) {
        self.layers.get(index).copied().unwrap_or((0, Recompute::None))
    }

    /// Whether any layer recomputes what it would save.
    #[must_use]
    pub fn recompute(&self) -> Recompute {
        let again = self.layers.iter().map(|(_, recompute)| *recompute);
        again.max().unwrap_or(Recompute::None)
    }

    /// The layout of a layer.
    #[must_use]
    pub fn config(&self, index: usize) -> &ParallelConfig {
        &self.configs[self.layer(index).0]
    }
}

/// Whether a layer has a strategy of its own.
#[must_use]
pub(crate) const fn is_block(layer: &Layer) -> bool {
    matches!(layer, Layer::Block(_) | Layer::Custom(_))
}

/// The layout of a block in a run with layout `base`: the same ranks of a stage, the same sequences of a microbatch.
#[must_use]
pub fn config_of(base: &ParallelConfig, strategy: &Strategy) -> ParallelConfig {
    let sequences = base.micro_batch_size * u64::from(base.dp());
    let dp = u64::from(base.tp) * u64::from(base.dp()) / u64::from(strategy.tp.max(1));
    ParallelConfig {
        tp: strategy.tp,
        sequence_parallel: if strategy.tp == base.tp { base.sequence_parallel } else { strategy.tp > 1 },
        dp_shard: u32::try_from(dp / u64::from(base.dp_replicate.max(1))).unwrap_or(u32::MAX),
        zero_stage: strategy.sharding.zero_stage(),
        micro_batch_size: sequences / dp.max(1),
        ..base.clone()
    }
}
