//! Kernel and collective errors as tables.

use super::validation_text::{percent, signed_percent, table, trimmed};
use crate::validate::kernels::{FileFigures, HELD_OUT_SHARE};
use crate::validate::metrics::ErrorSummary;
use std::fmt::Write;

/// One table per file.
#[must_use]
pub fn render(files: &[FileFigures]) -> String {
    let mut text = String::new();
    for file in files {
        let header = [
            file.file.as_str(),
            "",
            "points",
            "error %",
            "p90",
            "bias",
            "held out",
            "error %",
            "p90",
            "bias",
        ];
        let mut table = table(&header);
        for figures in &file.figures {
            let mut cells = vec![figures.gpu.clone(), figures.group.clone()];
            cells.extend(summary_cells(&figures.all));
            cells.extend(summary_cells(&figures.held_out));
            table.add_row(cells);
        }
        let _ = writeln!(text, "{}", trimmed(&table));
        for (reason, rows) in &file.left_out {
            let _ = writeln!(text, "  left out {rows}: {reason}");
        }
        text.push('\n');
    }
    let _ = writeln!(text, "held out: a fixed {HELD_OUT_SHARE} % of the points, chosen by a hash of the row");
    text
}

fn summary_cells(summary: &ErrorSummary) -> [String; 4] {
    [
        summary.rows.to_string(),
        percent(summary.median_error),
        percent(summary.p90_error),
        signed_percent(summary.bias),
    ]
}
