//! Costs of stages whose layers have layouts of their own.

use super::error::StepError;
use super::optimizer::OwnedParameters;
use super::stages::{LayerTable, StageCost, StageCosts, check};
use crate::layer_cost::{PassCost, RankParameters};
use crate::layerwise::LayeredRun;
use crate::run::TrainingRun;
use crate::stages::Stage;

impl StageCosts {
    /// The stages of a run with layer strategies: every layer under its own layout, and redistribution between them.
    ///
    /// # Errors
    /// [`StepError::Shape`] if stages and model do not fit together.
    pub fn layered(layered: &LayeredRun) -> Result<Self, StepError> {
        let run = layered.run();
        check(&run)?;
        let runs: Vec<TrainingRun> =
            layered.configs().iter().map(|parallel| TrainingRun { parallel, ..run }).collect();
        let mut sum = Summing {
            layered,
            tables: runs.iter().map(|run| LayerTable::new(run, None, false)).collect(),
            owned: vec![vec![RankParameters::default(); runs.len()]; run.parallel.pp as usize],
        };
        let stages = run.stages.0.iter().map(|stage| sum.stage(stage)).collect();
        let owned = sum.owned.iter().map(|of_config| owned(layered, of_config)).collect();
        Ok(Self {
            stages,
            ranks: run.parallel.pp as usize,
            split_head: None,
            sites: None,
            owned: Some(owned),
        })
    }
}

/// What a rank owns of its parameters under every layout.
fn owned(layered: &LayeredRun, parameters: &[RankParameters]) -> OwnedParameters {
    let mut sum = OwnedParameters::default();
    for (config, parameters) in layered.configs().iter().zip(parameters) {
        sum += OwnedParameters::of(config, *parameters);
    }
    sum
}

struct Summing<'l, 'c, 'a> {
    layered: &'l LayeredRun<'a>,
    /// A table per layout.
    tables: Vec<LayerTable<'c, 'a>>,
    /// Parameters of every rank by layout.
    owned: Vec<Vec<RankParameters>>,
}

impl Summing<'_, '_, '_> {
    fn stage(&mut self, stage: &Stage) -> StageCost {
        let model = self.layered.run().model;
        let mut cost = StageCost { rank: stage.rank as usize, ..StageCost::default() };
        let mut parameters = vec![RankParameters::default(); self.tables.len()];
        for index in stage.layer_range() {
            let Some(layer) = model.layers.get(index) else { continue };
            let (config, recompute) = self.layered.layer(index);
            let exchange = self.layered.redistribution(index);
            cost.passes.forward += PassCost::of_tp(exchange.forward);
            cost.passes.input_gradient += PassCost::of_tp(exchange.backward);
            let (own, sync) = self.tables[config].layer(0, layer, recompute);
            cost.add(&own, sync);
            parameters[config] += own.parameters;
        }
        for (sum, own) in self.owned[cost.rank].iter_mut().zip(parameters) {
            *sum += own;
        }
        cost
    }
}
