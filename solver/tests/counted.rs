//! Numbers of repeated layers: more of them may let stages be more even.

mod support;

use cluster_profiles::{Bytes, catalog};
use cost_models::Runtime;
use cost_models::model;
use solver::{Constraints, Problem};
use support::runs::{proved, searched, step, workload};

/// At limits that some number of repeated layers just keeps, no number that is fixed is better than the free search.
#[test]
fn no_fixed_number_of_layers_is_better_than_the_best_of_all() {
    let model = model::catalog::get("llama-3.1-8b").expect("a catalogue model");
    let cluster = catalog::cluster("dgx-a100-40gb").and_then(|cluster| cluster.resized(8)).expect("a node");
    let (workload, runtime) = (workload(64, 4096), Runtime::named("megatron-core").expect("a profile"));
    let of = |limit: f64, fix: &str, top: usize| Problem {
        constraints: Constraints::parse(&[fix], &[]).expect("terms"),
        memory_limit: Some(Bytes(limit * Bytes::GIB)),
        nearest: false,
        top,
        ..Problem::new(&model, &cluster, &workload, &runtime)
    };
    let (mut counted, mut last) = (0, f64::INFINITY);
    for limit in [19.5, 19.92, 20.13, 20.24, 20.5, 21.3] {
        let free = proved(&of(limit, "tp=1|2|4|8", 1)).expect("a plan");
        let best = step(&free);
        assert!(best <= last * (1.0 + 1e-9), "{limit} GiB: {best} after {last}");
        last = best;
        let ranked = proved(&of(limit, "tp=1|2|4|8", 4)).expect("a plan");
        assert!((step(&ranked) / best - 1.0).abs() < 1e-9, "{limit} GiB: {best} {}", step(&ranked));
        for layers in 1..=12 {
            let Some(fixed) = searched(&of(limit, &format!("recompute=full:{layers}"), 1)) else { continue };
            assert!(
                best <= step(&fixed) * (1.0 + 1e-9),
                "{limit} GiB, {layers} layers: {best} {}",
                step(&fixed)
            );
            counted += 1;
        }
    }
    assert!(counted > 20, "{counted}");
}
