//! Where another layout becomes the best along an axis, everything else unchanged.

use super::gather::{Gathered, Outcome};
use crate::study::file::Study;
use crate::study::key::setting;
use crate::study::work::Units;
use serde::Serialize;
use std::collections::BTreeMap;

/// A change of layout between two neighbouring values of an axis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Switch {
    /// The axis.
    pub axis: String,
    /// Values of the other axes.
    pub elsewhere: String,
    /// The last value with the old layout.
    pub from_value: String,
    /// The first with the new one.
    pub to_value: String,
    /// The old layout.
    pub from_layout: String,
    /// The new one.
    pub to_layout: String,
}

/// Most switches that are kept.
const MOST: usize = 1000;

/// Outcomes along axis `number`, one list for every setting of the other axes.
pub(super) fn lines<'g>(study: &Study, gathered: &'g Gathered, number: usize) -> Vec<Vec<&'g Outcome>> {
    let stride: u64 = study.axes[number + 1..].iter().map(|axis| axis.steps.len() as u64).product();
    let steps = study.axes[number].steps.len() as u64;
    let mut lines: BTreeMap<u64, Vec<&Outcome>> = BTreeMap::new();
    for outcome in &gathered.outcomes {
        let digit = outcome.point / stride % steps;
        lines.entry(outcome.point - digit * stride).or_default().push(outcome);
    }
    lines.into_values().collect()
}

/// Columns of an axis among those of all axes.
pub(super) fn columns_of(study: &Study, number: usize) -> std::ops::Range<usize> {
    let start: usize = study.axes[..number].iter().map(|axis| axis.keys.len()).sum();
    start..start + study.axes[number].keys.len()
}

/// Key and value of all other axes.
pub(super) fn elsewhere(study: &Study, number: usize, outcome: &Outcome) -> String {
    let own = columns_of(study, number);
    let keys = study.axis_keys();
    let others = (0..keys.len()).filter(|at| !own.contains(at));
    others.map(|at| setting(keys[at], &outcome.values[at])).collect::<Vec<_>>().join(", ")
}

/// Every switch along axes with numbers; of points that share a search only the first.
#[must_use]
pub fn switches(study: &Study, gathered: &Gathered) -> Vec<Switch> {
    let units = Units::new(study);
    let mut list = Vec::new();
    for (number, axis) in study.axes.iter().enumerate() {
        let numeric =
            axis.steps.len() > 1 && axis.steps.iter().all(|step| step.iter().all(|v| v.number().is_some()));
        if !numeric {
            continue;
        }
        let own = columns_of(study, number);
        for line in lines(study, gathered, number) {
            let of_searches = || line.iter().filter(|outcome| units.is_first(outcome.point));
            for (before, after) in of_searches().zip(of_searches().skip(1)) {
                if before.shape == after.shape {
                    continue;
                }
                if list.len() == MOST {
                    return list;
                }
                list.push(Switch {
                    axis: axis.keys.join(", "),
                    elsewhere: elsewhere(study, number, before),
                    from_value: before.values[own.clone()].join(", "),
                    to_value: after.values[own.clone()].join(", "),
                    from_layout: before.shape.clone(),
                    to_layout: after.shape.clone(),
                });
            }
        }
    }
    list
}
