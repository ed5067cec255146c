//! The committed numbers are what the fit gives.

use meshwright::fit::fit_all;
use std::path::Path;

/// Relative difference that other mathematical libraries may cause.
const SLACK: f64 = 0.005;

/// Numbers in a profile's text, with the words around them blanked.
fn numbers(text: &str) -> Vec<f64> {
    text.split(|c: char| !(c.is_ascii_digit() || c == '.')).filter_map(|word| word.parse().ok()).collect()
}

/// Runs where the measurements lie beside the repository; there the fit is run again from its fixed starts and must
/// give every committed number.
#[test]
fn the_committed_numbers_are_what_the_fit_gives() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let data = root.join("../shared/data");
    if !data.join("validation/measured_runs.csv").is_file() {
        eprintln!("skipped: no measurements in {}", data.display());
        return;
    }
    let fitted = fit_all(&data).unwrap();
    for (path, text) in fitted.files(root).unwrap() {
        let committed = std::fs::read_to_string(root.join(&path)).unwrap();
        let (committed, found) = (numbers(&committed), numbers(&text));
        assert_eq!(committed.len(), found.len(), "{path}");
        for (old, new) in committed.iter().zip(&found) {
            let difference = (old - new).abs();
            assert!(
                difference <= SLACK * old.abs().max(1e-12),
                "{path}: {old} is committed, the fit gives {new}"
            );
        }
    }
}
