//! Mixed-integer programs: stated with [`good_lp`], solved by [HiGHS](https://highs.dev).
//!
//! good_lp's own HiGHS solution drops the bound and the gap, which are the proof. So a [`Mip`] is built from good_lp's
//! variables, expressions and constraints, and the HiGHS model inside is solved here, in this module alone. One thread
//! and a fixed seed: the same program gives the same solution, unless a time limit cuts it short.
//!
//! ```
//! use good_lp::{ProblemVariables, constraint, variable};
//! use solver::highs::{Mip, MipOptions, MipStatus};
//!
//! let mut variables = ProblemVariables::new();
//! let x = variables.add(variable().integer().min(0));
//! let y = variables.add(variable().integer().min(0));
//! let solution = Mip::maximise(variables, 3 * x + 2 * y)
//!     .with(constraint!(2 * x + y <= 7))
//!     .solve(&MipOptions::default())?;
//!
//! assert_eq!(solution.status, MipStatus::Optimal);
//! assert_eq!(solution.bound, Some(14.0));
//! assert_eq!(solution.gap(), Some(0.0));
//! assert_eq!(solution.incumbent.map(|best| (best.value(x), best.value(y))), Some((0.0, 7.0)));
//! # Ok::<(), solver::highs::MipError>(())
//! ```

mod columns;

use std::collections::HashMap;
use std::time::Duration;

use ::highs::{HighsModelStatus, HighsOptionValue, Model, SolvedModel};
use good_lp::solvers::ObjectiveDirection;
use good_lp::{
    Constraint, Expression, IntoAffineExpression, ProblemVariables, SolverModel, Variable, variable,
};

use columns::Columns;

/// Largest seed that HiGHS accepts.
const MAX_SEED: u32 = i32::MAX as u32;

/// A mixed-integer linear program. A variable's `initial` value, where it has one, is part of the starting solution.
pub struct Mip {
    variables: ProblemVariables,
    direction: ObjectiveDirection,
    objective: Expression,
    constraints: Vec<Constraint>,
}

/// When to stop.
#[derive(Debug, Clone, PartialEq)]
pub struct MipOptions {
    /// Wall-clock limit; what is found by then depends on the machine. None: no limit.
    pub time_limit: Option<Duration>,
    /// Branch-and-bound nodes: a limit that is the same on every machine. None: no limit.
    pub node_limit: Option<u32>,
    /// The solution counts as optimal once its gap (see [`MipSolution::gap`]) is at most this. Default 0.
    pub relative_gap: f64,
    /// Seed of HiGHS's random choices, at most 2^31 - 1. Default 0.
    pub random_seed: u32,
}

impl Default for MipOptions {
    fn default() -> Self {
        Self { time_limit: None, node_limit: None, relative_gap: 0.0, random_seed: 0 }
    }
}

/// How a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MipStatus {
    /// The incumbent is proved optimal within the relative gap asked for.
    Optimal,
    /// Proved: no values satisfy the constraints.
    Infeasible,
    /// Proved: the objective improves without end.
    Unbounded,
    /// The time limit came first; there may be an incumbent.
    TimeLimit,
    /// The node limit came first; there may be an incumbent.
    NodeLimit,
}

/// What the search found, and what it proved.
#[derive(Debug, Clone, PartialEq)]
pub struct MipSolution {
    /// How the search ended.
    pub status: MipStatus,
    /// The best feasible values found.
    pub incumbent: Option<Incumbent>,
    /// Proved: no feasible values have a better objective than this, its constant included. None where nothing of
    /// the kind was proved.
    pub bound: Option<f64>,
}

/// Feasible values and their objective.
#[derive(Debug, Clone, PartialEq)]
pub struct Incumbent {
    /// The objective at these values, its constant included.
    pub objective: f64,
    values: HashMap<Variable, f64>,
}

/// Why a program could not be solved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MipError {
    /// The program or the options are not well formed.
    #[error("integer program: {}; hint: {hint}", faults.join("; "))]
    Invalid {
        /// Everything that is wrong, each with the place and the value.
        faults: Vec<String>,
        /// What would be right.
        hint: &'static str,
    },
    /// HiGHS refused the program, or gave up on it.
    #[error("HiGHS failed on a program of {variables} variables and {constraints} constraints: {cause}")]
    Highs {
        /// Number of variables.
        variables: usize,
        /// Number of constraints.
        constraints: usize,
        /// HiGHS's own word for what happened.
        cause: String,
    },
}

impl Mip {
    /// A program that looks for the smallest value of `objective`.
    pub fn minimise(variables: ProblemVariables, objective: impl IntoAffineExpression) -> Self {
        Self::new(variables, ObjectiveDirection::Minimisation, objective)
    }

    /// A program that looks for the largest value of `objective`.
    pub fn maximise(variables: ProblemVariables, objective: impl IntoAffineExpression) -> Self {
        Self::new(variables, ObjectiveDirection::Maximisation, objective)
    }

    fn new(
        variables: ProblemVariables,
        direction: ObjectiveDirection,
        objective: impl IntoAffineExpression,
    ) -> Self {
        Self { variables, direction, objective: objective.into_expression(), constraints: Vec::new() }
    }

    /// Adds a constraint.
    #[must_use]
    pub fn with(mut self, constraint: Constraint) -> Self {
        self.constraints.push(constraint);
        self
    }

    /// Adds constraints.
    #[must_use]
    pub fn with_all(mut self, constraints: impl IntoIterator<Item = Constraint>) -> Self {
        self.constraints.extend(constraints);
        self
    }

    /// Searches for the best feasible values.
    ///
    /// # Errors
    ///
    /// [`MipError::Invalid`] for an option out of range, a number that is not finite or a variable of another program;
    /// [`MipError::Highs`] where HiGHS refuses the program or fails. That there is no solution is not an error but a
    /// [`MipStatus`].
    pub fn solve(&self, options: &MipOptions) -> Result<MipSolution, MipError> {
        options.validate()?;
        let columns = Columns::of(&self.variables);
        self.validate(&columns)?;
        self.search(&columns, options).map_err(|cause| MipError::Highs {
            variables: columns.variables.len(),
            constraints: self.constraints.len(),
            cause,
        })
    }

    /// HiGHS may find that a program is infeasible or unbounded without knowing which: without its objective it is
    /// infeasible or solvable.
    fn search(&self, columns: &Columns, options: &MipOptions) -> Result<MipSolution, String> {
        let solved = self.run(self.objective.clone(), columns, options)?;
        if solved.status() != HighsModelStatus::UnboundedOrInfeasible {
            return columns.read(&solved);
        }
        let feasibility = self.run(Expression::from(0.0), columns, options)?;
        Ok(match columns.read(&feasibility)?.status {
            MipStatus::Optimal => MipSolution::without_values(MipStatus::Unbounded),
            status => MipSolution::without_values(status),
        })
    }

    fn run(
        &self,
        objective: Expression,
        columns: &Columns,
        options: &MipOptions,
    ) -> Result<SolvedModel, String> {
        let (variables, objective) = with_constant_as_variable(self.variables.clone(), objective);
        let mut problem = variables.optimise(self.direction, objective).using(good_lp::highs);
        for constraint in &self.constraints {
            problem.add_constraint(constraint.clone());
        }
        let mut model = problem.try_into_inner().map_err(|error| error.to_string())?;
        options.apply(&mut model)?;
        columns.start(&mut model)?;
        model.try_solve().map_err(|cause| format!("{cause:?} while solving"))
    }

    fn validate(&self, columns: &Columns) -> Result<(), MipError> {
        let mut faults = columns.faults();
        columns.check("objective", &self.objective, &mut faults);
        for (row, constraint) in self.constraints.iter().enumerate() {
            let place = constraint.name().map_or_else(|| format!("constraint {row}"), str::to_owned);
            columns.check(&place, constraint.expression(), &mut faults);
        }
        let hint = "use finite numbers, and only variables of the program itself";
        if faults.is_empty() { Ok(()) } else { Err(MipError::Invalid { faults, hint }) }
    }
}

/// good_lp drops the objective's constant; as the cost of one more variable, fixed at 1, it counts in the gap too.
fn with_constant_as_variable(
    mut variables: ProblemVariables,
    objective: Expression,
) -> (ProblemVariables, Expression) {
    let one = variables.add(variable().clamp(1, 1));
    let constant = objective.constant();
    (variables, objective - constant + constant * one)
}

impl MipOptions {
    fn validate(&self) -> Result<(), MipError> {
        let mut faults = Vec::new();
        if !(self.relative_gap.is_finite() && self.relative_gap >= 0.0) {
            faults.push(format!("option relative_gap is {}", self.relative_gap));
        }
        if self.random_seed > MAX_SEED {
            faults.push(format!("option random_seed is {}", self.random_seed));
        }
        let hint = "relative_gap is finite and at least 0, random_seed at most 2147483647";
        if faults.is_empty() { Ok(()) } else { Err(MipError::Invalid { faults, hint }) }
    }

    fn apply(&self, model: &mut Model) -> Result<(), String> {
        let bounded = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
        model.make_quiet();
        set(model, "threads", 1)?;
        set(model, "parallel", "off")?;
        set(model, "random_seed", bounded(self.random_seed))?;
        set(model, "mip_rel_gap", self.relative_gap)?;
        set(model, "mip_abs_gap", 0.0)?;
        if let Some(limit) = self.node_limit {
            set(model, "mip_max_nodes", bounded(limit))?;
        }
        match self.time_limit {
            Some(limit) => set(model, "time_limit", limit.as_secs_f64()),
            None => Ok(()),
        }
    }
}

fn set<V: HighsOptionValue>(model: &mut Model, option: &str, value: V) -> Result<(), String> {
    model.try_set_option(option, value).map_err(|error| format!("{option}: {error}"))
}

impl MipSolution {
    fn without_values(status: MipStatus) -> Self {
        Self { status, incumbent: None, bound: None }
    }

    /// |objective - bound| / |objective|, the relative gap: how much better than the incumbent a solution could at most
    /// be. 0 where both agree; None without incumbent or bound, or at an objective of 0 with another bound.
    pub fn gap(&self) -> Option<f64> {
        let (objective, bound) = (self.incumbent.as_ref()?.objective, self.bound?);
        let distance = (objective - bound).abs();
        if distance == 0.0 {
            Some(0.0)
        } else {
            Some(distance / objective.abs()).filter(|gap| gap.is_finite())
        }
    }
}

impl Incumbent {
    /// The value of a variable of the program, a whole number where the variable is an integer; not a number (NaN) for
    /// a variable that is not part of it.
    pub fn value(&self, variable: Variable) -> f64 {
        self.values.get(&variable).copied().unwrap_or(f64::NAN)
    }

    /// The value of an expression of the program's variables.
    pub fn eval(&self, expression: impl IntoAffineExpression) -> f64 {
        let constant = expression.constant();
        let terms = expression.linear_coefficients().into_iter();
        terms.fold(constant, |sum, (variable, coefficient)| sum + coefficient * self.value(variable))
    }
}
