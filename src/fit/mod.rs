//! Re-derives every fitted number of the cost model from measurements.
//!
//! [`kernels::fit_kernels`] fits the curves of every GPU kind to kernel and collective times; on top of them
//! [`step::fit_step`] fits what step times tell: sustained clocks, engines, and the numbers all engines share.

mod all;
mod committed;
mod gauss_newton;
pub mod kernels;
mod optimizer;
pub mod parameters;
mod siblings;
pub mod step;
mod unseen;
mod write;

pub use all::{Fitted, Line, fit_all, step_cases};
pub use committed::{Committed, committed};
pub use kernels::{FittedCurve, fit_kernels};
pub use parameters::Parameter;
pub use siblings::apply_curves;
pub use step::{StepFit, fit_step};
