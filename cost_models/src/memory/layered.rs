//! The memory of a run whose layers have layouts of their own.

use super::context::MemoryContext;
use super::error::MemoryError;
use super::layer::LayerMemory;
use super::peak::RankPeak;
use super::table::MemoryTable;
use crate::estimate::RankMemory;
use crate::layerwise::LayeredRun;
use crate::parallel::{ParallelConfig, Recompute};
use crate::run::TrainingRun;
use crate::stages::Stage;

/// The memory of every pipeline rank of a run with layer strategies.
///
/// # Errors
/// As [`rank_memory`](super::rank_memory).
pub fn layered_memory(layered: &LayeredRun) -> Result<Vec<RankMemory>, MemoryError> {
    let run = layered.run();
    let contexts = layered_contexts(layered)?;
    let mut peaks = layered_table(layered, &contexts)?.peaks(run.stages)?;
    for peak in &mut peaks {
        run.stages.on_rank(peak.rank).for_each(|stage| widen(peak, stage, layered, &contexts));
    }
    Ok(peaks.iter().map(|peak| peak.report(&run.runtime.memory.reserve)).collect())
}

/// The context of every layout that layers have.
///
/// # Errors
/// [`MemoryError`] for degrees or sizes of 0.
pub fn layered_contexts<'a>(layered: &'a LayeredRun) -> Result<Vec<MemoryContext<'a>>, MemoryError> {
    let run = layered.run();
    let configs = layered.configs().iter();
    configs.map(|parallel| MemoryContext::of(&TrainingRun { parallel, ..run })).collect()
}

/// The bytes of every layer under its own layout, what it recomputes already taken off.
///
/// # Errors
/// As [`MemoryTable::new`].
pub fn layered_table<'a>(
    layered: &LayeredRun,
    contexts: &[MemoryContext<'a>],
) -> Result<MemoryTable<'a>, MemoryError> {
    let layers = 0..layered.run().model.layers.len();
    let layers = layers.map(|index| {
        let (config, recompute) = layered.layer(index);
        contexts[config].layer_memory(index).under(recompute).gathered_by(layered.config(index))
    });
    let gathering = layered.configs().iter().position(gathers).map(|config| contexts[config]);
    Ok(MemoryTable::new(contexts[0])?.layered(layers.collect(), gathering))
}

/// Whether layers of a layout gather their parameters.
fn gathers(config: &ParallelConfig) -> bool {
    config.zero_stage >= 3 && (config.dp_shard > 1 || config.cp > 1)
}

/// Buffers are those of the layout with the largest, and redistribution needs room of its own.
fn widen(peak: &mut RankPeak, stage: &Stage, layered: &LayeredRun, contexts: &[MemoryContext]) {
    for index in stage.layer_range() {
        let context = &contexts[layered.layer(index).0];
        peak.workspace = peak.workspace.max(context.workspace_bytes());
        peak.transient = peak.transient.max(layered.redistribution(index).transient.get());
    }
}

impl LayerMemory {
    /// The bytes of a layer that recomputes this: as those of one that keeps all it saves.
    #[must_use]
    pub fn under(self, recompute: Recompute) -> Self {
        let (saved, transient) = (self.saved_bytes(recompute), self.transient_bytes(recompute));
        Self {
            saved,
            saved_selective: saved,
            saved_full: saved,
            transient,
            transient_recomputed: transient,
            ..self
        }
    }

    /// Without a unit to gather where the layout gathers none.
    #[must_use]
    pub fn gathered_by(self, config: &ParallelConfig) -> Self {
        if gathers(config) { self } else { Self { unit_parameters: 0.0, ..self } }
    }
}
