//! What every memory formula of a layout shares.

use super::error::MemoryError;
use super::modules::Modules;
use crate::model::{Layer, ModelSpec};
use crate::parallel::ParallelConfig;
use crate::run::TrainingRun;
use crate::runtime::{MemoryTraits, Runtime};
use crate::sharding::{StateFormats, StateShards};
use crate::workload::Workload;
use cluster_profiles::{Cluster, Gpu, MeasuredLayer};

/// A model, cluster, workload, runtime and layout, with the sizes memory formulas use. It knows no stages: a search makes
/// one context per layout and asks it for every stage it considers.
#[derive(Debug, Clone, Copy)]
pub struct MemoryContext<'a> {
    /// The model.
    pub model: &'a ModelSpec,
    /// The GPU kind with the least memory.
    pub gpu: &'a Gpu,
    /// One optimizer step.
    pub workload: &'a Workload,
    /// The engine.
    pub runtime: &'a Runtime,
    /// The degrees.
    pub parallel: &'a ParallelConfig,
    pub(super) shards: StateShards,
    pub(super) formats: StateFormats,
    /// Layers measured on the cluster.
    pub(super) measured: &'a [MeasuredLayer],
    /// What selective recompute means.
    pub(super) selective: Modules,
    /// Tokens of a microbatch on a rank, T = s b / cp.
    pub(super) tokens: f64,
    /// Tensor-parallel degree, t.
    pub(super) tp: f64,
    /// t with sequence parallelism, else 1.
    pub(super) sp: f64,
    /// Width of the residual stream, h.
    pub(super) hidden: f64,
}

impl<'a> MemoryContext<'a> {
    /// Checks the degrees and sizes.
    ///
    /// # Errors
    /// [`MemoryError::Faults`] naming every degree or size that is 0.
    pub fn new(
        model: &'a ModelSpec,
        cluster: &'a Cluster,
        workload: &'a Workload,
        runtime: &'a Runtime,
        parallel: &'a ParallelConfig,
    ) -> Result<Self, MemoryError> {
        MemoryError::check(model, cluster, workload, parallel)?;
        let tokens = workload.seq_len as f64 * parallel.micro_batch_size as f64 / f64::from(parallel.cp);
        Ok(Self {
            model,
            gpu: smallest_gpu(cluster),
            workload,
            runtime,
            parallel,
            shards: StateShards::new(parallel, &runtime.memory),
            formats: StateFormats::new(workload, runtime),
            measured: &cluster.layers,
            selective: Modules::of(runtime),
            tokens,
            tp: f64::from(parallel.tp),
            sp: if parallel.sequence_parallel { f64::from(parallel.tp) } else { 1.0 },
            hidden: model.hidden as f64,
        })
    }

    /// The context of a run.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn of(run: &TrainingRun<'a>) -> Result<Self, MemoryError> {
        Self::new(run.model, run.cluster, run.workload, run.runtime, run.parallel)
    }

    pub(super) fn traits(&self) -> &'a MemoryTraits {
        &self.runtime.memory
    }

    /// One 16-bit tensor of the residual stream, as tensor parallelism leaves it: 2 T h / sp bytes (4 T h / sp in an
    /// fp32 run).
    pub(super) fn residual(&self) -> f64 {
        self.element() * self.tokens * self.hidden / self.sp
    }

    /// The same tensor whole, gathered from all tensor-parallel ranks.
    pub(super) fn gathered_residual(&self) -> f64 {
        self.element() * self.tokens * self.hidden
    }

    /// Bytes of an activation element.
    pub(super) fn element(&self) -> f64 {
        if self.workload.precision == cluster_profiles::Precision::Fp32 { 4.0 } else { 2.0 }
    }

    /// Bytes of a linear layer's saved input element.
    pub(super) fn input_element(&self) -> f64 {
        let low = self.workload.precision.is_low() && self.traits().activations.fp8_saved_inputs;
        if low { 1.0 } else { self.element() }
    }

    pub(super) fn layer(&self, index: usize) -> Option<&'a Layer> {
        self.model.layers.get(index)
    }

    /// Sequence length s.
    pub(super) fn seq(&self) -> f64 {
        self.workload.seq_len as f64
    }

    /// Context-parallel degree c.
    pub(super) fn cp(&self) -> f64 {
        f64::from(self.parallel.cp)
    }

    /// Sequences of a microbatch, b.
    pub(super) fn batch(&self) -> f64 {
        self.parallel.micro_batch_size as f64
    }
}

/// The GPU kind with the least memory: the one that binds when all run the same layout.
fn smallest_gpu(cluster: &Cluster) -> &Gpu {
    let gpus = cluster.groups.iter().map(|group| &group.gpu);
    gpus.min_by(|a, b| a.memory.get().total_cmp(&b.memory.get())).unwrap_or_else(|| cluster.gpu())
}
