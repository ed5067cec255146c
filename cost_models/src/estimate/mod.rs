//! What is predicted: step time by kind, memory by term and pipeline rank, and what the numbers rest on.

mod basis;
mod kinds;
pub mod published;

pub use basis::{BASES, BasisShare};
pub use kinds::KindEstimate;
pub use published::{Published, Support};

use crate::memory::{MemoryError, rank_memory};
use crate::offload::hosts_have_room;
use crate::run::TrainingRun;
use crate::shares::WEIGHTING;
use crate::sites::Sites;
use crate::step::{PreparedSchedule, StageCosts, StepError, StepTime, step_time_of};
use cluster_profiles::{Bytes, Gpu, Seconds};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The prediction for one training run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Duration of one optimizer step.
    pub step_time_seconds: Seconds,
    /// Step times that nine in ten runs of this kind fall between, by the errors of published runs that a fit had not seen.
    pub step_time_interval_seconds: [Seconds; 2],
    /// What a choice between layouts adds to the step time of this one because its memory is near the edge.
    pub edge_penalty_seconds: Seconds,
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
    /// The ranks by kind of GPU where their micro batches or their shards of state differ; `memory` is that of the kind with the least room.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<KindEstimate>,
    /// Whether every rank stays below the limit.
    pub fits: bool,
    /// Share of the step time by what it rests on, firmest first.
    pub basis: Vec<BasisShare>,
    /// Published runs like this one that predictions were compared with.
    #[serde(default)]
    pub published: Support,
    /// What a user should know before running this, such as memory near its limit.
    pub warnings: Vec<String>,
    /// What was assumed or inferred, and what each part rests on.
    pub assumptions: Vec<Assumption>,
}

/// A run that cannot be estimated.
#[derive(Debug, Error)]
pub enum EstimateError {
    /// Its time cannot be given.
    #[error(transparent)]
    Time(#[from] StepError),
    /// Its memory cannot be given.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

impl EstimateError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Time(error) => error.hint(),
            Self::Memory(error) => Some(error.hint()),
        }
    }
}

/// What is added to the step at the very edge of memory, relative. Allocators that have to return cached blocks and ask
/// again slow a step by anything from nothing to several times (published: 225 to 33 TFLOP/s at 79.7 of 80 GB, 76 %
/// slower at 91 of 96 GiB); most runs there lose nothing, so the step time itself is left alone.
const EDGE_PENALTY: f64 = 0.5;

/// Predicts time and memory of a run.
///
/// # Errors
/// [`EstimateError`] if the layout is not one that can run.
pub fn estimate(run: &TrainingRun) -> Result<Estimate, EstimateError> {
    let stages = StageCosts::of(run)?;
    let step = step_time_of(run, &stages, &PreparedSchedule::of(run, &stages)?)?;
    let kinds = kinds::kinds(run, stages.sites.as_deref())?;
    Ok(assembled(run, &stages, &step, rank_memory(run)?, kinds))
}

/// What follows from a run's step and memory.
pub(crate) fn assembled(
    run: &TrainingRun,
    stages: &StageCosts,
    step: &StepTime,
    memory: Vec<RankMemory>,
    kinds: Vec<KindEstimate>,
) -> Estimate {
    let edge = if kinds.is_empty() {
        Edge::of(run, stages.sites.as_deref(), &memory)
    } else {
        Edge::of_kinds(run, &kinds)
    };
    let weighting = run.parallel.has_unequal_micro_batches().then(|| WEIGHTING.to_owned());
    let hosts_fit = hosts_fit(run, &memory);
    let host_warning = (!hosts_fit).then(|| host_warning(run, &memory));
    let time = step.breakdown;
    let total = time.total();
    let bases = basis::bases(run);
    let basis = basis::shares(&time, &bases);
    let gpus = run.parallel.world_size() as f64;
    let flops = run.model.flops_per_token(run.workload.seq_len, true).training() * run.workload.tokens();
    let peak = peak_rate(run, gpus);
    let half = Published::table().half_width(run);
    Estimate {
        step_time_seconds: total,
        step_time_interval_seconds: [total / (1.0 + half), total * (1.0 + half + edge.penalty)],
        edge_penalty_seconds: total * edge.penalty,
        time_seconds: time,
        bubble_fraction: step.bubble_fraction,
        model_flops_utilization: flops / (total.get() * peak),
        tokens_per_second_per_gpu: run.workload.tokens() / (total.get() * gpus),
        fits: edge.fits && hosts_fit,
        memory,
        kinds,
        basis,
        published: Published::table().support(run),
        warnings: edge.warning.into_iter().chain(host_warning).chain(weighting).collect(),
        assumptions: bases
            .into_iter()
            .filter(|(kind, ..)| {
                time.parts().iter().any(|(part, seconds)| part == kind && seconds.get() > 0.0)
            })
            .map(|(kind, basis, from)| Assumption {
                what: format!("{kind}: {from}"),
                basis: basis.to_owned(),
            })
            .collect(),
    }
}

/// Whether what waits in host memory has room there.
#[must_use]
pub fn hosts_fit(run: &TrainingRun, memory: &[RankMemory]) -> bool {
    let in_host: Vec<f64> = memory.iter().map(|rank| rank.host_bytes.get()).collect();
    hosts_have_room(run.cluster, run.parallel, &in_host)
}

fn host_warning(run: &TrainingRun, memory: &[RankMemory]) -> String {
    let most = memory.iter().map(|rank| rank.host_bytes).fold(Bytes::ZERO, Bytes::max);
    let room = run.cluster.groups.iter().filter_map(|group| group.node.memory).reduce(Bytes::min);
    format!(
        "activations of up to {:.1} GiB per GPU wait in host memory, and a host has {:.1} GiB for all its GPUs",
        most.as_gib(),
        room.unwrap_or(Bytes::ZERO).as_gib()
    )
}

/// Peak rate of all GPUs in use together, in FLOP/s.
fn peak_rate(run: &TrainingRun, gpus: f64) -> f64 {
    let rate = |gpu: &Gpu| gpu.peak_rate(run.workload.precision).get();
    if run.cluster.groups.iter().all(|group| group.gpu.name == run.cluster.gpu().name) {
        return rate(run.cluster.gpu()) * gpus;
    }
    let groups = run.cluster.groups.iter();
    groups.map(|group| rate(&group.gpu) * f64::from(group.nodes) * f64::from(group.node.gpus)).sum()
}

/// How near the fullest rank is to what its GPU holds.
struct Edge {
    fits: bool,
    penalty: f64,
    warning: Option<String>,
}

impl Edge {
    fn of(run: &TrainingRun, sites: Option<&Sites>, memory: &[RankMemory]) -> Self {
        let capacities = run.cluster.groups.iter().map(|group| group.gpu.memory.get());
        let smallest = capacities.fold(f64::INFINITY, f64::min);
        let of_rank = |rank: usize| match sites.and_then(|sites| sites.list.get(rank)) {
            Some(site) => run.cluster.groups[site.smallest].gpu.memory.get(),
            None => smallest,
        };
        let ranks = memory.iter().map(|rank| (rank.peak_bytes.get(), of_rank(rank.rank as usize)));
        Self::nearest(run, ranks, smallest)
    }

    fn of_kinds(run: &TrainingRun, kinds: &[KindEstimate]) -> Self {
        let capacity = |kind: &KindEstimate| kind.room(run, Bytes(f64::INFINITY))[0].get();
        let ranks = kinds.iter().map(|kind| (kind.memory.peak_bytes.get(), capacity(kind)));
        Self::nearest(run, ranks, 0.0)
    }

    /// Of peaks and capacities those that are nearest to each other; an empty GPU of `otherwise` bytes if there are none.
    fn nearest(run: &TrainingRun, ranks: impl Iterator<Item = (f64, f64)>, otherwise: f64) -> Self {
        let reserve = &run.runtime.memory.reserve;
        let nearest = ranks.reduce(|a, b| {
            let room = |(peak, capacity): (f64, f64)| reserve.headroom_deviations(peak, capacity);
            if room(b) < room(a) { b } else { a }
        });
        let (fullest, capacity) = nearest.unwrap_or((0.0, otherwise));
        let headroom = reserve.headroom_deviations(fullest, capacity);
        let closeness = (1.0 - headroom).clamp(0.0, 1.0);
        // A rank that needs more than there is does not fit: nothing to warn of.
        let warning = (closeness > 0.0 && fullest <= capacity).then(|| {
            format!(
                "memory is within {:.1} GiB of the device's {:.1} GiB: the allocator may have to free and retry, \
                 which can slow a step several times",
                Bytes(capacity - fullest).as_gib(),
                Bytes(capacity).as_gib()
            )
        });
        Self { fits: fullest <= reserve.default_limit(capacity), penalty: EDGE_PENALTY * closeness, warning }
    }
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
    /// Saved activations of all microbatches in flight in the memory of the GPU's host; not a part of the peak.
    #[serde(default, skip_serializing_if = "is_none")]
    pub host_bytes: Bytes,
}

/// Whether there is nothing to tell.
fn is_none(bytes: &Bytes) -> bool {
    bytes.get() == 0.0
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
