//! Makespans of pipelines that were simulated before, for plans of many inputs that have pipelines in common.

use super::error::StepError;
use super::op_costs::op_costs;
use super::pipeline::schedule_of;
use super::stages::StageCosts;
use crate::run::TrainingRun;
use crate::schedule::OpCosts;
use cluster_profiles::Seconds;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::take;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Makespans held at least; at most twice as many are.
const HELD: usize = 1 << 15;

/// Makespans by what they depend on: the orders, and the times of every stage and hop.
#[derive(Debug, Default)]
pub struct Makespans(Mutex<Generations>);

/// The makespans that were asked for last, and those before.
#[derive(Debug, Default)]
struct Generations {
    recent: HashMap<u128, Seconds>,
    older: HashMap<u128, Seconds>,
}

impl Generations {
    fn get(&mut self, key: u128) -> Option<Seconds> {
        if let Some(known) = self.recent.get(&key) {
            return Some(*known);
        }
        let known = self.older.remove(&key)?;
        self.insert(key, known);
        Some(known)
    }

    fn insert(&mut self, key: u128, makespan: Seconds) {
        if self.recent.len() >= HELD {
            self.older = take(&mut self.recent);
        }
        self.recent.insert(key, makespan);
    }
}

impl Makespans {
    /// The makespan of a run's pipeline, simulated if it is not known. Without a pipeline nothing is remembered, nor of orders
    /// that are searched for by memory or times.
    ///
    /// # Errors
    /// [`StepError`] if the schedule does not exist, or of the simulation.
    pub fn of(
        &self,
        run: &TrainingRun,
        stages: &StageCosts,
        simulate: impl FnOnce() -> Result<Seconds, StepError>,
    ) -> Result<Seconds, StepError> {
        if run.parallel.pp == 1 || !schedule_of(run)?.kind.definition().is_fixed() {
            return simulate();
        }
        let key = key(run, stages);
        let known = self.held().get(key);
        if let Some(makespan) = known {
            return Ok(makespan);
        }
        let makespan = simulate()?;
        self.held().insert(key, makespan);
        Ok(makespan)
    }

    fn held(&self) -> MutexGuard<'_, Generations> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A digest of all that a makespan of a fixed order depends on, of 128 bits: two that differ are taken for each other once in
/// 1e38 pairs.
fn key(run: &TrainingRun, stages: &StageCosts) -> u128 {
    let costs = op_costs(run, stages, true);
    let half = |seed: u8| {
        let mut hasher = DefaultHasher::new();
        seed.hash(&mut hasher);
        write(run, stages, &costs, &mut hasher);
        hasher.finish()
    };
    u128::from(half(0)) << 64 | u128::from(half(1))
}

fn write(run: &TrainingRun, stages: &StageCosts, costs: &OpCosts, hasher: &mut impl Hasher) {
    let parallel = run.parallel;
    (&parallel.schedule, parallel.pp, parallel.vpp, parallel.num_microbatches, stages.ranks).hash(hasher);
    (&run.runtime.name, run.runtime.memory.pipeline.group_size, run.runtime.time.synchronous_steps)
        .hash(hasher);
    (costs.sends as u8, costs.stages.len(), costs.hops.len(), costs.slice_scale.len()).hash(hasher);
    let v = costs.vocabulary;
    let head = [v.s, v.t, v.broadcast, v.barrier, costs.optimizer];
    let stage_times = costs.stages.iter().flat_map(|stage| {
        [
            stage.forward,
            stage.input_grad,
            stage.weight_grad,
            stage.backward,
            stage.pair_saving,
            stage.backward_pair_saving,
            stage.parameter_gather,
            stage.gradient_sync,
        ]
    });
    let hop_times = costs.hops.iter().flat_map(|hop| [hop.latency, hop.transfer]);
    let times = head.into_iter().chain(stage_times).chain(hop_times).chain(costs.slice_scale.iter().copied());
    times.for_each(|time| time.to_bits().hash(hasher));
}
