//! Between good_lp's variables and HiGHS's columns.

use std::collections::HashMap;

use ::highs::{HighsModelStatus, HighsSolutionStatus, Model, SolvedModel};
use good_lp::{Expression, IntoAffineExpression, ProblemVariables, Variable, VariableDefinition};

use super::{Incumbent, MipSolution, MipStatus};

/// The variables in the order of HiGHS's columns.
pub(super) struct Columns<'a> {
    pub(super) variables: Vec<Variable>,
    definitions: Vec<&'a VariableDefinition>,
    positions: HashMap<Variable, usize>,
}

impl<'a> Columns<'a> {
    pub(super) fn of(problem: &'a ProblemVariables) -> Self {
        let (variables, definitions): (Vec<_>, _) = problem.iter_variables_with_def().unzip();
        Self { positions: variables.iter().copied().zip(0..).collect(), definitions, variables }
    }

    /// What is wrong with bounds and initial values.
    pub(super) fn faults(&self) -> Vec<String> {
        let broken = self.definitions.iter().enumerate().filter(|(_, definition)| {
            let bounds = [definition.get_min(), definition.get_max()];
            let initial = definition.get_initial().unwrap_or_default();
            bounds.iter().any(|bound| bound.is_nan()) || !initial.is_finite()
        });
        broken.map(|(column, definition)| format!("variable {column}: {definition:?}")).collect()
    }

    /// Notes what is wrong with an expression.
    pub(super) fn check(&self, place: &str, expression: &Expression, faults: &mut Vec<String>) {
        if !expression.constant().is_finite() {
            faults.push(format!("{place}: the constant is {}", expression.constant()));
        }
        for (variable, coefficient) in expression.linear_coefficients() {
            match self.positions.get(&variable) {
                Some(column) if !coefficient.is_finite() => {
                    faults.push(format!("{place}: the coefficient of variable {column} is {coefficient}"));
                }
                Some(_) => {}
                None => faults.push(format!("{place}: {variable:?} is not part of the program")),
            }
        }
    }

    /// Hands the initial values over, where there are any; a variable without one starts at 0.
    pub(super) fn start(&self, model: &mut Model) -> Result<(), String> {
        let initial = self.definitions.iter().map(|definition| definition.get_initial());
        if initial.clone().all(|value| value.is_none()) {
            return Ok(());
        }
        let constant = std::iter::once(1.0);
        let values: Vec<f64> = initial.map(Option::unwrap_or_default).chain(constant).collect();
        let started = model.try_set_solution(Some(&values), None, None, None);
        started.map_err(|cause| format!("{cause:?} at the initial values"))
    }

    pub(super) fn read(&self, solved: &SolvedModel) -> Result<MipSolution, String> {
        let status = status(solved.status())?;
        if matches!(status, MipStatus::Infeasible | MipStatus::Unbounded) {
            return Ok(MipSolution::without_values(status));
        }
        let feasible = solved.primal_solution_status() == HighsSolutionStatus::Feasible;
        let incumbent = feasible.then(|| self.incumbent(solved));
        let bound = self.bound(solved, status)?;
        if status == MipStatus::Optimal && (incumbent.is_none() || bound.is_none()) {
            return Err("an optimum was announced, but none is there".to_owned());
        }
        Ok(MipSolution { status, incumbent, bound })
    }

    fn incumbent(&self, solved: &SolvedModel) -> Incumbent {
        let solution = solved.get_solution();
        let values = solution.columns().iter().zip(&self.definitions).map(|(value, definition)| {
            // Within HiGHS's tolerance of a whole number; + 0.0 makes -0.0 plain.
            if definition.is_integer() { value.round() + 0.0 } else { *value }
        });
        Incumbent {
            objective: solved.objective_value(),
            values: self.variables.iter().copied().zip(values).collect(),
        }
    }

    /// The dual bound; a program without integers has only that of its optimum.
    fn bound(&self, solved: &SolvedModel, status: MipStatus) -> Result<Option<f64>, String> {
        let mixed = self.definitions.iter().any(|definition| definition.is_integer());
        let bound = match status {
            _ if mixed => solved
                .double_info_value(c"mip_dual_bound")
                .map_err(|cause| format!("{cause:?} for the bound"))?,
            MipStatus::Optimal => solved.objective_value(),
            _ => return Ok(None),
        };
        Ok(bound.is_finite().then_some(bound))
    }
}

fn status(status: HighsModelStatus) -> Result<MipStatus, String> {
    match status {
        HighsModelStatus::Optimal => Ok(MipStatus::Optimal),
        HighsModelStatus::Infeasible => Ok(MipStatus::Infeasible),
        HighsModelStatus::Unbounded => Ok(MipStatus::Unbounded),
        HighsModelStatus::ReachedTimeLimit => Ok(MipStatus::TimeLimit),
        HighsModelStatus::ReachedSolutionLimit => Ok(MipStatus::NodeLimit),
        other => Err(format!("{other:?}")),
    }
}
