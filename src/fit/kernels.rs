//! Fit of a GPU kind's kernel curves to measured kernel and collective times.
//!
//! Every curve is fitted to 70 % of its points; the 30 % that `validate kernels` reports as held out are never seen.

use super::optimizer::{Objective, minimise};
use super::parameters::{Parameter, Slot, Unit, rounded};
use super::siblings::{apply_curves, with_siblings};
use crate::validate::ValidateError;
use crate::validate::kernels::{Kernels, MeasuredWork, Work};
use crate::validate::metrics::median;
use cluster_profiles::{Gpu, KernelCurves, Precision};
use cost_models::compute::Format;
use cost_models::runtime::SharedTraits;
use std::collections::BTreeMap;
use std::path::Path;

/// A number of a curve.
struct Number {
    key: &'static str,
    get: fn(&mut KernelCurves) -> &mut f64,
    /// Where the search starts: a multiple of a datasheet figure, so that it does not depend on an earlier fit.
    start: fn(&Gpu) -> f64,
    low: f64,
    high: f64,
    unit: Unit,
}

const fn number(
    key: &'static str,
    get: fn(&mut KernelCurves) -> &mut f64,
    start: fn(&Gpu) -> f64,
    (low, high): (f64, f64),
    unit: Unit,
) -> Number {
    Number { key, get, start, low, high, unit }
}

/// A curve: the file it is measured in, its numbers, and which points it explains.
struct Curve {
    section: &'static str,
    file: &'static str,
    numbers: &'static [Number],
    explains: fn(&Work) -> bool,
}

const GEMM_16BIT: &[Number] = &[
    number("launch", |k| &mut k.gemm_16bit.launch.0, |_| 3e-6, (2e-7, 2e-5), Unit::Micros),
    number(
        "rate",
        |k| &mut k.gemm_16bit.rate.0,
        |g| 0.8 * g.peak_rate(Precision::Bf16).get(),
        (5e13, 5e15),
        Unit::Teraflops,
    ),
    number("k_half", |k| &mut k.gemm_16bit.k_half, |_| 120.0, (1.0, 1000.0), Unit::None),
    number("rate_decay", |k| &mut k.gemm_16bit.rate_decay, |_| 0.02, (0.001, 0.06), Unit::None),
];

fn eight(k: &mut KernelCurves) -> &mut cluster_profiles::GemmCurve {
    k.gemm_8bit.get_or_insert_with(|| k.gemm_16bit.clone())
}

const GEMM_8BIT: &[Number] = &[
    number("launch", |k| &mut eight(k).launch.0, |_| 1.2e-5, (1e-6, 4e-5), Unit::Micros),
    number(
        "rate",
        |k| &mut eight(k).rate.0,
        |g| 0.7 * g.peak_rate(Precision::Fp8).get(),
        (1e14, 1e16),
        Unit::Teraflops,
    ),
    number("cast_bytes", |k| &mut eight(k).cast_bytes, |_| 6.0, (0.5, 20.0), Unit::None),
];

const ATTENTION: &[Number] = &[
    number("launch", |k| &mut k.attention.launch.0, |_| 3e-5, (5e-6, 1e-4), Unit::Micros),
    number(
        "rate",
        |k| &mut k.attention.rate.0,
        |g| 0.6 * g.peak_rate(Precision::Bf16).get(),
        (5e13, 5e15),
        Unit::Teraflops,
    ),
    number("s_half", |k| &mut k.attention.s_half, |_| 1000.0, (1.0, 1e4), Unit::None),
    number("head_64_ratio", |k| &mut k.attention.head_64_ratio, |_| 1.2, (0.5, 3.0), Unit::None),
];

const COLLECTIVE: &[Number] = &[
    number("latency", |k| &mut k.collective.latency.0, |_| 6e-6, (1e-6, 5e-5), Unit::Micros),
    number(
        "gather_bandwidth",
        |k| &mut k.collective.gather_bandwidth.0,
        |g| 0.1 * g.memory_bandwidth.get(),
        (1e9, 2e12),
        Unit::GigabytesPerSecond,
    ),
    number(
        "reduce_bandwidth",
        |k| &mut k.collective.reduce_bandwidth.0,
        |g| 0.11 * g.memory_bandwidth.get(),
        (1e9, 2e12),
        Unit::GigabytesPerSecond,
    ),
    number("transition", |k| &mut k.collective.transition.0, |_| 1.5e-5, (1e-8, 2e-4), Unit::Micros),
];

const EXPERTS: &[Number] = &[
    number("expert_traffic", |k| &mut k.expert_traffic, |_| 2.0, (0.5, 10.0), Unit::None),
    number("expert_token_traffic", |k| &mut k.expert_token_traffic, |_| 6.0, (0.5, 40.0), Unit::None),
];

const CURVES: &[Curve] = &[
    Curve {
        section: "kernels.gemm_16bit",
        file: "gemm.csv",
        numbers: GEMM_16BIT,
        explains: |work| matches!(work, Work::Gemm(Format::Bits16, _)),
    },
    Curve {
        section: "kernels.gemm_8bit",
        file: "gemm.csv",
        numbers: GEMM_8BIT,
        explains: |work| matches!(work, Work::Gemm(Format::Bits8, _)),
    },
    Curve {
        section: "kernels.attention",
        file: "attention_forward.csv",
        numbers: ATTENTION,
        explains: |work| matches!(work, Work::Attention(_)),
    },
    Curve {
        section: "kernels.collective",
        file: "collectives.csv",
        numbers: COLLECTIVE,
        explains: |work| matches!(work, Work::Collective(..)),
    },
    Curve {
        section: "kernels",
        file: "moe_forward.csv",
        numbers: EXPERTS,
        explains: |work| matches!(work, Work::Experts(..)),
    },
];

/// A fitted curve of one GPU kind.
#[derive(Debug, Clone)]
pub struct FittedCurve {
    /// GPU kind.
    pub gpu: String,
    /// Table of its profile, such as `kernels.attention`.
    pub section: &'static str,
    /// File it was fitted to.
    pub file: &'static str,
    /// Points it was fitted to, and those held out.
    pub points: (usize, usize),
    /// Median error on the points it was fitted to, and on those held out.
    pub median_error: (f64, f64),
    /// Its numbers.
    pub parameters: Vec<Parameter>,
}

/// Fits every curve that `dir` (the folder with `gemm.csv` and its kin) has points for.
///
/// # Errors
/// [`ValidateError`] if a file is broken or missing.
pub fn fit_kernels(dir: &Path) -> Result<Vec<FittedCurve>, ValidateError> {
    let kernels = Kernels::new()?;
    let mut by_gpu: BTreeMap<String, Vec<(&'static str, MeasuredWork)>> = BTreeMap::new();
    for (file, points) in kernels.read(dir)? {
        for point in points.points {
            by_gpu.entry(point.gpu.clone()).or_default().push((file, point));
        }
    }
    let mut fitted = Vec::new();
    for (name, points) in &by_gpu {
        let Ok(gpu) = kernels.gpu(name) else { continue };
        let of_curve = |curve: &Curve| {
            let belongs =
                |(file, point): &&(&str, MeasuredWork)| *file == curve.file && (curve.explains)(&point.work);
            points.iter().filter(belongs).map(|(_, point)| point.clone()).collect::<Vec<_>>()
        };
        let mut gpu = gpu.clone();
        for curve in CURVES {
            let Some(found) = fit_curve(&gpu, kernels.shared(), curve, &of_curve(curve)) else { continue };
            apply_curves(&mut gpu, std::slice::from_ref(&found));
            fitted.push(found);
        }
    }
    Ok(with_siblings(&fitted))
}

/// The numbers of every curve a GPU kind has; values are set by the caller.
pub(super) fn curve_numbers(gpu: &Gpu) -> Vec<Parameter> {
    let present = |curve: &&Curve| curve.section != "kernels.gemm_8bit" || gpu.kernels.gemm_8bit.is_some();
    let numbers =
        CURVES.iter().filter(present).flat_map(|curve| curve.numbers.iter().map(move |n| (curve, n)));
    numbers.map(|(curve, number)| parameter(gpu, curve, number, 0.0)).collect()
}

fn parameter(gpu: &Gpu, curve: &Curve, number: &Number, value: f64) -> Parameter {
    Parameter {
        owner: gpu.name.clone(),
        section: curve.section,
        key: number.key,
        slot: Slot::Gpu(number.get),
        value,
        prior: value,
        spread: 1.0,
        low: number.low,
        high: number.high,
        unit: number.unit,
    }
}

/// Rounds of the search; it ends earlier when nothing improves.
const ROUNDS: usize = 80;
/// Points below which no curve is fitted.
const FEWEST_POINTS: usize = 20;

fn fit_curve(
    gpu: &Gpu,
    shared: &SharedTraits,
    curve: &Curve,
    points: &[MeasuredWork],
) -> Option<FittedCurve> {
    let (held, seen): (Vec<MeasuredWork>, Vec<MeasuredWork>) =
        points.iter().cloned().partition(|point| point.held_out);
    if seen.len() < FEWEST_POINTS {
        return None;
    }
    let objective = CurveFit { gpu, shared, curve, points: &seen, all: (0..seen.len()).collect() };
    let mut values = objective.best();
    values.iter_mut().for_each(|value| *value = rounded(*value));
    let fitted = objective.with(&values);
    let error = |points: &[MeasuredWork]| {
        let errors: Vec<f64> = points
            .iter()
            .map(|point| (point.work.predict(&fitted, shared).get() / point.measured - 1.0).abs())
            .collect();
        median(&errors).unwrap_or(0.0)
    };
    let parameters = curve.numbers.iter().zip(&values);
    let parameters = parameters.map(|(number, &value)| parameter(gpu, curve, number, value));
    Some(FittedCurve {
        gpu: gpu.name.clone(),
        section: curve.section,
        file: curve.file,
        points: (seen.len(), held.len()),
        median_error: (error(&seen), error(&held)),
        parameters: parameters.collect(),
    })
}

/// Errors below this do not matter.
const NOISE: f64 = 0.02;

struct CurveFit<'a> {
    gpu: &'a Gpu,
    shared: &'a SharedTraits,
    curve: &'a Curve,
    points: &'a [MeasuredWork],
    all: Vec<usize>,
}

/// Starts of the search, as multiples of the numbers' own: links differ by more than a search can walk.
const STARTS: [f64; 3] = [1.0, 0.1, 0.02];

impl CurveFit<'_> {
    /// The best of the searches from all starts.
    fn best(&self) -> Vec<f64> {
        let numbers = self.curve.numbers;
        let search = |scale: f64| {
            let start = |n: &Number| {
                let scale = if n.key.ends_with("bandwidth") { scale } else { 1.0 };
                ((n.start)(self.gpu) * scale).clamp(n.low, n.high)
            };
            let mut values: Vec<f64> = numbers.iter().map(start).collect();
            (minimise(self, &mut values, ROUNDS), values)
        };
        let searches = STARTS.into_iter().map(search);
        searches
            .reduce(|best, next| if next.0 < best.0 { next } else { best })
            .map_or_else(Vec::new, |(_, v)| v)
    }

    fn with(&self, values: &[f64]) -> Gpu {
        let mut gpu = self.gpu.clone();
        for (number, value) in self.curve.numbers.iter().zip(values) {
            *(number.get)(&mut gpu.kernels) = *value;
        }
        gpu
    }
}

impl Objective for CurveFit<'_> {
    fn terms_of(&self, _: usize) -> &[usize] {
        &self.all
    }

    fn terms_at(&self, terms: &[usize], values: &[f64]) -> Vec<f64> {
        let gpu = self.with(values);
        let error = |&term: &usize| {
            let point = &self.points[term];
            let error = (point.work.predict(&gpu, self.shared).get() / point.measured).ln();
            (error * error + NOISE * NOISE).sqrt()
        };
        terms.iter().map(error).collect()
    }

    fn combine(&self, terms: &[f64], _: &[f64]) -> f64 {
        terms.iter().sum::<f64>() / terms.len().max(1) as f64
    }

    fn terms(&self) -> usize {
        self.points.len()
    }

    fn bounds(&self, index: usize) -> (f64, f64) {
        (self.curve.numbers[index].low, self.curve.numbers[index].high)
    }
}
