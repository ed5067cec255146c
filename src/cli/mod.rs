//! The command line: one file per verb.

pub mod validate;
