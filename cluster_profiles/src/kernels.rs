//! How fast a GPU kind runs its kernels: a handful of numbers per kind, each set with its provenance.
//!
//! The formulas that use them stand in the cost model (`compute.rs`, `comm.rs`); here they are data.

use crate::read::Section;
use crate::units::{BytesPerSecond, FlopsPerSecond, Seconds};
use crate::write::{Toml, number, quoted};
use serde::{Deserialize, Serialize};

/// Where a set of parameters comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// `fitted`, `datasheet`, `published`, `assumed`.
    pub basis: Basis,
    /// Fitted to what, taken from which sibling, or stated where.
    pub from: String,
    /// Median error on the data it was fitted to, as a fraction, where there is any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median_error: Option<f64>,
}

/// How a number came to be, from the firmest to the softest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// Measured on this very hardware and imported.
    Measured,
    /// The maker's figure.
    Datasheet,
    /// A figure from a public benchmark page or document.
    Published,
    /// Fitted to public measurements of this kind.
    Fitted,
    /// Taken from a sibling or a rule of thumb.
    Assumed,
}

/// Matrix multiplication in one precision class:
/// `time = launch + max(2mnk / (rate * wave^0.3 * k/(k + k_half)), bytes / bandwidth) + cast * m * k / bandwidth`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GemmCurve {
    /// Fixed time of a call.
    pub launch: Seconds,
    /// Rate of a large product.
    pub rate: FlopsPerSecond,
    /// Inner size at which half the rate is reached (0 for no loss).
    #[serde(default)]
    pub k_half: f64,
    /// Bytes per element of A spent on quantising it inside the call.
    #[serde(default)]
    pub cast_bytes: f64,
    /// Power of its duration (relative to 1 ms) by which a product slows down as the clock falls under load.
    #[serde(default)]
    pub rate_decay: f64,
    /// Where these come from.
    pub provenance: Provenance,
}

/// Fused causal attention, forward:
/// `time = launch + flops / (rate * r(head_dim) * s/(s + s_half (128/head_dim)^0.7)) + bytes / bandwidth`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionCurve {
    /// Fixed time of a call.
    pub launch: Seconds,
    /// Rate at a head width of 128 on a long sequence.
    pub rate: FlopsPerSecond,
    /// Sequence length at which half the rate is reached.
    pub s_half: f64,
    /// Rate at a head width of 64 relative to 128.
    pub head_64_ratio: f64,
    /// Where these come from.
    pub provenance: Provenance,
}

/// Collectives inside one NVLink (or PCIe) domain, `v` bytes on the wire:
/// `time = latency * (1 + 0.22 (n - 1)) + v/bandwidth + sqrt(transition * v/bandwidth)`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollectiveCurve {
    /// Latency of two ranks.
    pub latency: Seconds,
    /// Bus bandwidth of all_gather, reduce_scatter, all_to_all, per GPU per direction.
    pub gather_bandwidth: BytesPerSecond,
    /// Bus bandwidth of all_reduce.
    pub reduce_bandwidth: BytesPerSecond,
    /// Width of the transition between the small-message and the large-message protocols.
    pub transition: Seconds,
    /// Where these come from.
    pub provenance: Provenance,
}

/// Everything known of a GPU kind's kernels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelCurves {
    /// 16-bit matrix products.
    pub gemm_16bit: GemmCurve,
    /// 8-bit matrix products, where the GPU has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gemm_8bit: Option<GemmCurve>,
    /// Fused attention.
    pub attention: AttentionCurve,
    /// Collectives inside the NVLink (or PCIe) domain.
    pub collective: CollectiveCurve,
    /// Memory traffic of permutation and activation in a grouped expert layer, relative to the minimum.
    pub expert_traffic: f64,
    /// Bytes per token of an expert-parallel group and hidden channel that a fused expert layer of an inference engine
    /// moves on every rank: routing, gathering and summing up. 0 where it was not measured.
    #[serde(default)]
    pub expert_token_traffic: f64,
    /// Sustained clock of 16-bit work in training, relative to the short bursts the curves were measured in.
    pub sustained_16bit: f64,
    /// The same for 8-bit work. May exceed 1 where the measured 8-bit curve is slower than training kernels are.
    pub sustained_8bit: f64,
    /// The same for attention, where it differs from [`sustained_16bit`](Self::sustained_16bit): attention draws less
    /// power, so a power-limited GPU slows it down less. Read it with [`attention_clock`](Self::attention_clock).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sustained_attention: Option<f64>,
    /// Memory bandwidth that streaming kernels reach.
    pub stream_bandwidth: BytesPerSecond,
    /// Where the figures of this table itself come from.
    pub provenance: Provenance,
}

impl KernelCurves {
    /// Sustained clock of fused attention: its own where the profile has one, else that of 16-bit work.
    #[must_use]
    pub fn attention_clock(&self) -> f64 {
        self.sustained_attention.unwrap_or(self.sustained_16bit)
    }

    /// The softest basis among the curves: how far predictions for this GPU can be trusted at most.
    #[must_use]
    pub fn softest_basis(&self) -> Basis {
        let curves = [&self.gemm_16bit.provenance, &self.attention.provenance, &self.collective.provenance];
        let eight = self.gemm_8bit.iter().map(|gemm| &gemm.provenance);
        let all = curves.into_iter().chain(eight).map(|provenance| provenance.basis);
        all.fold(self.provenance.basis, Basis::max)
    }
}

/// Longest time of one call that a profile may state, in seconds.
const LATENCY: std::ops::RangeInclusive<f64> = 0.0..=1.0;
/// Rates of arithmetic a profile may state.
const RATE: std::ops::RangeInclusive<f64> = 1e8..=1e18;
/// Transfer rates a profile may state.
const BANDWIDTH: std::ops::RangeInclusive<f64> = 1e6..=1e15;

impl Provenance {
    pub(crate) fn read(section: &Section) -> Self {
        Self {
            basis: section.parsed("basis", str::parse).unwrap_or(Basis::Assumed),
            from: section.text("from"),
            median_error: section.optional_number("median_error", 0.0..=10.0),
        }
    }

    pub(crate) fn write(&self, toml: &mut Toml) {
        let error = self.median_error.map(|e| format!(", median_error = {}", number(e))).unwrap_or_default();
        let (basis, from) = (self.basis.name(), quoted(&self.from));
        toml.raw("provenance", &format!("{{ basis = \"{basis}\", from = {from}{error} }}"));
    }
}

impl Basis {
    /// Every basis, from the firmest to the softest.
    pub const ALL: [Self; 5] =
        [Self::Measured, Self::Datasheet, Self::Published, Self::Fitted, Self::Assumed];

    /// The name used in profiles and plans.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Datasheet => "datasheet",
            Self::Published => "published",
            Self::Fitted => "fitted",
            Self::Assumed => "assumed",
        }
    }
}

impl std::str::FromStr for Basis {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|basis| basis.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|basis| basis.name()).collect();
            format!("unknown basis, use one of {}", names.join(", "))
        })
    }
}

impl GemmCurve {
    fn read(section: &Section) -> Self {
        Self {
            launch: section.seconds("launch", LATENCY),
            rate: section.flops_per_second("rate", RATE),
            k_half: section.optional_number("k_half", 0.0..=1e6).unwrap_or(0.0),
            cast_bytes: section.optional_number("cast_bytes", 0.0..=1e3).unwrap_or(0.0),
            rate_decay: section.optional_number("rate_decay", 0.0..=0.5).unwrap_or(0.0),
            provenance: section.section("provenance", Provenance::read),
        }
    }

    fn write(&self, toml: &mut Toml) {
        toml.seconds("launch", self.launch);
        toml.flops_per_second("rate", self.rate);
        let optional =
            [("k_half", self.k_half), ("cast_bytes", self.cast_bytes), ("rate_decay", self.rate_decay)];
        for (key, value) in optional {
            toml.optional_number(key, (value != 0.0).then_some(value));
        }
        self.provenance.write(toml);
    }
}

impl AttentionCurve {
    fn read(section: &Section) -> Self {
        Self {
            launch: section.seconds("launch", LATENCY),
            rate: section.flops_per_second("rate", RATE),
            s_half: section.number("s_half", 0.0..=1e7),
            head_64_ratio: section.number("head_64_ratio", 0.01..=10.0),
            provenance: section.section("provenance", Provenance::read),
        }
    }

    fn write(&self, toml: &mut Toml) {
        toml.seconds("launch", self.launch);
        toml.flops_per_second("rate", self.rate);
        toml.number("s_half", self.s_half);
        toml.number("head_64_ratio", self.head_64_ratio);
        self.provenance.write(toml);
    }
}

impl CollectiveCurve {
    fn read(section: &Section) -> Self {
        Self {
            latency: section.seconds("latency", LATENCY),
            gather_bandwidth: section.bytes_per_second("gather_bandwidth", BANDWIDTH),
            reduce_bandwidth: section.bytes_per_second("reduce_bandwidth", BANDWIDTH),
            transition: section.seconds("transition", LATENCY),
            provenance: section.section("provenance", Provenance::read),
        }
    }

    fn write(&self, toml: &mut Toml) {
        toml.seconds("latency", self.latency);
        toml.bytes_per_second("gather_bandwidth", self.gather_bandwidth);
        toml.bytes_per_second("reduce_bandwidth", self.reduce_bandwidth);
        toml.seconds("transition", self.transition);
        self.provenance.write(toml);
    }
}

impl KernelCurves {
    pub(crate) fn read(section: &Section) -> Self {
        Self {
            expert_traffic: section.number("expert_traffic", 0.0..=100.0),
            expert_token_traffic: section.optional_number("expert_token_traffic", 0.0..=100.0).unwrap_or(0.0),
            sustained_16bit: section.number("sustained_16bit", 0.05..=2.0),
            sustained_8bit: section.number("sustained_8bit", 0.05..=2.0),
            sustained_attention: section.optional_number("sustained_attention", 0.05..=2.0),
            stream_bandwidth: section.bytes_per_second("stream_bandwidth", BANDWIDTH),
            provenance: section.section("provenance", Provenance::read),
            gemm_16bit: section.section("gemm_16bit", GemmCurve::read),
            gemm_8bit: section.optional_section("gemm_8bit", GemmCurve::read),
            attention: section.section("attention", AttentionCurve::read),
            collective: section.section("collective", CollectiveCurve::read),
        }
    }

    /// Writes the table `kernels` of a GPU whose own table is `prefix`.
    pub(crate) fn write(&self, toml: &mut Toml, prefix: &str) {
        toml.table(&format!("{prefix}kernels"));
        toml.number("expert_traffic", self.expert_traffic);
        let measured = (self.expert_token_traffic > 0.0).then_some(self.expert_token_traffic);
        toml.optional_number("expert_token_traffic", measured);
        toml.number("sustained_16bit", self.sustained_16bit);
        toml.number("sustained_8bit", self.sustained_8bit);
        toml.optional_number("sustained_attention", self.sustained_attention);
        toml.bytes_per_second("stream_bandwidth", self.stream_bandwidth);
        self.provenance.write(toml);
        toml.table(&format!("{prefix}kernels.gemm_16bit"));
        self.gemm_16bit.write(toml);
        if let Some(gemm) = &self.gemm_8bit {
            toml.table(&format!("{prefix}kernels.gemm_8bit"));
            gemm.write(toml);
        }
        toml.table(&format!("{prefix}kernels.attention"));
        self.attention.write(toml);
        toml.table(&format!("{prefix}kernels.collective"));
        self.collective.write(toml);
    }
}
