//! Figures of merit over errors: median, percentile, bias, confusion, rank correlation, regret.

use serde::Serialize;

/// The value below which a share `q` of the values lies, interpolated between neighbours (numpy's `linear`).
#[must_use]
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| !v.is_nan()).collect();
    if sorted.is_empty() {
        return None;
    }
    sorted.sort_unstable_by(f64::total_cmp);
    let place = q.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    Some(low + (high - low) * place.fract())
}

/// The middle value.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The arithmetic mean.
#[must_use]
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Relative errors of a set of predictions.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct ErrorSummary {
    /// Predictions.
    pub rows: usize,
    /// Median of |predicted/measured - 1|.
    pub median_error: Option<f64>,
    /// 90th percentile of the same.
    pub p90_error: Option<f64>,
    /// Median of predicted/measured - 1.
    pub bias: Option<f64>,
}

impl ErrorSummary {
    /// Summarises signed relative errors.
    #[must_use]
    pub fn of(signed: &[f64]) -> Self {
        let absolute: Vec<f64> = signed.iter().map(|e| e.abs()).collect();
        Self {
            rows: signed.len(),
            median_error: median(&absolute),
            p90_error: quantile(&absolute, 0.9),
            bias: median(signed),
        }
    }
}

/// Out of memory or not: predicted against reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Confusion {
    /// Died, and was predicted not to fit.
    pub true_oom: usize,
    /// Died, but was predicted to fit.
    pub missed_oom: usize,
    /// Ran, but was predicted not to fit.
    pub false_oom: usize,
    /// Ran, and was predicted to fit.
    pub true_fit: usize,
}

impl Confusion {
    /// Counts one run.
    pub const fn add(&mut self, died: bool, predicted_oom: bool) {
        match (died, predicted_oom) {
            (true, true) => self.true_oom += 1,
            (true, false) => self.missed_oom += 1,
            (false, true) => self.false_oom += 1,
            (false, false) => self.true_fit += 1,
        }
    }

    /// Share of the runs that died that were predicted not to fit.
    #[must_use]
    pub fn recall(self) -> Option<f64> {
        share(self.true_oom, self.missed_oom)
    }

    /// Share of the runs that ran that were predicted not to fit.
    #[must_use]
    pub fn false_rate(self) -> Option<f64> {
        share(self.false_oom, self.true_fit)
    }

    /// Mean of the recalls of both classes; that of the only class where a source reports one.
    #[must_use]
    pub fn balanced_accuracy(self) -> Option<f64> {
        match (self.recall(), self.false_rate()) {
            (Some(recall), Some(false_rate)) => Some(f64::midpoint(recall, 1.0 - false_rate)),
            (recall, false_rate) => recall.or(false_rate.map(|rate| 1.0 - rate)),
        }
    }
}

fn share(part: usize, rest: usize) -> Option<f64> {
    (part + rest > 0).then(|| part as f64 / (part + rest) as f64)
}

/// Measured times closer than this are ties.
pub const TIE: f64 = 0.03;

/// Kendall's tau of predicted and measured times, as `(measured, predicted)`: concordant less discordant pairs over all
/// pairs whose measured times differ by at least [`TIE`] of the smaller. None where every pair is a tie.
#[must_use]
pub fn kendall_tau(times: &[(f64, f64)]) -> Option<f64> {
    let (mut score, mut pairs) = (0.0, 0.0);
    for (index, a) in times.iter().enumerate() {
        for b in &times[index + 1..] {
            if (a.0 - b.0).abs() < TIE * a.0.min(b.0) {
                continue;
            }
            pairs += 1.0;
            let product = (a.0 - b.0) * (a.1 - b.1);
            if product != 0.0 {
                score += product.signum();
            }
        }
    }
    (pairs > 0.0).then(|| score / pairs)
}

/// Measured time of the layout that is predicted fastest, over that of the fastest measured, less one. The mean where
/// several are predicted equally fast.
#[must_use]
pub fn regret(times: &[(f64, f64)]) -> Option<f64> {
    let fastest = times.iter().map(|t| t.0).min_by(f64::total_cmp)?;
    let first = times.iter().map(|t| t.1).min_by(f64::total_cmp)?;
    let chosen: Vec<f64> = times.iter().filter(|t| t.1 == first).map(|t| t.0 / fastest - 1.0).collect();
    mean(&chosen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantiles_interpolate() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[1.0, 2.0]), Some(1.5));
        assert_eq!(quantile(&[0.0, 10.0], 0.9), Some(9.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn close_measurements_are_ties() {
        assert_eq!(kendall_tau(&[(100.0, 1.0), (102.0, 0.5)]), None);
        assert_eq!(kendall_tau(&[(100.0, 1.0), (104.0, 0.5)]), Some(-1.0));
        assert_eq!(kendall_tau(&[(1.0, 5.0), (2.0, 5.0)]), Some(0.0));
    }

    #[test]
    fn balanced_accuracy_weighs_both_classes_alike() {
        let mut confusion = Confusion::default();
        for _ in 0..90 {
            confusion.add(true, true);
        }
        for _ in 0..5 {
            confusion.add(false, true);
            confusion.add(false, false);
        }
        assert_eq!(confusion.balanced_accuracy(), Some(0.75));
        assert_eq!(Confusion::default().balanced_accuracy(), None);
    }

    proptest! {
        #[test]
        fn a_perfect_prediction_has_tau_one_and_no_regret(
            measured in prop::collection::vec(0.1_f64..100.0, 2..12), scale in 0.1_f64..10.0,
        ) {
            let times: Vec<(f64, f64)> = measured.iter().map(|&t| (t, t * scale)).collect();
            prop_assert_eq!(kendall_tau(&times).unwrap_or(1.0), 1.0);
            prop_assert_eq!(regret(&times), Some(0.0));
        }

        #[test]
        fn reversing_the_prediction_negates_tau(
            times in prop::collection::vec((0.1_f64..100.0, 0.1_f64..100.0), 2..12),
        ) {
            let reversed: Vec<(f64, f64)> = times.iter().map(|&(m, p)| (m, -p)).collect();
            let (tau, opposite) = (kendall_tau(&times), kendall_tau(&reversed));
            prop_assert_eq!(tau.map(|t| -t), opposite);
            prop_assert!(tau.is_none_or(|t| (-1.0..=1.0).contains(&t)));
        }

        #[test]
        fn quantiles_are_ordered_and_do_not_depend_on_order(
            mut values in prop::collection::vec(-10.0_f64..10.0, 1..30),
        ) {
            let before = (median(&values), quantile(&values, 0.9));
            prop_assert!(before.0 <= before.1);
            values.reverse();
            prop_assert_eq!(before, (median(&values), quantile(&values, 0.9)));
        }
    }
}
