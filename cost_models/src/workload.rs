//! What one optimizer step has to do.

use cluster_profiles::Precision;
use serde::{Deserialize, Serialize};

/// One optimizer step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Sequences of one step, over all ranks.
    pub global_batch: u64,
    /// Tokens of a sequence.
    pub seq_len: u64,
    /// Format of the linear layers.
    pub precision: Precision,
    /// The optimizer.
    pub optimizer: Optimizer,
    /// Format gradients are accumulated and reduced in; the runtime's own if none.
    pub gradient_dtype: Option<Dtype>,
    /// Tokens of the busiest expert-parallel rank over the mean (1: balanced).
    pub expert_imbalance: f64,
}

impl Workload {
    /// Tokens of one step.
    #[must_use]
    pub fn tokens(&self) -> f64 {
        self.global_batch as f64 * self.seq_len as f64
    }
}

/// A storage format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// Four bytes.
    Fp32,
    /// Two bytes.
    Bf16,
    /// Two bytes.
    Fp16,
    /// One byte.
    Fp8,
}

impl Dtype {
    /// Bytes per element.
    #[must_use]
    pub const fn bytes(self) -> f64 {
        match self {
            Self::Fp32 => 4.0,
            Self::Bf16 | Self::Fp16 => 2.0,
            Self::Fp8 => 1.0,
        }
    }
}

/// The optimizer and the format of its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Optimizer {
    /// Adam with fp32 master weights and moments: 12 bytes per parameter.
    Adamw,
    /// Adam with fp32 master weights and bf16 moments: 8 bytes.
    AdamwBf16,
    /// SGD with momentum: master weights and one moment, 8 bytes.
    Sgd,
    /// Muon on matrices (one moment), Adam on embedding, head and vectors.
    Muon,
}

impl Optimizer {
    /// Every optimizer.
    pub const ALL: [Self; 4] = [Self::Adamw, Self::AdamwBf16, Self::Sgd, Self::Muon];

    /// The name used in plans and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Adamw => "adamw",
            Self::AdamwBf16 => "adamw-bf16",
            Self::Sgd => "sgd",
            Self::Muon => "muon",
        }
    }
}

impl std::str::FromStr for Optimizer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|o| o.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|o| o.name()).collect();
            format!("unknown optimizer `{text}`: use one of {}", names.join(", "))
        })
    }
}
