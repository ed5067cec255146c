//! What a block holds when some of its modules are repeated and some wait in host memory.
//!
//! What a module moves is what autograd saves inside it, by reading Megatron-core's modules (`transformer/attention.py`,
//! `multi_latent_attention.py`, `transformer_layer.py`, `moe/experts.py`) with Transformer Engine's layers. Norms are fused with the product
//! behind them, but for those in front of latent attention and of routed experts. The output of the core attention is saved
//! twice, by the core and by the projection, as one tensor: each copies it, and it is free only when both have.

use super::attention::{self, AttentionSaved, CoreTensors};
use super::context::MemoryContext;
use super::mlp::{self, MlpSaved};
use crate::model::{Attention, Block, Mlp};
use crate::modules::{Module, ModuleChoice};
use cluster_profiles::Bytes;

/// Bytes of a layer per microbatch under a choice of modules.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ModuleBytes {
    /// Saved on the device from forward to backward.
    pub kept: Bytes,
    /// Saved, and in host memory in between.
    pub moved: Bytes,
    /// Copied out, and in again: what is moved, and what two modules copy each.
    pub copied: Bytes,
    /// Copies each way, one for every module.
    pub copies: u8,
    /// What is dropped and made again.
    pub replayed: Bytes,
}

/// Elements of the smallest tensor that Megatron-core moves (`min_offloaded_tensor_size`).
const LEAST_ELEMENTS: f64 = 1024.0 * 1024.0;

/// The parts of a block that a choice looks at.
struct Parts {
    latent: bool,
    standard: bool,
    routed: bool,
    residual: f64,
    norm_output: f64,
    attention: AttentionSaved,
    core: CoreTensors,
    mlp: MlpSaved,
    experts: MlpSaved,
    /// Rows in front of the experts' first product.
    rows: f64,
}

/// Bytes freed and bytes copied.
#[derive(Clone, Copy, Default)]
struct Moved {
    freed: f64,
    copied: f64,
}

impl MemoryContext<'_> {
    /// The bytes of a block that would save `saved` with all kept.
    pub(super) fn module_bytes(&self, block: &Block, choice: ModuleChoice, saved: f64) -> ModuleBytes {
        let parts = self.parts(block);
        let replayed: f64 = choice.repeated.iter().map(|module| parts.dropped(module)).sum();
        let moves = choice.moved.iter().map(|module| self.moved(&parts, choice, module));
        let (mut sum, mut copies) = (Moved::default(), 0);
        for moved in moves.filter(|moved| moved.copied > 0.0) {
            sum.freed += moved.freed;
            sum.copied += moved.copied;
            copies += 1;
        }
        let replayed = replayed.min(saved);
        let moved = sum.freed.min(saved - replayed);
        ModuleBytes {
            kept: Bytes(saved - replayed - moved),
            moved: Bytes(moved),
            copied: Bytes(sum.copied),
            copies,
            replayed: Bytes(replayed),
        }
    }

    fn parts(&self, block: &Block) -> Parts {
        Parts {
            latent: matches!(block.attention, Attention::Latent { .. }),
            standard: matches!(block.attention, Attention::Standard { .. }),
            routed: matches!(block.mlp, Mlp::Moe { .. }),
            residual: self.residual(),
            norm_output: self.input_element() * self.tokens * self.hidden / self.sp,
            attention: attention::saved(self, &block.attention),
            core: attention::core_tensors(self, &block.attention),
            mlp: mlp::saved(self, &block.mlp),
            experts: mlp::routed(self, &block.mlp),
            rows: mlp::expert_rows(self, &block.mlp),
        }
    }

    /// What a module moves of a block that has it.
    fn moved(&self, parts: &Parts, choice: ModuleChoice, module: Module) -> Moved {
        let tensors = |sizes: &[f64]| -> f64 {
            sizes.iter().filter(|bytes| **bytes >= LEAST_ELEMENTS * self.element()).sum()
        };
        let alike = |sizes: &[f64]| Moved { freed: tensors(sizes), copied: tensors(sizes) };
        let repeats = |module| choice.repeated.has(module);
        let core = &parts.core;
        match module {
            Module::AttnNorm if parts.latent => alike(&[parts.residual]),
            Module::QkvLinear if parts.standard => {
                alike(&[parts.residual, parts.norm_output, core.norm_inputs])
            }
            Module::QkvLinear if parts.latent => {
                let norm = if repeats(Module::Layernorm) { 0.0 } else { parts.norm_output };
                let latents = if repeats(Module::MlaUpProj) { 0.0 } else { parts.attention.latent_outputs };
                alike(&[norm, parts.attention.latents, latents])
            }
            Module::CoreAttn if !repeats(Module::CoreAttn) => {
                let inputs = if parts.latent && repeats(Module::MlaUpProj) {
                    [0.0; 3]
                } else {
                    [core.query, core.key, core.value]
                };
                let freed = tensors(&inputs) + tensors(&[core.kernel_copy, core.scores]);
                Moved { freed, copied: freed + tensors(&[core.output]) }
            }
            Module::AttnProj => alike(&[core.output]),
            Module::MlpNorm if parts.routed => alike(&[parts.residual]),
            Module::ExpertFc1 if parts.routed && !repeats(Module::Moe) => alike(&[parts.rows]),
            Module::MoeAct if parts.routed && !repeats(Module::Moe) => alike(&[parts.experts.up]),
            _ => Moved::default(),
        }
    }
}

impl Parts {
    /// What repeating a module drops of a block that has it.
    fn dropped(&self, module: Module) -> f64 {
        let own_norms = f64::from(u8::from(self.latent) + u8::from(self.routed));
        match module {
            Module::CoreAttn => self.attention.scores,
            Module::Layernorm => own_norms * self.norm_output,
            Module::MlaUpProj if self.latent => {
                self.attention.query_key_value + self.attention.latent_outputs
            }
            // The norm in front is a part of its first product.
            Module::Mlp if !self.routed => self.mlp.total() + self.norm_output,
            Module::Moe if self.routed => self.mlp.total(),
            Module::MoeAct if self.routed => self.experts.activated,
            Module::SharedExperts if self.routed => self.mlp.shared,
            _ => 0.0,
        }
    }
}
