//! The studies of `studies/`: each runs small here, and in full by
//! `cargo test --release --test study_shipped -- --ignored`.

mod study;

use std::path::{Path, PathBuf};
use study::*;

const STUDIES: [&str; 3] = ["equal-money", "nvlink-domain", "strong-scaling"];

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("studies").join(format!("{name}.toml"))
}

/// The study with only two values of its longest axes, and smaller models and clusters.
fn smaller(text: &str) -> String {
    text.replace("[5000, 10000, 20000]", "[700, 1400]")
        .replace("18_874_368", "1_179_648")
        .replace("[\"deepseek-v3\", \"llama-3.1-405b\"]", "[\"llama-3.1-8b\"]")
        .replace("\"llama-3.1-405b\"", "\"llama-3.1-8b\"")
        .replace("[8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576]", "[8192, 65536]")
        .replace("gpus = 576", "gpus = 72")
        .replace("[8, 16, 36, 72]", "[8, 72]")
        .replace("\"gpt-3-175b\"", "\"gpt-3-6.7b\"")
        .replace("tp=8,pp=12,vpp=1,micro_batch_size=1,recompute=full:8", "tp=2,pp=2,vpp=1,micro_batch_size=1")
        .replace("[64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384]", "[16, 64]")
        .replace("gpus = [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384]", "gpus = 16")
}

fn run(name: &str, text: &str) -> (Vec<String>, Vec<Vec<String>>) {
    let folder = folder();
    write(folder.path(), "study.toml", text);
    done(&meshwright(&["study", "study.toml", "--out", "out", "--html", "study.html"], folder.path()));
    let page = std::fs::read_to_string(folder.path().join("study.html")).expect("a page");
    assert!(page.contains("Sweep"), "{name}");
    table(&folder.path().join("out/results.csv"))
}

fn number(header: &[String], row: &[String], name: &str) -> f64 {
    let at = header.iter().position(|own| own == name).unwrap_or_else(|| panic!("{name}"));
    row[at].parse().unwrap_or_else(|_| panic!("{name}: {row:?}"))
}

#[test]
fn every_shipped_study_runs_small() {
    for name in STUDIES {
        let text = std::fs::read_to_string(file(name)).expect("a study");
        let small = smaller(&text);
        assert_ne!(text, small);
        let (header, rows) = run(name, &small);
        let status = header.iter().position(|own| own == "status").expect("a column");
        assert!(rows.iter().any(|row| row[status] == "ok"), "{name}: {rows:?}");
        if name == "equal-money" {
            for row in rows.iter().filter(|row| row[status] == "ok") {
                assert!(
                    number(&header, row, "cluster_dollars_per_hour")
                        <= number(&header, row, "dollars_per_hour")
                );
            }
        }
    }
}

#[test]
fn the_published_points_of_the_scaling_study_are_those_of_the_table() {
    let text = std::fs::read_to_string(file("strong-scaling")).expect("a study");
    let study = meshwright::study::Study::read("strong-scaling", &text).expect("it reads");
    let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/published_runs.csv");
    let mut reader = csv::Reader::from_path(runs).expect("a table");
    let columns = reader.headers().expect("a header").clone();
    let at = |name: &str| columns.iter().position(|own| own == name).expect("a column");
    let (gpus, seconds, source) = (at("n_gpus"), at("step_s"), at("source_key"));
    let rows: Vec<csv::StringRecord> = reader.records().map(|row| row.expect("a row")).collect();
    let known = rows.iter().filter(|row| row[source] == *"SC21");
    let known: Vec<(f64, f64)> =
        known.filter_map(|row| Some((row[gpus].parse().ok()?, row[seconds].parse().ok()?))).collect();
    let mut found = 0;
    for measured in &study.measured {
        let step: f64 = measured
            .source
            .rsplit(": ")
            .next()
            .and_then(|text| text.split(' ').next())
            .and_then(|text| text.parse().ok())
            .expect("a step time");
        let same = |(gpus, seconds): &(f64, f64)| *gpus == measured.x && (seconds / step - 1.0).abs() < 2e-3;
        found += usize::from(known.iter().any(same));
    }
    assert!(found >= 2, "{found} of {:?} in {known:?}", study.measured);
}

#[test]
#[ignore = "minutes: cargo test --release --test study_shipped -- --ignored"]
fn every_shipped_study_runs_in_full() {
    for name in STUDIES {
        let text = std::fs::read_to_string(file(name)).expect("a study");
        let (header, rows) = run(name, &text);
        let status = header.iter().position(|own| own == "status").expect("a column");
        let ok = rows.iter().filter(|row| row[status] == "ok").count();
        assert!(2 * ok >= rows.len(), "{name}: {ok} of {}", rows.len());
    }
}
