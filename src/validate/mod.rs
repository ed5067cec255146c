//! Predictions against published measurements.
//!
//! A table of runs (one per row, with its source) becomes [`RunCase`]s: blanks are inferred by stated rules and recorded.
//! Each is predicted with the code that plans use, and [`Summary`] holds the errors per source and GPU kind, beside the
//! errors of a constant MFU.

mod baseline;
mod case;
mod cross;
mod engine;
mod error;
mod fields;
mod flag_runs;
mod flag_score;
mod hardware;
mod inherit;
pub mod kernels;
mod layout;
pub mod metrics;
mod models;
mod ranking;
mod release;
mod row;
mod runs;
mod score;
mod stages;
mod summary;
mod switches;
mod table;
mod words;

pub use baseline::ConstantMfu;
pub use case::RunCase;
pub use cross::{CrossValidation, Fitted, Half, cross_validate, in_fitted_half, is_fitted};
pub use error::ValidateError;
pub use fields::Fault;
pub use flag_runs::{FlagRun, FlagRuns, is_jsonl, read_jsonl};
pub use flag_score::{FlagFigures, FlagRow, FlagScored, FlagValidation, validate_flags};
pub use models::Models;
pub use ranking::{RankedGroup, ranked_groups};
pub use row::{MeasuredMemory, RunRow};
pub use runs::{Selection, Validation, predict, read_cases, read_file, validate};
pub use score::{RowReport, Scored, counted};
pub use summary::{Baseline, Figures, Summary};
pub use table::{Table, Unread, read_csv};
pub use words::MemoryQuantity;
