//! Number formats of the matrix units.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The format the linear layers compute in. Attention, router and head stay in 16 bits in every case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// 32-bit floating point (TF32 matrix units where there are any).
    Fp32,
    /// 16-bit floating point.
    Fp16,
    /// bfloat16.
    Bf16,
    /// 8-bit floating point with per-tensor scales.
    Fp8,
    /// 8-bit floating point with block scales of 32 elements.
    Mxfp8,
    /// 4-bit floating point with block scales of 16 elements.
    Nvfp4,
}

impl Precision {
    /// Every precision, in the order of the command line's help.
    pub const ALL: [Self; 6] = [Self::Bf16, Self::Fp16, Self::Fp8, Self::Mxfp8, Self::Nvfp4, Self::Fp32];

    /// The name used in profiles, plans and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32",
            Self::Fp16 => "fp16",
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
            Self::Mxfp8 => "mxfp8",
            Self::Nvfp4 => "nvfp4",
        }
    }

    /// Whether linear layers quantise their inputs to 8 bits or fewer.
    #[must_use]
    pub const fn is_low(self) -> bool {
        matches!(self, Self::Fp8 | Self::Mxfp8 | Self::Nvfp4)
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Precision {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|p| p.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|p| p.name()).collect();
            format!("unknown precision `{text}`: use one of {}", names.join(", "))
        })
    }
}
