//! Cross-validation: fit on half of the configurations, score the other half.
//!
//! A configuration group is never split: it falls to a half by a hash of its name. Sources that share configurations
//! (NVIDIA's tables of several releases) share group names, so no release of a fitted configuration is scored.

use super::case::RunCase;
use super::kernels::hash;
use super::metrics::{ErrorSummary, mean, quantile};
use super::score::Scored;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Step-time errors of both halves under numbers that were fitted to the first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CrossValidation {
    /// The half that was fitted to.
    pub fitted: Half,
    /// The half that the fit has not seen.
    pub held_out: Half,
}

/// Step-time errors of one half.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Half {
    /// Rows.
    pub rows: usize,
    /// Configuration groups.
    pub cfg_groups: usize,
    /// Mean over sources of the median absolute error.
    pub step_time_median_error: Option<f64>,
    /// 90th percentile over all rows.
    pub step_time_p90_error: Option<f64>,
    /// Per source.
    pub sources: BTreeMap<String, ErrorSummary>,
}

/// A fitted model: predicted over measured step time of a run.
pub trait Fitted {
    /// Predicted over measured step time, less one.
    fn error(&self, case: &RunCase) -> Option<f64>;
}

/// The configuration group of a run: its own id where the row names none.
fn group(case: &RunCase) -> &str {
    if case.row.cfg_group.is_empty() { &case.row.id } else { &case.row.cfg_group }
}

/// Whether a configuration group belongs to the half that is fitted to.
#[must_use]
pub fn is_fitted(cfg_group: &str) -> bool {
    hash(cfg_group).count_ones().is_multiple_of(2)
}

/// Whether a run belongs to the half that is fitted to.
#[must_use]
pub fn in_fitted_half(case: &RunCase) -> bool {
    is_fitted(group(case))
}

/// Fits on one half of the runs that have a step time, and scores both.
///
/// # Errors
/// What `fit` fails with.
pub fn cross_validate<F: Fitted>(
    runs: &[Scored],
    fit: impl FnOnce(Vec<RunCase>) -> Result<F, String>,
) -> Result<CrossValidation, String> {
    let timed = runs.iter().filter(|run| run.measured_step().is_some()).map(|run| &run.case);
    let (first, second): (Vec<&RunCase>, Vec<&RunCase>) = timed.partition(|case| in_fitted_half(case));
    let fitted = fit(first.iter().map(|case| (*case).clone()).collect())?;
    Ok(CrossValidation { fitted: Half::of(&fitted, &first), held_out: Half::of(&fitted, &second) })
}

impl Half {
    fn of(fitted: &impl Fitted, cases: &[&RunCase]) -> Self {
        let mut errors: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for case in cases {
            if let Some(error) = fitted.error(case) {
                errors.entry(case.row.source_key.clone()).or_default().push(error);
            }
        }
        let groups: BTreeSet<&str> = cases.iter().map(|case| group(case)).collect();
        let absolute: Vec<f64> = errors.values().flatten().map(|error| error.abs()).collect();
        let sources: BTreeMap<String, ErrorSummary> =
            errors.into_iter().map(|(source, errors)| (source, ErrorSummary::of(&errors))).collect();
        let medians: Vec<f64> = sources.values().filter_map(|summary| summary.median_error).collect();
        Self {
            rows: absolute.len(),
            cfg_groups: groups.len(),
            step_time_median_error: mean(&medians),
            step_time_p90_error: quantile(&absolute, 0.9),
            sources,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_halves_are_of_about_equal_size() {
        let fitted = (0..10_000).filter(|n| is_fitted(&format!("NV-{n:010x}"))).count();
        assert!((4_700..5_300).contains(&fitted), "{fitted}");
    }
}
