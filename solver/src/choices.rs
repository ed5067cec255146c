//! The schedules and recomputes that an engine offers and the constraints allow.

use crate::constraint::Constraints;
use crate::term::{Field, Term, recompute_matches};
use cost_models::Recompute;
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

/// What may be recomputed; counted numbers of layers only where they are fixed.
pub(crate) fn recomputes(engine: &Engine, constraints: &Constraints) -> Vec<Recompute> {
    let layers = constraints.fixed_names(Field::Recompute).into_iter().filter_map(|name| name.parse().ok());
    let mut list = vec![Recompute::None, Recompute::Selective, Recompute::Full { layers: None }];
    let counted: Vec<Recompute> =
        layers.filter(|recompute| matches!(recompute, Recompute::Full { layers: Some(_) })).collect();
    if engine.recompute != RecomputeFreedom::AllOrNone {
        list.extend(counted);
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
