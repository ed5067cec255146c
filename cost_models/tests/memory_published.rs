//! Predicted against published memory: always on the committed facts, and on the whole collection where it is at hand.

mod memory_runs;

use memory_runs::{Models, Row, predict, rows};
use std::path::PathBuf;

/// The collection, `../shared/data/validation` beside the repository or under `MESHWRIGHT_SHARED`.
fn collection() -> Option<PathBuf> {
    let root = std::env::var_os("MESHWRIGHT_SHARED")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared")), PathBuf::from);
    let folder = root.join("data/validation");
    folder.join("measured_runs.csv").exists().then_some(folder)
}

fn percentile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(((values.len() as f64 - 1.0) * share).round() as usize).copied().unwrap_or(f64::NAN)
}

#[test]
fn residuals() {
    let Some(folder) = collection() else {
        eprintln!("skipped: the collection of published runs is not at hand");
        return;
    };
    let all = rows(&std::fs::read_to_string(folder.join("measured_runs.csv")).unwrap());
    let models = Models::read(&std::fs::read_to_string(folder.join("models.json")).unwrap());
    let verbose = std::env::var("VERBOSE").unwrap_or_default();
    for source in ["SMX", "ZB", "VP5", "VPA", "PO", "TT", "AO", "NT", "BLP", "MBS", "PRI", "ISS"] {
        let mut errors = Vec::new();
        for row in all.iter().filter(|row| row.text("source_key") == source && row.text("quality") != "X") {
            if source == "NT" && row.text("quality") == "C" {
                continue;
            }
            let (Some(measured), Some(predicted)) = (row.measured(), predict(row, &models)) else { continue };
            let printed = predicted.printed(row);
            let error = printed / measured - 1.0;
            errors.push(error);
            if verbose == source {
                show(row, measured, printed, &predicted);
            }
        }
        let mut absolute: Vec<f64> = errors.iter().map(|e| e.abs()).collect();
        let bias = percentile(&mut errors, 0.5);
        println!(
            "{source:4} {:4} median {:5.2} % p90 {:5.2} % bias {:5.2} % max {:5.2}",
            absolute.len(),
            100.0 * percentile(&mut absolute, 0.5),
            100.0 * percentile(&mut absolute, 0.9),
            100.0 * bias,
            100.0 * percentile(&mut absolute, 1.0)
        );
    }
}

fn show(row: &Row, measured: f64, printed: f64, predicted: &memory_runs::Predicted) {
    let gib = 1_073_741_824.0;
    let peak = predicted.peaks.iter().max_by(|a, b| a.allocated().total_cmp(&b.allocated())).unwrap();
    println!(
        "{:48} {:7.2} {:7.2} {:6.2} % | rank {} state {:.2} saved {:.2} head {:.2} trans {:.2} ws {:.2} shared {:.2} gath {:.2}",
        row.text("id"),
        measured / gib,
        printed / gib,
        100.0 * (printed / measured - 1.0),
        peak.rank,
        peak.state.resident().get() / gib,
        peak.saved / gib,
        peak.head / gib,
        peak.transient / gib,
        peak.workspace / gib,
        peak.shared_gradients / gib,
        peak.gathered / gib,
    );
}

/// Out of memory as a confusion table: predicted beyond the default limit against what the source says.
#[test]
fn out_of_memory() {
    let Some(folder) = collection() else {
        eprintln!("skipped: the collection of published runs is not at hand");
        return;
    };
    let all = rows(&std::fs::read_to_string(folder.join("measured_runs.csv")).unwrap());
    let models = Models::read(&std::fs::read_to_string(folder.join("models.json")).unwrap());
    let verbose = std::env::var("VERBOSE").unwrap_or_default();
    for source in ["NT", "AA", "PO", "BLP"] {
        let mut counts = [[0.0; 2]; 2];
        for row in all.iter().filter(|row| row.text("source_key") == source) {
            if ["C", "X"].contains(&row.text("quality")) || row.text("kind") == "failed" {
                continue;
            }
            let Some(predicted) = predict(row, &models) else { continue };
            let capacity = 80.0 * 1_073_741_824.0;
            let limit = predicted.runtime.memory.reserve.default_limit(capacity);
            let (full, oom) = (predicted.reserved() > limit, row.text("oom") == "1");
            counts[usize::from(oom)][usize::from(full)] += 1.0;
            if full != oom && verbose == format!("{source}-OOM") {
                show(row, row.measured().unwrap_or(1e12), predicted.reserved(), &predicted);
            }
        }
        let [[tn, fp], [fn_, tp]] = counts;
        println!(
            "{source:4} oom: TP {tp} FN {fn_} FP {fp} TN {tn} balanced median {:.4}",
            (tp / (tp + fn_) + tn / (tn + fp)) / 2.0
        );
    }
}
