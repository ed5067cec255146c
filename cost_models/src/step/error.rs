//! Why a step time cannot be given.

use crate::schedule::{ScheduleError, SimulateError};
use thiserror::Error;

/// A run without a step time.
#[derive(Debug, Error)]
pub enum StepError {
    /// Degrees, stages and model do not fit together.
    #[error("{what} is {value}: {rule}")]
    Shape {
        /// The field.
        what: &'static str,
        /// Its value.
        value: String,
        /// What it should be.
        rule: String,
    },
    /// The schedule cannot run this shape, or does not exist.
    #[error("the pipeline schedule `{schedule}` cannot run this layout")]
    Schedule {
        /// Its name.
        schedule: String,
        /// Why.
        #[source]
        source: ScheduleError,
    },
    /// The simulation failed.
    #[error("the pipeline schedule `{schedule}` does not finish")]
    Simulate {
        /// Its name.
        schedule: String,
        /// Why.
        #[source]
        source: SimulateError,
    },
}

impl StepError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Shape { .. } => None,
            Self::Schedule { source, .. } => Some(source.hint()),
            Self::Simulate { source, .. } => Some(source.hint()),
        }
    }
}
