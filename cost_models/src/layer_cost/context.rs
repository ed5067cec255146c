//! What the cost of a layer depends on besides the layer itself.

use super::memo::Memo;
use crate::comm::Fabric;
use crate::compute::Format;
use crate::model::ModelSpec;
use crate::order::RankGroup;
use crate::parallel::ParallelConfig;
use crate::run::TrainingRun;
use crate::runtime::{
    ContextExchange, CudaGraph, ExpertDispatcher, Runtime, Scaling, SharedTraits, TensorOverlap,
};
use crate::schedule::Schedule;
use crate::sites::{Site, speed};
use crate::workload::Workload;
use cluster_profiles::{Cluster, Gpu, GroupShape, Precision, Seconds};

/// Everything that the cost of a layer depends on: sizes of a microbatch on a rank, degrees, engine, GPU, links. It
/// does not depend on the number of microbatches, of pipeline ranks or of data-parallel ranks, but for whether there
/// is a pipeline at all and whether its schedule combines forwards with backwards; one table of layer costs serves all of
/// these.
#[derive(Debug, Clone, Copy)]
pub struct LayerContext<'a> {
    /// The model the layers belong to.
    pub model: &'a ModelSpec,
    /// The GPU kind.
    pub gpu: &'a Gpu,
    /// The engine.
    pub runtime: &'a Runtime,
    /// The links.
    pub fabric: Fabric<'a>,
    /// Format of the workload.
    pub precision: Precision,
    /// Format of the dense linear layers.
    pub linear_format: Format,
    /// Format of the experts.
    pub expert_format: Format,
    /// Tokens of a sequence.
    pub seq: f64,
    /// Sequences of a microbatch.
    pub batch: f64,
    /// Tokens of a microbatch on a rank: `s b / cp`.
    pub tokens: f64,
    /// Tensor-parallel degree.
    pub tp: f64,
    /// Context-parallel degree.
    pub cp: f64,
    /// Expert-parallel degree.
    pub ep: f64,
    /// Tensor-parallel degree of the experts.
    pub etp: f64,
    /// Ranks that share a token's residual stream: tp with sequence parallelism, else 1.
    pub sequence_shards: f64,
    /// The tensor-parallel group.
    pub tp_group: GroupShape,
    /// The context-parallel group.
    pub cp_group: GroupShape,
    /// The expert-parallel group.
    pub ep_group: GroupShape,
    /// The expert tensor-parallel group.
    pub etp_group: GroupShape,
    /// Tokens of the busiest expert rank over the mean.
    pub imbalance: f64,
    /// Whether there is more than one pipeline rank.
    pub pipelined: bool,
    /// Whether the schedule combines forwards with backwards, behind which expert traffic hides.
    pub combined: bool,
    /// What the pipeline rank runs on, where ranks differ.
    pub site: Option<&'a Site>,
    /// Costs known already, where many layers are costed.
    pub memo: Option<&'a Memo>,
}

impl<'a> LayerContext<'a> {
    /// The context of one layout.
    #[must_use]
    pub fn new(
        model: &'a ModelSpec,
        cluster: &'a Cluster,
        workload: &Workload,
        runtime: &'a Runtime,
        parallel: &ParallelConfig,
    ) -> Self {
        Self::at(model, cluster, workload, runtime, parallel, None)
    }

    /// The context of one layout on a pipeline rank that runs on a site of its own.
    #[must_use]
    pub fn at(
        model: &'a ModelSpec,
        cluster: &'a Cluster,
        workload: &Workload,
        runtime: &'a Runtime,
        parallel: &ParallelConfig,
        site: Option<&'a Site>,
    ) -> Self {
        let nodes = site.map(|site| &cluster.groups[site.group]);
        let gpu = nodes.map_or_else(|| slowest_gpu(cluster), |nodes| &nodes.gpu);
        let facts = &runtime.facts;
        let format = |low: Option<bool>| match low {
            Some(false) => Format::Bits16,
            _ => Format::of(workload.precision, gpu),
        };
        let (seq, batch) = (workload.seq_len as f64, parallel.micro_batch_size as f64);
        let domain = site.map_or_else(|| cluster.smallest_domain(), |site| site.domain);
        let group = |group: RankGroup| parallel.group_shape(group, domain);
        let fabric = match (nodes, site) {
            (Some(nodes), Some(site)) => {
                Fabric::of_group(cluster, nodes, &runtime.shared).with_intra(site.intra)
            }
            _ => Fabric::new(cluster, &runtime.shared),
        };
        Self {
            model,
            gpu,
            runtime,
            fabric,
            precision: workload.precision,
            linear_format: format(facts.low_precision_linears),
            expert_format: format(facts.low_precision_experts),
            seq,
            batch,
            tokens: seq * batch / f64::from(parallel.cp.max(1)),
            tp: f64::from(parallel.tp.max(1)),
            cp: f64::from(parallel.cp.max(1)),
            ep: f64::from(parallel.ep.max(1)),
            etp: f64::from(parallel.etp.max(1)),
            sequence_shards: if parallel.sequence_parallel { f64::from(parallel.tp.max(1)) } else { 1.0 },
            tp_group: group(RankGroup::Tp),
            cp_group: group(RankGroup::Cp),
            ep_group: group(RankGroup::Ep),
            etp_group: group(RankGroup::Etp),
            imbalance: workload.expert_imbalance.max(1.0),
            pipelined: parallel.pp > 1,
            combined: combines(&parallel.schedule),
            site,
            memo: None,
        }
    }

    /// The context of a run.
    #[must_use]
    pub fn of(run: &TrainingRun<'a>) -> Self {
        Self::new(run.model, run.cluster, run.workload, run.runtime, run.parallel)
    }

    /// The context of a run on a site.
    #[must_use]
    pub fn on(run: &TrainingRun<'a>, site: Option<&'a Site>) -> Self {
        Self::at(run.model, run.cluster, run.workload, run.runtime, run.parallel, site)
    }

    /// The links of the tensor-parallel groups.
    #[must_use]
    pub fn tp_fabric(&self) -> Fabric<'a> {
        self.fabric.over(self.site.and_then(|site| site.ways.tp))
    }

    /// The links of the context-parallel groups.
    #[must_use]
    pub fn cp_fabric(&self) -> Fabric<'a> {
        self.fabric.over(self.site.and_then(|site| site.ways.cp))
    }

    /// The links of the expert-parallel groups.
    #[must_use]
    pub fn ep_fabric(&self) -> Fabric<'a> {
        self.fabric.over(self.site.and_then(|site| site.ways.ep))
    }

    /// The links of the expert tensor-parallel groups.
    #[must_use]
    pub fn etp_fabric(&self) -> Fabric<'a> {
        self.fabric.over(self.site.and_then(|site| site.ways.etp))
    }

    /// Numbers that all engines share.
    #[must_use]
    pub fn shared(&self) -> &'a SharedTraits {
        &self.runtime.shared
    }

    /// Bytes of an activation between layers and in collectives.
    #[must_use]
    pub fn element_bytes(&self) -> f64 {
        if self.precision == Precision::Fp32 { 4.0 } else { 2.0 }
    }

    /// Width of the residual stream.
    #[must_use]
    pub fn hidden(&self) -> f64 {
        self.model.hidden as f64
    }

    /// Share of tensor-parallel traffic that stays exposed.
    #[must_use]
    pub fn tp_exposed(&self) -> f64 {
        let own = self.runtime.time.tp_exposed;
        match self.runtime.facts.overlap.tp {
            Some(TensorOverlap::UserBuffers) => own.min(self.shared().user_buffers_exposed),
            Some(TensorOverlap::AsyncTp) => own * self.shared().async_tp_exposed,
            Some(TensorOverlap::None) | None => own,
        }
    }

    /// Share of expert traffic that stays exposed: all of it unless the engine, or a combined pair of the schedule, hides it
    /// behind another microbatch.
    #[must_use]
    pub fn ep_exposed(&self) -> f64 {
        let overlapped = self.combined || self.runtime.facts.overlap.ep == Some(true);
        if overlapped { self.shared().expert_overlap_exposed } else { 1.0 }
    }

    /// How tokens travel to their experts; over an NVLink domain larger than a node, `DeepEP`'s place is `HybridEP`'s.
    #[must_use]
    pub fn dispatcher(&self) -> ExpertDispatcher {
        match self.runtime.dispatcher() {
            ExpertDispatcher::DeepEp if self.fabric.domain() > 8 => ExpertDispatcher::HybridEp,
            other => other,
        }
    }

    /// How keys and values meet the queries of other context-parallel ranks.
    #[must_use]
    pub fn context_exchange(&self) -> ContextExchange {
        self.runtime.context_exchange()
    }

    /// Cost of quantising, relative to one scale per tensor.
    #[must_use]
    pub fn cast_cost(&self) -> f64 {
        match self.runtime.facts.scaling {
            Some(Scaling::Rowwise) => self.shared().cast_rowwise,
            _ => 1.0,
        }
    }

    /// Host time of a dense layer's forward.
    #[must_use]
    pub fn dense_host(&self) -> Seconds {
        let time = &self.runtime.time;
        let tp = if self.tp > 1.0 { time.host_tp } else { Seconds::ZERO };
        let pipeline =
            if self.tp > 1.0 && self.pipelined { time.host_tp_pipeline * self.tp } else { Seconds::ZERO };
        let graph = match self.runtime.facts.cuda_graph {
            Some(CudaGraph::Full) => self.shared().full_graph,
            Some(CudaGraph::Partial) => self.shared().partial_graph,
            Some(CudaGraph::None) | None => 1.0,
        };
        (time.host + tp + pipeline) * graph
    }

    /// Host time of an expert layer's forward. Dropless routing reads token counts back from the GPU; a fixed capacity
    /// does not, and a graph of the whole iteration leaves little of it.
    #[must_use]
    pub fn expert_host(&self) -> Seconds {
        let time = &self.runtime.time;
        let low = self.expert_format != Format::Bits16;
        let eight = if low { time.host_experts_8bit } else { Seconds::ZERO };
        let facts = &self.runtime.facts;
        let capacity = if facts.capacity_factor.is_some() { self.shared().capacity_host } else { 1.0 };
        let graph = if facts.cuda_graph == Some(CudaGraph::Full) { self.shared().full_graph } else { 1.0 };
        (time.host_experts + eight) * (capacity * graph)
    }
}

/// Whether a schedule combines forwards with backwards.
fn combines(schedule: &str) -> bool {
    schedule.parse().is_ok_and(|schedule: Schedule| schedule.kind.definition().combines)
}

/// The GPU kind that everybody waits for: the one with the lowest sustained 16-bit rate.
fn slowest_gpu(cluster: &Cluster) -> &Gpu {
    let gpus = cluster.groups.iter().map(|group| &group.gpu);
    gpus.reduce(|slow, gpu| if speed(gpu) < speed(slow) { gpu } else { slow })
        .unwrap_or_else(|| cluster.gpu())
}
