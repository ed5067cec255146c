//! A step time that no number of GPUs keeps: the fastest there is, and what would do.

use crate::candidate::Candidate;
use crate::infeasible::{Change, Infeasible, more_gpus};
use crate::objective::Objective;
use crate::observer::Patience;
use crate::problem::Problem;
use crate::solve::{run, sizes};
use cluster_profiles::Bytes;

/// Why no plan keeps the step time that the objective asks for; none where it asks for none, or where nothing fits at all.
#[must_use]
pub fn too_slow(problem: &Problem, patience: Patience) -> Option<Infeasible> {
    let Objective::Gpus { within } = problem.objective else { return None };
    let (gpus, fastest) = fastest(problem, patience)?;
    let step = fastest.estimate.step_time_seconds.get();
    let reason = format!(
        "no plan on up to {} GPUs keeps a step within {} s: the fastest takes {} s on {gpus} GPUs",
        problem.cluster.gpu_count(),
        rounded_up(within.get()),
        rounded_up(step)
    );
    let longer =
        Change { change: format!("allow --within {}s", rounded_up(step)), parallel: fastest.parallel };
    Some(Infeasible {
        binding_term: "within".to_owned(),
        shortfall_bytes: Bytes::ZERO,
        reason,
        leanest: None,
        nearest: std::iter::once(longer).chain(more_gpus(problem, patience)).collect(),
    })
}

/// The fastest plan on any number of GPUs that is tried, and the number.
fn fastest(problem: &Problem, patience: Patience) -> Option<(u64, Candidate)> {
    let mut best: Option<(u64, Candidate)> = None;
    for cluster in sizes(problem.cluster).into_iter().rev() {
        let cutoff = best.as_ref().map_or(f64::INFINITY, |(_, candidate)| candidate.value);
        let sized = Problem { cluster: &cluster, objective: Objective::StepTime, top: 1, ..problem.clone() };
        let found = run(&sized, patience.observer, patience.deadline, cutoff).best.into_iter().next();
        best = found.map(|candidate| (cluster.gpu_count(), candidate)).or(best);
    }
    best
}

/// A time with four significant digits, not below the time.
fn rounded_up(seconds: f64) -> f64 {
    let scale = 10f64.powf(3.0 - seconds.max(1e-9).log10().floor());
    (seconds * scale * (1.0 - 1e-12)).ceil() / scale
}

#[cfg(test)]
mod tests {
    use super::rounded_up;

    #[test]
    fn a_rounded_time_is_not_shorter_and_reads_well() {
        for (time, shown) in [(12.3456, "12.35"), (0.001, "0.001"), (1234.1, "1235"), (0.49999, "0.5")] {
            assert!(rounded_up(time) >= time * (1.0 - 1e-9));
            assert_eq!(rounded_up(time).to_string(), shown);
        }
    }
}
