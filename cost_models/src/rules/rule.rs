//! What a rule is.

use super::facts::Facts;
use crate::parallel::ParallelConfig;
use serde::{Deserialize, Serialize};

/// A condition that a launcher or engine sets on a layout.
pub struct Rule {
    /// Short name, such as `M5`.
    pub id: &'static str,
    /// The condition in words.
    pub statement: &'static str,
    /// The axis to change when it is broken.
    pub axis: Axis,
    /// Whether a layout keeps it. Integer checks only: the search calls it for every candidate.
    pub holds: fn(&Facts, &ParallelConfig) -> bool,
    /// The values that clash, when it is broken.
    pub clash: fn(&Facts, &ParallelConfig) -> String,
}

/// A rule that a layout breaks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// The rule.
    pub id: String,
    /// What clashes.
    pub message: String,
    /// The nearest values that work, where there are any.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hint: Option<String>,
}

/// An integer axis of a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Axis {
    /// Tensor parallel degree.
    Tp,
    /// Pipeline parallel degree.
    Pp,
    /// Chunks per pipeline rank.
    Vpp,
    /// Context parallel degree.
    Cp,
    /// Expert parallel degree.
    Ep,
    /// Expert tensor parallel degree.
    Etp,
    /// Replicas of the sharded state.
    DpReplicate,
    /// Shards of the state.
    DpShard,
    /// ZeRO stage.
    Zero,
    /// Sequences of a microbatch.
    MicroBatch,
    /// Microbatches of a step.
    Microbatches,
    /// Sequence parallelism (0 or 1).
    SequenceParallel,
}

impl Axis {
    /// Every axis.
    pub const ALL: [Self; 12] = [
        Self::Tp,
        Self::Pp,
        Self::Vpp,
        Self::Cp,
        Self::Ep,
        Self::Etp,
        Self::DpReplicate,
        Self::DpShard,
        Self::Zero,
        Self::MicroBatch,
        Self::Microbatches,
        Self::SequenceParallel,
    ];

    /// The name it has in plans.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tp => "tp",
            Self::Pp => "pp",
            Self::Vpp => "vpp",
            Self::Cp => "cp",
            Self::Ep => "ep",
            Self::Etp => "etp",
            Self::DpReplicate => "dp_replicate",
            Self::DpShard => "dp_shard",
            Self::Zero => "zero_stage",
            Self::MicroBatch => "micro_batch_size",
            Self::Microbatches => "num_microbatches",
            Self::SequenceParallel => "sequence_parallel",
        }
    }

    /// Its value in a layout.
    #[must_use]
    pub fn get(self, parallel: &ParallelConfig) -> u64 {
        match self {
            Self::Tp => parallel.tp.into(),
            Self::Pp => parallel.pp.into(),
            Self::Vpp => parallel.vpp.into(),
            Self::Cp => parallel.cp.into(),
            Self::Ep => parallel.ep.into(),
            Self::Etp => parallel.etp.into(),
            Self::DpReplicate => parallel.dp_replicate.into(),
            Self::DpShard => parallel.dp_shard.into(),
            Self::Zero => parallel.zero_stage.into(),
            Self::MicroBatch => parallel.micro_batch_size,
            Self::Microbatches => parallel.num_microbatches,
            Self::SequenceParallel => parallel.sequence_parallel.into(),
        }
    }

    /// Sets it in a layout.
    pub fn set(self, parallel: &mut ParallelConfig, value: u64) {
        let degree = u32::try_from(value).unwrap_or(u32::MAX);
        match self {
            Self::Tp => parallel.tp = degree,
            Self::Pp => parallel.pp = degree,
            Self::Vpp => parallel.vpp = degree,
            Self::Cp => parallel.cp = degree,
            Self::Ep => parallel.ep = degree,
            Self::Etp => parallel.etp = degree,
            Self::DpReplicate => parallel.dp_replicate = degree,
            Self::DpShard => parallel.dp_shard = degree,
            Self::Zero => parallel.zero_stage = u8::try_from(value).unwrap_or(u8::MAX),
            Self::MicroBatch => parallel.micro_batch_size = value,
            Self::Microbatches => parallel.num_microbatches = value,
            Self::SequenceParallel => parallel.sequence_parallel = value != 0,
        }
    }

    /// The range in which a hint looks for a value.
    const fn hint_range(self) -> (u64, u64) {
        match self {
            Self::Zero => (0, 3),
            Self::SequenceParallel => (0, 1),
            _ => (1, 4096),
        }
    }
}

impl Rule {
    /// The violation, if the layout breaks the rule; its hint keeps those of `rules` about the same axis as well, where that
    /// is possible.
    #[must_use]
    pub fn check(&self, facts: &Facts, parallel: &ParallelConfig, rules: &[&Self]) -> Option<Violation> {
        if (self.holds)(facts, parallel) {
            return None;
        }
        Some(Violation {
            id: self.id.to_owned(),
            message: format!("{}: {}", (self.clash)(facts, parallel), self.statement),
            hint: self.hint(facts, parallel, rules).or_else(|| self.hint(facts, parallel, &[])),
        })
    }

    /// The next lower and the next higher value of the rule's axis that keep it, everything else as it is.
    fn hint(&self, facts: &Facts, parallel: &ParallelConfig, rules: &[&Self]) -> Option<String> {
        let (low, high) = self.axis.hint_range();
        let now = self.axis.get(parallel);
        let mut trial = parallel.clone();
        let mut works = |value: &u64| {
            self.axis.set(&mut trial, *value);
            let mut others = rules.iter().filter(|rule| rule.axis == self.axis);
            (self.holds)(facts, &trial) && others.all(|rule| (rule.holds)(facts, &trial))
        };
        let below = (low..now.min(high + 1)).rev().find(&mut works);
        let above = (now.saturating_add(1).max(low)..=high).find(&mut works);
        let values: Vec<String> = below.into_iter().chain(above).map(|value| value.to_string()).collect();
        (!values.is_empty()).then(|| format!("{} {} works", self.axis.name(), values.join(" or ")))
    }
}
