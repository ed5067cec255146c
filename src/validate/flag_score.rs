//! Memory of runs given by launcher flags, beside what their last rank measured.

use super::ValidateError;
use super::fields::{Fault, first_characters};
use super::flag_runs::{FlagRun, read_jsonl};
use super::hardware::Hardware;
use super::metrics::ErrorSummary;
use super::table::Unread;
use crate::launch::megatron::read::{FlagSet, MegatronRun, read};
use cluster_profiles::Cluster;
use cost_models::memory::{RankPeak, rank_peaks};
use rayon::prelude::*;
use serde::Serialize;
use std::collections::BTreeMap;

/// A run, predicted and measured.
#[derive(Debug)]
pub struct FlagScored {
    /// The run.
    pub run: FlagRun,
    /// What its flags mean.
    pub launched: MegatronRun,
    /// The last pipeline rank, which is the one that was measured.
    pub last: RankPeak,
}

/// Predicted runs, and the lines that could not be predicted.
#[derive(Debug, Default)]
pub struct FlagValidation {
    /// Predicted runs, in the order of the file.
    pub runs: Vec<FlagScored>,
    /// Lines that could not be read or predicted.
    pub unread: Vec<Unread>,
}

/// Errors of a set of runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FlagFigures {
    /// Peak of what is allocated.
    pub peak: ErrorSummary,
    /// What is allocated after a step.
    pub after_step: ErrorSummary,
    /// Activations alone: the peak less what is allocated after a step and the loss.
    pub activations: ErrorSummary,
}

/// One row of a report.
#[derive(Debug, Serialize)]
pub struct FlagRow<'a> {
    id: &'a str,
    line: u64,
    gpu: &'a str,
    measured_peak_bytes: f64,
    predicted_peak_bytes: f64,
    peak_error: f64,
    measured_static_bytes: f64,
    predicted_static_bytes: f64,
    static_error: f64,
    activations_error: Option<f64>,
    unknown_flags: &'a [String],
}

/// Reads and predicts the runs of a file.
///
/// # Errors
/// [`ValidateError`] if the catalogue is broken.
pub fn validate_flags(bytes: &[u8]) -> Result<FlagValidation, ValidateError> {
    let hardware = Hardware::catalogue().map_err(|error| ValidateError::Table {
        origin: "the catalogue".to_owned(),
        reason: error.to_string(),
    })?;
    let read = read_jsonl(bytes);
    let mut validation = FlagValidation { unread: read.unread, ..FlagValidation::default() };
    let scored: Vec<_> = read.runs.into_par_iter().map(|run| predict(hardware, run)).collect();
    for outcome in scored {
        match outcome {
            Ok(scored) => validation.runs.push(scored),
            Err(unread) => validation.unread.push(unread),
        }
    }
    validation.unread.sort_by_key(|unread| unread.line);
    Ok(validation)
}

fn predict(hardware: &Hardware, run: FlagRun) -> Result<FlagScored, Unread> {
    match prediction(hardware, &run) {
        Ok((launched, last)) => Ok(FlagScored { run, launched, last }),
        Err((key, value, message)) => {
            let fault = Fault::new(run.line, key, &value, first_characters(&message, 160));
            Err(Unread { line: run.line, id: run.id, faults: vec![fault] })
        }
    }
}

type Refusal = (&'static str, String, String);

fn prediction(hardware: &Hardware, run: &FlagRun) -> Result<(MegatronRun, RankPeak), Refusal> {
    let gpu = hardware.gpu(&run.gpu).map_err(|message| ("gpu", run.gpu.clone(), message))?;
    let flags = FlagSet::new(run.flags.clone(), run.variables.clone());
    let refuse = |message: String| ("args", run.id.clone(), message);
    let launched = read(&flags, run.n_gpus, gpu).map_err(|error| refuse(error.to_string()))?;
    let world = launched.parallel.world_size();
    let cluster: Cluster = hardware
        .cluster_of(gpu, "")
        .and_then(|cluster| cluster.resized(world).map_err(|error| error.to_string()))
        .map_err(refuse)?;
    let peaks = rank_peaks(&launched.training_run(&cluster)).map_err(|error| refuse(error.to_string()))?;
    let last = peaks.last().copied().ok_or_else(|| refuse("has no rank".to_owned()))?;
    Ok((launched, last))
}

impl FlagScored {
    /// Predicted over measured peak, less one.
    #[must_use]
    pub fn peak_error(&self) -> f64 {
        self.last.allocated() / self.run.peak_bytes - 1.0
    }

    /// Predicted over measured memory after a step, less one.
    #[must_use]
    pub fn static_error(&self) -> f64 {
        self.last.allocated_after_step() / self.run.static_bytes - 1.0
    }

    /// The same of activations alone: the measured peak less the measured static value and the predicted loss. None
    /// where the peak is not one of activations.
    #[must_use]
    pub fn activations_error(&self) -> Option<f64> {
        let measured = self.run.peak_bytes - self.run.static_bytes - self.last.head;
        let predicted = self.last.allocated() - self.last.allocated_after_step() - self.last.head;
        (measured > 0.0 && predicted > 0.0).then(|| predicted / measured - 1.0)
    }

    /// The report of the run.
    #[must_use]
    pub fn row(&self) -> FlagRow<'_> {
        FlagRow {
            id: &self.run.id,
            line: self.run.line,
            gpu: &self.run.gpu,
            measured_peak_bytes: self.run.peak_bytes,
            predicted_peak_bytes: self.last.allocated(),
            peak_error: self.peak_error(),
            measured_static_bytes: self.run.static_bytes,
            predicted_static_bytes: self.last.allocated_after_step(),
            static_error: self.static_error(),
            activations_error: self.activations_error(),
            unknown_flags: &self.launched.unknown,
        }
    }
}

impl FlagFigures {
    /// The errors of `runs`.
    #[must_use]
    pub fn of<'a>(runs: impl Iterator<Item = &'a FlagScored> + Clone) -> Self {
        let errors = |error: fn(&FlagScored) -> Option<f64>| {
            ErrorSummary::of(&runs.clone().filter_map(error).collect::<Vec<f64>>())
        };
        Self {
            peak: errors(|run| Some(run.peak_error())),
            after_step: errors(|run| Some(run.static_error())),
            activations: errors(FlagScored::activations_error),
        }
    }

    /// The errors by GPU kind.
    #[must_use]
    pub fn by_gpu(runs: &[FlagScored]) -> BTreeMap<String, Self> {
        let mut gpus: BTreeMap<String, Vec<&FlagScored>> = BTreeMap::new();
        for run in runs {
            gpus.entry(run.run.gpu.clone()).or_default().push(run);
        }
        gpus.into_iter().map(|(gpu, runs)| (gpu, Self::of(runs.into_iter()))).collect()
    }
}
