//! Wishes that would do instead: a nearer value for one that was fixed, or one wish less.

use crate::constraint::{Constraint, fixed_number};
use crate::divisors::divisors;
use crate::infeasible::{Change, tried};
use crate::observer::Patience;
use crate::problem::Problem;
use crate::term::{Term, Test};

/// Values tried in place of one that was fixed.
const MOST_TRIED: usize = 4;

/// Changes of one wish, each of which gives a plan.
#[must_use]
pub fn changes(problem: &Problem, patience: Patience) -> Vec<Change> {
    let all = 0..problem.constraints.as_slice().len();
    let nearer = all.clone().filter_map(|index| nearer_value(problem, index, patience));
    nearer.chain(all.filter_map(|index| without(problem, index, patience))).collect()
}

fn without(problem: &Problem, index: usize, patience: Patience) -> Option<Change> {
    let constraints = problem.constraints.without(index);
    let dropped = problem.constraints.as_slice().get(index)?.describe();
    tried(&Problem { constraints, ..problem.clone() }, format!("drop {dropped}"), patience)
}

/// The value nearest to a fixed one that gives a plan.
fn nearer_value(problem: &Problem, index: usize, patience: Patience) -> Option<Change> {
    let fixed = problem.constraints.as_slice().get(index)?;
    let Constraint { term: Term::Number(field, Test::OneOf(values)), wanted: true, .. } = fixed else {
        return None;
    };
    let [value] = values[..] else { return None };
    let others = problem.constraints.without(index);
    let world = problem.cluster.gpu_count();
    let mut near: Vec<u64> = divisors(world.max(1));
    near.retain(|&other| other != value && others.allows_number(*field, other));
    let distance = |other: u64| (other as f64 / value.max(1) as f64).ln().abs();
    near.sort_by(|&a, &b| distance(a).total_cmp(&distance(b)));
    near.into_iter().take(MOST_TRIED).find_map(|other| {
        let constraints = others.clone().and(fixed_number(*field, other));
        let change = format!("use --fix {}={other} instead of {}", field.name(), fixed.describe());
        tried(&Problem { constraints, ..problem.clone() }, change, patience)
    })
}
