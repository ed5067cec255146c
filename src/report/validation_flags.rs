//! Memory of runs given by launcher flags, as tables and JSON.

use super::validation_text::{percent, signed_percent, table, trimmed};
use crate::validate::metrics::ErrorSummary;
use crate::validate::{Figures, FlagFigures, FlagRow, FlagScored, FlagValidation, Unread};
use cluster_profiles::Bytes;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Tables by GPU kind, of every run on request, and of the runs with the largest peak errors.
#[must_use]
pub fn render(validation: &FlagValidation, rows: bool, worst: usize) -> String {
    let mut text = figures_table(&validation.runs);
    if rows {
        text += &runs_table("run", validation.runs.iter());
    }
    if worst > 0 {
        let mut ranked: Vec<&FlagScored> = validation.runs.iter().collect();
        ranked.sort_by(|a, b| {
            b.peak_error().abs().total_cmp(&a.peak_error().abs()).then(a.run.line.cmp(&b.run.line))
        });
        text += &runs_table("worst by peak", ranked.into_iter().take(worst));
    }
    let _ = writeln!(text, "\n{} scored, {} skipped", validation.runs.len(), validation.unread.len());
    let unknown: BTreeSet<&str> =
        validation.runs.iter().flat_map(|run| &run.launched.unknown).map(String::as_str).collect();
    if !unknown.is_empty() {
        let _ = writeln!(text, "unknown flags: {}", unknown.into_iter().collect::<Vec<_>>().join(", "));
    }
    for Unread { id, faults, .. } in &validation.unread {
        for fault in faults {
            let _ = writeln!(text, "  skipped {id}: {fault}");
        }
    }
    text
}

fn figures_table(runs: &[FlagScored]) -> String {
    let header = [
        "GPU",
        "rows",
        "peak %",
        "p90",
        "bias",
        "after a step %",
        "p90",
        "bias",
        "activations %",
        "p90",
        "bias",
    ];
    let mut table = table(&header);
    let overall = ("overall".to_owned(), FlagFigures::of(runs.iter()));
    for (gpu, figures) in FlagFigures::by_gpu(runs).into_iter().chain([overall]) {
        let mut cells = vec![gpu, figures.peak.rows.to_string()];
        for summary in [figures.peak, figures.after_step, figures.activations] {
            cells.extend(summary_cells(&summary));
        }
        table.add_row(cells);
    }
    format!("{}\n", trimmed(&table))
}

fn summary_cells(summary: &ErrorSummary) -> [String; 3] {
    [percent(summary.median_error), percent(summary.p90_error), signed_percent(summary.bias)]
}

fn runs_table<'a>(title: &str, runs: impl Iterator<Item = &'a FlagScored>) -> String {
    let header = [
        title,
        "GPU",
        "peak GiB",
        "predicted",
        "error %",
        "after a step GiB",
        "predicted",
        "error %",
        "activations %",
    ];
    let mut table = table(&header);
    let gib = |bytes: f64| format!("{:.3}", bytes / Bytes::GIB);
    for run in runs {
        table.add_row([
            run.run.id.clone(),
            run.run.gpu.clone(),
            gib(run.run.peak_bytes),
            gib(run.last.allocated()),
            signed_percent(Some(run.peak_error())),
            gib(run.run.static_bytes),
            gib(run.last.allocated_after_step()),
            signed_percent(Some(run.static_error())),
            signed_percent(run.activations_error()),
        ]);
    }
    format!("\n{}\n", trimmed(&table))
}

/// Errors under the keys of every validation, and those that only flags give.
#[derive(Clone, Serialize)]
struct Keys {
    #[serde(flatten)]
    figures: Figures,
    static_median_error: Option<f64>,
    static_p90_error: Option<f64>,
    static_bias: Option<f64>,
    activations_median_error: Option<f64>,
    activations_p90_error: Option<f64>,
    activations_bias: Option<f64>,
}

impl Keys {
    fn of(figures: &FlagFigures) -> Self {
        let FlagFigures { peak, after_step, activations } = *figures;
        Self {
            figures: Figures {
                rows: peak.rows,
                memory_rows: peak.rows,
                memory_median_error: peak.median_error,
                memory_p90_error: peak.p90_error,
                memory_bias: peak.bias,
                ..Figures::default()
            },
            static_median_error: after_step.median_error,
            static_p90_error: after_step.p90_error,
            static_bias: after_step.bias,
            activations_median_error: activations.median_error,
            activations_p90_error: activations.p90_error,
            activations_bias: activations.bias,
        }
    }
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    rows_total: usize,
    rows_scored: usize,
    rows_skipped: usize,
    overall: Keys,
    sources: BTreeMap<&'static str, Keys>,
    gpus: BTreeMap<String, Keys>,
    skipped: &'a [Unread],
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<Vec<FlagRow<'a>>>,
}

/// The same as one document. All runs are one source, `CI`.
#[must_use]
pub fn document(validation: &FlagValidation, rows: bool) -> impl Serialize {
    let overall = Keys::of(&FlagFigures::of(validation.runs.iter()));
    let gpus = FlagFigures::by_gpu(&validation.runs);
    Document {
        schema: "meshwright-validate-1",
        rows_total: validation.runs.len() + validation.unread.len(),
        rows_scored: validation.runs.len(),
        rows_skipped: validation.unread.len(),
        sources: BTreeMap::from([("CI", overall.clone())]),
        overall,
        gpus: gpus.iter().map(|(gpu, figures)| (gpu.clone(), Keys::of(figures))).collect(),
        skipped: &validation.unread,
        rows: rows.then(|| validation.runs.iter().map(FlagScored::row).collect()),
    }
}
