//! How good a plan is, and what that rests on.

use crate::objective::Objective;
use crate::space::Pruned;
use cluster_profiles::Seconds;
use serde::{Deserialize, Serialize};

/// How far a search came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// No layout of the space is better.
    Optimal,
    /// Some layouts were not looked at; `gap` says how much better one could be.
    Feasible,
}

/// What was proved about a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Certificate {
    /// How far the search came.
    pub status: Status,
    /// Step time of the plan.
    pub objective_seconds: Seconds,
    /// No layout of the space has a shorter step.
    pub bound_seconds: Seconds,
    /// `(objective - bound) / objective`, of what the search minimised.
    pub gap: f64,
    /// Layouts of the space.
    pub considered: u64,
    /// Layouts excluded, by the rule, limit or bound that excluded them.
    pub pruned: Pruned,
    /// Layouts that were simulated.
    pub simulated: u64,
    /// How much better, at most, a layout could be whose stages with several chunks per rank are not balanced: those are not
    /// part of the space. Absent where none is better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unbalanced_gap: Option<f64>,
    /// What was minimised, where that is not the step time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimised: Option<Minimised>,
    /// Whether the engine's layers may differ in strategy, and only layouts with layers alike were searched: nothing is
    /// claimed about others. Absent where it is not so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub layers_alike: bool,
}

/// What a step of the plan takes of the objective's resource, and what no layout takes less than.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Minimised {
    /// `dollars` or `joules`.
    pub unit: String,
    /// Of the plan.
    pub value: f64,
    /// Of any layout, at least.
    pub bound: f64,
}

impl Certificate {
    /// The certificate of a plan worth `value`, where no layout is worth less than `bound`, in the unit of the objective.
    /// Values closer than rounding count as equal.
    #[must_use]
    pub fn new(value: f64, bound: f64, step: Seconds) -> Self {
        let gap = Self::gap_to(value, bound).unwrap_or(0.0);
        let status = if gap == 0.0 { Status::Optimal } else { Status::Feasible };
        Self {
            status,
            objective_seconds: step,
            bound_seconds: step * (1.0 - gap),
            gap,
            considered: 0,
            pruned: Pruned::new(),
            simulated: 0,
            unbalanced_gap: None,
            minimised: None,
            layers_alike: false,
        }
    }

    /// The certificate of a search for this objective.
    #[must_use]
    pub fn of(self, objective: &Objective, value: f64) -> Self {
        let minimised = objective.unit().map(|unit| Minimised {
            unit: unit.to_owned(),
            value,
            bound: value * (1.0 - self.gap),
        });
        Self { minimised, ..self }
    }

    /// `(value - bound) / value`; none if that is no more than rounding.
    #[must_use]
    pub fn gap_to(value: f64, bound: f64) -> Option<f64> {
        let gap = if value > 0.0 { (value - bound) / value } else { 0.0 };
        (gap >= ROUNDING).then_some(gap)
    }
}

/// Relative difference below which two times are the same: sums of a million terms.
pub const ROUNDING: f64 = 1e-9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_that_meets_the_value_proves_it() {
        let proved = Certificate::new(4.0, 4.0 * (1.0 - 1e-12), Seconds(4.0));
        assert_eq!((proved.status, proved.gap, proved.bound_seconds), (Status::Optimal, 0.0, Seconds(4.0)));
        let open = Certificate::new(4.0, 3.0, Seconds(4.0));
        assert_eq!((open.status, open.gap, open.bound_seconds), (Status::Feasible, 0.25, Seconds(3.0)));
    }

    #[test]
    fn what_was_minimised_is_stated_unless_it_is_the_step_time() {
        let certificate = || Certificate::new(8.0, 6.0, Seconds(2.0));
        let energy = certificate().of(&Objective::Energy, 8.0).minimised;
        assert_eq!(energy, Some(Minimised { unit: "joules".to_owned(), value: 8.0, bound: 6.0 }));
        assert_eq!(certificate().of(&Objective::StepTime, 8.0).minimised, None);
    }
}
