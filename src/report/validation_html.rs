//! A validation as one page that needs no network: scatter plots of predicted against measured, and every figure in text.

use super::validation_text::{percent, signed_percent};
use crate::validate::{Figures, MemoryQuantity, Scored, Summary, Validation};
use std::collections::BTreeMap;
use std::fmt::Write;

const STYLE: &str = include_str!("validation.css");
/// Side of a plot's drawing area in its own units.
const SIDE: f64 = 400.0;
/// Room for the axis labels.
const MARGIN: f64 = 56.0;
/// Room on the sides without labels.
const EDGE: f64 = 10.0;

/// A point of a plot.
struct Dot {
    measured: f64,
    predicted: f64,
    title: String,
}

/// The page.
#[must_use]
pub fn render(validation: &Validation, summary: &Summary) -> String {
    let mut page = String::new();
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>meshwright validate</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <h1>Predicted against measured</h1>\n<p>{}</p>\n",
        escape(&headline(validation, summary))
    );
    push_plots(&mut page, &validation.runs);
    push_figures(&mut page, summary);
    push_rows(&mut page, &validation.runs);
    push_skipped(&mut page, validation);
    page.push_str("</body>\n</html>\n");
    page
}

fn headline(validation: &Validation, summary: &Summary) -> String {
    let overall = &summary.overall;
    format!(
        "{} published runs. Step time: mean over sources of the median error {} %, 90th percentile {} % (one MFU per \
         GPU and precision: {} %, {} %). Memory: {} %, {} %. Kendall's tau {}, over {} groups of layouts.",
        validation.runs.len(),
        percent(overall.step_time_median_error),
        percent(overall.step_time_p90_error),
        percent(summary.baseline.step_time_median_error),
        percent(summary.baseline.step_time_p90_error),
        percent(overall.memory_median_error),
        percent(overall.memory_p90_error),
        overall.kendall_tau.map_or_else(|| "-".to_owned(), |tau| format!("{tau:.2}")),
        overall.groups,
    )
}

fn push_figures(page: &mut String, summary: &Summary) {
    let overall = [("overall".to_owned(), summary.overall.clone())];
    push_table(
        page,
        "By source",
        summary.sources.iter().chain(overall.iter().map(|(name, figures)| (name, figures))),
    );
    push_table(page, "By GPU", summary.gpus.iter().chain(&summary.subsets));
}

fn push_table<'a>(page: &mut String, title: &str, parts: impl Iterator<Item = (&'a String, &'a Figures)>) {
    let _ = write!(page, "<h2>{title}</h2>\n<div class=\"wide\"><table>\n<thead><tr>");
    let header = [
        "",
        "rows",
        "step time error %",
        "p90",
        "bias",
        "memory error %",
        "p90",
        "OOM recall %",
        "false OOM %",
        "balanced %",
        "tau",
        "regret %",
        "groups",
    ];
    for name in header {
        let _ = write!(page, "<th>{name}</th>");
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for (name, figures) in parts {
        push_figure_row(page, name, figures);
    }
    page.push_str("</tbody></table></div>\n");
}

fn push_figure_row(page: &mut String, name: &str, figures: &Figures) {
    let cells = [
        figures.rows.to_string(),
        percent(figures.step_time_median_error),
        percent(figures.step_time_p90_error),
        signed_percent(figures.step_time_bias),
        percent(figures.memory_median_error),
        percent(figures.memory_p90_error),
        percent(figures.oom_recall),
        percent(figures.false_oom_rate),
        percent(figures.oom_balanced_accuracy),
        figures.kendall_tau.map_or_else(|| "-".to_owned(), |tau| format!("{tau:.2}")),
        percent(figures.mean_regret),
        figures.groups.to_string(),
    ];
    let _ = write!(page, "<tr><th>{}</th>", escape(name));
    for cell in cells {
        let _ = write!(page, "<td>{cell}</td>");
    }
    page.push_str("</tr>\n");
}

fn push_plots(page: &mut String, runs: &[Scored]) {
    page.push_str("<h2>Step time, seconds</h2>\n<p>The line is a perfect prediction, the dashed ones are 10 % off. Hover a point for its run.</p>\n<div class=\"plots\">\n");
    push_plot_per_source(page, runs, step_dot, "s");
    page.push_str("</div>\n<h2>Memory, GiB</h2>\n<div class=\"plots\">\n");
    push_plot_per_source(page, runs, memory_dot, "GiB");
    page.push_str("</div>\n");
}

fn push_plot_per_source(page: &mut String, runs: &[Scored], dot: fn(&Scored) -> Option<Dot>, unit: &str) {
    let mut sources: BTreeMap<&str, Vec<Dot>> = BTreeMap::new();
    for run in runs {
        if let Some(dot) = dot(run) {
            sources.entry(&run.case.row.source_key).or_default().push(dot);
        }
    }
    for (source, dots) in &sources {
        push_plot(page, source, dots, unit);
    }
}

fn step_dot(run: &Scored) -> Option<Dot> {
    let measured = run.measured_step()?;
    let predicted = run.estimate.step_time_seconds.get();
    let title = format!(
        "{}: measured {measured:.3} s, predicted {predicted:.3} s ({} %)",
        describe(run),
        signed_percent(run.step_error())
    );
    Some(Dot { measured, predicted, title })
}

fn memory_dot(run: &Scored) -> Option<Dot> {
    const GIB: f64 = cluster_profiles::Bytes::GIB;
    let memory = run.measured_memory()?;
    let (measured, predicted) = (memory.bytes / GIB, run.predicted_memory()?.get() / GIB);
    let quantity = match memory.quantity {
        MemoryQuantity::Allocated => "allocated",
        MemoryQuantity::Reserved => "reserved",
        MemoryQuantity::Device => "on the device",
        MemoryQuantity::Activations => "of activations",
    };
    let title = format!(
        "{}: measured {measured:.1} GiB {quantity}, predicted {predicted:.1} GiB ({} %)",
        describe(run),
        signed_percent(run.memory_error())
    );
    Some(Dot { measured, predicted, title })
}

fn describe(run: &Scored) -> String {
    let (row, p) = (&run.case.row, &run.case.parallel);
    format!(
        "{} ({} on {} x {}, tp {} pp {} x {} cp {} ep {} dp {}, micro batch {})",
        row.id,
        row.model,
        row.n_gpus,
        row.gpu,
        p.tp,
        p.pp,
        p.vpp,
        p.cp,
        p.ep,
        p.dp(),
        p.micro_batch_size
    )
}

/// A logarithmic scatter plot; both axes alike.
fn push_plot(page: &mut String, source: &str, dots: &[Dot], unit: &str) {
    let values =
        dots.iter().flat_map(|dot| [dot.measured, dot.predicted]).filter(|v| *v > 0.0 && v.is_finite());
    let (low, high) = values.fold((f64::INFINITY, 0.0_f64), |(low, high), v| (low.min(v), high.max(v)));
    if high <= 0.0 {
        return;
    }
    let (low, high) = (low.log10() - 0.05, high.log10() + 0.05);
    let place = |value: f64| (value.max(1e-300).log10() - low) / (high - low) * SIDE;
    let (width, height, above) = (SIDE + MARGIN + EDGE, SIDE + MARGIN + EDGE, MARGIN - EDGE);
    let runs = if dots.len() == 1 { "run" } else { "runs" };
    let _ = write!(
        page,
        "<figure><figcaption>{} ({} {runs})</figcaption>\n<svg viewBox=\"0 {above} {width} {height}\" role=\"img\" \
         aria-label=\"predicted against measured, {}\">\n<rect class=\"frame\" x=\"{MARGIN}\" y=\"{MARGIN}\" \
         width=\"{SIDE}\" height=\"{SIDE}\"/>\n",
        escape(source),
        dots.len(),
        escape(source)
    );
    push_ticks(page, low, high, unit);
    push_guides(page, high - low);
    for dot in dots {
        let (x, y) = (MARGIN + place(dot.measured), MARGIN + SIDE - place(dot.predicted));
        let _ = writeln!(
            page,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{}</title></circle>",
            escape(&dot.title)
        );
    }
    page.push_str("</svg></figure>\n");
}

/// The diagonal, and 10 % to either side of it.
fn push_guides(page: &mut String, span: f64) {
    let (near, far) = (MARGIN, MARGIN + SIDE);
    let _ = writeln!(page, "<line class=\"exact\" x1=\"{near}\" y1=\"{far}\" x2=\"{far}\" y2=\"{near}\"/>");
    for factor in [1.1_f64, 1.0 / 1.1] {
        let shift = (factor.log10() / span * SIDE).clamp(-SIDE, SIDE);
        let (x1, y1) = (near + (-shift).max(0.0), far - shift.max(0.0));
        let (x2, y2) = (far - shift.max(0.0), near + (-shift).max(0.0));
        let _ = writeln!(
            page,
            "<line class=\"near\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        );
    }
}

/// Labelled lines at round values, more of them the narrower the range is.
fn push_ticks(page: &mut String, low: f64, high: f64, unit: &str) {
    let decades = low.floor() as i32..=high.ceil() as i32;
    let steps: &[f64] = match high - low {
        span if span > 2.0 => &[1.0],
        span if span > 0.7 => &[1.0, 2.0, 5.0],
        _ => &[1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
    };
    for value in decades.flat_map(|decade| steps.iter().map(move |step| step * 10_f64.powi(decade))) {
        let place = (value.log10() - low) / (high - low) * SIDE;
        if !(0.0..=SIDE).contains(&place) {
            continue;
        }
        let (x, y) = (MARGIN + place, MARGIN + SIDE - place);
        // Powers of ten times a step are not exact: 7 digits are.
        let label = format!("{value:.7}");
        let label = label.trim_end_matches('0').trim_end_matches('.');
        let (edge, below) = (MARGIN + SIDE, MARGIN + SIDE + 20.0);
        let _ = writeln!(
            page,
            "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{MARGIN}\" x2=\"{x:.1}\" y2=\"{edge}\"/><text x=\"{x:.1}\" \
             y=\"{below}\" text-anchor=\"middle\">{label}</text><line class=\"grid\" x1=\"{MARGIN}\" y1=\"{y:.1}\" \
             x2=\"{edge}\" y2=\"{y:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            MARGIN - 6.0,
            y + 5.0
        );
    }
    let middle = MARGIN + SIDE / 2.0;
    let _ = writeln!(
        page,
        "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">measured, {unit}</text><text x=\"14\" y=\"{middle}\" \
         text-anchor=\"middle\" transform=\"rotate(-90 14 {middle})\">predicted, {unit}</text>",
        SIDE + 2.0 * MARGIN - 12.0
    );
}

fn push_rows(page: &mut String, runs: &[Scored]) {
    page.push_str("<details><summary>Every run in text</summary>\n<div class=\"wide\"><table>\n<thead><tr><th>run</th><th>measured s</th><th>predicted s</th><th>error %</th><th>measured GiB</th><th>predicted GiB</th><th>error %</th><th>fits</th><th>reported OOM</th></tr></thead>\n<tbody>\n");
    for run in runs {
        let number = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "-".to_owned(), |v| format!("{v:.digits$}"))
        };
        let died = run.case.row.out_of_memory.map_or("-", |died| if died { "yes" } else { "no" });
        let _ = writeln!(
            page,
            "<tr><th>{}</th><td>{}</td><td>{:.3}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{died}</td></tr>",
            escape(&describe(run)),
            number(run.measured_step(), 3),
            run.estimate.step_time_seconds.get(),
            signed_percent(run.step_error()),
            number(run.measured_memory().map(|memory| memory.bytes / cluster_profiles::Bytes::GIB), 1),
            number(run.predicted_memory().map(cluster_profiles::Bytes::as_gib), 1),
            signed_percent(run.memory_error()),
            if run.estimate.fits { "yes" } else { "no" },
        );
    }
    page.push_str("</tbody></table></div></details>\n");
}

fn push_skipped(page: &mut String, validation: &Validation) {
    let _ = writeln!(page, "<p>{} rows could not be read.</p>", validation.unread.len());
    if validation.unread.is_empty() {
        return;
    }
    page.push_str("<ul>\n");
    for unread in &validation.unread {
        for fault in &unread.faults {
            let _ = writeln!(page, "<li>{}: {}</li>", escape(&unread.id), escape(&fault.to_string()));
        }
    }
    page.push_str("</ul>\n");
}

/// Text that is safe between tags and in quoted attributes.
fn escape(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
        out
    })
}
