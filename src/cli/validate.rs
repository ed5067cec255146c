//! `meshwright validate`: predictions against published measurements.

use super::Format;
use crate::files;
use crate::fit::fit_step;
use crate::report::{html, validation_flags, validation_json, validation_kernels, validation_text};
use crate::validate::{
    CrossValidation, Half, Models, Selection, Summary, ValidateError, Validation, cross_validate, is_jsonl,
    kernels, read_file, validate, validate_flags,
};
use clap::{Args, Subcommand};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Compare predictions with published measured runs.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct ValidateArgs {
    /// Something else than runs to validate.
    #[command(subcommand)]
    pub what: Option<ValidateWhat>,
    /// Table of runs (CSV), or launcher flags of runs (JSONL).
    #[arg(value_name = "RUNS", required = true)]
    pub runs: Option<PathBuf>,
    /// Architectures that the table names (JSON).
    #[arg(long, value_name = "MODELS.json")]
    pub models: Option<PathBuf>,
    /// Score every row of quality A or B, not only those with core=1.
    #[arg(long)]
    pub all: bool,
    /// Report every row with its breakdown.
    #[arg(long)]
    pub rows: bool,
    /// List the rows with the largest errors.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub worst: usize,
    /// Fit on half of the configuration groups and score the other half.
    #[arg(long)]
    pub cross_validate: bool,
    /// Write a page with scatter plots.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Form of the answer.
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub format: Format,
}

/// Other things to validate.
#[derive(Debug, Subcommand)]
pub enum ValidateWhat {
    /// Measured kernel and collective times.
    Kernels {
        /// Folder with gemm.csv, attention_forward.csv, moe_forward.csv, collectives.csv, deepep.csv, links.csv.
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// Form of the answer.
        #[arg(long, value_enum, default_value_t = Format::Human)]
        format: Format,
    },
}

/// Runs the verb: data on stdout, everything else on stderr.
///
/// # Errors
/// [`ValidateError`] if a file is broken as a whole.
pub fn run(args: &ValidateArgs) -> Result<(), ValidateError> {
    match (&args.what, &args.runs) {
        (Some(ValidateWhat::Kernels { dir, format }), _) => run_kernels(dir, *format),
        (None, Some(path)) => run_file(args, path),
        (None, None) => Ok(()),
    }
}

fn run_kernels(dir: &Path, format: Format) -> Result<(), ValidateError> {
    let files = kernels::validate_kernels(dir)?;
    match format {
        Format::Human => print(&validation_kernels::render(&files)),
        Format::Json => print(&json(&files)?),
    }
}

fn run_file(args: &ValidateArgs, path: &Path) -> Result<(), ValidateError> {
    let bytes = read_file(path)?;
    if is_jsonl(&bytes) { run_flags(args, &bytes) } else { run_table(args, path, &bytes) }
}

fn run_flags(args: &ValidateArgs, bytes: &[u8]) -> Result<(), ValidateError> {
    let validation = validate_flags(bytes)?;
    match args.format {
        Format::Human => print(&validation_flags::render(&validation, args.rows, args.worst)),
        Format::Json => print(&json(&validation_flags::document(&validation, args.rows))?),
    }
}

fn run_table(args: &ValidateArgs, runs: &Path, table: &[u8]) -> Result<(), ValidateError> {
    let models = match &args.models {
        Some(path) => {
            let text = read_file(path)?;
            Models::read(&path.display().to_string(), &String::from_utf8_lossy(&text))?
        }
        None => return Err(ValidateError::NoModels { origin: runs.display().to_string() }),
    };
    let selection = if args.all { Selection::All } else { Selection::Core };
    let validation = validate(&runs.display().to_string(), table, &models, selection)?;
    let summary = Summary::of(&validation.runs);
    if let Some(path) = &args.html {
        write_file(path, &html::validate(&validation, &summary))?;
    }
    let cross = args.cross_validate.then(|| cross_validation(&validation)).transpose()?;
    print(&answer(args, &validation, &summary, cross.as_ref())?)
}

/// Fits the numbers that step times tell on half of the configuration groups, and scores both halves.
fn cross_validation(validation: &Validation) -> Result<CrossValidation, ValidateError> {
    let refuse = |reason| ValidateError::Table { origin: "the fit".to_owned(), reason };
    cross_validate(&validation.runs, |cases| Ok(fit_step(&cases, &[]))).map_err(refuse)
}

fn json<T: serde::Serialize>(value: &T) -> Result<String, ValidateError> {
    let text = serde_json::to_string_pretty(value);
    text.map(|json| json + "\n")
        .map_err(|error| ValidateError::Write { path: "stdout".to_owned(), reason: error.to_string() })
}

fn answer(
    args: &ValidateArgs,
    validation: &Validation,
    summary: &Summary,
    cross: Option<&CrossValidation>,
) -> Result<String, ValidateError> {
    let lines = cross.map(cross_lines).unwrap_or_default();
    match args.format {
        Format::Human => Ok(validation_text::render(validation, summary, args.rows, args.worst) + &lines),
        Format::Json => json(&validation_json::document(validation, summary, args.rows, extra(cross))),
    }
}

fn extra(cross: Option<&CrossValidation>) -> BTreeMap<&'static str, serde_json::Value> {
    let value = cross.and_then(|cross| serde_json::to_value(cross).ok());
    value.map(|value| ("cross_validation", value)).into_iter().collect()
}

/// Two lines on both halves.
fn cross_lines(cross: &CrossValidation) -> String {
    let line = |name: &str, half: &Half| {
        let percent = |value: Option<f64>| value.map_or("-".to_owned(), |v| format!("{:.1} %", 100.0 * v));
        format!(
            "{name}: {} rows of {} configuration groups, step time off by {} (mean over sources of the median), p90 {}\n",
            half.rows,
            half.cfg_groups,
            percent(half.step_time_median_error),
            percent(half.step_time_p90_error)
        )
    };
    format!("\n{}{}", line("fitted half", &cross.fitted), line("held-out half", &cross.held_out))
}

fn print(text: &str) -> Result<(), ValidateError> {
    let written = std::io::stdout().lock().write_all(text.as_bytes());
    written.map_err(|error| ValidateError::Write { path: "stdout".to_owned(), reason: error.to_string() })
}

fn write_file(path: &Path, text: &str) -> Result<(), ValidateError> {
    files::write_text(path, text).map_err(|error| {
        let cause = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        ValidateError::Write { path: path.display().to_string(), reason: cause }
    })
}
