//! The bytes of one layer on one rank.

use super::attention;
use super::chosen::ModuleBytes;
use super::context::MemoryContext;
use super::mlp::{self, MlpSaved};
use super::modules::Modules;
use crate::layer_cost::measured::is_of;
use crate::model::{Block, Layer, Sharding, Weight};
use crate::parallel::Recompute;
use crate::runtime::RecomputeModule;
use crate::sharding::StateBytes;
use cluster_profiles::{Bytes, MeasuredLayer};

/// What one layer needs on one rank, whatever stage it is in: a row of the table a search works on.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LayerMemory {
    /// Its parameters, gradients and optimizer state.
    pub state: StateBytes,
    /// Saved for the backward per microbatch, without recompute.
    pub saved: Bytes,
    /// Saved per microbatch with the runtime's selective recompute.
    pub saved_selective: Bytes,
    /// Saved per microbatch with full recompute.
    pub saved_full: Bytes,
    /// What only exists while the layer runs.
    pub transient: Bytes,
    /// The same when the layer is recomputed first: all it would have saved.
    pub transient_recomputed: Bytes,
    /// The same bytes by module, under a choice of modules.
    pub modules: ModuleBytes,
    /// Parameters of its gathered unit (fully sharded parameters): on a rank, not divided by data parallelism.
    pub unit_parameters: f64,
}

impl LayerMemory {
    /// Saved bytes per microbatch under `recompute`, wherever they wait; for [`Recompute::Full`] of a layer that is among the recomputed.
    #[must_use]
    pub fn saved_bytes(&self, recompute: Recompute) -> Bytes {
        match recompute {
            Recompute::None | Recompute::Offload { .. } => self.saved,
            Recompute::Selective => self.saved_selective,
            Recompute::Full { .. } => self.saved_full,
            Recompute::Modules(_) => self.modules.kept + self.modules.moved,
        }
    }

    /// Transient bytes under `recompute`.
    #[must_use]
    pub fn transient_bytes(&self, recompute: Recompute) -> Bytes {
        match recompute {
            Recompute::None | Recompute::Offload { .. } => self.transient,
            Recompute::Selective => self.transient + self.replayed(),
            Recompute::Full { .. } => self.transient_recomputed,
            Recompute::Modules(_) => self.transient + self.modules.replayed,
        }
    }

    /// What selective recompute makes again, for one layer at a time.
    fn replayed(&self) -> Bytes {
        self.saved - self.saved_selective
    }
}

impl MemoryContext<'_> {
    /// The bytes of layer `index` of the model; nothing for an index beyond it.
    #[must_use]
    pub fn layer_memory(&self, index: usize) -> LayerMemory {
        let Some(layer) = self.layer(index) else { return LayerMemory::default() };
        let mut memory = match layer {
            Layer::Block(block) => self.block_memory(block),
            Layer::Mtp(block) => self.mtp_memory(block),
            Layer::Embedding => self.embedding_memory(),
            Layer::Custom(custom) => self.custom_memory(custom),
            Layer::FinalNorm | Layer::Head => LayerMemory::default(),
        };
        if let Some(saved) = self.measured_saved(layer) {
            memory.saved = saved;
            memory.saved_selective = memory.saved_selective.min(saved);
        }
        if !matches!(layer, Layer::Block(_) | Layer::Mtp(_)) {
            memory.modules = ModuleBytes { kept: memory.saved, ..ModuleBytes::default() };
        }
        self.add_weights(&mut memory, layer, |_| true);
        memory
    }

    /// What a block was seen to save at these degrees, in an engine of such blocks; by tokens for other lengths and batches.
    fn measured_saved(&self, layer: &Layer) -> Option<Bytes> {
        let traits = &self.traits().activations;
        if !traits.as_probed || self.sp > 1.0 || !matches!(layer, Layer::Block(_)) {
            return None;
        }
        let tokens = |m: &MeasuredLayer| f64::from(m.seq_len) * f64::from(m.micro_batch) / f64::from(m.cp);
        let here = self.measured.iter().filter(|m| {
            (m.tp, m.cp) == (self.parallel.tp, self.parallel.cp)
                && (m.experts.is_none() || m.ep == self.parallel.ep)
                && is_of(self.model, self.workload.precision, layer, m)
        });
        let apart = |m: &MeasuredLayer| (tokens(m) / self.tokens).ln().abs();
        let nearest = here.filter(|m| m.saved.is_some()).min_by(|a, b| apart(a).total_cmp(&apart(b)))?;
        nearest.saved.map(|saved| saved * (self.tokens / tokens(nearest)))
    }

    fn add_weights(&self, memory: &mut LayerMemory, layer: &Layer, keep: fn(&Weight) -> bool) {
        let traits = &self.traits().state;
        let kept = |share: f64| 1.0 - share.clamp(0.0, 1.0);
        let offload = traits.optimizer_offload.clamp(0.0, 1.0);
        for weight in layer.weights(self.model).iter().filter(|weight| keep(weight)) {
            let state = self.formats.bytes(weight, self.model, &self.shards, offload);
            memory.state += StateBytes {
                parameters: state.parameters * kept(traits.parameter_offload),
                gradients: state.gradients * kept(traits.gradient_offload),
                ..state
            };
            memory.unit_parameters += self.shards.held(weight, self.model);
        }
    }

    /// The copy of the embedding that a last stage without embedding needs for a tied head or for multi-token prediction.
    #[must_use]
    pub fn embedding_copy(&self) -> LayerMemory {
        let mut memory = LayerMemory::default();
        self.add_weights(&mut memory, &Layer::Embedding, is_table);
        memory
    }

    /// State of the embedding table and of the head.
    pub(super) fn vocabulary_states(&self) -> (StateBytes, StateBytes) {
        let mut head = LayerMemory::default();
        self.add_weights(&mut head, &Layer::Head, is_table);
        (self.embedding_copy().state, head.state)
    }

    fn block_memory(&self, block: &Block) -> LayerMemory {
        let attention = attention::saved(self, &block.attention);
        let mlp = mlp::saved(self, &block.mlp);
        let stream = self.stream(block);
        let saved = stream.kept(Modules::NONE) + attention.kept(Modules::NONE) + mlp.total();
        let selective = if self.selective.contains(RecomputeModule::PerOperator) {
            self.per_operator(&attention, &mlp)
        } else {
            stream.kept(self.selective) + attention.kept(self.selective) + mlp.kept(self.selective)
        };
        let transient = mlp::transient(self, &block.mlp);
        LayerMemory {
            saved: Bytes(saved),
            saved_selective: Bytes(selective.min(saved)),
            saved_full: Bytes(self.residual()),
            transient: Bytes(transient),
            transient_recomputed: Bytes(transient + saved),
            modules: match self.parallel.recompute {
                Recompute::Modules(choice) => self.module_bytes(block, choice, saved),
                _ => ModuleBytes::default(),
            },
            ..LayerMemory::default()
        }
    }

    /// Norms, residual stream and dropout masks of a block.
    fn stream(&self, block: &Block) -> StreamSaved {
        let traits = &self.traits().activations;
        let norms = f64::from(block.norms);
        let elements = self.tokens * self.hidden / self.sp;
        let unfused =
            if self.runtime.fused_norm { 0.0 } else { traits.unfused_norm_bytes * norms * elements };
        StreamSaved {
            norm_inputs: norms * self.residual() + unfused,
            norm_outputs: norms.min(2.0) * self.input_element() * elements,
            masks: if traits.hidden_dropout { 2.0 * elements } else { 0.0 },
            gathered: traits.gathered_inputs * self.gathered_residual(),
        }
    }

    /// torchtitan `per_op` selective activation checkpointing: the layer's input, the attention's output, and every second
    /// matrix product.
    fn per_operator(&self, attention: &attention::AttentionSaved, mlp: &MlpSaved) -> f64 {
        let kept = self.residual() + attention.output + attention.per_operator + mlp.per_operator;
        let compiled = self.runtime.facts.compiled.unwrap_or(true);
        kept * if compiled { 1.0 } else { self.traits().activations.eager_ratio }
    }

    /// DeepSeek-V3 (arXiv 2412.19437, section 2.2): besides its block, the norms of both inputs, their concatenation and the
    /// projection's output: 12 T h bytes.
    fn mtp_memory(&self, block: &Block) -> LayerMemory {
        let mut memory = self.block_memory(block);
        let extra = Bytes(6.0 * self.residual());
        memory.saved += extra;
        memory.saved_selective += extra;
        memory.saved_full += extra;
        memory.modules.kept += extra;
        memory
    }

    /// The embedding's output is the first block's input; only its dropout mask is extra.
    fn embedding_memory(&self) -> LayerMemory {
        let mask = if self.traits().activations.hidden_dropout { self.residual() / 2.0 } else { 0.0 };
        let saved = Bytes(mask);
        LayerMemory { saved, saved_selective: saved, saved_full: saved, ..LayerMemory::default() }
    }

    /// Stated bytes per sequence.
    fn custom_memory(&self, custom: &crate::model::CustomLayer) -> LayerMemory {
        let saved = Bytes(custom.activation_bytes * self.batch());
        let output = Bytes(custom.output_bytes * self.batch());
        LayerMemory {
            saved,
            saved_selective: saved,
            saved_full: saved.min(output),
            transient: output,
            transient_recomputed: output + saved,
            ..LayerMemory::default()
        }
    }
}

struct StreamSaved {
    norm_inputs: f64,
    norm_outputs: f64,
    masks: f64,
    gathered: f64,
}

impl StreamSaved {
    fn kept(&self, modules: Modules) -> f64 {
        let outputs = if modules.contains(RecomputeModule::Layernorm) { 0.0 } else { self.norm_outputs };
        let masks = if modules.contains(RecomputeModule::Dropout) { 0.0 } else { self.masks };
        self.norm_inputs + outputs + masks + self.gathered
    }
}

fn is_table(weight: &Weight) -> bool {
    weight.sharding == Sharding::Vocabulary
}
