//! The order in which global ranks are numbered along the axes, and where it puts the ranks of a group.
//!
//! ```text
//! tp-cp-ep-dp-pp      rank = i + size x stage                       a stage is `size` consecutive ranks
//! tp-cp-ep-pp-dp      rank = i % block + block x (stage + pp x (i / block))    a pipeline is pp blocks of tp x cp ranks
//! ```
//!
//! `i` numbers the ranks of one pipeline stage: tp varies fastest, then cp, then data parallel (shards inside replicas); the
//! experts' grid runs over the same ranks as etp, ep, expert data parallel. An order only says which of these axes vary
//! faster than the pipeline: their ranks stay together ([`RankOrder::block`]). So all a group's [`Spread`] takes from the
//! order is where its ranks are cut.
//!
//! Who numbers ranks how (innermost axis first; repository and path):
//!
//! | engine | order | source |
//! |---|---|---|
//! | Megatron-core | `tp-cp-ep-dp-pp`; with `--use-tp-pp-dp-mapping` `tp-cp-ep-pp-dp` | NVIDIA/Megatron-LM `megatron/training/initialize.py`, `megatron/core/parallel_state.py` |
//! | Megatron-Bridge | the same, `dist.use_tp_pp_dp_mapping` | NVIDIA-NeMo/Megatron-Bridge `src/megatron/bridge/training/initialize.py` |
//! | `ColossalAI` | tp, (ep,) pp, dp; with `dp_outside=False` (`moe_dp_outside`) tp, (ep,) dp, pp | hpcaitech/ColossalAI `colossalai/booster/plugin/hybrid_parallel_plugin.py`, `moe_hybrid_parallel_plugin.py` |
//! | `DeepSpeed` | model, data, pipe | deepspeedai/DeepSpeed `deepspeed/runtime/pipe/topology.py` |
//! | Megatron-DeepSpeed | tp, dp, pp | deepspeedai/Megatron-DeepSpeed `megatron/core/parallel_state.py` |
//! | torchtitan | tp, cp, `dp_shard`, `dp_replicate`, pp | pytorch/torchtitan `torchtitan/distributed/parallel_dims.py` |
//! | nanotron | tp, cp, dp, pp (ep outermost) | huggingface/nanotron `src/nanotron/parallel/context.py` |
//! | `InternEvo` | tp, dp, pp | InternLM/InternEvo `internlm/core/context/process_group_initializer.py` |
//! | Galvatron | sp, tp, cp, dp, pp | PKU-DAIR/Hetu-Galvatron `galvatron/core/runtime/comm_groups.py` |
//!
//! `MaxText` arranges its mesh over slices and chips itself (AI-Hypercomputer/maxtext `src/maxtext/configs/base.yml`,
//! `mesh_axes`); Accelerate and FSDP have no pipeline, so that there is one order.

use crate::parallel::ParallelConfig;
use cluster_profiles::GroupShape;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// An axis of the grid of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GridAxis {
    /// Tensor parallelism.
    Tp,
    /// Context parallelism.
    Cp,
    /// Expert parallelism, whose ranks are taken from cp and dp.
    Ep,
    /// Data parallelism, shards inside replicas.
    Dp,
    /// Pipeline parallelism.
    Pp,
}

impl GridAxis {
    /// Its part of an order's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tp => "tp",
            Self::Cp => "cp",
            Self::Ep => "ep",
            Self::Dp => "dp",
            Self::Pp => "pp",
        }
    }

    /// Ranks along it in the grid of dense layers.
    const fn size(self, sizes: &GridSizes) -> u64 {
        match self {
            Self::Tp => sizes.tp,
            Self::Cp => sizes.cp,
            Self::Ep => 1,
            Self::Dp => sizes.dp,
            Self::Pp => sizes.pp,
        }
    }
}

/// Ranks along the axes of dense layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GridSizes {
    /// Tensor parallelism.
    pub tp: u64,
    /// Context parallelism.
    pub cp: u64,
    /// Data parallelism.
    pub dp: u64,
    /// Pipeline parallelism.
    pub pp: u64,
}

impl GridSizes {
    /// Those of a layout.
    #[must_use]
    pub fn of(parallel: &ParallelConfig) -> Self {
        Self {
            tp: parallel.tp.into(),
            cp: parallel.cp.into(),
            dp: u64::from(parallel.dp_replicate) * u64::from(parallel.dp_shard),
            pp: parallel.pp.into(),
        }
    }

    /// Ranks of the grid.
    #[must_use]
    pub const fn ranks(&self) -> u64 {
        self.tp.saturating_mul(self.cp).saturating_mul(self.dp).saturating_mul(self.pp)
    }
}

/// The order ranks are numbered in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum RankOrder {
    /// `tp-cp-ep-dp-pp`: a pipeline stage is a row of consecutive ranks.
    #[default]
    DpInside,
    /// `tp-cp-ep-pp-dp`: a whole pipeline is a row of consecutive ranks.
    PpInside,
}

impl RankOrder {
    /// Every order.
    pub const ALL: [Self; 2] = [Self::DpInside, Self::PpInside];

    /// Its axes, from the one that varies fastest to the slowest.
    #[must_use]
    pub const fn axes(self) -> [GridAxis; 5] {
        use GridAxis::{Cp, Dp, Ep, Pp, Tp};
        match self {
            Self::DpInside => [Tp, Cp, Ep, Dp, Pp],
            Self::PpInside => [Tp, Cp, Ep, Pp, Dp],
        }
    }

    /// The name it has in plans.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DpInside => "tp-cp-ep-dp-pp",
            Self::PpInside => "tp-cp-ep-pp-dp",
        }
    }

    /// Every name, for messages.
    #[must_use]
    pub fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }

    /// Ranks of a stage that have consecutive numbers: those of the axes that vary faster than the pipeline.
    #[must_use]
    pub fn block(self, sizes: &GridSizes) -> u64 {
        let faster = self.axes().into_iter().take_while(|axis| *axis != GridAxis::Pp);
        faster.map(|axis| axis.size(sizes)).fold(1, u64::saturating_mul)
    }

    /// Whether ranks of a stage stand apart: an axis varies slower than the pipeline.
    #[must_use]
    pub fn cuts_stages(self) -> bool {
        self.axes().last() != Some(&GridAxis::Pp)
    }

    /// Whether it is the default: plans do not write it into a layout.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for RankOrder {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for RankOrder {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|order| order.name() == text);
        known.ok_or_else(|| format!("unknown rank order `{text}`: use {}", Self::names()))
    }
}

impl Serialize for RankOrder {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for RankOrder {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Ranks that communicate with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RankGroup {
    /// A tensor-parallel group.
    Tp,
    /// A context-parallel group.
    Cp,
    /// An expert-parallel group.
    Ep,
    /// A tensor-parallel group inside an expert.
    Etp,
    /// The ranks that shard dense state: `cp x dp_shard`.
    Shards,
    /// All ranks with a copy of a dense layer, or a part of one: `cp x dp`.
    Data,
    /// The ranks that shard the state of an expert.
    ExpertShards,
    /// The ranks that replicate a shard.
    Replicas,
    /// The ranks with the same place in every stage.
    Pp,
}

impl RankGroup {
    /// Every group inside a stage.
    pub const INSIDE: [Self; 8] = [
        Self::Tp,
        Self::Cp,
        Self::Ep,
        Self::Etp,
        Self::Shards,
        Self::Data,
        Self::ExpertShards,
        Self::Replicas,
    ];

    /// Members of a group inside a stage, and how far apart they are among the ranks of the stage: an axis' stride is the
    /// product of the axes inside it.
    #[must_use]
    pub fn inside(self, parallel: &ParallelConfig) -> [u32; 2] {
        let shards = parallel.dp_shard.saturating_mul(parallel.cp);
        match self {
            Self::Tp => [parallel.tp, 1],
            Self::Cp => [parallel.cp, parallel.tp],
            Self::Shards => [shards, parallel.tp],
            Self::Data => [parallel.dp().saturating_mul(parallel.cp), parallel.tp],
            Self::Replicas => [parallel.dp_replicate, parallel.tp.saturating_mul(shards)],
            Self::Etp => [parallel.etp, 1],
            Self::Ep => [parallel.ep, parallel.etp],
            Self::ExpertShards => {
                let ranks = parallel.expert_dp().max(1) / parallel.dp_replicate.max(1);
                [ranks, parallel.ep.saturating_mul(parallel.etp)]
            }
            Self::Pp => [1, 1],
        }
    }
}

/// Where the members of a group stand: `counts[0]` of its `ranks` are `strides[0]` apart, and that `counts[1]` times `strides[1]`
/// apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spread {
    ranks: u32,
    counts: [u32; 2],
    strides: [u64; 2],
}

impl Spread {
    /// The groups of a layout.
    ///
    /// Inside a stage a group's ranks are evenly apart. The order cuts the stage into blocks, `pp` blocks apart from each
    /// other; a group that reaches beyond one continues in the next.
    #[must_use]
    pub fn of(parallel: &ParallelConfig, group: RankGroup) -> Self {
        let block = || parallel.rank_order.block(&GridSizes::of(parallel)).max(1);
        if group == RankGroup::Pp {
            return Self::even(parallel.pp.max(1), block());
        }
        let [count, stride] = group.inside(parallel).map(|number| number.max(1));
        let (apart, pp) = (u64::from(stride), u64::from(parallel.pp.max(1)));
        if pp == 1 || !parallel.rank_order.cuts_stages() {
            return Self::even(count, apart);
        }
        let block = block();
        if apart.saturating_mul(count.into()) <= block {
            return Self::even(count, apart);
        }
        if apart >= block {
            return Self::even(count, apart.saturating_mul(pp));
        }
        let own = u32::try_from(block / apart).unwrap_or(u32::MAX);
        Self { ranks: count, counts: [own, count.div_ceil(own)], strides: [apart, block.saturating_mul(pp)] }
    }

    const fn even(ranks: u32, stride: u64) -> Self {
        Self { ranks, counts: [ranks, 1], strides: [stride, 1] }
    }

    /// How a group lies on NVLink domains of `domain` GPUs, which ranks fill in order.
    #[must_use]
    pub fn shape(self, domain: u32) -> GroupShape {
        let [inner, outer] = [0, 1].map(|level| {
            let stride = u32::try_from(self.strides[level]).unwrap_or(u32::MAX);
            GroupShape::within(domain, self.counts[level], stride)
        });
        if self.counts[1] == 1 {
            return inner;
        }
        let per_domain = inner.per_domain.saturating_mul(outer.per_domain);
        GroupShape { ranks: self.ranks, per_domain, domains: self.ranks.div_ceil(per_domain) }
    }
}

impl ParallelConfig {
    /// How the groups of an axis lie on NVLink domains of `domain` GPUs.
    #[must_use]
    pub fn group_shape(&self, group: RankGroup, domain: u32) -> GroupShape {
        Spread::of(self, group).shape(domain)
    }

    /// Whether all ranks of a pipeline share an NVLink domain of `domain` GPUs, so that no message between stages leaves it.
    #[must_use]
    pub fn has_local_pipeline(&self, domain: u32) -> bool {
        self.group_shape(RankGroup::Pp, domain).is_local()
    }
}

/// Whether all orders of a layout cost the same on an even cluster with NVLink domains of `domain` GPUs.
///
/// Without a pipeline, or with one data-parallel rank, they number the ranks alike. Where all ranks share a domain, so does
/// every group. Where `tp x cp` fills whole domains, the ranks of a group that share one are those within a block, which no
/// order cuts, and every hop between stages leaves its domain. In every case each group has the same [`GroupShape`], which
/// is all that its time depends on.
#[must_use]
pub fn orders_cost_the_same(sizes: &GridSizes, domain: u32) -> bool {
    let least = || RankOrder::ALL.map(|order| order.block(sizes)).into_iter().min().unwrap_or(1);
    let domain = u64::from(domain.max(1));
    sizes.pp <= 1 || sizes.dp <= 1 || sizes.ranks() <= domain || least().is_multiple_of(domain)
}
