//! How fast plans are found: layouts considered per second, and how the time grows with GPUs, layers and axes.
//!
//! `cargo bench --bench solve`; the `item/s` column counts layouts looked at or excluded.

use cluster_profiles::{Cluster, Precision, catalog};
use cost_models::{ModelSpec, Optimizer, Runtime, Workload};
use divan::{Bencher, counter::ItemsCount};
use serde_json::json;
use solver::{Outcome, Problem, Silent, Solution, solve};

fn main() {
    divan::main();
}

fn cluster(gpus: u64) -> Cluster {
    catalog::cluster("dgx-h100").and_then(|cluster| cluster.resized(gpus)).expect("a catalogue cluster")
}

fn model(name: &str) -> ModelSpec {
    cost_models::model::catalog::get(name).expect("a catalogue model")
}

fn plan(model: &ModelSpec, cluster: &Cluster, global_batch: u64, seq_len: u64) -> Solution {
    let workload = Workload {
        global_batch,
        seq_len,
        precision: Precision::Bf16,
        optimizer: Optimizer::Adamw,
        gradient_dtype: None,
        expert_imbalance: 1.0,
    };
    let runtime = Runtime::named("megatron-core").expect("a catalogue runtime");
    match solve(&Problem::new(model, cluster, &workload, &runtime), &Silent) {
        Ok(Outcome::Solved(solution)) => *solution,
        other => panic!("no plan: {other:?}"),
    }
}

/// Plans once for the number of layouts, then measures.
fn measure(bencher: Bencher, model: &ModelSpec, gpus: u64, global_batch: u64, seq_len: u64) {
    let cluster = cluster(gpus);
    let layouts = plan(model, &cluster, global_batch, seq_len).certificate.considered;
    bencher.counter(ItemsCount::new(layouts)).bench(|| plan(model, &cluster, global_batch, seq_len));
}

/// Llama-3.1-405B on more and more GPUs, a sequence for each.
#[divan::bench(args = [1024, 4096, 16_384, 131_072], sample_count = 5)]
fn gpus(bencher: Bencher, gpus: u64) {
    measure(bencher, &model("llama-3.1-405b"), gpus, gpus.min(16_384), 8192);
}

/// A dense model of more and more layers on 256 GPUs.
#[divan::bench(args = [24, 48, 96, 192], sample_count = 5)]
fn layers(bencher: Bencher, layers: u64) {
    let sizes =
        json!({"layers": layers, "hidden": 6144, "heads": 48, "kv_heads": 8, "ffn": 16384, "vocab": 128_256});
    let model = ModelSpec::from_compact("dense", &sizes).expect("sizes are sound");
    measure(bencher, &model, 256, 256, 4096);
}

/// Models with more and more axes: dense, with experts, with experts and latent attention.
#[divan::bench(args = ["llama-3.1-70b", "qwen3-235b-a22b", "deepseek-v3"], sample_count = 5)]
fn axes(bencher: Bencher, name: &str) {
    measure(bencher, &model(name), 1024, 1024, 4096);
}
