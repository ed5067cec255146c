//! The partition of a chain as an integer program: the same problem as [`crate::partition`], stated once more.
//!
//! One binary variable per stage and contiguous run of layers that fits it; the runs chosen form a path from the first
//! layer to the last. With `w` and `a` the work and lead of the chosen runs, m microbatches and a hop c the program
//! minimises T subject to
//!
//! ```text
//! T >= sum over j < i of ( a_j + 2 c ) + m w_i      for every stage i
//! ```
//!
//! A split can be excluded, so that splits come by rising bound here too. Slower than the dynamic program, and open to side constraints; the
//! tests hold one against the other.

use crate::highs::{Mip, MipError, MipOptions};
use crate::partition::{Chain, StageCosts, StageTimes};
use crate::split_list::Split;
use good_lp::{Constraint, Expression, ProblemVariables, Variable, constraint, variable};

/// A run of layers as a stage.
struct Run {
    stage: usize,
    first: usize,
    end: usize,
    times: StageTimes,
    chosen: Variable,
}

/// The split with the least bound among those not in `excluded`, of those with a bound of at most `most`; none if there is none.
///
/// # Errors
/// [`MipError`] if HiGHS fails.
pub fn best_split(
    chain: &Chain,
    costs: &impl StageCosts,
    excluded: &[Split],
    most: f64,
    options: &MipOptions,
) -> Result<Option<Split>, MipError> {
    let mut variables = ProblemVariables::new();
    let runs = runs(chain, costs, most, &mut variables);
    let step = variable().min(0.0);
    let step = variables.add(if most.is_finite() { step.max(most) } else { step });
    let program = Mip::minimise(variables, step)
        .with_all(paths(chain, &runs))
        .with_all(rank_bounds(chain, &runs, step))
        .with_all(excluded.iter().map(|split| exclusion(split, &runs)));
    let solution = program.solve(options)?;
    Ok(solution.incumbent.map(|incumbent| {
        let mut chosen: Vec<&Run> = runs.iter().filter(|run| incumbent.value(run.chosen) > 0.5).collect();
        chosen.sort_by_key(|run| run.stage);
        let works: Vec<StageTimes> = chosen.iter().map(|run| run.times).collect();
        Split { ends: chosen.iter().map(|run| run.end).collect(), bound: chain.bound(&works) }
    }))
}

fn runs(chain: &Chain, costs: &impl StageCosts, most: f64, variables: &mut ProblemVariables) -> Vec<Run> {
    let mut runs = Vec::new();
    for stage in 0..chain.stages {
        for first in 0..chain.layers {
            for end in first + 1..=chain.layers {
                let times = costs.times(stage, first..end);
                if let Some(times) = times.filter(|times| chain.microbatches * times.work <= most) {
                    runs.push(Run { stage, first, end, times, chosen: variables.add(variable().binary()) });
                }
            }
        }
    }
    runs
}

fn sum<'a>(runs: impl Iterator<Item = &'a Run>, factor: impl Fn(&Run) -> f64) -> Expression {
    runs.map(|run| factor(run) * run.chosen).sum()
}

/// One run per stage, each beginning where the one before ends.
fn paths(chain: &Chain, runs: &[Run]) -> Vec<Constraint> {
    let mut constraints = Vec::new();
    for stage in 0..chain.stages {
        let own = || runs.iter().filter(move |run| run.stage == stage);
        constraints.push(constraint!(sum(own(), |_| 1.0) == 1));
        let before = || runs.iter().filter(move |run| run.stage + 1 == stage);
        for layer in 0..=chain.layers {
            let begin = sum(own().filter(|run| run.first == layer), |_| 1.0);
            let reached = sum(before().filter(|run| run.end == layer), |_| 1.0);
            if stage > 0 {
                constraints.push(constraint!(begin == reached));
            } else if layer > 0 {
                constraints.push(constraint!(begin == 0));
            }
        }
    }
    let last = runs.iter().filter(|run| run.stage + 1 == chain.stages && run.end == chain.layers);
    constraints.push(constraint!(sum(last, |_| 1.0) == 1));
    constraints
}

fn rank_bounds(chain: &Chain, runs: &[Run], step: Variable) -> Vec<Constraint> {
    let bound = |stage: usize| {
        let before = sum(runs.iter().filter(|run| run.stage < stage), |run| run.times.lead + 2.0 * chain.hop);
        let own =
            sum(runs.iter().filter(|run| run.stage == stage), |run| chain.microbatches * run.times.work);
        constraint!(step >= before + own)
    };
    (0..chain.stages).map(bound).collect()
}

fn exclusion(split: &Split, runs: &[Run]) -> Constraint {
    let ranges: Vec<_> = split.ranges().collect();
    let same = runs.iter().filter(|run| ranges[run.stage] == (run.first..run.end));
    let most = ranges.len() as f64 - 1.0;
    constraint!(sum(same, |_| 1.0) <= most)
}
