//! Problems, their layouts judged by `estimate`, and what the search finds.

use cluster_profiles::{Cluster, Precision, catalog};
use cost_models::{Optimizer, ParallelConfig, Recompute, Stage, StageMap, Workload, estimate};
use solver::times::run_of;
use solver::{Outcome, Problem, Silent, Solution, solve};
use std::ops::Range;

/// So many GPUs in nodes of eight H100.
pub fn cluster(gpus: u64) -> Cluster {
    catalog::cluster("dgx-h100").and_then(|cluster| cluster.resized(gpus)).expect("a catalogue cluster")
}

pub fn workload(global_batch: u64, seq_len: u64) -> Workload {
    Workload {
        global_batch,
        seq_len,
        precision: Precision::Bf16,
        optimizer: Optimizer::Adamw,
        gradient_dtype: None,
        expert_imbalance: 1.0,
    }
}

/// Every contiguous split into so many stages, as the ends of the stages.
pub fn all_splits(layers: usize, stages: usize) -> Vec<Vec<usize>> {
    if stages == 1 {
        return vec![vec![layers]];
    }
    let cuts = stages - 1..layers;
    cuts.flat_map(|cut| {
        all_splits(cut, stages - 1).into_iter().map(move |ends| [ends, vec![layers]].concat())
    })
    .collect()
}

/// One stage per rank, which end there; `layers` says which layers a range stands for.
pub fn chain(
    ends: &[usize],
    layers: impl Fn(Range<usize>) -> Option<[u32; 2]>,
    recompute: Recompute,
) -> StageMap {
    let starts = std::iter::once(0).chain(ends.iter().copied());
    let stages = starts.zip(ends).enumerate().map(|(rank, (start, &end))| Stage {
        rank: rank as u32,
        chunk: 0,
        layers: layers(start..end),
        recompute,
    });
    StageMap(stages.collect())
}

/// Seconds of a step, and whether the layout fits.
pub fn estimated(problem: &Problem, parallel: &ParallelConfig, stages: &StageMap) -> (f64, bool) {
    let estimate = estimate(&run_of(problem, parallel, stages)).expect("a legal layout can be estimated");
    let fits = estimate.memory.iter().all(|rank| rank.peak_bytes <= problem.limit());
    (estimate.step_time_seconds.get(), fits)
}

/// Seconds of a step, if the layout fits.
pub fn step_if_it_fits(problem: &Problem, parallel: &ParallelConfig, stages: &StageMap) -> Option<f64> {
    let (step, fits) = estimated(problem, parallel, stages);
    fits.then_some(step)
}

/// The plan, if there is one.
pub fn searched(problem: &Problem) -> Option<Solution> {
    match solve(problem, &Silent).expect("the problem is sound") {
        Outcome::Solved(solution) => Some(*solution),
        Outcome::Infeasible(_) => None,
        Outcome::Stopped { .. } => panic!("there was no limit"),
    }
}

/// The plan, if there is one, proved to be the best.
pub fn proved(problem: &Problem) -> Option<Solution> {
    let solution = searched(problem)?;
    assert_eq!(solution.certificate.gap, 0.0, "{:?}", solution.certificate);
    Some(solution)
}

pub fn step(solution: &Solution) -> f64 {
    solution.estimate.step_time_seconds.get()
}

/// Whether two searches end at the same step.
pub fn same(a: Option<f64>, b: Option<f64>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * b,
        (a, b) => a == b,
    }
}
