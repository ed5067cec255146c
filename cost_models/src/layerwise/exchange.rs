//! What the activations between layers of different tensor parallelism cost.

use super::LayeredRun;
use crate::comm::{Collective, Fabric};
use crate::layer_cost::LayerContext;
use crate::parallel::ParallelConfig;
use crate::run::TrainingRun;
use cluster_profiles::{Bytes, GroupShape, Seconds};

/// Redistribution of one microbatch's activations before a layer.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Exchange {
    /// Seconds in the forward.
    pub forward: Seconds,
    /// Seconds in the backward.
    pub backward: Seconds,
    /// Bytes that exist only meanwhile.
    pub transient: Bytes,
}

impl LayeredRun<'_> {
    /// Redistribution before layer `index`; nothing where it has the tensor parallelism of the layer before it.
    #[must_use]
    pub fn redistribution(&self, index: usize) -> Exchange {
        match index.checked_sub(1) {
            Some(before) => exchange(&self.run(), self.config(before), self.config(index)),
            None => Exchange::default(),
        }
    }
}

/// Redistribution between layers of layouts `from` and `to`.
///
/// With T = tp cp ranks that share a sequence's activations and b sequences on each of their groups, the forward gathers the
/// whole tensor (2 b s h bytes) over the T of the layer before; where T grows, it is gathered once more over the T'/T groups that
/// become one (2 b' s h bytes), each rank keeping its part of the sequence; where T shrinks, each group keeps its own sequences.
/// The backward is the way back. Hetu-Galvatron `galvatron/core/runtime/redistribute.py`,
/// `_fused_split_allgather_along_first_dim_with_sequence_parallel`, and `merge_redistributed_group` of `comm_groups.py`.
#[must_use]
pub fn exchange(run: &TrainingRun, from: &ParallelConfig, to: &ParallelConfig) -> Exchange {
    if from.tp == to.tp {
        return Exchange::default();
    }
    let whole = |config: &ParallelConfig| {
        let context = LayerContext::new(run.model, run.cluster, run.workload, run.runtime, config);
        Bytes(context.element_bytes() * context.seq * context.batch * context.hidden())
    };
    let (before, after) = (Side::of(from, whole(from)), Side::of(to, whole(to)));
    let fabric = Fabric::new(run.cluster, &run.runtime.shared);
    let domain = run.cluster.smallest_domain();
    let way = |from: Side, to: Side| {
        let gather = |bytes, ranks, stride| {
            fabric.time(Collective::AllGather, bytes, GroupShape::within(domain, ranks, stride))
        };
        let merge = if to.ranks > from.ranks {
            gather(to.whole, to.ranks / from.ranks, from.ranks)
        } else {
            Seconds::ZERO
        };
        gather(from.whole, from.ranks, 1) + merge
    };
    Exchange {
        forward: way(before, after),
        backward: way(after, before),
        transient: before.whole + after.whole,
    }
}

/// The ranks that share a sequence on one side of a redistribution, and their tensor.
#[derive(Clone, Copy)]
struct Side {
    ranks: u32,
    whole: Bytes,
}

impl Side {
    fn of(config: &ParallelConfig, whole: Bytes) -> Self {
        Self { ranks: config.tp.saturating_mul(config.cp).max(1), whole }
    }
}
