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
    text.replace("[6160, 12310, 24620]", "[700, 1400]")
        .replace("18_874_368", "1_179_648")
        .replace("[\"deepseek-v3\", \"llama-3.1-405b\"]", "[\"llama-3.1-8b\"]")
        .replace("\"llama-3.1-405b\"", "\"llama-3.1-8b\"")
        .replace("[8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576]", "[8192, 65536]")
        .replace("gpus = 576", "gpus = 72")
        .replace("[8, 16, 36, 72]", "[8, 72]")
        .replace("\"gpt-3-175b\"", "\"gpt-3-6.7b\"")
        .replace("tp=8,pp=12,vpp=1,micro_batch_size=1,recompute=full:8", "tp=2,pp=2,vpp=1,micro_batch_size=1")
        .replace(
            "[64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384]",
            "[16, 64]",
        )
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

/// Model FLOPs of a token: causal attention, nothing recomputed, and as equation 3 of arXiv 2104.04473 counts them.
fn flops_of_gpt_3() -> (f64, f64) {
    let model = cost_models::model::catalog::get("gpt-3-175b").expect("in the catalogue");
    let (layers, hidden, seq_len, vocabulary) = (96.0, 12_288.0, 2048.0, 51_200.0);
    let counted = 96.0 * layers * hidden * hidden;
    let counted = counted * (1.0 + seq_len / (6.0 * hidden) + vocabulary / (16.0 * layers * hidden));
    (model.flops_per_token(2048, true).training(), counted)
}

#[test]
fn the_published_points_of_the_scaling_study_are_those_of_the_papers() {
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
    let (model, counted) = flops_of_gpt_3();
    for measured in &study.measured {
        let figure = measured.source.rsplit(": ").next().expect("a figure");
        let (number, unit) = figure.split_once(' ').expect("a unit");
        let number: f64 = number.parse().expect("a number");
        if unit == "TFLOP/s" {
            let utilization = number / 312.0 * model / counted;
            assert!((measured.y / utilization - 1.0).abs() < 3e-3, "{measured:?}: {utilization}");
        } else {
            let same =
                |(gpus, seconds): &(f64, f64)| *gpus == measured.x && (seconds / number - 1.0).abs() < 2e-3;
            assert!(known.iter().any(same), "{measured:?} in {known:?}");
        }
    }
}

/// The layout of the paper is predicted as fast as it was measured.
#[test]
fn the_published_scaling_is_predicted() {
    let text = std::fs::read_to_string(file("strong-scaling")).expect("a study");
    let study = meshwright::study::Study::read("strong-scaling", &text).expect("it reads");
    let published: Vec<_> = study.measured.iter().filter(|one| one.source.ends_with("TFLOP/s")).collect();
    assert_eq!(published.len(), 3);
    for measured in published {
        let same = |index: &u64| {
            let values = study.values(*index);
            values["gpus"].number() == Some(measured.x) && !values["fix"].to_string().is_empty()
        };
        let point = study.points().find(same).expect("a point");
        let Ok(meshwright::Answer::Plan(plan)) = meshwright::study::run::plan_of(&study, point, 1) else {
            panic!("a plan fits")
        };
        let predicted = plan.estimate.model_flops_utilization;
        assert!((predicted / measured.y - 1.0).abs() < 0.05, "{predicted} at {measured:?}");
    }
}

/// The three clusters of the study at equal money cost the same within a few percent, at every amount.
#[test]
fn equal_money_is_equal() {
    let text = std::fs::read_to_string(file("equal-money")).expect("a study");
    let study = meshwright::study::Study::read("equal-money", &text).expect("it reads");
    for point in study.points() {
        let asked = study.values(point)["dollars_per_hour"].number().expect("dollars");
        let draft = study.draft(point).expect("it makes sense");
        let ready = draft.ready(&study.library, study.objective).expect("it pays for nodes");
        let cluster = &ready.inputs.cluster;
        let price = cluster.main().dollars_per_gpu_hour.expect("a price");
        let paid = price * cluster.gpu_count() as f64;
        assert!(paid <= asked && paid > 0.96 * asked, "{paid} of {asked} on {}", cluster.name);
    }
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
