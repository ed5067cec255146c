//! Latency and bandwidth of a collective by protocol regime: robust piecewise regression of time on size.
//!
//! Libraries change protocol with the size of the message (NCCL: LL, LL128, Simple), so that one line
//! `time = latency + wire bytes / bandwidth` never fits all sizes. [`fit_regimes`] cuts the sizes into as few ranges as
//! explain the times, each with a line of its own, and minimises the sum of relative deviations, which a few outliers
//! do not move.

use crate::measured::{Collective, Regime};
use crate::units::{Bytes, BytesPerSecond, Seconds};

/// Most regimes of a curve.
const MOST_REGIMES: usize = 8;
/// Fewest sizes of a regime.
const FEWEST_SIZES: usize = 2;
/// What another regime must take off the sum of relative deviations.
const PRICE: f64 = 0.12;
/// Rounds of reweighting of a line.
const ROUNDS: usize = 12;
/// Relative deviation below which every point counts the same.
const FLOOR: f64 = 1e-3;
/// Most sizes that are fitted; of more, every n-th.
const MOST_SIZES: usize = 160;

/// Lines of a curve and how far the measured times are from them.
#[derive(Debug, Clone, PartialEq)]
pub struct RegimeFit {
    /// The lines, sizes ascending.
    pub regimes: Vec<Regime>,
    /// Median of the relative deviations.
    pub median_error: f64,
    /// The same of sizes below 64 KiB, where there are any.
    pub small_error: Option<f64>,
    /// Largest relative deviation.
    pub largest_error: f64,
}

/// Sizes below this are bound by latency.
const SMALL: f64 = 65_536.0;

/// Fits `points` (size of the full tensor, time), sizes ascending, of a group of `ranks`. `None` of fewer than two.
#[must_use]
pub fn fit_regimes(op: Collective, ranks: u32, points: &[(Bytes, Seconds)]) -> Option<RegimeFit> {
    let thinned = monotonic(&thin(points));
    if thinned.len() < 2 {
        return None;
    }
    let wire = op.wire_factor(ranks).max(1e-9);
    let segments = cheapest(&thinned);
    let regimes: Vec<Regime> = segments
        .iter()
        .map(|segment| Regime {
            from: Bytes(thinned[segment.first].0),
            latency: Seconds(segment.line.0),
            bandwidth: BytesPerSecond((wire / segment.line.1.max(1e-18)).min(1e15)),
        })
        .collect();
    Some(residuals(op, ranks, regimes, points))
}

fn residuals(op: Collective, ranks: u32, regimes: Vec<Regime>, points: &[(Bytes, Seconds)]) -> RegimeFit {
    let error = |(size, time): &(Bytes, Seconds)| {
        (Regime::time(&regimes, op, ranks, *size).get() / time.get() - 1.0).abs()
    };
    let all: Vec<f64> = points.iter().map(error).collect();
    let small: Vec<f64> = points.iter().filter(|(size, _)| size.get() < SMALL).map(error).collect();
    RegimeFit {
        median_error: median(&all).unwrap_or(0.0),
        small_error: median(&small),
        largest_error: all.iter().copied().fold(0.0, f64::max),
        regimes,
    }
}

/// The middle of `values`, the mean of the two middle ones of an even number.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

fn thin(points: &[(Bytes, Seconds)]) -> Vec<(f64, f64)> {
    let usable = |(size, time): &(Bytes, Seconds)| {
        (size.get() >= 1.0 && time.get() > 0.0 && time.get().is_finite()).then(|| (size.get(), time.get()))
    };
    let points: Vec<(f64, f64)> = points.iter().filter_map(usable).collect();
    let step = points.len().div_ceil(MOST_SIZES).max(1);
    let last = points.len().saturating_sub(1);
    points.iter().enumerate().filter(|(i, _)| i % step == 0 || *i == last).map(|(_, p)| *p).collect()
}

/// The lower of two middle values: times are late more often than early.
fn lower_median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
}

/// The nearest times that never fall with size: neighbours that do are pooled at their median, so that a single slow
/// measurement lifts nothing behind it (pool adjacent violators, Barlow et al. 1972, with medians for means).
fn monotonic(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut blocks: Vec<(Vec<f64>, f64)> = Vec::new();
    for (_, time) in points {
        blocks.push((vec![*time], *time));
        while let [.., before, last] = blocks.as_slice()
            && before.1 > last.1
        {
            let pooled = [before.0.clone(), last.0.clone()].concat();
            let middle = lower_median(&pooled);
            blocks.truncate(blocks.len() - 2);
            blocks.push((pooled, middle));
        }
    }
    let times = blocks.iter().flat_map(|(pool, middle)| pool.iter().map(move |_| *middle));
    points.iter().map(|(size, _)| *size).zip(times).collect()
}

/// A range of points and its line: latency, seconds per byte.
#[derive(Debug, Clone, Copy)]
struct Segment {
    first: usize,
    line: (f64, f64),
}

/// The ranges with the least sum of deviations and prices, by dynamic programming over the last range's start.
fn cheapest(points: &[(f64, f64)]) -> Vec<Segment> {
    let n = points.len();
    let fits: Vec<Vec<((f64, f64), f64)>> =
        (0..n).map(|first| (first..n).map(|last| line(&points[first..=last])).collect()).collect();
    let least = FEWEST_SIZES.min(n);
    // best[k][end]: least cost of the first `end` points in `k` ranges, and where the last of them starts.
    let mut best = vec![vec![(f64::INFINITY, 0); n + 1]; MOST_REGIMES + 1];
    best[0][0] = (0.0, 0);
    for ranges in 1..=MOST_REGIMES {
        for end in least..=n {
            for first in 0..=end - least {
                let before = best[ranges - 1][first].0;
                let size = (end - first) as f64;
                // Two points always lie on a line: a short range must not win by that.
                let cost = before + fits[first][end - 1 - first].1 + PRICE * (1.0 + 1.0 / size);
                if cost < best[ranges][end].0 {
                    best[ranges][end] = (cost, first);
                }
            }
        }
    }
    let cost = |ranges: &usize| best[*ranges][n].0;
    let ranges = (1..=MOST_REGIMES).min_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap_or(1);
    let (mut segments, mut end) = (Vec::new(), n);
    for ranges in (1..=ranges).rev() {
        let first = best[ranges][end].1;
        segments.push(Segment { first, line: fits[first][end - 1 - first].0 });
        end = first;
    }
    segments.reverse();
    segments
}

/// Latency and seconds per byte, neither negative, with the least sum of relative deviations (iteratively reweighted
/// least squares), and that sum.
fn line(points: &[(f64, f64)]) -> ((f64, f64), f64) {
    let deviation = |line: (f64, f64), (x, t): (f64, f64)| ((line.0 + line.1 * x) / t - 1.0).abs();
    let mut weights = vec![1.0; points.len()];
    let mut best = ((0.0, 0.0), f64::INFINITY);
    for _ in 0..ROUNDS {
        let candidate = weighted_line(points, &weights);
        let sum: f64 = points.iter().map(|p| deviation(candidate, *p)).sum();
        if sum < best.1 {
            best = (candidate, sum);
        }
        for (weight, point) in weights.iter_mut().zip(points) {
            *weight = 1.0 / deviation(candidate, *point).max(FLOOR);
        }
    }
    best
}

/// Weighted least squares of `(a + b x) / t = 1`; the better of the two edges where `a` or `b` would be negative.
fn weighted_line(points: &[(f64, f64)], weights: &[f64]) -> (f64, f64) {
    let (mut uu, mut uv, mut vv, mut u1, mut v1) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for ((x, t), w) in points.iter().zip(weights) {
        let (u, v) = (1.0 / t, x / t);
        uu += w * u * u;
        uv += w * u * v;
        vv += w * v * v;
        u1 += w * u;
        v1 += w * v;
    }
    let determinant = uu * vv - uv * uv;
    let (a, b) = ((u1 * vv - v1 * uv) / determinant, (uu * v1 - uv * u1) / determinant);
    let solvable = determinant > uu * vv * 1e-12;
    if solvable && a >= 0.0 && b >= 0.0 {
        return (a, b);
    }
    let cost = |a: f64, b: f64| a * a * uu + 2.0 * a * b * uv + b * b * vv - 2.0 * (a * u1 + b * v1);
    let (flat, steep) = ((u1 / uu, 0.0), (0.0, v1 / vv));
    if cost(flat.0, flat.1) <= cost(steep.0, steep.1) { flat } else { steep }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sizes() -> impl Iterator<Item = f64> {
        (8..=30).map(|power| 2f64.powi(power))
    }

    #[test]
    fn two_protocols_are_found_with_their_latency_and_bandwidth() {
        let wire = Collective::AllReduce.wire_factor(8);
        let time = |x: f64| if x < 1e6 { 12e-6 + x * wire / 30e9 } else { 45e-6 + x * wire / 200e9 };
        let points: Vec<(Bytes, Seconds)> = sizes().map(|x| (Bytes(x), Seconds(time(x)))).collect();
        let fit = fit_regimes(Collective::AllReduce, 8, &points).unwrap();
        assert!(fit.median_error < 1e-3, "{fit:?}");
        let last = fit.regimes.last().unwrap();
        assert!((last.bandwidth.get() / 200e9 - 1.0).abs() < 0.01, "{fit:?}");
        assert!((fit.regimes[0].latency.get() / 12e-6 - 1.0).abs() < 0.01, "{fit:?}");
    }

    #[test]
    fn one_wild_point_moves_nothing() {
        let mut points: Vec<(Bytes, Seconds)> =
            sizes().map(|x| (Bytes(x), Seconds(10e-6 + x / 50e9))).collect();
        points[11].1 = points[11].1 * 20.0;
        let fit = fit_regimes(Collective::SendRecv, 2, &points).unwrap();
        let at = |x: f64| Regime::time(&fit.regimes, Collective::SendRecv, 2, Bytes(x)).get();
        for x in [300.0, 1e5, 1e8] {
            assert!((at(x) / (10e-6 + x / 50e9) - 1.0).abs() < 0.02, "{x}: {fit:?}");
        }
    }

    proptest! {
        #[test]
        fn a_line_is_found_again(latency in 1e-6..1e-3_f64, rate in 1e9..1e12_f64) {
            let points: Vec<(Bytes, Seconds)> =
                sizes().map(|x| (Bytes(x), Seconds(latency + x / rate))).collect();
            let fit = fit_regimes(Collective::SendRecv, 2, &points).unwrap();
            prop_assert!(fit.largest_error < 0.01, "{fit:?}");
        }

        #[test]
        fn predicted_times_never_fall_with_size(times in proptest::collection::vec(1e-6..1e-2_f64, 4..24)) {
            let points: Vec<(Bytes, Seconds)> =
                times.iter().enumerate().map(|(i, t)| (Bytes(2f64.powi(i as i32 + 3)), Seconds(*t))).collect();
            let fit = fit_regimes(Collective::AllGather, 4, &points).unwrap();
            let curve: Vec<f64> = (0..300)
                .map(|i| Regime::time(&fit.regimes, Collective::AllGather, 4, Bytes(1.12f64.powi(i))).get())
                .collect();
            prop_assert!(curve.windows(2).all(|pair| pair[0] <= pair[1] * (1.0 + 1e-12)));
        }
    }
}
