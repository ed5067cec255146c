//! A GPU kind: datasheet figures, each with its source, and its kernel curves.

use crate::error::ProfileError;
use crate::kernels::KernelCurves;
use crate::precision::Precision;
use crate::quantity;
use crate::read::{self, Section};
use crate::units::{Bytes, BytesPerSecond, FlopsPerSecond};
use crate::write::{Toml, quoted};
use serde::{Deserialize, Serialize};

/// A figure and the document it was read in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Dense rate.
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
    pub memory: Bytes,
    /// Source of the memory figure.
    pub memory_source: String,
    /// Peak memory bandwidth.
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
        read::read(origin, text, Self::read)
    }

    /// Writes the profile; reading it gives an equal GPU, to the bit.
    ///
    /// # Errors
    /// [`ProfileError::Faults`] where a figure is one that a profile may not hold.
    pub fn to_toml(&self) -> Result<String, ProfileError> {
        let mut toml = Toml::default();
        self.write(&mut toml, "");
        let text = toml.finish();
        Self::from_toml(&self.name, &text).map(|_| text)
    }

    pub(crate) fn read(section: &Section) -> Self {
        Self {
            name: section.text("name"),
            aliases: section.texts("aliases"),
            title: section.text("title"),
            vendor: section.text("vendor"),
            compute_capability: section.optional_count("compute_capability", 1..=999),
            memory: section.bytes("memory", 1e8..=1e13),
            memory_source: section.text("memory_source"),
            memory_bandwidth: section.bytes_per_second("memory_bandwidth", 1e8..=1e15),
            memory_bandwidth_source: section.text("memory_bandwidth_source"),
            multiprocessors: section.count("multiprocessors", 1..=10_000),
            power_watts: section.number("power_watts", 10.0..=1e5),
            power_source: section.text("power_source"),
            rates: section.section("rates", Rates::read),
            kernels: section.section("kernels", KernelCurves::read),
        }
    }

    /// Writes the GPU as the table that ends with `prefix` (`groups.gpu.`), or as a file of its own (nothing).
    pub(crate) fn write(&self, toml: &mut Toml, prefix: &str) {
        toml.text("name", &self.name);
        toml.texts("aliases", &self.aliases);
        toml.text("title", &self.title);
        toml.text("vendor", &self.vendor);
        toml.optional_number("compute_capability", self.compute_capability.map(f64::from));
        toml.bytes("memory", self.memory);
        toml.text("memory_source", &self.memory_source);
        toml.bytes_per_second("memory_bandwidth", self.memory_bandwidth);
        toml.text("memory_bandwidth_source", &self.memory_bandwidth_source);
        toml.number("multiprocessors", self.multiprocessors.into());
        toml.number("power_watts", self.power_watts);
        toml.text("power_source", &self.power_source);
        toml.table(&format!("{prefix}rates"));
        self.rates.write(toml);
        self.kernels.write(toml, prefix);
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
}

impl Figure {
    fn read(section: &Section) -> Self {
        Self { value: section.flops_per_second("value", 1e8..=1e18), source: section.text("source") }
    }
}

impl Rates {
    fn read(section: &Section) -> Self {
        Self {
            fp32: section.optional_section("fp32", Figure::read),
            fp16: section.section("fp16", Figure::read),
            bf16: section.optional_section("bf16", Figure::read),
            fp8: section.optional_section("fp8", Figure::read),
            fp4: section.optional_section("fp4", Figure::read),
        }
    }

    fn write(&self, toml: &mut Toml) {
        for (name, figure) in self.by_name() {
            let rate = quantity::write_flops_per_second(figure.value);
            toml.raw(name, &format!("{{ value = \"{rate}\", source = {} }}", quoted(&figure.source)));
        }
    }

    /// The rates the GPU has, by format.
    pub fn by_name(&self) -> impl Iterator<Item = (&'static str, &Figure)> {
        let rates = [
            ("fp32", self.fp32.as_ref()),
            ("fp16", Some(&self.fp16)),
            ("bf16", self.bf16.as_ref()),
            ("fp8", self.fp8.as_ref()),
            ("fp4", self.fp4.as_ref()),
        ];
        rates.into_iter().filter_map(|(name, figure)| Some((name, figure?)))
    }
}
