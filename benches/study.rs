//! Points of a study: one search, rows that share one, and many that share none.

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

/// 10,080 points of which no two are alike.
const DISTINCT: &str = r#"
name = "distinct"
[base]
model = "llama-3.1-70b"
cluster = "dgx-h100"
tokens = 1e12

[[axes]]
key = "gpus"
values = [8, 16, 32, 64, 128, 256, 512]

[[axes]]
key = "seq_len"
values = [2048, 4096, 8192, 16384]

[[axes]]
key = "global_batch"
values = [128, 256, 384, 512, 768, 1024]

[[axes]]
key = "gpu.memory"
values = ["64 GiB", "80 GiB", "96 GiB", "120 GiB", "141 GiB", "160 GiB"]

[[axes]]
key = "cluster.inter.bandwidth"
range = { from = "12.5 GB/s", to = "100 GB/s", count = 10, log = true }
"#;

/// Of the points of the large study one in so many is planned.
const EVERY: usize = 347;

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

/// Distinct points per second of one core by the gap that is allowed: a study that shares no search. Three minutes on two cores
/// for all 10,080 are 28 a second.
#[divan::bench(args = [0.0, 0.001, 0.003, 0.01, 0.03], sample_count = 1, sample_size = 1)]
fn distinct(bencher: divan::Bencher, gap: f64) {
    let base = format!("[base]\ngap = {gap}");
    let study = Study::read("distinct", &DISTINCT.replace("[base]", &base)).expect("a study");
    let columns = row::columns(&study);
    let points: Vec<u64> = study.points().step_by(EVERY).collect();
    let alone = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread");
    bencher.counter(divan::counter::ItemsCount::new(points.len())).bench(|| {
        alone.install(|| {
            points.iter().flat_map(|point| run::rows(&study, &columns, &[*point])).collect::<Vec<_>>()
        })
    });
}
