//! A validation as tables for people.

use crate::validate::metrics::ErrorSummary;
use crate::validate::{Figures, Scored, Summary, Unread, Validation};
use cluster_profiles::Bytes;
use comfy_table::{CellAlignment, Table, presets};
use std::fmt::Write;

/// A fraction as a percentage, or a dash.
#[must_use]
pub fn percent(fraction: Option<f64>) -> String {
    fraction.map_or_else(|| "-".to_owned(), |f| format!("{:.1}", 100.0 * f))
}

/// A signed fraction as a percentage, or a dash.
#[must_use]
pub fn signed_percent(fraction: Option<f64>) -> String {
    fraction.map_or_else(|| "-".to_owned(), |f| format!("{:+.1}", 100.0 * f))
}

fn plain(number: Option<f64>) -> String {
    number.map_or_else(|| "-".to_owned(), |n| format!("{n:.2}"))
}

/// A table without frames whose columns after the first are aligned to the right.
#[must_use]
pub fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.iter().copied());
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((if index == 0 { 2 } else { 1 }, 1));
        if index > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

const FIGURES: &[&str] = &[
    "rows", "time %", "p90", "bias", "n", "memory %", "p90", "n", "OOM acc.", "missed", "false", "tau",
    "regret %", "median", "groups",
];

fn figure_cells(figures: &Figures) -> Vec<String> {
    let oom = figures.oom.true_oom + figures.oom.missed_oom > 0;
    let count = |n: usize| if oom { n.to_string() } else { "-".to_owned() };
    vec![
        figures.rows.to_string(),
        percent(figures.step_time_median_error),
        percent(figures.step_time_p90_error),
        signed_percent(figures.step_time_bias),
        figures.step_time_rows.to_string(),
        percent(figures.memory_median_error),
        percent(figures.memory_p90_error),
        figures.memory_rows.to_string(),
        plain(figures.oom_balanced_accuracy.filter(|_| oom)),
        count(figures.oom.missed_oom),
        if figures.oom.false_oom > 0 { figures.oom.false_oom.to_string() } else { count(0) },
        plain(figures.kendall_tau),
        percent(figures.mean_regret),
        percent(figures.median_regret),
        figures.groups.to_string(),
    ]
}

/// The tables by source and GPU kind, and what stands beside them.
#[must_use]
pub fn render(validation: &Validation, summary: &Summary, rows: bool, worst: usize) -> String {
    let mut text = String::new();
    let header: Vec<&str> = std::iter::once("source").chain(FIGURES.iter().copied()).collect();
    let mut sources = table(&header);
    let lines = summary.sources.iter().map(|(key, figures)| (key.as_str(), figures));
    for (key, figures) in lines.chain([("overall", &summary.overall)]) {
        sources.add_row(std::iter::once(key.to_owned()).chain(figure_cells(figures)));
    }
    let header: Vec<&str> = std::iter::once("GPU").chain(FIGURES.iter().copied()).collect();
    let mut gpus = table(&header);
    for (key, figures) in summary.gpus.iter().chain(&summary.subsets) {
        gpus.add_row(std::iter::once(key.clone()).chain(figure_cells(figures)));
    }
    let _ = writeln!(text, "{}\n\n{}\n", trimmed(&sources), trimmed(&gpus));
    let _ = writeln!(
        text,
        "overall is the mean over sources of each source's median; percentiles, out of memory and ranking are over all rows"
    );
    if let Some(inside) = summary.overall.step_time_in_interval {
        let _ = writeln!(
            text,
            "{} % of the measured step times lie inside the interval of their prediction, which 90 % of runs that a fit has not seen do",
            percent(Some(inside))
        );
    }
    text.push_str(&baseline_line(summary));
    text.push_str(&mfu_lines(summary));
    if rows {
        text.push_str(&rows_table(&validation.runs));
    }
    text.push_str(&worst_table(&validation.runs, worst));
    text.push_str(&unread_lines(validation));
    text
}

/// A table's text without trailing spaces.
#[must_use]
pub fn trimmed(table: &Table) -> String {
    let lines: Vec<String> = table.to_string().lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}

fn baseline_line(summary: &Summary) -> String {
    format!(
        "constant MFU per GPU and precision instead: step time {} % (p90 {} %)\n",
        percent(summary.baseline.step_time_median_error),
        percent(summary.baseline.step_time_p90_error)
    )
}

fn mfu_lines(summary: &Summary) -> String {
    let line = |(source, errors): (&String, &ErrorSummary)| {
        format!(
            "{source} states only an MFU: step time {} % (p90 {} %, bias {} %) over {} rows\n",
            percent(errors.median_error),
            percent(errors.p90_error),
            signed_percent(errors.bias),
            errors.rows
        )
    };
    summary.mfu_only.iter().map(line).collect()
}

fn rows_table(runs: &[Scored]) -> String {
    let gib = |bytes: Option<f64>| bytes.map_or_else(|| "-".to_owned(), |b| format!("{:.1}", b / Bytes::GIB));
    let header = [
        "run",
        "measured s",
        "predicted s",
        "error %",
        "measured GiB",
        "predicted GiB",
        "error %",
        "fits",
        "breakdown of the step, s",
    ];
    let mut table = table(&header);
    for run in runs {
        let parts = run.estimate.time_seconds.parts();
        let parts = parts.iter().filter(|(_, seconds)| seconds.get() > 5e-4);
        let breakdown: Vec<String> =
            parts.map(|(name, seconds)| format!("{name} {:.3}", seconds.get())).collect();
        table.add_row([
            run.case.row.id.clone(),
            run.measured_step().map_or_else(|| "-".to_owned(), |s| format!("{s:.3}")),
            format!("{:.3}", run.estimate.step_time_seconds.get()),
            signed_percent(run.step_error()),
            gib(run.measured_memory().map(|memory| memory.bytes)),
            gib(run.predicted_memory().map(Bytes::get)),
            signed_percent(run.memory_error()),
            if run.estimate.fits { "yes" } else { "no" }.to_owned(),
            breakdown.join(", "),
        ]);
    }
    format!("\n{}\n", trimmed(&table))
}

fn worst_table(runs: &[Scored], worst: usize) -> String {
    if worst == 0 {
        return String::new();
    }
    let mut ranked: Vec<(f64, &Scored)> =
        runs.iter().filter_map(|run| Some((run.step_error()?.abs(), run))).collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.case.row.line.cmp(&b.1.case.row.line)));
    let header = [
        "worst by step time",
        "model",
        "GPU",
        "gpus",
        "tp pp vpp cp ep dp mbs",
        "measured s",
        "predicted s",
        "error %",
    ];
    let mut table = table(&header);
    for (_, run) in ranked.into_iter().take(worst) {
        table.add_row(worst_cells(run));
    }
    format!("\n{}\n", trimmed(&table))
}

fn worst_cells(run: &Scored) -> Vec<String> {
    let (row, p) = (&run.case.row, &run.case.parallel);
    vec![
        row.id.clone(),
        row.model.clone(),
        row.gpu.clone(),
        row.n_gpus.to_string(),
        format!("{} {} {} {} {} {} {}", p.tp, p.pp, p.vpp, p.cp, p.ep, p.dp(), p.micro_batch_size),
        run.measured_step().map(|s| format!("{s:.3}")).unwrap_or_default(),
        format!("{:.3}", run.estimate.step_time_seconds.get()),
        signed_percent(run.step_error()),
    ]
}

/// What was not scored, and why.
#[must_use]
pub fn unread_lines(validation: &Validation) -> String {
    let mut text = format!(
        "\n{} rows: {} scored, {} not selected, {} skipped\n",
        validation.rows_total,
        validation.runs.len(),
        validation.rows_left_out,
        validation.unread.len()
    );
    const SHOWN: usize = 20;
    for Unread { id, faults, .. } in validation.unread.iter().take(SHOWN) {
        for fault in faults {
            let _ = writeln!(text, "  skipped {id}: {fault}");
        }
    }
    if validation.unread.len() > SHOWN {
        let _ = writeln!(text, "  ... and {} more", validation.unread.len() - SHOWN);
    }
    if !validation.ignored_columns.is_empty() {
        let _ = writeln!(text, "  columns not read: {}", validation.ignored_columns.join(", "));
    }
    text
}
