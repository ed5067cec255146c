//! Every layer's bytes once, and from them the peak of any stage on any rank: what a search asks thousands of times.

use super::context::MemoryContext;
use super::error::MemoryError;
use super::in_flight::{InFlight, placement};
use super::layer::LayerMemory;
use super::peak::RankPeak;
use crate::model::Layer;
use crate::parallel::Recompute;
use crate::schedule::{Placement, Vocabulary};
use crate::sharding::StateBytes;
use crate::stages::{Stage, StageMap};

/// The bytes of every layer of a model under one layout, with the microbatches its schedule keeps in flight.
#[derive(Debug, Clone)]
pub struct MemoryTable<'a> {
    pub(super) context: MemoryContext<'a>,
    pub(super) layers: Vec<LayerMemory>,
    /// Shapes whose weight gradients are shared, of every run of equal layers.
    shapes: Vec<Vec<[u64; 2]>>,
    /// The run every layer belongs to.
    runs: Vec<u32>,
    table_copy: LayerMemory,
    pub(super) in_flight: InFlight,
    vocabulary: Vocabulary,
    /// By which layout units are gathered, where layers differ in it.
    gathering: Option<MemoryContext<'a>>,
}

/// What a rank's stages hold, before the schedule multiplies it.
#[derive(Debug, Clone, Default)]
struct RankLayers {
    state: StateBytes,
    chunk_bytes: Vec<f64>,
    transient: f64,
    units: Vec<f64>,
    released: f64,
    has_head: bool,
    has_embedding: bool,
    mtp_blocks: u32,
}

impl<'a> MemoryTable<'a> {
    /// The table of a context.
    ///
    /// # Errors
    /// As [`InFlight::new`].
    pub fn new(context: MemoryContext<'a>) -> Result<Self, MemoryError> {
        let (runtime, parallel) = (context.runtime, context.parallel);
        let shape = runtime.schedule_shape(parallel, parallel.num_microbatches);
        let in_flight = InFlight::new(parallel, &shape)?;
        Ok(Self::with_in_flight(context, in_flight))
    }

    /// The table of a context whose schedule's counts are known already.
    #[must_use]
    pub fn with_in_flight(context: MemoryContext<'a>, in_flight: InFlight) -> Self {
        let runs = runs_of(&context);
        let first_of_runs = first_of_runs(&runs);
        let memories: Vec<LayerMemory> =
            first_of_runs.iter().map(|&first| context.layer_memory(first)).collect();
        let layers = runs.iter().map(|&run| memories[run as usize]).collect();
        let shapes = first_of_runs
            .iter()
            .map(|&first| context.layer(first).map_or_else(Vec::new, |l| context.shared_gradient_shapes(l)))
            .collect();
        let table_copy = context.embedding_copy();
        let vocabulary = vocabulary_of(&context.parallel.schedule);
        Self { context, layers, shapes, runs, table_copy, in_flight, vocabulary, gathering: None }
    }

    /// The same with other bytes of every layer, and the layout by which units of fully sharded parameters are gathered.
    #[must_use]
    pub(super) fn layered(mut self, layers: Vec<LayerMemory>, gathering: Option<MemoryContext<'a>>) -> Self {
        if self.context.gathered_bytes(&[1.0]) == 0.0 {
            self.table_copy.unit_parameters = 0.0;
        }
        Self { layers, gathering, ..self }
    }

    /// The context it was made for.
    #[must_use]
    pub const fn context(&self) -> &MemoryContext<'a> {
        &self.context
    }

    /// The bytes of every layer, in the model's order.
    #[must_use]
    pub fn layers(&self) -> &[LayerMemory] {
        &self.layers
    }

    /// Saved bytes of a stage per microbatch.
    #[must_use]
    pub fn stage_saved(&self, stage: &Stage) -> f64 {
        let every =
            self.context.runtime.facts.recompute_every.filter(|_| stage.recompute == Recompute::Selective);
        let mut blocks = 0;
        let saved = stage.layer_range().filter_map(|index| {
            let block = self.context.layer(index)?.can_recompute();
            let recompute = recompute_of(stage.recompute, blocks, every, block);
            blocks += u32::from(block);
            let layer = self.layers.get(index)?;
            Some(if self.offloaded(block, blocks) { 0.0 } else { layer.saved_bytes(recompute).get() })
        });
        saved.sum::<f64>() - self.away(stage)
    }

    /// Bytes a microbatch in flight holds of a stage: what is saved, and what passes of a split output layer keep.
    #[must_use]
    pub fn held_bytes(&self, stage: &Stage) -> f64 {
        self.stage_saved(stage) + self.pass_bytes()
    }

    /// What a microbatch in flight keeps more of every stage where all ranks run passes of the output layer.
    fn pass_bytes(&self) -> f64 {
        if self.vocabulary == Vocabulary::Whole {
            return 0.0;
        }
        self.context.traits().pipeline.vocabulary_pass_tensors * self.context.residual()
    }

    /// Whether the `blocks`-th block of a stage is copied to the host.
    fn offloaded(&self, block: bool, blocks: u32) -> bool {
        block && blocks <= self.context.runtime.facts.offloaded_layers / self.context.parallel.vpp
    }

    /// Every term of the peak on a pipeline rank that runs `stages` (in chunk order).
    #[must_use]
    pub fn rank_peak<'s>(&self, rank: u32, stages: impl IntoIterator<Item = &'s Stage>) -> RankPeak {
        let stages: Vec<&Stage> = stages.into_iter().collect();
        let mut held = self.rank_layers(&stages);
        if self.vocabulary != Vocabulary::Whole {
            self.spread_vocabulary(&mut held);
        }
        let context = &self.context;
        let shared = self.shared_gradient_bytes(&stages);
        RankPeak {
            rank,
            workspace: context.workspace_bytes(),
            shared_gradients: shared,
            gathered: self.gathering.as_ref().unwrap_or(context).gathered_bytes(&held.units),
            saved: self.saved_with_moves(rank, &stages, &held.chunk_bytes),
            in_host: self.host_bytes(rank, &stages),
            boundary: context.boundary_bytes(),
            mask: context.mask_bytes(),
            head: self.head(&held, shared > 0.0),
            transient: held.transient,
            embedding_gradient: if held.has_embedding { context.embedding_gradient_bytes() } else { 0.0 },
            released: held.released,
            state: held.state,
        }
    }

    /// 16-bit weight gradients, one for each distinct shape on a rank.
    fn shared_gradient_bytes(&self, stages: &[&Stage]) -> f64 {
        let mut runs: Vec<u32> = Vec::new();
        for stage in stages {
            for run in stage.layer_range().filter_map(|index| self.runs.get(index)) {
                if !runs.contains(run) {
                    runs.push(*run);
                }
            }
        }
        let mut shapes: Vec<[u64; 2]> =
            runs.iter().flat_map(|&run| &self.shapes[run as usize]).copied().collect();
        shapes.sort_unstable();
        shapes.dedup();
        shapes.iter().map(|[rows, cols]| 2.0 * *rows as f64 * *cols as f64).sum()
    }

    fn head(&self, held: &RankLayers, shared: bool) -> f64 {
        let context = &self.context;
        if self.vocabulary != Vocabulary::Whole {
            return context.vocabulary_pass_bytes(self.vocabulary);
        }
        if !held.has_head {
            return 0.0;
        }
        context.head_bytes(!shared) + f64::from(held.mtp_blocks) * context.mtp_logit_bytes()
    }

    fn rank_layers(&self, stages: &[&Stage]) -> RankLayers {
        let mut held = RankLayers::default();
        for stage in stages {
            let saved = self.stage_saved(stage);
            held.chunk_bytes.push(saved);
            if stage.layer_range().contains(&0) {
                held.released = saved - self.moved_by_layer(stage).iter().sum::<f64>();
            }
            stage.layer_range().for_each(|index| self.add_layer(&mut held, index, stage.recompute));
        }
        let tied_head = held.has_head && self.context.model.tied_embeddings;
        if !held.has_embedding && (tied_head || held.mtp_blocks > 0) {
            held.state += self.table_copy.state;
            held.units.push(self.table_copy.unit_parameters);
        }
        held
    }

    fn add_layer(&self, held: &mut RankLayers, index: usize, recompute: Recompute) {
        let (Some(layer), Some(kind)) = (self.layers.get(index), self.context.layer(index)) else { return };
        held.state += layer.state;
        held.units.push(layer.unit_parameters);
        held.transient = held.transient.max(layer.transient_bytes(recompute).get());
        held.has_head |= matches!(kind, Layer::Head);
        held.has_embedding |= matches!(kind, Layer::Embedding);
        held.mtp_blocks += u32::from(matches!(kind, Layer::Mtp(_)));
    }

    /// Vocabulary passes: every rank has 1/p of embedding and head, and each microbatch in flight keeps more tensors.
    fn spread_vocabulary(&self, held: &mut RankLayers) {
        let context = &self.context;
        let (embedding, head) = context.vocabulary_states();
        let ranks = f64::from(context.parallel.pp);
        if held.has_embedding {
            held.state -= embedding;
        }
        if held.has_head {
            held.state -= head;
        }
        held.state += embedding.scaled(1.0 / ranks);
        held.state += head.scaled(1.0 / ranks);
        let extra = self.pass_bytes();
        held.chunk_bytes.iter_mut().for_each(|bytes| *bytes += extra);
    }

    /// The peak of every pipeline rank.
    ///
    /// # Errors
    /// [`MemoryError::Stage`] for a stage beyond the model's layers.
    pub fn peaks(&self, stages: &StageMap) -> Result<Vec<RankPeak>, MemoryError> {
        let layers = self.layers.len();
        for (index, stage) in stages.0.iter().enumerate() {
            let layer = stage.layer_range().end;
            if layer > layers {
                return Err(MemoryError::Stage { stage: index, layer: layer - 1, layers });
            }
        }
        let ranks = 0..self.context.parallel.pp;
        let placement = placement(&self.context.parallel.schedule);
        Ok(ranks
            .map(|rank| {
                self.rank_peak(rank, stages_of_rank(stages, rank, self.context.parallel.pp, placement))
            })
            .collect())
    }
}

/// Stages of a rank in chunk order; with two pipelines those of the second, which mirrors the first, after them.
fn stages_of_rank(stages: &StageMap, rank: u32, ranks: u32, placement: Placement) -> Vec<&Stage> {
    let mirrored = (placement.pipelines() == 2).then(|| stages.on_rank(ranks - 1 - rank));
    stages.on_rank(rank).chain(mirrored.into_iter().flatten()).collect()
}

/// A layer's recompute: all of a stage's blocks, its first `layers`, or every `every`-th.
fn recompute_of(stage: Recompute, position: u32, every: Option<u32>, block: bool) -> Recompute {
    match (stage, every) {
        _ if !block => Recompute::None,
        (Recompute::Full { layers: Some(layers) }, _) if position >= layers => Recompute::None,
        (Recompute::Selective, Some(every)) if position.is_multiple_of(every.max(1)) => {
            Recompute::Full { layers: None }
        }
        (Recompute::Selective, Some(_)) => Recompute::None,
        _ => stage,
    }
}

/// Numbers the runs of equal neighbours; gives the run of every layer.
fn runs_of(context: &MemoryContext) -> Vec<u32> {
    let layers = &context.model.layers;
    let mut run = 0;
    let runs = layers.iter().enumerate().map(|(index, layer)| {
        run += u32::from(index > 0 && layers[index - 1] != *layer);
        run
    });
    runs.collect()
}

/// The first layer of every run.
fn first_of_runs(runs: &[u32]) -> Vec<usize> {
    (0..runs.len()).filter(|&index| index == 0 || runs[index - 1] != runs[index]).collect()
}

fn vocabulary_of(schedule: &str) -> Vocabulary {
    match schedule {
        name if name.ends_with("-vocab1") => Vocabulary::TwoBarriers,
        name if name.ends_with("-vocab2") => Vocabulary::OneBarrier,
        name if name.ends_with("-interlaced") => Vocabulary::Interlaced,
        _ => Vocabulary::Whole,
    }
}
