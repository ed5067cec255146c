//! The schedules and recomputes that an engine offers and the constraints allow.

use crate::constraint::Constraints;
use crate::term::{ANY_OFFLOAD, Field, Term, recompute_matches};
use cost_models::Recompute;
use cost_models::modules::ModuleChoice;
use cost_models::rules::{Engine, RecomputeFreedom};
use cost_models::schedule::Schedule;

/// The engine's schedules that the constraints allow and that train as without a pipeline; with one fixed by name, that one.
pub(crate) fn schedules(engine: &Engine, constraints: &Constraints) -> Vec<Schedule> {
    let fixed = constraints.fixed_names(Field::Schedule);
    let names: Vec<&str> = if fixed.is_empty() { engine.schedules.to_vec() } else { fixed };
    let allowed = names.into_iter().filter(|name| constraints.allows_name(Field::Schedule, name));
    allowed
        .filter_map(|name| name.parse::<Schedule>().ok())
        .filter(|schedule| schedule.kind.is_synchronous())
        .collect()
}

/// Numbers of layers in host memory: those that are fixed; else from one on, where they may be chosen.
fn offloads(constraints: &Constraints, may_choose: bool) -> Vec<Recompute> {
    let names = constraints.fixed_names(Field::Recompute);
    let counted: Vec<Recompute> = names.iter().filter_map(|name| name.parse().ok()).collect();
    let fixed: Vec<Recompute> =
        counted.into_iter().filter(|recompute| matches!(recompute, Recompute::Offload { .. })).collect();
    let chosen = may_choose || names.contains(&ANY_OFFLOAD);
    if fixed.is_empty() && chosen { vec![Recompute::Offload { layers: 1 }] } else { fixed }
}

/// What may be recomputed or moved; counted numbers of layers only where they are fixed, those in host memory from the least
/// on. Of modules those that are named; else, where they may be chosen, `modules`.
pub(crate) fn recomputes(
    engine: &Engine,
    constraints: &Constraints,
    moves_activations: bool,
    modules: &[ModuleChoice],
) -> Vec<Recompute> {
    let layers = constraints.fixed_names(Field::Recompute).into_iter().filter_map(|name| name.parse().ok());
    let mut list = vec![Recompute::None, Recompute::Selective, Recompute::Full { layers: None }];
    let counted: Vec<Recompute> =
        layers.filter(|recompute| matches!(recompute, Recompute::Full { layers: Some(_) })).collect();
    if engine.recompute != RecomputeFreedom::AllOrNone {
        list.extend(counted);
    }
    if engine.offload {
        list.extend(offloads(constraints, moves_activations));
        let names = constraints.fixed_names(Field::Recompute);
        let named: Vec<Recompute> = names.iter().filter_map(|name| name.parse().ok()).collect();
        list.extend(named.into_iter().filter(|recompute| matches!(recompute, Recompute::Modules(_))));
        if moves_activations || names.contains(&ANY_OFFLOAD) {
            list.extend(modules.iter().copied().map(Recompute::Modules));
        }
    }
    list.retain(|recompute| recompute_allowed(*recompute, constraints));
    list.dedup();
    list
}

fn recompute_allowed(recompute: Recompute, constraints: &Constraints) -> bool {
    constraints.as_slice().iter().all(|constraint| match &constraint.term {
        Term::Name(Field::Recompute, names) => {
            let named = names.iter().any(|name| recompute_matches(name, recompute));
            named == constraint.wanted
        }
        _ => true,
    })
}
