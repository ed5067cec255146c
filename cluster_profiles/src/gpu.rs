//! A GPU kind: datasheet figures, each with its source, and its kernel curves.

use crate::error::ProfileError;
use crate::kernels::KernelCurves;
use crate::precision::Precision;
use crate::quantity;
use crate::units::{Bytes, BytesPerSecond, FlopsPerSecond};
use serde::{Deserialize, Serialize};

/// A figure and the document it was read in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Dense rate.
    #[serde(deserialize_with = "quantity::flops_per_second_field")]
    pub value: FlopsPerSecond,
    /// Datasheet or page.
    pub source: String,
}

/// Dense matrix rates by precision; absent where the GPU cannot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rates {
    /// TF32 (or plain FP32) rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fp32: Option<Figure>,
    /// FP16 rate.
    pub fp16: Figure,
    /// bfloat16 rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bf16: Option<Figure>,
    /// 8-bit rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fp8: Option<Figure>,
    /// 4-bit rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fp4: Option<Figure>,
}

/// A GPU kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// Catalogue name, such as `h100-sxm-80gb`.
    pub name: String,
    /// Other names it goes by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// Name for people, such as `H100-SXM-80GB`.
    pub title: String,
    /// `nvidia`, `amd`, `huawei`.
    pub vendor: String,
    /// CUDA compute capability times ten (90 for Hopper), where it applies: kernels and workspaces depend on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_capability: Option<u32>,
    /// Memory a process can allocate in principle.
    #[serde(deserialize_with = "quantity::bytes_field")]
    pub memory: Bytes,
    /// Source of the memory figure.
    pub memory_source: String,
    /// Peak memory bandwidth.
    #[serde(deserialize_with = "quantity::bytes_per_second_field")]
    pub memory_bandwidth: BytesPerSecond,
    /// Source of the bandwidth figure.
    pub memory_bandwidth_source: String,
    /// Streaming multiprocessors (or compute units).
    pub multiprocessors: u32,
    /// Board power in watts.
    pub power_watts: f64,
    /// Source of the power figure.
    pub power_source: String,
    /// Dense matrix rates.
    pub rates: Rates,
    /// How fast its kernels run.
    pub kernels: KernelCurves,
}

impl Gpu {
    /// Reads a GPU profile.
    ///
    /// # Errors
    /// [`ProfileError::Syntax`] with line and column, or [`ProfileError::Faults`] with every senseless figure.
    pub fn from_toml(origin: &str, text: &str) -> Result<Self, ProfileError> {
        let gpu: Self = toml::from_str(text).map_err(|error| ProfileError::Syntax {
            origin: origin.to_owned(),
            message: error.to_string(),
        })?;
        let faults = gpu.faults();
        if faults.is_empty() {
            return Ok(gpu);
        }
        Err(ProfileError::Faults { origin: origin.to_owned(), faults })
    }

    /// The dense peak rate in `precision`, or that of the next wider format the GPU has.
    #[must_use]
    pub fn peak_rate(&self, precision: Precision) -> FlopsPerSecond {
        let rates = &self.rates;
        let bf16 = rates.bf16.as_ref().unwrap_or(&rates.fp16);
        let fp8 = rates.fp8.as_ref().unwrap_or(bf16);
        match precision {
            Precision::Fp32 => rates.fp32.as_ref().unwrap_or(bf16),
            Precision::Fp16 => &rates.fp16,
            Precision::Bf16 => bf16,
            Precision::Fp8 | Precision::Mxfp8 => fp8,
            Precision::Nvfp4 => rates.fp4.as_ref().unwrap_or(fp8),
        }
        .value
    }

    /// Whether the GPU computes in `precision` natively.
    #[must_use]
    pub fn supports(&self, precision: Precision) -> bool {
        match precision {
            Precision::Fp32 | Precision::Fp16 => true,
            Precision::Bf16 => self.rates.bf16.is_some(),
            Precision::Fp8 => self.rates.fp8.is_some(),
            Precision::Mxfp8 => self.rates.fp8.is_some() && self.is_blackwell_or_later(),
            Precision::Nvfp4 => self.rates.fp4.is_some() && self.is_blackwell_or_later(),
        }
    }

    /// Whether the GPU has block-scaled formats.
    #[must_use]
    pub fn is_blackwell_or_later(&self) -> bool {
        self.compute_capability.is_some_and(|c| c >= 100) || self.name.starts_with("mi355")
    }

    fn faults(&self) -> Vec<String> {
        let positive = [
            ("memory", self.memory.get(), 1e9, 1e13),
            ("memory_bandwidth", self.memory_bandwidth.get(), 1e10, 1e15),
            ("power_watts", self.power_watts, 10.0, 1e5),
            ("multiprocessors", f64::from(self.multiprocessors), 1.0, 1e4),
            ("rates.fp16", self.rates.fp16.value.get(), 1e12, 1e18),
            ("kernels.gemm_16bit.rate", self.kernels.gemm_16bit.rate.get(), 1e11, 1e18),
            ("kernels.attention.rate", self.kernels.attention.rate.get(), 1e11, 1e18),
            ("kernels.attention.head_64_ratio", self.kernels.attention.head_64_ratio, 0.01, 10.0),
            ("kernels.sustained_16bit", self.kernels.sustained_16bit, 0.05, 2.0),
            ("kernels.sustained_8bit", self.kernels.sustained_8bit, 0.05, 2.0),
            ("kernels.stream_bandwidth", self.kernels.stream_bandwidth.get(), 1e9, 1e15),
            (
                "kernels.collective.gather_bandwidth",
                self.kernels.collective.gather_bandwidth.get(),
                1e7,
                1e14,
            ),
            (
                "kernels.collective.reduce_bandwidth",
                self.kernels.collective.reduce_bandwidth.get(),
                1e7,
                1e14,
            ),
        ];
        positive
            .into_iter()
            .filter(|(_, value, low, high)| !(low..=high).contains(&value))
            .map(|(field, value, low, high)| {
                format!("{field} is {value:e}, expected between {low:e} and {high:e}")
            })
            .collect()
    }
}
