//! What a row of a kernel file measured, without its time: enough to predict it for any curves.

use cluster_profiles::{Bytes, Cluster, Gpu, GroupShape, Seconds};
use cost_models::comm::{Collective, Dispatch, Fabric};
use cost_models::compute::{
    AttentionShape, ExpertShape, Format, Product, attention_burst, experts_burst, gemm_burst,
};
use cost_models::runtime::SharedTraits;

/// One call of a kernel or a collective.
#[derive(Debug, Clone)]
pub enum Work {
    /// A matrix product.
    Gemm(Format, Product),
    /// A causal attention forward.
    Attention(AttentionShape),
    /// The fused experts of a layer, and the tokens of their expert-parallel group.
    Experts(Format, ExpertShape, f64),
    /// A collective on a tensor of some bytes over a group of a cluster.
    Collective(Collective, Bytes, GroupShape, Box<Cluster>),
    /// A dispatch and a combine, with their fixed time.
    Dispatch(Dispatch, Seconds, Box<Cluster>),
}

impl Work {
    /// Its predicted time on `gpu`.
    #[must_use]
    pub fn predict(&self, gpu: &Gpu, shared: &SharedTraits) -> Seconds {
        match self {
            Self::Gemm(format, product) => gemm_burst(gpu, *format, *product),
            Self::Attention(shape) => attention_burst(gpu, shape),
            Self::Experts(format, shape, tokens) => experts_burst(gpu, *format, shape, *tokens),
            Self::Collective(collective, bytes, group, cluster) => Fabric::new(cluster, shared)
                .with_curve(&gpu.kernels.collective)
                .time(*collective, *bytes, *group),
            Self::Dispatch(dispatch, latency, cluster) => {
                let fabric = Fabric::new(cluster, shared).with_curve(&gpu.kernels.collective);
                dispatch.time(&fabric, gpu.is_blackwell_or_later(), *latency)
            }
        }
    }
}
