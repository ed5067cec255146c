//! Accuracy on the project's own table of published runs: `tests/data/published_runs.csv`, a few hundred rows of facts
//! from every source, each with its citation.

#![allow(clippy::expect_used, reason = "a test stops at the first thing that is not as it should be")]

use meshwright::validate::{Figures, Models, Scored, Selection, Summary, Validation, read_file, validate};
use std::path::Path;
use std::sync::LazyLock;

static PUBLISHED: LazyLock<(Validation, Summary)> = LazyLock::new(|| {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let models = read_file(&data.join("published_models.json")).expect("the models are at hand");
    let models =
        Models::read("published_models.json", &String::from_utf8_lossy(&models)).expect("sound models");
    let table = read_file(&data.join("published_runs.csv")).expect("the table is at hand");
    let validation = validate("published_runs.csv", &table, &models, Selection::All).expect("a sound table");
    let summary = Summary::of(&validation.runs);
    (validation, summary)
});

fn source(key: &str) -> &'static Figures {
    PUBLISHED.1.sources.get(key).expect("the source has rows")
}

/// Asserts that a figure exists and is at most `limit`; prints it so that a failure says by how much.
fn at_most(what: &str, figure: Option<f64>, limit: f64) {
    let figure = figure.expect("there is such a figure");
    assert!(figure <= limit, "{what} is {figure:.4}, more than {limit}");
}

fn at_least(what: &str, figure: Option<f64>, limit: f64) {
    let figure = figure.expect("there is such a figure");
    assert!(figure >= limit, "{what} is {figure:.4}, less than {limit}");
}

#[test]
fn every_row_is_read() {
    let (validation, _) = &*PUBLISHED;
    let unread: Vec<String> =
        validation.unread.iter().map(|row| format!("{}: {}", row.id, row.faults[0])).collect();
    assert!(unread.is_empty(), "{unread:#?}");
    assert!(validation.ignored_columns.iter().all(|column| column == "source" || column == "source_ref"));
    assert!(validation.runs.len() > 350);
}

#[test]
fn step_times_are_near_the_measured_ones() {
    let summary = &PUBLISHED.1;
    at_most("median error", summary.overall.step_time_median_error, 0.05);
    at_most("90th percentile", summary.overall.step_time_p90_error, 0.15);
    at_most("bias", summary.overall.step_time_bias.map(f64::abs), 0.03);
    for (key, figures) in summary.sources.iter().filter(|(_, figures)| figures.step_time_rows >= 10) {
        at_most(&format!("bias of {key}"), figures.step_time_bias.map(f64::abs), 0.08);
    }
}

#[test]
fn they_are_nearer_than_a_constant_mfu() {
    let summary = &PUBLISHED.1;
    let ours = summary.overall.step_time_median_error.expect("there are step times");
    let constant = summary.baseline.step_time_median_error.expect("there are step times");
    assert!(ours < 0.35 * constant, "{ours:.4} against {constant:.4}");
}

#[test]
fn memory_is_near_what_the_sources_measured() {
    let worst = |key: &str| {
        let runs = PUBLISHED.0.runs.iter().filter(|run| run.case.row.source_key == key);
        runs.filter_map(Scored::memory_error).map(f64::abs).fold(0.0, f64::max)
    };
    at_most("SimuMax, every row", Some(worst("SMX")), 0.01);
    at_most("zero bubble", source("ZB").memory_median_error, 0.03);
    at_most("vocabulary parallelism", source("VP5").memory_median_error, 0.01);
    at_most("nanotron", source("NT").memory_median_error, 0.07);
}

#[test]
fn runs_out_of_memory_are_told_from_runs_that_fit() {
    at_least("nanotron", source("NT").oom_balanced_accuracy, 0.94);
    at_least("Aleph-Alpha", source("AA").oom_balanced_accuracy, 0.95);
}

#[test]
fn layouts_come_out_in_the_measured_order() {
    at_least("mean tau", PUBLISHED.1.overall.kendall_tau, 0.7);
    at_least("Aleph-Alpha", source("AA").kendall_tau, 0.8);
    at_most("median regret", PUBLISHED.1.overall.median_regret, 0.01);
}
