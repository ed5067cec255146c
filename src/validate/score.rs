//! A prediction beside what was measured.

use super::case::RunCase;
use super::row::MeasuredMemory;
use super::words::MemoryQuantity;
use cluster_profiles::Bytes;
use cost_models::memory::{RankPeak, rank_peaks};
use cost_models::runtime::ReserveTraits;
use cost_models::{Estimate, ParallelConfig, Recompute};
use serde::Serialize;

/// A run, predicted and measured.
#[derive(Debug, Clone)]
pub struct Scored {
    /// The run.
    pub case: RunCase,
    /// The prediction.
    pub estimate: Estimate,
    /// Its memory, with what frameworks log.
    pub peaks: Vec<RankPeak>,
}

/// Engines whose log has the memory of the first rank (nanotron `src/nanotron/logging/base.py`: `log_rank` with rank 0).
const LOG_FIRST_RANK: [&str; 1] = ["nanotron"];

/// How much more than the device holds a run may need before an unstated recompute is taken to be on.
const SURELY_TOO_MUCH: f64 = 1.1;

impl Scored {
    /// Predicts a run with the code that plans use. Where a row does not say what it recomputes, that is what the engine
    /// does by default (torchtitan: selective; others: nothing), unless the run then needs 10 % more than the device
    /// holds; then it is the least that fits.
    ///
    /// # Errors
    /// What the cost model refuses.
    pub fn predict(case: RunCase) -> Result<Self, String> {
        if case.recompute_stated {
            return Self::of(case);
        }
        let torchtitan = case.row.framework.starts_with("torchtitan");
        let default = if torchtitan { Recompute::Selective } else { Recompute::None };
        let first = Self::of(case.with_recompute(default))?;
        if first.could_fit() {
            return Ok(first);
        }
        for recompute in case.recompute_choices() {
            let other = Self::of(case.with_recompute(recompute))?;
            if other.could_fit() {
                return Ok(other);
            }
        }
        Ok(first)
    }

    fn of(case: RunCase) -> Result<Self, String> {
        let run = case.training_run();
        let peaks = rank_peaks(&run).map_err(|error| with_causes(&error))?;
        let estimate = cost_models::estimate(&run).map_err(|error| with_causes(&error))?;
        Ok(Self { case, estimate, peaks })
    }

    fn could_fit(&self) -> bool {
        let capacity = self.case.cluster.gpu().memory.get() * SURELY_TOO_MUCH;
        self.peaks.iter().all(|peak| peak.allocated() <= capacity)
    }

    /// Measured step time, where the row is to be scored by it.
    #[must_use]
    pub fn measured_step(&self) -> Option<f64> {
        self.case.row.step_seconds.filter(|_| self.case.row.time_scored)
    }

    /// Predicted over measured step time, less one.
    #[must_use]
    pub fn step_error(&self) -> Option<f64> {
        Some(self.estimate.step_time_seconds.get() / self.measured_step()? - 1.0)
    }

    /// Whether the measured step time lies inside the interval of the prediction.
    #[must_use]
    pub fn in_interval(&self) -> Option<bool> {
        let measured = self.measured_step()?;
        let [low, high] = self.estimate.step_time_interval_seconds;
        Some((low.get()..=high.get()).contains(&measured))
    }

    /// Measured memory of a run that ran.
    #[must_use]
    pub fn measured_memory(&self) -> Option<MeasuredMemory> {
        self.case.row.memory.filter(|_| self.case.row.out_of_memory != Some(true))
    }

    /// The prediction of what the source measured, on the rank that has most of it; engines that log the first rank alone
    /// on that.
    #[must_use]
    pub fn predicted_memory(&self) -> Option<Bytes> {
        let quantity = self.measured_memory()?.quantity;
        let runtime = &self.case.runtime;
        let logged = if LOG_FIRST_RANK.contains(&runtime.name.as_str()) { 1 } else { self.peaks.len() };
        let peaks = self.peaks.iter().take(logged);
        Some(Bytes(peaks.map(|peak| counted(peak, &runtime.memory.reserve, quantity)).fold(0.0, f64::max)))
    }

    /// Predicted over measured memory, less one.
    #[must_use]
    pub fn memory_error(&self) -> Option<f64> {
        Some(self.predicted_memory()?.get() / self.measured_memory()?.bytes - 1.0)
    }

    /// Step time that the peak rate would give, for the model FLOPs of the prediction.
    #[must_use]
    pub fn seconds_at_peak(&self) -> f64 {
        self.estimate.model_flops_utilization * self.estimate.step_time_seconds.get()
    }

    /// Predicted over measured step time, less one, of a run that only states its MFU against 989.5 TFLOP/s (Parallel
    /// Folding, arXiv 2504.14960), taking its FLOPs as counted with causal attention.
    #[must_use]
    pub fn mfu_error(&self) -> Option<f64> {
        const PEAK: f64 = 989.5e12;
        let row = &self.case.row;
        let stated =
            row.mfu_percent.filter(|_| !row.time_scored && row.source_key.starts_with("MPF"))? / 100.0;
        let peak = self.case.cluster.gpu().peak_rate(self.case.workload.precision).get();
        Some(stated / (self.estimate.model_flops_utilization * peak / PEAK) - 1.0)
    }

    /// Measured and predicted seconds per sequence: comparable where batches differ.
    #[must_use]
    pub fn seconds_per_sequence(&self) -> Option<(f64, f64)> {
        let batch = self.case.workload.global_batch as f64;
        Some((self.measured_step()? / batch, self.estimate.step_time_seconds.get() / batch))
    }
}

/// An error and its causes, without hints.
fn with_causes(error: &dyn std::error::Error) -> String {
    let plain =
        |error: &dyn std::error::Error| error.to_string().split("\n\n").next().unwrap_or_default().to_owned();
    let mut text = plain(error);
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {}", plain(error));
        cause = error.source();
    }
    text
}

/// The bytes of a rank that a quantity counts.
#[must_use]
pub fn counted(peak: &RankPeak, reserve: &ReserveTraits, quantity: MemoryQuantity) -> f64 {
    match quantity {
        MemoryQuantity::Allocated => peak.allocated(),
        MemoryQuantity::Reserved => reserve.reserved_bytes(peak.allocated()),
        MemoryQuantity::Device => reserve.device_bytes(reserve.reserved_bytes(peak.allocated())),
        MemoryQuantity::Activations => peak.activations(),
    }
}

/// A row of the report.
#[derive(Debug, Serialize)]
pub struct RowReport<'a> {
    id: &'a str,
    line: u64,
    source_key: &'a str,
    model: &'a str,
    gpu: &'a str,
    gpus: u64,
    runtime: &'a str,
    cfg_group: &'a str,
    core: bool,
    parallel: &'a ParallelConfig,
    measured_step_time_seconds: Option<f64>,
    step_time_error: Option<f64>,
    memory_quantity: Option<MemoryQuantity>,
    measured_memory_bytes: Option<f64>,
    predicted_memory_bytes: Option<f64>,
    memory_error: Option<f64>,
    measured_oom: Option<bool>,
    estimate: &'a Estimate,
    inferred: &'a [cost_models::Assumption],
}

impl<'a> RowReport<'a> {
    /// The report of one run.
    #[must_use]
    pub fn new(scored: &'a Scored) -> Self {
        let row = &scored.case.row;
        Self {
            id: &row.id,
            line: row.line,
            source_key: &row.source_key,
            model: &row.model,
            gpu: &row.gpu,
            gpus: row.n_gpus,
            runtime: &row.runtime,
            cfg_group: &row.cfg_group,
            core: row.core,
            parallel: &scored.case.parallel,
            measured_step_time_seconds: scored.measured_step(),
            step_time_error: scored.step_error(),
            memory_quantity: scored.measured_memory().map(|memory| memory.quantity),
            measured_memory_bytes: scored.measured_memory().map(|memory| memory.bytes),
            predicted_memory_bytes: scored.predicted_memory().map(Bytes::get),
            memory_error: scored.memory_error(),
            measured_oom: row.out_of_memory,
            estimate: &scored.estimate,
            inferred: &scored.case.assumptions,
        }
    }
}
