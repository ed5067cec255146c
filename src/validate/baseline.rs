//! The baseline any cost model has to beat: one MFU per GPU kind and precision.

use super::metrics::median;
use super::score::Scored;
use cluster_profiles::Precision;
use serde::Serialize;
use std::collections::BTreeMap;

/// The constant of one GPU kind and precision.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ConstantMfu {
    /// GPU kind.
    pub gpu: String,
    /// Precision of the linear layers.
    pub precision: Precision,
    /// Median of the measured MFU (causal attention, no recompute).
    pub mfu: f64,
    /// Rows it is the median of.
    pub rows: usize,
}

/// The constants of `runs`: the median MFU over the rows that have a measured step time.
#[must_use]
pub fn constants(runs: &[Scored]) -> Vec<ConstantMfu> {
    let mut measured: BTreeMap<(&str, Precision), Vec<f64>> = BTreeMap::new();
    for run in runs {
        if let Some(seconds) = run.measured_step() {
            let key = (run.case.row.gpu.as_str(), run.case.workload.precision);
            measured.entry(key).or_default().push(run.seconds_at_peak() / seconds);
        }
    }
    let constant = |((gpu, precision), mfus): ((&str, Precision), Vec<f64>)| {
        Some(ConstantMfu { gpu: gpu.to_owned(), precision, mfu: median(&mfus)?, rows: mfus.len() })
    };
    measured.into_iter().filter_map(constant).collect()
}

/// Signed relative error of the baseline for one run.
#[must_use]
pub fn error(constants: &[ConstantMfu], run: &Scored) -> Option<f64> {
    let seconds = run.measured_step()?;
    let (gpu, precision) = (&run.case.row.gpu, run.case.workload.precision);
    let constant = constants.iter().find(|c| c.gpu == *gpu && c.precision == precision)?;
    Some(run.seconds_at_peak() / constant.mfu / seconds - 1.0)
}
