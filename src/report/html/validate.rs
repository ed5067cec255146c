//! A validation as a page: scatter plots of predicted against measured, and every figure in text.

use super::chart::{Chart, Dot, Series, Style};
use super::page;
use super::parts::{self, table};
use crate::report::validation_text::{percent, signed_percent};
use crate::validate::{Figures, MemoryQuantity, Scored, Summary, Validation};
use cluster_profiles::Bytes;
use maud::{Markup, html};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The page.
#[must_use]
pub fn validate(validation: &Validation, summary: &Summary) -> String {
    let overall = [("overall".to_owned(), summary.overall.clone())];
    let overall = overall.iter().map(|(name, figures)| (name, figures));
    let content = html! {
        h1 { "Predicted against measured" }
        p { (headline(validation, summary)) }
        h2 { "Step time, seconds" }
        p { "The line is a perfect prediction, the dashed ones are 10 % off. Hover a point for its run." }
        (plots(&validation.runs, step_dot, "s"))
        h2 { "Memory, GiB" }
        (plots(&validation.runs, memory_dot, "GiB"))
        (figures("By source", summary.sources.iter().chain(overall)))
        (figures("By GPU", summary.gpus.iter().chain(&summary.subsets)))
        (rows(&validation.runs))
        (skipped(validation))
    };
    page("meshwright validate", &content)
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

/// A chart per source, those with most runs first.
fn plots(runs: &[Scored], dot: fn(&Scored) -> Option<Dot>, unit: &str) -> Markup {
    let mut sources: BTreeMap<&str, Vec<Dot>> = BTreeMap::new();
    for run in runs {
        if let Some(dot) = dot(run) {
            sources.entry(&run.case.row.source_key).or_default().push(dot);
        }
    }
    let chart = |source: &str, dots: &[Dot]| Chart {
        title: format!("{source} ({} {})", dots.len(), if dots.len() == 1 { "run" } else { "runs" }),
        axes: [format!("measured, {unit}"), format!("predicted, {unit}")],
        log: [true, true],
        diagonal: true,
        series: vec![Series { name: source.to_owned(), style: Style::Cloud, colour: 0, dots: dots.to_vec() }],
    };
    let mut sources: Vec<(&str, Vec<Dot>)> = sources.into_iter().collect();
    sources.sort_by_key(|(_, dots)| Reverse(dots.len()));
    parts::plots(&sources.iter().map(|(source, dots)| chart(source, dots).render()).collect::<Vec<_>>())
}

fn step_dot(run: &Scored) -> Option<Dot> {
    let measured = run.measured_step()?;
    let predicted = run.estimate.step_time_seconds.get();
    let title = format!(
        "{}: measured {measured:.3} s, predicted {predicted:.3} s ({} %)",
        describe(run),
        signed_percent(run.step_error())
    );
    Some(Dot { x: measured, y: predicted, tip: title })
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
    Some(Dot { x: measured, y: predicted, tip: title })
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

const FIGURES: [&str; 13] = [
    "part",
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

fn figures<'a>(title: &str, parts: impl Iterator<Item = (&'a String, &'a Figures)>) -> Markup {
    let rows: Vec<Vec<String>> = parts.map(|(name, figures)| figure_row(name, figures)).collect();
    html! { h2 { (title) } (table(&FIGURES, &[], &rows)) }
}

fn figure_row(name: &str, figures: &Figures) -> Vec<String> {
    vec![
        name.to_owned(),
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
    ]
}

const RUN: [&str; 9] = [
    "run",
    "measured s",
    "predicted s",
    "error %",
    "measured GiB",
    "predicted GiB",
    "error %",
    "fits",
    "reported OOM",
];

fn rows(runs: &[Scored]) -> Markup {
    let rows: Vec<Vec<String>> = runs.iter().map(run_row).collect();
    html! { details { summary { "Every run in text" } (table(&RUN, &[], &rows)) } }
}

fn run_row(run: &Scored) -> Vec<String> {
    let number =
        |value: Option<f64>, digits: usize| value.map_or_else(|| "-".to_owned(), |v| format!("{v:.digits$}"));
    vec![
        describe(run),
        number(run.measured_step(), 3),
        format!("{:.3}", run.estimate.step_time_seconds.get()),
        signed_percent(run.step_error()),
        number(run.measured_memory().map(|memory| memory.bytes / Bytes::GIB), 1),
        number(run.predicted_memory().map(Bytes::as_gib), 1),
        signed_percent(run.memory_error()),
        if run.estimate.fits { "yes" } else { "no" }.to_owned(),
        run.case.row.out_of_memory.map_or("-", |died| if died { "yes" } else { "no" }).to_owned(),
    ]
}

fn skipped(validation: &Validation) -> Markup {
    html! {
        p { (validation.unread.len()) " rows could not be read." }
        @if !validation.unread.is_empty() {
            ul {
                @for unread in &validation.unread {
                    @for fault in &unread.faults { li { (unread.id) ": " (fault.to_string()) } }
                }
            }
        }
    }
}
