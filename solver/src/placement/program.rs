//! The placement as an integer program, for few hosts and as an oracle.
//!
//! A binary variable says that a host takes a slot. Two hosts in one group make it at least as slow as their pair:
//!
//! ```text
//! T >= seconds(a, b) (in(a, g) + in(b, g) - 1)
//! ```

use super::Placed;
use super::demand::{Demands, Group, Traffic};
use crate::highs::{Mip, MipError, MipOptions};
use good_lp::{Constraint, Expression, ProblemVariables, Variable, constraint, variable};

/// The placement with least communication; none if there are fewer hosts than slots, or a limit came first.
///
/// # Errors
/// [`MipError`] if HiGHS fails.
pub fn best_placement(demands: &Demands, options: &MipOptions) -> Result<Option<Placed>, MipError> {
    let mut variables = ProblemVariables::new();
    let takes: Vec<Vec<Variable>> = (0..demands.hosts())
        .map(|_| (0..demands.slots()).map(|_| variables.add(variable().binary())).collect())
        .collect();
    let parts: Vec<Variable> = demands.traffic().iter().map(|_| variables.add(variable().min(0.0))).collect();
    let mut constraints = assignment(demands, &takes);
    for (kind, &part) in demands.traffic().iter().zip(&parts) {
        for group in kind.groups() {
            match kind {
                Traffic::Collective(_) => constraints.extend(slowest_pair(demands, group, &takes, part)),
                Traffic::Ways(_) => constraints.extend(way(demands, group, &takes, part, &mut variables)),
            }
        }
    }
    let objective: Expression = parts.iter().copied().sum();
    let solution = Mip::minimise(variables, objective).with_all(constraints).solve(options)?;
    let bound = solution.bound;
    Ok(solution.incumbent.map(|incumbent| {
        let host_of =
            |slot: usize| (0..demands.hosts()).find(|&host| incumbent.value(takes[host][slot]) > 0.5);
        let hosts: Vec<usize> = (0..demands.slots()).filter_map(host_of).collect();
        let seconds = demands.seconds(&hosts);
        Placed { seconds, bound: bound.unwrap_or(0.0).min(seconds), hosts }
    }))
}

/// Every slot has one host, every host at most one slot.
fn assignment(demands: &Demands, takes: &[Vec<Variable>]) -> Vec<Constraint> {
    let sum = |variables: &mut dyn Iterator<Item = Variable>| variables.sum::<Expression>();
    let slots =
        (0..demands.slots()).map(|slot| constraint!(sum(&mut takes.iter().map(|own| own[slot])) == 1));
    let hosts = takes.iter().map(|own| constraint!(sum(&mut own.iter().copied()) <= 1));
    slots.chain(hosts).collect()
}

fn slowest_pair(
    demands: &Demands,
    group: &Group,
    takes: &[Vec<Variable>],
    part: Variable,
) -> Vec<Constraint> {
    let inside = |host: usize| -> Expression { group.slots.iter().map(|&slot| takes[host][slot]).sum() };
    let pairs = (0..demands.hosts()).flat_map(|a| (a + 1..demands.hosts()).map(move |b| (a, b)));
    pairs
        .map(|(a, b)| {
            let seconds = demands.pair(group.table, a, b);
            constraint!(part >= seconds * (inside(a) + inside(b) - 1))
        })
        .collect()
}

fn way(
    demands: &Demands,
    group: &Group,
    takes: &[Vec<Variable>],
    part: Variable,
    variables: &mut ProblemVariables,
) -> Vec<Constraint> {
    let mut constraints = Vec::new();
    let mut hops = Expression::from(0.0);
    for hop in group.slots.windows(2) {
        let seconds = variables.add(variable().min(0.0));
        hops += seconds;
        for a in 0..demands.hosts() {
            for b in (0..demands.hosts()).filter(|b| *b != a) {
                let pair = demands.pair(group.table, a, b);
                constraints.push(constraint!(seconds >= pair * (takes[a][hop[0]] + takes[b][hop[1]] - 1)));
            }
        }
    }
    constraints.push(constraint!(part >= hops));
    constraints
}
