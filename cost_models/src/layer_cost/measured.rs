//! Layers that were measured on the cluster stand above the model of their kernels.
//!
//! The model keeps its form and takes the measurement's level: each pass is scaled by measured over modelled time at the
//! measured shape, so that the measured shape itself comes out as measured and its neighbours move along. Traffic that was
//! measured with the layer likewise, for engines that overlap none of it, as the measurement did.

use super::context::LayerContext;
use super::passes::PassCost;
use super::{LayerCost, RankParameters, modelled};
use crate::model::{Attention, Layer, Mlp, ModelSpec};
use crate::parallel::Recompute;
use crate::runtime::{ContextExchange, ExpertDispatcher};
use cluster_profiles::{GroupShape, LayerKind, MeasuredLayer, Precision, Seconds};

/// Farthest shape that a measurement speaks for: a factor of this many in sequence length, batch and degrees together.
const FARTHEST: f64 = 64.0;
/// How much a factor in a degree counts, relative to one in the sequence length.
const DEGREE_WEIGHT: f64 = 3.0;

/// The measurement nearest to what `layer` does in `context`, and whether it is of that very shape.
#[must_use]
pub fn nearest<'a>(context: &LayerContext<'a>, layer: &Layer) -> Option<(&'a MeasuredLayer, bool)> {
    let own = |m: &&MeasuredLayer| is_of(context.model, context.precision, layer, m);
    let candidates = context.fabric.measured_layers().iter().filter(own);
    let near = candidates.map(|m| (distance(context, m), m)).min_by(|a, b| a.0.total_cmp(&b.0));
    near.filter(|(distance, _)| *distance <= FARTHEST.ln()).map(|(distance, m)| (m, distance < 1e-9))
}

/// Whether `measured` is a layer of `model` like `layer`, whatever its shape.
#[must_use]
pub fn is_of(model: &ModelSpec, precision: Precision, layer: &Layer, measured: &MeasuredLayer) -> bool {
    let same = |stated: Option<u32>, own: u64| stated.is_none_or(|stated| u64::from(stated) == own);
    let sizes = match (measured.kind, layer) {
        (LayerKind::Block, Layer::Block(block)) => match (&block.attention, &block.mlp) {
            (Attention::Standard { heads, kv_heads, .. }, mlp) => {
                same(measured.heads, *heads) && same(measured.kv_heads, *kv_heads) && is_mlp(measured, mlp)
            }
            _ => false,
        },
        (LayerKind::Head, Layer::Head) | (LayerKind::Embedding, Layer::Embedding) => {
            same(measured.vocab, model.vocab)
        }
        _ => false,
    };
    sizes && u64::from(measured.hidden) == model.hidden && measured.precision == precision.name()
}

fn is_mlp(measured: &MeasuredLayer, mlp: &Mlp) -> bool {
    let stated = |stated: Option<u32>, own: u64| stated.is_some_and(|stated| u64::from(stated) == own);
    match mlp {
        Mlp::Dense { ffn, .. } => {
            measured.experts.is_none() && measured.ffn.is_none_or(|stated| u64::from(stated) == *ffn)
        }
        Mlp::Moe { experts, topk, ffn, .. } => {
            stated(measured.experts, *experts) && stated(measured.topk, *topk) && stated(measured.ffn, *ffn)
        }
    }
}

fn distance(context: &LayerContext, measured: &MeasuredLayer) -> f64 {
    let factor = |own: f64, other: u32| (own / f64::from(other)).ln().abs();
    let degrees = factor(context.tp, measured.tp) + factor(context.cp, measured.cp);
    factor(context.seq, measured.seq_len)
        + factor(context.batch, measured.micro_batch)
        + DEGREE_WEIGHT * degrees
        + if measured.experts.is_some() {
            DEGREE_WEIGHT * factor(context.ep, measured.ep) + context.imbalance.ln()
        } else {
            0.0
        }
}

/// The context in which a layer was measured: its group one of neighbours, its sequence not split over tensor-parallel ranks.
fn measured_context<'a>(context: &LayerContext<'a>, measured: &MeasuredLayer) -> LayerContext<'a> {
    let [seq, batch, tp, cp, ep] =
        [measured.seq_len, measured.micro_batch, measured.tp, measured.cp, measured.ep].map(f64::from);
    let group = |ranks: u32| GroupShape::within(context.fabric.domain(), ranks.max(1), 1);
    LayerContext {
        seq,
        batch,
        tokens: seq * batch / cp,
        tp,
        cp,
        sequence_shards: 1.0,
        tp_group: group(measured.tp),
        cp_group: group(measured.cp),
        ep,
        etp: 1.0,
        ep_group: group(measured.ep),
        etp_group: group(1),
        imbalance: 1.0,
        ..*context
    }
}

/// `costs` with their kernels at the measured level, where the layer was measured.
#[must_use]
pub fn level<const N: usize>(context: &LayerContext, layer: &Layer, costs: [LayerCost; N]) -> [LayerCost; N] {
    let Some((measured, exact)) = nearest(context, layer) else { return costs };
    let there = measured_context(context, measured);
    let [model] = modelled(&there, layer, [Recompute::None], RankParameters::default());
    costs.map(|cost| leveled(context, cost, &there, &model, measured, exact))
}

fn leveled(
    context: &LayerContext,
    cost: LayerCost,
    there: &LayerContext,
    model: &LayerCost,
    measured: &MeasuredLayer,
    exact: bool,
) -> LayerCost {
    let tokens = context.tokens / there.tokens;
    let scaled =
        |pass: PassCost, model: PassCost, measured: Seconds| scale(pass, model, measured, tokens, exact);
    let axis = Axis::of(context, measured);
    let exposed = |pass: PassCost, model: PassCost, measured: Option<Seconds>| match (axis, measured) {
        (Some(axis), Some(measured)) => axis.level(pass, model, measured, exact),
        _ => pass,
    };
    LayerCost {
        forward: exposed(
            scaled(cost.forward, model.forward, measured.forward),
            model.forward,
            measured.exposed_forward,
        ),
        recompute: match cost.recompute {
            none if none == PassCost::default() => none,
            // Selective recompute repeats a part of the forward: the same level, not the whole of it.
            part => scaled(part, model.forward, measured.forward),
        },
        input_gradient: exposed(
            scaled(cost.input_gradient, model.input_gradient, measured.input_gradient),
            model.input_gradient,
            measured.exposed_backward,
        ),
        weight_gradient: scaled(cost.weight_gradient, model.weight_gradient, measured.weight_gradient),
        ..cost
    }
}

/// The kind of time that was measured with a layer's group, in an engine that overlaps no more of it than the measurement:
/// `tp`, `cp` or `ep`.
#[must_use]
pub fn traffic(context: &LayerContext, measured: &MeasuredLayer) -> Option<&'static str> {
    measured.exposed_forward.and(Axis::of(context, measured)).map(|axis| match axis {
        Axis::Tensor => "tp",
        Axis::Context => "cp",
        Axis::Expert => "ep",
    })
}

/// The axis whose traffic was measured with a layer.
#[derive(Clone, Copy)]
enum Axis {
    Tensor,
    Context,
    Expert,
}

impl Axis {
    /// None where the engine moves or overlaps that traffic in another way than the measurement did.
    fn of(context: &LayerContext, measured: &MeasuredLayer) -> Option<Self> {
        if measured.tp > 1 {
            let alike = context.sequence_shards <= 1.0 && context.tp_exposed() >= 1.0;
            return alike.then_some(Self::Tensor);
        }
        if measured.ep > 1 {
            let exchanged = context.dispatcher() == ExpertDispatcher::AllToAll;
            return (exchanged && context.runtime.facts.overlap.ep != Some(true)).then_some(Self::Expert);
        }
        let alike = measured.cp > 1 && context.context_exchange() == ContextExchange::Gather;
        alike.then_some(Self::Context)
    }

    fn part(self, pass: &mut PassCost) -> &mut Seconds {
        match self {
            Self::Tensor => &mut pass.tp,
            Self::Context => &mut pass.cp,
            Self::Expert => &mut pass.ep,
        }
    }

    /// The measured shape takes what was measured, others keep their ratio to it.
    fn level(self, mut pass: PassCost, mut model: PassCost, measured: Seconds, exact: bool) -> PassCost {
        let modelled = *self.part(&mut model);
        let own = self.part(&mut pass);
        if exact {
            *own = measured;
        } else if modelled > Seconds::ZERO {
            *own = *own * (measured / modelled);
        }
        pass
    }
}

fn kernels(pass: PassCost) -> Seconds {
    pass.matmul + pass.attention + pass.other_kernels
}

/// Waiting for the host is part of what was measured.
fn scale(pass: PassCost, model: PassCost, measured: Seconds, tokens: f64, exact: bool) -> PassCost {
    let (own, modelled) = (kernels(pass), kernels(model));
    if modelled.get() <= 0.0 || own.get() <= 0.0 {
        return PassCost { other_kernels: measured * tokens, host: Seconds::ZERO, ..pass };
    }
    let ratio = measured / modelled;
    let host = if exact { Seconds::ZERO } else { pass.host };
    PassCost {
        matmul: pass.matmul * ratio,
        attention: pass.attention * ratio,
        other_kernels: pass.other_kernels * ratio,
        host: (host - own * (ratio - 1.0).max(0.0)).max(Seconds::ZERO),
        ..pass
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer_cost::layer_cost;
    use crate::parallel::ParallelConfig;
    use crate::runtime::Runtime;
    use crate::workload::{Optimizer, Workload};
    use cluster_profiles::{Basis, Cluster, Provenance, catalog};

    fn measured(forward: f64) -> MeasuredLayer {
        MeasuredLayer {
            kind: LayerKind::Block,
            hidden: 4096,
            heads: Some(32),
            kv_heads: Some(8),
            ffn: Some(14336),
            experts: None,
            topk: None,
            vocab: None,
            seq_len: 4096,
            micro_batch: 1,
            tp: 1,
            cp: 1,
            ep: 1,
            precision: "bf16".to_owned(),
            forward: Seconds(forward),
            input_gradient: Seconds(7e-3),
            weight_gradient: Seconds(5e-3),
            exposed_forward: None,
            exposed_backward: None,
            saved: None,
            provenance: Provenance {
                basis: Basis::Measured,
                from: "probe.json".to_owned(),
                median_error: None,
            },
        }
    }

    fn block(cluster: &Cluster, seq_len: u64) -> LayerCost {
        split_block(
            cluster,
            seq_len,
            "megatron-core",
            ParallelConfig { dp_shard: 8, ..ParallelConfig::default() },
        )
    }

    fn split_block(cluster: &Cluster, seq_len: u64, engine: &str, parallel: ParallelConfig) -> LayerCost {
        let model: ModelSpec = crate::model::catalog::get("llama-3.1-8b").unwrap();
        let runtime = Runtime::named(engine).unwrap();
        let workload = Workload {
            global_batch: 8,
            seq_len,
            precision: Precision::Bf16,
            optimizer: Optimizer::Adamw,
            gradient_dtype: None,
            expert_imbalance: 1.0,
        };
        let parallel = ParallelConfig { num_microbatches: 1, ..parallel };
        let context = LayerContext::new(&model, cluster, &workload, &runtime, &parallel);
        let layer = model.layers.iter().find(|layer| matches!(layer, Layer::Block(_))).unwrap();
        layer_cost(&context, layer, Recompute::None)
    }

    #[test]
    fn a_measured_shape_takes_as_long_as_measured_and_its_neighbours_follow() {
        let plain = catalog::cluster("dgx-h100").unwrap().resized(8).unwrap();
        let mut with = plain.clone();
        with.layers.push(measured(9e-3));
        let cost = block(&with, 4096);
        assert!((cost.forward.total().get() / 9e-3 - 1.0).abs() < 1e-9, "{cost:?}");
        assert!((cost.input_gradient.total().get() / 7e-3 - 1.0).abs() < 1e-9, "{cost:?}");
        assert!((cost.weight_gradient.total().get() / 5e-3 - 1.0).abs() < 1e-9, "{cost:?}");
        let level = 9e-3 / kernels(block(&plain, 4096).forward).get();
        let (near, model) = (block(&with, 8192).forward, block(&plain, 8192).forward);
        assert!((kernels(near) / kernels(model) / level - 1.0).abs() < 1e-9);
        // Another precision, another model: nothing changes.
        with.layers[0].precision = "fp8".to_owned();
        assert_eq!(block(&with, 4096), block(&plain, 4096));
    }

    #[test]
    fn a_measured_block_with_experts_speaks_for_blocks_with_these_experts() {
        let model: ModelSpec = crate::model::catalog::get("mixtral-8x7b").unwrap();
        let plain = catalog::cluster("dgx-h100").unwrap().resized(8).unwrap();
        let mut with = plain.clone();
        with.layers.push(MeasuredLayer {
            experts: Some(8),
            topk: Some(2),
            ep: 4,
            exposed_forward: Some(Seconds(2e-3)),
            exposed_backward: Some(Seconds(3e-3)),
            ..measured(9e-3)
        });
        let runtime = Runtime::named("torch").unwrap();
        let cost = |cluster: &Cluster, ep: u32, imbalance: f64| {
            let workload = Workload {
                global_batch: 8,
                seq_len: 4096,
                precision: Precision::Bf16,
                optimizer: Optimizer::Adamw,
                gradient_dtype: None,
                expert_imbalance: imbalance,
            };
            let parallel =
                ParallelConfig { ep, dp_shard: 8, num_microbatches: 1, ..ParallelConfig::default() };
            let context = LayerContext::new(&model, cluster, &workload, &runtime, &parallel);
            let layer = model.layers.iter().find(|layer| matches!(layer, Layer::Block(_))).unwrap();
            layer_cost(&context, layer, Recompute::None)
        };
        let own = cost(&with, 4, 1.0);
        assert!((own.forward.total().get() / 11e-3 - 1.0).abs() < 1e-9, "{own:?}");
        assert_eq!((own.forward.ep, own.input_gradient.ep), (Seconds(2e-3), Seconds(3e-3)));
        // Uneven loads and other degrees keep their ratio to what was measured.
        let level = 9e-3 / kernels(cost(&plain, 4, 1.0).forward).get();
        for (ep, imbalance) in [(4, 1.5), (8, 1.0)] {
            let (near, model) = (cost(&with, ep, imbalance), cost(&plain, ep, imbalance));
            assert!((kernels(near.forward) / kernels(model.forward) / level - 1.0).abs() < 1e-9);
        }
        // Other experts were not measured.
        with.layers[0].experts = Some(16);
        assert_eq!(cost(&with, 4, 1.0), cost(&plain, 4, 1.0));
    }

    #[test]
    fn traffic_measured_with_a_layer_stands_where_the_engine_overlaps_none() {
        let plain = catalog::cluster("dgx-h100").unwrap().resized(8).unwrap();
        let mut with = plain.clone();
        let exposed = (Some(Seconds(2e-3)), Some(Seconds(3e-3)));
        with.layers.push(MeasuredLayer {
            tp: 2,
            exposed_forward: exposed.0,
            exposed_backward: exposed.1,
            ..measured(9e-3)
        });
        let tp = |tp: u32| ParallelConfig { tp, dp_shard: 8 / tp, ..ParallelConfig::default() };
        let cost = split_block(&with, 4096, "torch", tp(2));
        assert_eq!((cost.forward.tp, cost.input_gradient.tp), (Seconds(2e-3), Seconds(3e-3)));
        assert!((cost.forward.total().get() / 11e-3 - 1.0).abs() < 1e-9, "{cost:?}");
        // Twice the ranks keep the ratio of measured and modelled.
        let (near, model) =
            (split_block(&with, 4096, "torch", tp(4)), split_block(&plain, 4096, "torch", tp(4)));
        let level = 2e-3 / split_block(&plain, 4096, "torch", tp(2)).forward.tp.get();
        assert!((near.forward.tp / model.forward.tp / level - 1.0).abs() < 1e-9);
        // Sequence parallelism moves other bytes: its traffic stays modelled.
        let sequence = || ParallelConfig { sequence_parallel: true, ..tp(2) };
        let (own, model) =
            (split_block(&with, 4096, "torch", sequence()), split_block(&plain, 4096, "torch", sequence()));
        assert_eq!(own.forward.tp, model.forward.tp);
    }
}
