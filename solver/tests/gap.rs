//! An allowed gap: the answer is no further from the best than that, and the certificate says so.

mod support;

use cost_models::Runtime;
use solver::{Problem, Status};
use support::runs::{cluster, searched, workload};

#[test]
fn no_layout_is_better_by_more_than_the_gap() {
    let runtime = Runtime::named("megatron-core").expect("a runtime");
    for (name, gpus, global_batch) in
        [("llama-3.1-8b", 32, 96), ("llama-3.1-70b", 64, 128), ("deepseek-v2-lite", 16, 64)]
    {
        let model = cost_models::model::catalog::get(name).expect("a model");
        let (cluster, workload) = (cluster(gpus), workload(global_batch, 4096));
        let exact = Problem { top: 1, ..Problem::new(&model, &cluster, &workload, &runtime) };
        let best = searched(&exact).expect("a plan");
        assert_eq!(best.certificate.status, Status::Optimal, "{name}");
        let least = best.certificate.objective_seconds.get();
        for gap in [0.002, 0.02, 0.2] {
            let certificate = searched(&Problem { gap, ..exact.clone() }).expect("a plan").certificate;
            let found = certificate.objective_seconds.get();
            assert!(
                least <= found && found * (1.0 - gap) <= least * (1.0 + 1e-12),
                "{name} {gap}: {found} {least}"
            );
            assert!(certificate.bound_seconds.get() <= least * (1.0 + 1e-12), "{name} {gap}");
            assert!(certificate.gap <= gap + 1e-9, "{name}: {} above {gap}", certificate.gap);
            assert!(certificate.simulated <= best.certificate.simulated, "{name} {gap}");
        }
    }
}
