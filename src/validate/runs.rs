//! From files to predictions.

use super::ValidateError;
use super::case::{Context, RunCase};
use super::fields::{Fault, first_characters};
use super::hardware::Hardware;
use super::inherit::inherited;
use super::models::Models;
use super::score::Scored;
use super::table::{Table, Unread, read_csv};
use rayon::prelude::*;
use serde::Serialize;
use std::path::Path;

/// Which rows are scored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Selection {
    /// Rows with `core` 1 and quality A or B.
    Core,
    /// Every row of quality A or B.
    All,
}

/// Predicted runs, and the rows that could not be predicted.
#[derive(Debug)]
pub struct Validation {
    /// Rows of the table, read or not.
    pub rows_total: usize,
    /// Rows that are not scored: too low a quality, or not in the selection.
    pub rows_left_out: usize,
    /// Predicted runs, in the order of the table.
    pub runs: Vec<Scored>,
    /// Rows that could not be read or predicted.
    pub unread: Vec<Unread>,
    /// Columns that are not known and were not read.
    pub ignored_columns: Vec<String>,
}

/// Largest file that is read, in bytes.
const LARGEST: u64 = 1 << 30;

/// Reads a file whole.
///
/// # Errors
/// [`ValidateError::Io`], also for files above 1 GiB.
pub fn read_file(path: &Path) -> Result<Vec<u8>, ValidateError> {
    use std::io::Read;
    let wrap = |reason: String| ValidateError::Io { path: path.display().to_string(), reason };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(|error| wrap(error.to_string()))?;
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(|error| wrap(error.to_string()))?;
    if bytes.len() as u64 > LARGEST {
        return Err(wrap("it has more than 1 GiB".to_owned()));
    }
    Ok(bytes)
}

/// The runs of a table, without predictions: what the cost model is given.
///
/// # Errors
/// [`ValidateError`] if a file is broken as a whole.
pub fn read_cases(
    origin: &str,
    table: &[u8],
    models: &Models,
    selection: Selection,
) -> Result<(Vec<RunCase>, Validation), ValidateError> {
    let Table { rows, mut unread, ignored_columns } = read_csv(origin, table)?;
    let rows_total = rows.len() + unread.len();
    let hardware = Hardware::catalogue().map_err(|error| ValidateError::Table {
        origin: "the catalogue".to_owned(),
        reason: error.to_string(),
    })?;
    let context = Context { models, hardware };
    let inherited = inherited(&rows);
    let selected = |row: &&super::RunRow| row.is_trusted() && (row.core || selection == Selection::All);
    let rows_left_out = rows.len() - rows.iter().filter(selected).count();
    let mut cases = Vec::new();
    for (row, inherited) in rows.iter().zip(&inherited).filter(|(row, _)| selected(row)) {
        match context.case(row, inherited) {
            Ok(case) => cases.push(case),
            Err(faults) => unread.push(Unread { line: row.line, id: row.id.clone(), faults }),
        }
    }
    Ok((cases, Validation { rows_total, rows_left_out, runs: Vec::new(), unread, ignored_columns }))
}

/// Reads and predicts the runs of a table.
///
/// # Errors
/// [`ValidateError`] if a file is broken as a whole.
pub fn validate(
    origin: &str,
    table: &[u8],
    models: &Models,
    selection: Selection,
) -> Result<Validation, ValidateError> {
    let (cases, mut validation) = read_cases(origin, table, models, selection)?;
    let predicted: Vec<Result<Scored, Unread>> = cases.into_par_iter().map(predict).collect();
    for outcome in predicted {
        match outcome {
            Ok(scored) => validation.runs.push(scored),
            Err(unread) => validation.unread.push(unread),
        }
    }
    validation.unread.sort_by_key(|unread| unread.line);
    Ok(validation)
}

/// Predicts one run; a refusal is a fault of its row.
pub fn predict(case: RunCase) -> Result<Scored, Unread> {
    let (line, id) = (case.row.line, case.row.id.clone());
    Scored::predict(case).map_err(|message| {
        let fault = Fault::new(
            line,
            "(all)",
            &id,
            format!("cannot be predicted: {}", first_characters(&message, 160)),
        );
        Unread { line, id: id.clone(), faults: vec![fault] }
    })
}
