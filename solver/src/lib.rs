//! Which layout to run.

pub mod bound;
pub mod bytes;
pub mod certificate;
pub mod constraint;
pub mod expand;
pub mod families;
pub mod highs;
pub mod ilp;
pub mod infeasible;
pub mod judge;
pub mod leaf;
pub mod node;
pub mod objective;
pub mod observer;
pub mod order_bound;
pub mod partition;
pub mod problem;
pub mod search;
pub mod solution;
pub mod solve;
pub mod space;
pub mod splits;
pub mod tables;
pub mod term;
pub mod times;
pub mod units;

pub use certificate::{Certificate, Status};
pub use constraint::{ConstraintError, Constraints};
pub use infeasible::Infeasible;
pub use objective::Objective;
pub use observer::{Observer, Progress, Silent};
pub use problem::{Problem, ProblemError};
pub use solution::{Alternative, Outcome, Solution};
pub use solve::solve;
