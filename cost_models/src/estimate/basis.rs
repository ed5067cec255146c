//! What the parts of a predicted step rest on.

use super::TimeBreakdown;
use crate::comm::Fabric;
use crate::layer_cost::{LayerContext, measured};
use crate::model::Layer;
use crate::offload::shared_rate;
use crate::order::RankGroup;
use crate::run::TrainingRun;
use crate::runtime::AttentionKernel;
use crate::step::host_optimizer::HOST_MEMORY_BANDWIDTH;
use cluster_profiles::{Basis, Collective, GroupShape, Seconds};
use serde::{Deserialize, Serialize};

/// Share of the step that rests on one basis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BasisShare {
    /// `measured`, `interpolated`, `extrapolated`, `analytic`, `assumed`.
    pub basis: String,
    /// Share of the step time.
    pub share: f64,
}

/// The basis words, from the firmest to the softest.
pub const BASES: [&str; 5] = ["measured", "interpolated", "extrapolated", "analytic", "assumed"];
/// Longest sequence of the attention measurements.
const LONGEST_MEASURED: u64 = 131_072;

/// The word for a number's provenance: fits and published figures are interpolated between measurements.
const fn word(basis: Basis) -> &'static str {
    match basis {
        Basis::Measured => "measured",
        Basis::Fitted | Basis::Published => "interpolated",
        Basis::Datasheet => "analytic",
        Basis::Assumed => "assumed",
    }
}

/// The basis of every kind of time, with what it is.
pub(super) fn bases(run: &TrainingRun) -> Vec<(&'static str, &'static str, String)> {
    let group = run.cluster.main();
    let kernels = &group.gpu.kernels;
    let gemm = match &kernels.gemm_8bit {
        Some(curve) if run.workload.precision.is_low() => &curve.provenance,
        _ => &kernels.gemm_16bit.provenance,
    };
    let attention =
        if run.runtime.attention == AttentionKernel::Unfused { gemm } else { &kernels.attention.provenance };
    let long = run.workload.seq_len > LONGEST_MEASURED;
    let attention_word = if long { "extrapolated" } else { word(attention.basis) };
    let parallel = run.parallel;
    let link = |is_local: bool| {
        if is_local {
            (word(kernels.collective.provenance.basis), kernels.collective.provenance.from.clone())
        } else if run.cluster.measured.is_some() {
            ("measured", "the cluster's own bandwidth test".to_owned())
        } else {
            ("analytic", group.node.inter.source.clone())
        }
    };
    let collective = |ops: &[Collective], group: RankGroup| {
        let shape = parallel.group_shape(group, run.cluster.smallest_domain());
        let measured = ops.iter().find_map(|op| run.cluster.measured_collective(*op, shape));
        measured
            .map(|m| (word(m.provenance.basis), m.provenance.from.clone()))
            .or_else(|| leveled(run, ops, shape))
            .unwrap_or_else(|| link(shape.is_local()))
    };
    let engine = &run.runtime.time.provenance;
    let mut bases = vec![
        ("matmul", word(gemm.basis), gemm.from.clone()),
        ("attention", attention_word, attention.from.clone()),
        ("other_kernels", word(kernels.provenance.basis), kernels.provenance.from.clone()),
    ];
    let reductions = [Collective::AllReduce, Collective::ReduceScatter];
    let gathers = [Collective::AllGather, Collective::AllToAll];
    let groups = [
        ("tp", collective(&reductions, RankGroup::Tp)),
        ("cp", collective(&gathers, RankGroup::Cp)),
        ("ep", collective(&[Collective::AllToAll], RankGroup::Ep)),
        ("dp", collective(&reductions, RankGroup::Data)),
    ];
    bases.extend(groups.into_iter().map(|(kind, (word, from))| (kind, word, from)));
    bases.extend([
        ("pp", "analytic", group.node.inter.source.clone()),
        ("bubble", "analytic", "simulation of the schedule".to_owned()),
        ("optimizer", word(kernels.provenance.basis), kernels.provenance.from.clone()),
        ("host", word(engine.basis), engine.from.clone()),
    ]);
    measured_layers(run, &mut bases);
    if let Some(o) = run.cluster.optimizers.iter().find(|o| o.name == run.workload.optimizer.name()) {
        let entry = ("optimizer", word(o.provenance.basis), o.provenance.from.clone());
        bases.iter_mut().filter(|(kind, ..)| *kind == "optimizer").for_each(|b| *b = entry.clone());
    }
    if run.runtime.memory.state.optimizer_offload > 0.0 {
        let from = format!(
            "updated on the host: its memory at {:.0} GB/s (assumed), its links: {}",
            HOST_MEMORY_BANDWIDTH.get() / 1e9,
            group.node.host.source
        );
        let entry = ("optimizer", "assumed", from);
        bases.iter_mut().filter(|(kind, ..)| *kind == "optimizer").for_each(|b| *b = entry.clone());
    }
    if run.parallel.recompute.is_moving() {
        let rate = shared_rate(&group.node);
        let from = format!(
            "activations copied at {:.0} GB/s each way beside the computation (assumed); the link: {}",
            rate.get() / 1e9,
            group.node.host.source
        );
        let entry = ("host", "assumed", from);
        bases.iter_mut().filter(|(kind, ..)| *kind == "host").for_each(|b| *b = entry.clone());
    }
    bases
}

/// A group of a shape that was not measured, on links of which others were.
fn leveled(run: &TrainingRun, ops: &[Collective], shape: GroupShape) -> Option<(&'static str, String)> {
    let fabric = Fabric::new(run.cluster, &run.runtime.shared);
    let nearest = fabric.nearest_curve(*ops.first()?, shape).filter(|_| shape.ranks > 1)?;
    let error = fabric.level_error(shape.is_local()).map_or_else(String::new, |error| {
        format!("; curves left out in turn are predicted within {:.0} %", 100.0 * error)
    });
    let text = format!(
        "scaled from curves measured on such links, nearest {} over {} ranks ({}){error}",
        nearest.op.name(),
        nearest.ranks,
        nearest.provenance.from
    );
    Some(("interpolated", text))
}

/// Kernels of a block that was measured: at this very shape, or scaled from the nearest one.
fn measured_layers(run: &TrainingRun, bases: &mut [(&'static str, &'static str, String)]) {
    let context = LayerContext::of(run);
    let block = run.model.layers.iter().find(|layer| matches!(layer, Layer::Block(_)));
    let Some((layer, exact)) = block.and_then(|block| measured::nearest(&context, block)) else { return };
    let shape = format!("{} x {} tokens, tp {}, cp {}", layer.micro_batch, layer.seq_len, layer.tp, layer.cp);
    let (word, how) = if exact {
        ("measured", "layers measured at")
    } else {
        ("interpolated", "scaled from layers measured at")
    };
    let traffic = measured::traffic(&context, layer);
    let kinds = ["matmul", "attention", "other_kernels"];
    for basis in bases.iter_mut().filter(|(kind, ..)| kinds.contains(kind) || traffic == Some(kind)) {
        *basis = (basis.0, word, format!("{how} {shape}: {}", layer.provenance.from));
    }
}

/// Shares of a step by basis, firmest first; bases without a share are left out.
pub(super) fn shares(
    time: &TimeBreakdown,
    bases: &[(&'static str, &'static str, String)],
) -> Vec<BasisShare> {
    let total = time.total().get();
    let of = |basis: &str| -> Seconds {
        let parts = time.parts();
        let resting = parts.iter().filter(|(kind, _)| bases.iter().any(|(k, b, _)| k == kind && *b == basis));
        resting.map(|(_, seconds)| *seconds).sum()
    };
    BASES
        .into_iter()
        .map(|basis| BasisShare {
            basis: basis.to_owned(),
            share: if total > 0.0 { of(basis).get() / total } else { 0.0 },
        })
        .filter(|share| share.share > 0.0)
        .collect()
}
