//! The command line: one file per verb.

pub mod simulate;
pub mod validate;
