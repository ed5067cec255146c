//! Predicted against published memory: always on the committed facts (`data/memory_runs.csv`, each row with its
//! source), and on the whole collection where it is at hand.

mod memory_runs;

use memory_runs::{Models, Predicted, Row, predict, rows};
use std::path::PathBuf;

const GIB: f64 = 1_073_741_824.0;

/// The collection, `../shared/data/validation` beside the repository or under `MESHWRIGHT_SHARED`.
fn collection() -> Option<(Vec<Row>, Models)> {
    let root = std::env::var_os("MESHWRIGHT_SHARED")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared")), PathBuf::from);
    let read = |file| std::fs::read_to_string(root.join("data/validation").join(file)).ok();
    let found = read("measured_runs.csv").zip(read("models.json"));
    if found.is_none() {
        eprintln!("skipped: the collection of published runs is not at hand");
    }
    found.map(|(runs, models)| (rows(&runs), Models::read(&models)))
}

fn committed() -> (Vec<Row>, Models) {
    (rows(include_str!("data/memory_runs.csv")), Models::read(include_str!("data/memory_models.json")))
}

/// Relative errors of a source's rows of quality A or B, with their rows.
fn errors<'a>(all: &'a [Row], models: &Models, source: &str) -> Vec<(f64, &'a Row)> {
    let scored = all.iter().filter(|row| row.text("source_key") == source);
    let known = scored.filter(|row| !["C", "X"].contains(&row.text("quality")));
    known
        .filter_map(|row| {
            let (measured, predicted) = (row.measured()?, predict(row, models)?);
            Some((predicted.printed(row) / measured - 1.0, row))
        })
        .collect()
}

fn quantile(errors: &[(f64, &Row)], share: f64) -> f64 {
    let mut absolute: Vec<f64> = errors.iter().map(|(error, _)| error.abs()).collect();
    absolute.sort_by(f64::total_cmp);
    absolute[((absolute.len() as f64 - 1.0) * share).round() as usize]
}

/// Rows, median and largest error allowed for each source.
const COMMITTED: [(&str, usize, f64, f64); 7] = [
    ("SMX", 17, 0.002, 0.01),
    ("ZB", 9, 0.03, 0.04),
    ("VP5", 6, 0.01, 0.01),
    ("TT", 5, 0.03, 0.04),
    ("BLP", 5, 0.06, 0.08),
    ("PO", 3, 0.06, 0.07),
    ("NT", 16, 0.08, 0.5),
];

#[test]
fn committed_rows_are_met() {
    let (all, models) = committed();
    for (source, count, median, largest) in COMMITTED {
        let errors = errors(&all, &models, source);
        assert_eq!(errors.len(), count, "{source}");
        assert!(quantile(&errors, 0.5) <= median, "{source}: median {}", quantile(&errors, 0.5));
        for (error, row) in errors {
            assert!(error.abs() <= largest, "{}: {error}", row.text("id"));
        }
    }
}

/// SimuMax prints what every rank allocated.
#[test]
fn every_rank_of_the_pipelines_is_met() {
    let (all, models) = committed();
    let pipelines = all.iter().filter(|row| row.text("source_key") == "SMX" && row.text("pp") == "2");
    for row in pipelines {
        let predicted = predict(row, &models).unwrap();
        let notes = row.text("notes");
        let list = notes.split("alloc GiB ").nth(1).unwrap().split(';').next().unwrap();
        let ranks: Vec<f64> = list.split('/').map(|gib| gib.trim().parse().unwrap()).collect();
        for (peak, measured) in predicted.peaks.iter().zip([ranks[0], ranks[ranks.len() - 1]]) {
            let error = peak.allocated() / GIB / measured - 1.0;
            assert!(error.abs() <= 0.01, "{} rank {}: {error}", row.text("id"), peak.rank);
        }
    }
}

/// Balanced accuracy of "out of memory" at the default limit of the row's device.
fn balanced_accuracy(all: &[Row], models: &Models, source: &str) -> f64 {
    let mut right = [0.0; 2];
    let mut count = [0.0; 2];
    for row in all.iter().filter(|row| row.text("source_key") == source) {
        if ["C", "X"].contains(&row.text("quality")) || row.text("kind") == "failed" {
            continue;
        }
        let Some(predicted) = predict(row, models) else { continue };
        let oom = row.text("oom") == "1";
        count[usize::from(oom)] += 1.0;
        right[usize::from(oom)] += f64::from(u8::from(overflows(&predicted) == oom));
    }
    (right[0] / count[0] + right[1] / count[1]) / 2.0
}

fn overflows(predicted: &Predicted) -> bool {
    predicted.reserved() > predicted.runtime.memory.reserve.default_limit(predicted.capacity)
}

#[test]
fn committed_rows_out_of_memory_are_told_from_the_others() {
    let (all, models) = committed();
    for source in ["NT", "AA"] {
        let accuracy = balanced_accuracy(&all, &models, source);
        assert!(accuracy >= 0.85, "{source}: {accuracy}");
    }
}

/// Source and the median error allowed.
const TARGETS: [(&str, f64); 8] = [
    ("SMX", 0.002),
    ("ZB", 0.03),
    ("VP5", 0.01),
    ("VPA", 0.04),
    ("PO", 0.06),
    ("TT", 0.04),
    ("NT", 0.06),
    ("BLP", 0.04),
];

#[test]
fn the_collection_is_met() {
    let Some((all, models)) = collection() else { return };
    for (source, target) in TARGETS {
        let errors = errors(&all, &models, source);
        let median = quantile(&errors, 0.5);
        println!(
            "{source:4} {:4} rows, median {:.2} %, p90 {:.2} %",
            errors.len(),
            100.0 * median,
            100.0 * quantile(&errors, 0.9)
        );
        assert!(median <= target, "{source}: median {median}");
        if source == "SMX" {
            assert!(quantile(&errors, 1.0) <= 0.01);
        }
    }
}

#[test]
fn the_collection_out_of_memory_is_met() {
    let Some((all, models)) = collection() else { return };
    for (source, target) in [("NT", 0.98), ("AA", 0.94)] {
        let accuracy = balanced_accuracy(&all, &models, source);
        println!("{source} balanced accuracy {accuracy:.4}");
        assert!(accuracy >= target, "{source}: {accuracy}");
    }
}
