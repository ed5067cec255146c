//! The part of a step outside the pipeline: data-parallel traffic that nothing hides, the optimizer, the engine's fixed cost.

use crate::certificate::ROUNDING;
use crate::problem::Problem;
use crate::times::{UnitTimes, run_of};
use cost_models::layer_cost::{PassCost, RankParameters};
use cost_models::step::{StageCost, StageCosts, data_parallel, optimizer_time};
use cost_models::{ParallelConfig, StageMap};

/// Seconds outside the pipeline that a step spends at least, whatever the stages: the rank with the most parameters has
/// no fewer than the average, and hides its traffic behind at most all of the step, or behind the `longest` work of a
/// microbatch that a rank may have.
#[must_use]
pub fn outside_bound(
    problem: &Problem,
    parallel: &ParallelConfig,
    times: &UnitTimes,
    longest: Option<f64>,
) -> f64 {
    let work = longest.map(|longest| (longest, longest));
    let whole = times.parameters(&(0..times.len()));
    let ranks = f64::from(parallel.pp);
    let average = RankParameters { dense: whole.dense / ranks, expert: whole.expert / ranks };
    let bound = outside_of(problem, parallel, &[RankShare { parameters: average, times: work }]);
    if average.expert == 0.0 {
        return bound;
    }
    // Buckets are whole numbers, for dense and expert parameters apart: the rank with most traffic may have a bucket less of each.
    let least = problem.runtime.time.step.get();
    let single = RankShare { parameters: RankParameters { dense: 1.0, expert: 1.0 }, times: None };
    let one_bucket = outside_of(problem, parallel, &[single]) - least;
    (bound - one_bucket).max(least)
}

/// What a pipeline rank brings to the part of a step outside the pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RankShare {
    /// Its parameters.
    pub parameters: RankParameters,
    /// Forward and backward of a microbatch, which traffic can hide behind; all that can hide does if none.
    pub times: Option<(f64, f64)>,
}

/// The shares without those that differ from another in the rounding of their times alone; the longer times are kept.
#[must_use]
pub fn distinct(shares: Vec<RankShare>) -> Vec<RankShare> {
    let near = |a: f64, b: f64| (a - b).abs() <= ROUNDING * a;
    let mut kept: Vec<RankShare> = Vec::new();
    for share in shares {
        let same = kept.iter_mut().find(|known| {
            known.parameters == share.parameters
                && match (known.times, share.times) {
                    (Some(a), Some(b)) => near(a.0, b.0) && near(a.1, b.1),
                    (a, b) => a == b,
                }
        });
        match same {
            Some(known) => {
                known.times = known.times.zip(share.times).map(|(a, b)| (a.0.max(b.0), a.1.max(b.1)));
            }
            None => kept.push(share),
        }
    }
    kept
}

/// Seconds outside the pipeline of ranks with these shares.
#[must_use]
pub fn outside_of(problem: &Problem, parallel: &ParallelConfig, ranks: &[RankShare]) -> f64 {
    const LONG: f64 = 1e9;
    let stages = StageMap(Vec::new());
    let run = run_of(problem, parallel, &stages);
    let stage = |(rank, share): (usize, &RankShare)| {
        let (forward, backward) = share.times.unwrap_or((LONG, LONG));
        let mut cost = StageCost { rank, parameters: share.parameters, ..StageCost::default() };
        cost.passes.forward = PassCost::of_matmul(cluster_profiles::Seconds(forward));
        cost.passes.input_gradient = PassCost::of_matmul(cluster_profiles::Seconds(backward));
        cost
    };
    let stages = ranks.iter().enumerate().map(stage).collect();
    let costs = StageCosts { stages, ranks: ranks.len(), split_head: None, sites: None, owned: None };
    let exposed = data_parallel::exposed(&run, &costs) + optimizer_time(&run, &costs);
    (exposed + problem.runtime.time.step).get()
}
