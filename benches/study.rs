//! Points of a study: one search, and rows that share one.

use meshwright::study::{Study, row, run};

const STUDY: &str = r#"
name = "bench"
[base]
model = "llama-3.1-70b"
cluster = "dgx-h100"
seq_len = 8192
global_batch = 512
tokens = 1e12

[[axes]]
key = "gpus"
values = [8, 64, 128, 256, 512]

[[axes]]
key = "cluster.dollars_per_gpu_hour"
range = { from = 1, to = 4, count = 100 }
"#;

fn main() {
    divan::main();
}

/// One search for each number of GPUs.
#[divan::bench(args = [0, 100, 200, 300, 400])]
fn search(bencher: divan::Bencher, point: u64) {
    let study = Study::read("bench", STUDY).expect("a study");
    let columns = row::columns(&study);
    bencher.bench(|| run::rows(&study, &columns, &[point]));
}

/// A hundred prices of one search.
#[divan::bench]
fn prices(bencher: divan::Bencher) {
    let study = Study::read("bench", STUDY).expect("a study");
    let columns = row::columns(&study);
    let points: Vec<u64> = (100..200).collect();
    bencher.bench(|| run::rows(&study, &columns, &points));
}
