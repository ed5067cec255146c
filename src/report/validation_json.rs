//! A validation as one JSON document.

use crate::validate::{RowReport, Summary, Unread, Validation};
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    rows_total: usize,
    rows_scored: usize,
    rows_left_out: usize,
    rows_skipped: usize,
    #[serde(flatten)]
    summary: &'a Summary,
    #[serde(flatten)]
    extra: BTreeMap<&'static str, serde_json::Value>,
    skipped: &'a [Unread],
    ignored_columns: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<Vec<RowReport<'a>>>,
}

/// The document; with `rows`, every run with its breakdown. `extra` adds keys at its top level.
#[must_use]
pub fn document<'a>(
    validation: &'a Validation,
    summary: &'a Summary,
    rows: bool,
    extra: BTreeMap<&'static str, serde_json::Value>,
) -> impl Serialize + use<'a> {
    Document {
        schema: "meshwright-validate-1",
        rows_total: validation.rows_total,
        rows_scored: validation.runs.len(),
        rows_left_out: validation.rows_left_out,
        rows_skipped: validation.unread.len(),
        summary,
        extra,
        skipped: &validation.unread,
        ignored_columns: &validation.ignored_columns,
        rows: rows.then(|| validation.runs.iter().map(RowReport::new).collect()),
    }
}
