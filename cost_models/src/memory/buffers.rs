//! Workspaces, shared gradient buffers, masks and communication buffers.

use super::context::MemoryContext;
use crate::model::{Attention, Layer, Role, Sharding, Weight};

const MIB: f64 = 1_048_576.0;

impl MemoryContext<'_> {
    /// Workspaces of cuBLAS and Transformer Engine, and buffers that exist once.
    ///
    /// cuBLAS documents a default workspace of 32 MiB on Hopper and later, else 4 x 2 MiB + 8 x 16 KiB; Transformer Engine
    /// `module/base.py` takes 32 MiB on Hopper and later, else 4 MiB, and one more for each of its four streams of
    /// grouped products.
    #[must_use]
    pub fn workspace_bytes(&self) -> f64 {
        let traits = &self.traits().workspace;
        if self.gpu.vendor != "nvidia" {
            return traits.other_bytes;
        }
        let hopper = self.gpu.compute_capability.is_some_and(|c| c >= 90);
        let cublas_default = if hopper { 32.0 * MIB } else { 8.125 * MIB };
        let cublas = traits.cublas_bytes.unwrap_or(cublas_default) * f64::from(traits.cublas_handles);
        let engine = if hopper { 32.0 * MIB } else { 4.0 * MIB };
        let streams = if self.model.is_moe() && self.traits().experts.grouped_gemm { 5.0 } else { 1.0 };
        let engine = if traits.transformer_engine { engine * streams } else { 0.0 };
        cublas + engine + traits.other_bytes + self.score_buffer() + self.gather_buffer()
    }

    /// Megatron's `local` attention keeps one buffer of scores: 2 (a / t) b s^2 bytes.
    fn score_buffer(&self) -> f64 {
        if !self.traits().activations.score_buffer {
            return 0.0;
        }
        let heads = self.model.blocks().map(|(_, block)| match block.attention {
            Attention::Standard { heads, .. } | Attention::Latent { heads, .. } => heads as f64,
            Attention::Linear { .. } => 0.0,
        });
        2.0 * heads.fold(0.0, f64::max) / self.tp * self.batch() * self.seq() * self.seq()
    }

    /// Megatron `GlobalMemoryBuffer`: the all-gathered input of a sequence-parallel layer.
    fn gather_buffer(&self) -> f64 {
        let used = self.traits().workspace.gather_buffer && self.sp > 1.0;
        if used { self.gathered_residual() } else { 0.0 }
    }

    /// The data loader's attention mask, one byte for each pair of tokens.
    #[must_use]
    pub fn mask_bytes(&self) -> f64 {
        let made = self.traits().workspace.attention_mask;
        if made { self.batch() * self.seq() * self.seq() } else { 0.0 }
    }

    /// Local weight shapes of a layer for which Transformer Engine keeps a 16-bit weight gradient once per distinct shape
    /// (`get_dummy_wgrad`); queries, keys and values are one weight.
    pub(super) fn shared_gradient_shapes(&self, layer: &Layer) -> Vec<[u64; 2]> {
        if !self.traits().workspace.shared_weight_gradients {
            return Vec::new();
        }
        match layer {
            Layer::Head => vec![[self.model.hidden, self.local_vocab() as u64]],
            _ => self.shapes(layer),
        }
    }

    /// Local shapes of the matrices of a layer that tensor parallelism's linear layers hold.
    fn shapes(&self, layer: &Layer) -> Vec<[u64; 2]> {
        let weights = layer.weights(self.model);
        let matrices = || weights.iter().filter(|w| w.role == Role::Matrix && w.name != "router");
        let fused = |w: &&Weight| matches!(w.name, "query" | "key" | "value" | "output-gate");
        let fused_width: u64 = matrices().filter(fused).map(|w| self.local_elements(w) / w.rows.max(1)).sum();
        let mut shapes: Vec<[u64; 2]> = matrices()
            .filter(|w| !fused(w))
            .map(|w| [w.rows, self.local_elements(w) / w.rows.max(1)])
            .map(|[rows, cols]| [rows.min(cols), rows.max(cols)])
            .collect();
        if fused_width > 0 {
            shapes.push([self.model.hidden.min(fused_width), self.model.hidden.max(fused_width)]);
        }
        shapes
    }

    /// Elements of one of the weight's tensors on a rank.
    fn local_elements(&self, weight: &Weight) -> u64 {
        let tensors = match weight.sharding {
            Sharding::Expert | Sharding::ExpertReplicated => {
                (weight.count as f64 / f64::from(self.parallel.ep)).max(1.0)
            }
            _ => weight.count as f64,
        };
        (self.shards.held(weight, self.model) / tensors) as u64
    }

    /// Bytes of a gathered parameter, and of a whole gradient before it is reduced.
    #[must_use]
    pub fn unit_bytes(&self) -> [f64; 2] {
        [self.formats.gathered_parameter(), self.formats.full_gradient()]
    }

    /// Boundary tensors of a pipeline, of the kind a neighbour sends or receives.
    #[must_use]
    pub fn boundary_bytes(&self) -> f64 {
        if self.parallel.pp > 1 { self.traits().pipeline.boundary_tensors * self.residual() } else { 0.0 }
    }

    /// Fully sharded parameters: the gathered parameters and full gradients of the largest units, for `units` parameters
    /// each. A pipeline keeps its stages gathered between microbatches.
    #[must_use]
    pub fn gathered_bytes(&self, units: &[f64]) -> f64 {
        let sharded = self.parallel.dp_shard > 1 || self.parallel.cp > 1;
        if !self.shards.gathers_parameters() || !sharded {
            return 0.0;
        }
        let traits = &self.traits().state;
        let largest = units.iter().copied().fold(0.0, f64::max);
        let whole: f64 = units.iter().sum();
        let parameters = if self.parallel.pp > 1 && !traits.whole_gradients {
            whole
        } else {
            (traits.gathered_units * largest).max(traits.live_parameters).min(whole)
        };
        let gradients = (traits.gathered_gradient_units * largest).min(whole);
        self.formats.gathered_parameter() * parameters + self.formats.full_gradient() * gradients
    }
}
