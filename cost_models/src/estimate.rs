//! What is predicted: step time by kind, memory by term and pipeline rank, and what the numbers rest on.

use cluster_profiles::{Bytes, Seconds};
use serde::{Deserialize, Serialize};

/// The prediction for one training run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Duration of one optimizer step.
    pub step_time_seconds: Seconds,
    /// Where it goes, on the busiest pipeline rank; the parts add up to the whole.
    pub time_seconds: TimeBreakdown,
    /// Idle share of the pipeline: idle / (ranks x makespan).
    pub bubble_fraction: f64,
    /// Model FLOPs (causal attention, no recompute) over the peak rate of the GPUs in use.
    pub model_flops_utilization: f64,
    /// Tokens per second and GPU.
    pub tokens_per_second_per_gpu: f64,
    /// Memory of every pipeline rank.
    pub memory: Vec<RankMemory>,
    /// Whether every rank stays below the limit.
    pub fits: bool,
    /// What was assumed or inferred, and what each part rests on.
    pub assumptions: Vec<Assumption>,
}

/// Seconds of a step by kind.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct TimeBreakdown {
    /// Matrix products of the linear layers, the experts and the head.
    pub matmul: Seconds,
    /// Core attention.
    pub attention: Seconds,
    /// Norms, activations, rotary, permutation, casts, loss.
    pub other_kernels: Seconds,
    /// Exposed tensor-parallel collectives.
    pub tp: Seconds,
    /// Exposed context-parallel traffic.
    pub cp: Seconds,
    /// Exposed expert dispatch and combine.
    pub ep: Seconds,
    /// Exposed pipeline sends.
    pub pp: Seconds,
    /// Pipeline bubble and waiting for slower stages.
    pub bubble: Seconds,
    /// Exposed gradient reduction and parameter gathering.
    pub dp: Seconds,
    /// Optimizer step.
    pub optimizer: Seconds,
    /// Host-bound time and fixed cost per step.
    pub host: Seconds,
}

impl TimeBreakdown {
    /// Name and seconds of every part, in order.
    #[must_use]
    pub fn parts(&self) -> [(&'static str, Seconds); 11] {
        [
            ("matmul", self.matmul),
            ("attention", self.attention),
            ("other_kernels", self.other_kernels),
            ("tp", self.tp),
            ("cp", self.cp),
            ("ep", self.ep),
            ("pp", self.pp),
            ("bubble", self.bubble),
            ("dp", self.dp),
            ("optimizer", self.optimizer),
            ("host", self.host),
        ]
    }

    /// The whole step.
    #[must_use]
    pub fn total(&self) -> Seconds {
        self.parts().into_iter().map(|(_, seconds)| seconds).sum()
    }
}

/// Bytes on the GPUs of one pipeline rank at its peak.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct RankMemory {
    /// Pipeline rank.
    pub rank: u32,
    /// Largest sum of all terms: what the device must hold, reserve included.
    pub peak_bytes: Bytes,
    /// What exists before the forward: parameters, gradients, optimizer.
    pub static_bytes: Bytes,
    /// Peak without the reserve: what the framework's allocator counts as allocated.
    pub allocated_bytes: Bytes,
    /// Parameters.
    pub parameters_bytes: Bytes,
    /// Gradients.
    pub gradients_bytes: Bytes,
    /// Optimizer state.
    pub optimizer_bytes: Bytes,
    /// Saved activations of all microbatches in flight.
    pub activations_bytes: Bytes,
    /// Logits and loss workspace.
    pub logits_bytes: Bytes,
    /// Communication buffers and gathered parameters.
    pub communication_bytes: Bytes,
    /// Library workspaces and transients of one layer.
    pub workspace_bytes: Bytes,
    /// Allocator slack, context and framework.
    pub reserve_bytes: Bytes,
}

impl RankMemory {
    /// Name and bytes of every term, in order.
    #[must_use]
    pub fn terms(&self) -> [(&'static str, Bytes); 8] {
        [
            ("parameters", self.parameters_bytes),
            ("gradients", self.gradients_bytes),
            ("optimizer", self.optimizer_bytes),
            ("activations", self.activations_bytes),
            ("logits", self.logits_bytes),
            ("communication", self.communication_bytes),
            ("workspace", self.workspace_bytes),
            ("reserve", self.reserve_bytes),
        ]
    }
}

/// One thing a prediction rests on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Assumption {
    /// What.
    pub what: String,
    /// `measured`, `interpolated`, `extrapolated`, `analytic`, `assumed`.
    pub basis: String,
}
