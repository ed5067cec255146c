//! Blocks that differ in tensor parallelism, sharding and recompute, for engines that can
//! ([`Engine::layerwise`](crate::rules::Engine)).
//!
//! The ranks of a pipeline stage are D = tp x cp x dp. A block with its own tp keeps D, so that its data-parallel degree is
//! `D / (tp cp)` and its share of a microbatch of B sequences `B / dp`. Everything that is no block (embedding, final norm,
//! head) has the degrees of the run's [`ParallelConfig`]; a [`LayerStrategies`] says what the blocks have. The cost of every
//! layer comes from the tables of the rest of this crate under the layer's own `ParallelConfig`; what is added is the
//! redistribution between neighbours of different tp ([`LayeredRun::redistribution`]).
//!
//! The space is Galvatron's (arXiv 2211.13878, section 3; Hetu-Galvatron `galvatron/core/runtime/hybrid_parallel_config.py`).

mod exchange;
mod layered;
mod rules;
mod text;

pub use exchange::{Exchange, exchange};
pub use layered::{LayeredRun, config_of};

use crate::estimate::{Estimate, EstimateError, assembled};
use crate::memory::layered_memory;
use crate::parallel::{ParallelConfig, Recompute};
use crate::run::TrainingRun;
use crate::step::{PreparedSchedule, StageCosts, step_time_of};
use serde::{Deserialize, Serialize};

/// How a block's state lives on the data-parallel ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharding {
    /// Whole on every rank.
    Ddp,
    /// Gradients and optimizer state in parts.
    Zero2,
    /// Parameters too.
    Zero3,
}

impl Sharding {
    /// The ZeRO stage.
    #[must_use]
    pub const fn zero_stage(self) -> u8 {
        match self {
            Self::Ddp => 0,
            Self::Zero2 => 2,
            Self::Zero3 => 3,
        }
    }

    /// The sharding of a ZeRO stage; none for stages that blocks cannot have by themselves.
    #[must_use]
    pub const fn of_stage(zero_stage: u8) -> Option<Self> {
        match zero_stage {
            0 => Some(Self::Ddp),
            2 => Some(Self::Zero2),
            3 => Some(Self::Zero3),
            _ => None,
        }
    }
}

/// What one block has of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Strategy {
    /// Tensor parallel degree.
    pub tp: u32,
    /// Where its state lives.
    pub sharding: Sharding,
    /// What its backward repeats: nothing or all.
    pub recompute: Recompute,
}

/// Neighbouring blocks with one strategy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StrategyRun {
    /// First and last block, counted from 0, both included.
    pub layers: [u32; 2],
    /// Their strategy.
    #[serde(flatten)]
    pub strategy: Strategy,
}

/// The strategies of all blocks, in order.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LayerStrategies(pub Vec<StrategyRun>);

impl LayerStrategies {
    /// The runs of a list with one strategy per block.
    #[must_use]
    pub fn of_blocks(blocks: &[Strategy]) -> Self {
        let mut runs: Vec<StrategyRun> = Vec::new();
        for (index, &strategy) in blocks.iter().enumerate() {
            match runs.last_mut().filter(|run| run.strategy == strategy) {
                Some(run) => run.layers[1] = index as u32,
                None => runs.push(StrategyRun { layers: [index as u32; 2], strategy }),
            }
        }
        Self(runs)
    }

    /// The strategy of every block; none unless the runs hold `blocks` blocks once, in order.
    #[must_use]
    pub fn by_block(&self, blocks: usize) -> Option<Vec<Strategy>> {
        let mut list = Vec::new();
        for run in &self.0 {
            let [first, last] = run.layers;
            if first as usize != list.len() || last < first || last as usize >= blocks {
                return None;
            }
            list.resize(last as usize + 1, run.strategy);
        }
        (list.len() == blocks).then_some(list)
    }

    /// The one strategy that all blocks have.
    #[must_use]
    pub fn uniform(&self) -> Option<Strategy> {
        let first = self.0.first()?.strategy;
        self.0.iter().all(|run| run.strategy == first).then_some(first)
    }
}

/// Predicts time and memory of a run with layer strategies. Strategies that are all the run's own give what
/// [`crate::estimate()`] gives, to the bit.
///
/// # Errors
/// [`EstimateError`] if the layout is not one that can run.
pub fn estimate(layered: &LayeredRun) -> Result<Estimate, EstimateError> {
    let run = layered.run();
    let stages = StageCosts::layered(layered)?;
    let step = step_time_of(&run, &stages, &PreparedSchedule::of(&run, &stages)?)?;
    let memory = layered_memory(layered)?;
    // Published runs are compared by whether they recompute, too.
    let parallel = ParallelConfig { recompute: layered.recompute(), ..run.parallel.clone() };
    Ok(assembled(&TrainingRun { parallel: &parallel, ..run }, &stages, &step, memory, Vec::new()))
}
