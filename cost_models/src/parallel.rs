//! How the work is split.

use crate::modules::ModuleChoice;
use crate::order::RankOrder;
use crate::shares::KindShare;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The degrees of every axis, the microbatches, the schedule and what is recomputed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ParallelConfig {
    /// Tensor parallel degree.
    pub tp: u32,
    /// Pipeline parallel degree.
    pub pp: u32,
    /// Chunks (virtual stages) per pipeline rank.
    pub vpp: u32,
    /// Context parallel degree.
    pub cp: u32,
    /// Expert parallel degree.
    pub ep: u32,
    /// Tensor parallel degree of the experts.
    pub etp: u32,
    /// Groups that hold whole copies of the sharded state.
    pub dp_replicate: u32,
    /// Ranks the state is sharded over (without cp).
    pub dp_shard: u32,
    /// ZeRO stage: 0 none, 1 optimizer, 2 and gradients, 3 and parameters.
    pub zero_stage: u8,
    /// Megatron's sequence parallelism, over the tp ranks.
    pub sequence_parallel: bool,
    /// Sequences of one microbatch on one data-parallel rank.
    pub micro_batch_size: u64,
    /// Microbatches per step and data-parallel rank.
    pub num_microbatches: u64,
    /// Pipeline schedule, by its catalogue name (`1f1b`, `interleaved-1f1b`, `zb-v`, ...).
    pub schedule: String,
    /// What is recomputed in the backward.
    pub recompute: Recompute,
    /// Micro batches and state by kind of GPU where they differ, in rank order; `micro_batch_size` is the largest then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<KindShare>,
    /// The order ranks are numbered in.
    #[serde(default, skip_serializing_if = "RankOrder::is_default")]
    pub rank_order: RankOrder,
}

impl ParallelConfig {
    /// Data-parallel degree: replicas times shards.
    #[must_use]
    pub const fn dp(&self) -> u32 {
        self.dp_replicate * self.dp_shard
    }

    /// Ranks the layout needs.
    #[must_use]
    pub fn world_size(&self) -> u64 {
        [self.tp, self.pp, self.cp, self.dp_replicate, self.dp_shard].iter().map(|&d| u64::from(d)).product()
    }

    /// Data-parallel degree of the experts: `world / (etp ep pp)`, 0 if that does not divide.
    #[must_use]
    pub fn expert_dp(&self) -> u32 {
        let experts = u64::from(self.etp) * u64::from(self.ep) * u64::from(self.pp);
        if experts == 0 || !self.world_size().is_multiple_of(experts) {
            return 0;
        }
        (self.world_size() / experts) as u32
    }

    /// Sequences of a step: the global batch.
    #[must_use]
    pub fn global_batch(&self) -> u64 {
        self.sequences_per_microbatch().saturating_mul(self.num_microbatches)
    }
}

impl Default for ParallelConfig {
    /// One GPU, one microbatch of one sequence.
    fn default() -> Self {
        Self {
            tp: 1,
            pp: 1,
            vpp: 1,
            cp: 1,
            ep: 1,
            etp: 1,
            dp_replicate: 1,
            dp_shard: 1,
            zero_stage: 1,
            sequence_parallel: false,
            micro_batch_size: 1,
            num_microbatches: 1,
            schedule: "1f1b".to_owned(),
            recompute: Recompute::None,
            shares: Vec::new(),
            rank_order: RankOrder::default(),
        }
    }
}

/// What becomes of activations between forward and backward: kept, repeated (activation checkpointing), or moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Recompute {
    /// Nothing is recomputed.
    None,
    /// The runtime's selective recompute (core attention where it is not fused; per-operator in torchtitan).
    Selective,
    /// Whole layers: all of a stage, or its first `layers`.
    Full {
        /// Layers per stage (chunk); none for all.
        layers: Option<u32>,
    },
    /// Nothing is recomputed; a stage's first `layers` wait in host memory ([`crate::offload`]).
    Offload {
        /// Layers per stage.
        layers: u32,
    },
    /// Modules of every layer, some repeated, some in host memory ([`crate::module_offload`]).
    Modules(ModuleChoice),
}

impl Recompute {
    /// Whether something waits in host memory.
    #[must_use]
    pub const fn is_moving(self) -> bool {
        match self {
            Self::Offload { .. } => true,
            Self::Modules(choice) => !choice.moved.is_empty(),
            Self::None | Self::Selective | Self::Full { .. } => false,
        }
    }
}

impl fmt::Display for Recompute {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Selective => f.write_str("selective"),
            Self::Full { layers: None } => f.write_str("full"),
            Self::Full { layers: Some(layers) } => write!(f, "full:{layers}"),
            Self::Offload { layers } => write!(f, "offload:{layers}"),
            Self::Modules(choice) => choice.fmt(f),
        }
    }
}

impl FromStr for Recompute {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "selective" => Ok(Self::Selective),
            "full" => Ok(Self::Full { layers: None }),
            _ => {
                let counted =
                    text.split_once(':').and_then(|(word, layers)| Some((word, layers.parse().ok()?)));
                match counted {
                    Some(("full", layers)) => Ok(Self::Full { layers: Some(layers) }),
                    Some(("offload", layers)) => Ok(Self::Offload { layers }),
                    _ => modules(text),
                }
            }
        }
    }
}

fn modules(text: &str) -> Result<Recompute, String> {
    let begins = ["selective:", "offload:"].iter().any(|word| text.starts_with(word));
    if !begins {
        return Err(format!(
            "unknown recompute `{text}`: use none, selective, full, full:LAYERS, offload:LAYERS or \
             selective:MODULES/offload:MODULES"
        ));
    }
    text.parse().map(Recompute::Modules)
}

impl Serialize for Recompute {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Recompute {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recompute_reads_what_it_writes() {
        for recompute in [
            Recompute::None,
            Recompute::Selective,
            Recompute::Full { layers: None },
            Recompute::Full { layers: Some(3) },
            Recompute::Offload { layers: 2 },
            Recompute::Modules("selective:mlp/offload:core_attn+attn_proj".parse().unwrap()),
        ] {
            assert_eq!(recompute.to_string().parse(), Ok(recompute));
        }
        assert!("half".parse::<Recompute>().is_err());
    }
}
