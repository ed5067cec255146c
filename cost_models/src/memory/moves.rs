//! What of the saved activations of a rank is in host memory.

use super::layer::LayerMemory;
use super::table::MemoryTable;
use crate::model::Layer;
use crate::module_offload::{Extent, extents, most_passing};
use crate::offload::most_held;
use crate::parallel::Recompute;
use crate::stages::Stage;

impl MemoryTable<'_> {
    /// The layers of a stage whose modules copy to the host, and whether all of them do: the first that have any, but not the
    /// model's last.
    fn copying(&self, stage: &Stage) -> Vec<(&LayerMemory, Extent)> {
        let Recompute::Modules(choice) = stage.recompute else { return Vec::new() };
        let last = self.context.model.layers.iter().rposition(Layer::can_recompute);
        let layers = &self.layers[stage.layer_range().start.min(self.layers.len())..];
        let layers = &layers[..stage.layer_range().len().min(layers.len())];
        let modules: Vec<u8> = layers.iter().map(|layer| layer.modules.copies).collect();
        let moving = layers.iter().zip(extents(choice, &modules)).zip(stage.layer_range());
        let moving = moving.filter(|((_, extent), index)| *extent != Extent::Stays && Some(*index) != last);
        moving.map(|(layer, _)| layer).collect()
    }

    /// Bytes that each of the layers which move all they are to has in host memory between forward and backward. How many
    /// copies of a single layer are under way nothing bounds: it counts as kept.
    pub(super) fn moved_by_layer(&self, stage: &Stage) -> Vec<f64> {
        let copying = self.copying(stage);
        let whole = copying.iter().filter(|(_, extent)| *extent == Extent::Whole);
        let moved: Vec<f64> = whole.map(|(layer, _)| layer.modules.moved.get()).collect();
        if moved.len() > 1 { moved } else { Vec::new() }
    }

    /// Saved activations of all microbatches in flight, of which some are in host memory.
    pub(super) fn saved_with_moves(&self, rank: u32, stages: &[&Stage], chunk_bytes: &[f64]) -> f64 {
        let all = self.in_flight.peak(rank as usize, chunk_bytes);
        if !stages.iter().any(|stage| matches!(stage.recompute, Recompute::Modules(_))) {
            return all;
        }
        let moved: Vec<Vec<f64>> = stages.iter().map(|stage| self.moved_by_layer(stage)).collect();
        let away = moved.iter().map(|layers| layers.iter().sum::<f64>());
        let kept: Vec<f64> = chunk_bytes.iter().zip(away).map(|(all, away)| all - away).collect();
        let partial =
            |stage: &&Stage| matches!(stage.recompute, Recompute::Modules(choice) if choice.percent < 100);
        let passing = most_passing(&moved, stages.iter().any(partial));
        all.min(self.in_flight.peak(rank as usize, &kept) + passing)
    }

    /// Bytes that all microbatches in flight have in the memory of a rank's host.
    pub(super) fn host_bytes(&self, rank: u32, stages: &[&Stage]) -> f64 {
        if !stages.iter().any(|stage| stage.recompute.is_moving()) {
            return 0.0;
        }
        let copied = |stage: &&Stage| match stage.recompute {
            Recompute::Offload { layers } => self.movable(stage).iter().take(layers as usize).sum(),
            _ => self.copying(stage).iter().map(|(layer, _)| layer.modules.copied.get()).sum(),
        };
        let chunks: Vec<f64> = stages.iter().map(copied).collect();
        self.in_flight.peak(rank as usize, &chunks)
    }

    /// What the layers of a stage save that can be moved as a whole.
    fn movable(&self, stage: &Stage) -> Vec<f64> {
        let blocks =
            stage.layer_range().filter(|&index| self.context.layer(index).is_some_and(Layer::can_move));
        blocks.filter_map(|index| self.layers.get(index)).map(|layer| layer.saved.get()).collect()
    }

    /// What of a stage's saved bytes is in host memory when it holds most.
    pub(super) fn away(&self, stage: &Stage) -> f64 {
        let Recompute::Offload { layers } = stage.recompute else { return 0.0 };
        let saved = self.movable(stage);
        saved.iter().sum::<f64>() - most_held(&saved, layers as usize)
    }
}
