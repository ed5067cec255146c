//! The fitted numbers of the time model: where each lives, what it may be, and how far the data may move it.

use cluster_profiles::KernelCurves;
use cost_models::runtime::{SharedTraits, TimeTraits};

/// Where a fitted number lives.
#[derive(Debug, Clone, Copy)]
pub enum Slot {
    /// Shared by all engines.
    Shared(fn(&mut SharedTraits) -> &mut f64),
    /// An engine's.
    Engine(fn(&mut TimeTraits) -> &mut f64),
    /// A GPU kind's.
    Gpu(fn(&mut KernelCurves) -> &mut f64),
}

/// One fitted number.
#[derive(Debug, Clone)]
pub struct Parameter {
    /// Engine or GPU kind it belongs to; empty for those that all share.
    pub owner: String,
    /// Table of its owner's file; empty for the top.
    pub section: &'static str,
    /// Its key in that table.
    pub key: &'static str,
    /// How to reach it.
    pub slot: Slot,
    /// Its value, in SI units.
    pub value: f64,
    /// Where the fit starts and what it is drawn to.
    pub prior: f64,
    /// Standard deviation of the prior, of the value's logarithm.
    pub spread: f64,
    /// Smallest value.
    pub low: f64,
    /// Largest value.
    pub high: f64,
    /// Unit it is written with.
    pub unit: Unit,
}

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A bare number.
    None,
    /// Microseconds.
    Micros,
    /// Milliseconds.
    Millis,
    /// GB/s.
    GigabytesPerSecond,
    /// TB/s.
    TerabytesPerSecond,
    /// TFLOP/s.
    Teraflops,
}

impl Unit {
    /// SI value of one unit, and its text.
    #[must_use]
    pub const fn scale(self) -> (f64, &'static str) {
        match self {
            Self::None => (1.0, ""),
            Self::Micros => (1e-6, "us"),
            Self::Millis => (1e-3, "ms"),
            Self::GigabytesPerSecond => (1e9, "GB/s"),
            Self::TerabytesPerSecond => (1e12, "TB/s"),
            Self::Teraflops => (1e12, "TFLOP/s"),
        }
    }
}

impl Parameter {
    /// `owner.key`, `owner.curve.key`, or `shared.key`.
    #[must_use]
    pub fn name(&self) -> String {
        let owner = if self.owner.is_empty() { "shared" } else { &self.owner };
        match self.section.strip_prefix("kernels.") {
            Some(curve) => format!("{owner}.{curve}.{}", self.key),
            None => format!("{owner}.{}", self.key),
        }
    }

    /// Distance from the prior, in its standard deviations.
    #[must_use]
    pub fn pull(&self, value: f64) -> f64 {
        (value / self.prior).ln() / self.spread
    }
}

/// A number that step times are fitted by: key, slot, spread, bounds relative to the prior, unit.
struct Kind {
    key: &'static str,
    slot: Slot,
    spread: f64,
    range: f64,
    unit: Unit,
}

const fn kind(key: &'static str, slot: Slot, spread: f64, range: f64, unit: Unit) -> Kind {
    Kind { key, slot, spread, range, unit }
}

const fn shared(
    key: &'static str,
    get: fn(&mut SharedTraits) -> &mut f64,
    prior: f64,
    spread: f64,
    range: f64,
) -> (Kind, f64) {
    (kind(key, Slot::Shared(get), spread, range, Unit::None), prior)
}

/// Numbers that all engines share, with their priors: hand-set from what each stands for before any fit.
const SHARED: &[(Kind, f64)] = &[
    shared("alignment", |s| &mut s.alignment, 0.85, 0.05, 1.17),
    shared("attention_alignment", |s| &mut s.attention_alignment, 0.56, 0.2, 1.7),
    shared("cast_bytes", |s| &mut s.cast_bytes, 4.55, 0.3, 2.0),
    shared("cast_rowwise", |s| &mut s.cast_rowwise, 2.0, 0.4, 2.5),
    shared("rate_4bit", |s| &mut s.rate_4bit, 1.53, 0.2, 1.5),
    shared("attention_backward", |s| &mut s.attention_backward, 2.7, 0.15, 1.6),
    shared("flash_backward", |s| &mut s.flash_backward, 3.6, 0.15, 1.6),
    shared("attention_backward_length", |s| &mut s.attention_backward_length, 1400.0, 0.5, 4.0),
    shared("flash_backward_length", |s| &mut s.flash_backward_length, 1400.0, 0.5, 4.0),
    shared("flash2_hopper", |s| &mut s.flash2_hopper, 0.5, 0.15, 1.6),
    shared("flash2_blackwell", |s| &mut s.flash2_blackwell, 0.3, 0.2, 2.0),
    shared("flash1", |s| &mut s.flash1, 0.57, 0.15, 1.5),
    shared("unfused_attention_rate", |s| &mut s.unfused_attention_rate, 0.78, 0.2, 1.6),
    shared("fused_softmax_bytes", |s| &mut s.fused_softmax_bytes, 12.0, 0.3, 2.0),
    shared("unfused_softmax_bytes", |s| &mut s.unfused_softmax_bytes, 30.0, 0.3, 2.0),
    shared("user_buffers_exposed", |s| &mut s.user_buffers_exposed, 0.3, 0.3, 2.0),
    shared("async_tp_exposed", |s| &mut s.async_tp_exposed, 0.6, 0.2, 1.6),
    shared("interference", |s| &mut s.interference, 0.22, 0.3, 2.0),
    shared("nic_efficiency", |s| &mut s.nic_efficiency, 0.9, 0.08, 1.1),
    shared("expert_rate", |s| &mut s.expert_rate, 0.9, 0.15, 1.3),
    shared("expert_traffic", |s| &mut s.expert_traffic, 1.2, 0.3, 2.0),
    shared("clamped_activation_bytes", |s| &mut s.clamped_activation_bytes, 80.0, 0.3, 2.0),
    shared("expert_overlap_exposed", |s| &mut s.expert_overlap_exposed, 0.25, 0.3, 2.0),
];

const HIDDEN: Kind = kind("hidden_bytes", Slot::Engine(|t| &mut t.hidden_bytes), 0.25, 2.5, Unit::None);
const UNFUSED: Kind =
    kind("hidden_bytes_unfused", Slot::Engine(|t| &mut t.hidden_bytes_unfused), 0.25, 2.0, Unit::None);
const TP: Kind = kind("tp_exposed", Slot::Engine(|t| &mut t.tp_exposed), 0.2, 1.6, Unit::None);
const OVERLAP: Kind = kind("dp_overlap", Slot::Engine(|t| &mut t.dp_overlap), 0.3, 2.0, Unit::None);
const STEP: Kind = kind("step", Slot::Engine(|t| &mut t.step.0), 0.4, 3.0, Unit::Millis);
const HOST: Kind = kind("host", Slot::Engine(|t| &mut t.host.0), 0.3, 2.5, Unit::Micros);
const HOST_TP: Kind = kind("host_tp", Slot::Engine(|t| &mut t.host_tp.0), 0.3, 2.5, Unit::Micros);
const HOST_TP_PIPELINE: Kind =
    kind("host_tp_pipeline", Slot::Engine(|t| &mut t.host_tp_pipeline.0), 0.3, 2.5, Unit::Micros);
const HOST_EXPERTS: Kind =
    kind("host_experts", Slot::Engine(|t| &mut t.host_experts.0), 0.3, 2.0, Unit::Millis);
const HOST_EXPERTS_8BIT: Kind =
    kind("host_experts_8bit", Slot::Engine(|t| &mut t.host_experts_8bit.0), 0.3, 2.0, Unit::Millis);
const SHARD_BROADCAST: Kind =
    kind("shard_broadcast", Slot::Engine(|t| &mut t.shard_broadcast.0), 0.4, 3.0, Unit::Millis);
const FLASH_SPEED: Kind = kind("flash_speed", Slot::Engine(|t| &mut t.flash_speed), 0.2, 1.5, Unit::None);
const FUSED_EXPERTS: Kind =
    kind("fused_expert_traffic", Slot::Engine(|t| &mut t.fused_expert_traffic), 0.2, 2.0, Unit::None);

/// Which engine fits which numbers (at most eight each), with their priors.
const ENGINES: &[(&str, &[(&Kind, f64)])] = &[
    (
        "megatron-core",
        &[
            (&HIDDEN, 24.0),
            (&TP, 0.78),
            (&STEP, 0.033),
            (&HOST_EXPERTS, 2.0e-3),
            (&HOST_EXPERTS_8BIT, 1.5e-3),
            (&FUSED_EXPERTS, 0.47),
        ],
    ),
    ("megatron-2021", &[(&HIDDEN, 40.0), (&TP, 0.9), (&OVERLAP, 0.3)]),
    ("megatron-deepspeed", &[(&HIDDEN, 40.0), (&TP, 0.9)]),
    ("zero-bubble", &[(&HIDDEN, 40.0), (&TP, 0.9)]),
    ("vocabulary-parallel", &[(&HIDDEN, 40.0)]),
    (
        "nanotron",
        &[
            (&HIDDEN, 53.0),
            (&TP, 0.75),
            (&OVERLAP, 0.3),
            (&STEP, 0.047),
            (&HOST, 6.0e-4),
            (&HOST_TP, 1.05e-3),
            (&HOST_TP_PIPELINE, 9.5e-4),
        ],
    ),
    ("aleph-alpha", &[(&HIDDEN, 49.0), (&UNFUSED, 130.0), (&TP, 1.2)]),
    ("fsdp1", &[(&HIDDEN, 30.0), (&STEP, 0.027), (&FLASH_SPEED, 0.8)]),
    ("fsdp2", &[(&HIDDEN, 21.0), (&UNFUSED, 50.0), (&TP, 1.1)]),
    (
        "internevo",
        &[(&HIDDEN, 41.0), (&TP, 1.0), (&OVERLAP, 0.69), (&FLASH_SPEED, 0.8), (&SHARD_BROADCAST, 2.0e-3)],
    ),
    ("jax", &[(&HIDDEN, 20.0)]),
];

const SUSTAINED_16BIT: Kind =
    kind("sustained_16bit", Slot::Gpu(|k| &mut k.sustained_16bit), 0.12, 1.5, Unit::None);
const SUSTAINED_8BIT: Kind =
    kind("sustained_8bit", Slot::Gpu(|k| &mut k.sustained_8bit), 0.12, 1.5, Unit::None);
const SUSTAINED_ATTENTION: Kind = kind(
    "sustained_attention",
    Slot::Gpu(|k| k.sustained_attention.get_or_insert(1.0)),
    0.12,
    1.5,
    Unit::None,
);

/// Which GPU kind has published runs, in which formats, with the priors: bursts slow down by 10 to 20 % under load;
/// Blackwell's 8-bit burst curve is slower than training kernels are.
const GPUS: &[(&str, &[(&Kind, f64)])] = &[
    ("a100-sxm-80gb", &[(&SUSTAINED_16BIT, 0.88)]),
    ("a100-sxm-40gb", &[(&SUSTAINED_16BIT, 0.88)]),
    ("h100-sxm-80gb", &[(&SUSTAINED_16BIT, 0.85), (&SUSTAINED_8BIT, 0.85)]),
    ("h100-96gb-500w", &[(&SUSTAINED_16BIT, 0.8), (&SUSTAINED_8BIT, 0.8)]),
    ("h200", &[(&SUSTAINED_8BIT, 0.95)]),
    ("b200", &[(&SUSTAINED_16BIT, 0.65), (&SUSTAINED_8BIT, 0.88), (&SUSTAINED_ATTENTION, 0.78)]),
    ("b200-power-limited", &[(&SUSTAINED_16BIT, 0.52), (&SUSTAINED_8BIT, 0.7), (&SUSTAINED_ATTENTION, 0.69)]),
    ("b300", &[(&SUSTAINED_8BIT, 1.25)]),
    ("gb200", &[(&SUSTAINED_16BIT, 0.85), (&SUSTAINED_8BIT, 1.15)]),
    ("gb300", &[(&SUSTAINED_16BIT, 0.95), (&SUSTAINED_8BIT, 1.3)]),
    ("v100-sxm3-32gb", &[(&SUSTAINED_16BIT, 1.0)]),
    ("mi300x", &[(&SUSTAINED_16BIT, 0.7), (&SUSTAINED_8BIT, 0.54)]),
];

/// The numbers that step times are fitted by, at their priors.
#[must_use]
pub fn step_parameters() -> Vec<Parameter> {
    let mut parameters: Vec<Parameter> =
        SHARED.iter().map(|(kind, prior)| parameter("", kind, *prior)).collect();
    for (owner, kinds) in ENGINES.iter().chain(GPUS) {
        parameters.extend(kinds.iter().map(|(kind, prior)| parameter(owner, kind, *prior)));
    }
    parameters
}

fn parameter(owner: &str, kind: &Kind, prior: f64) -> Parameter {
    Parameter {
        owner: owner.to_owned(),
        section: match kind.slot {
            Slot::Shared(_) => "",
            Slot::Engine(_) => "time",
            Slot::Gpu(_) => "kernels",
        },
        key: kind.key,
        slot: kind.slot,
        value: prior,
        prior,
        spread: kind.spread,
        low: prior / kind.range,
        high: if kind.key == "dp_overlap" { 1.0 } else { prior * kind.range },
        unit: kind.unit,
    }
}

/// `value` to four significant digits: what profiles hold.
#[must_use]
pub fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}
