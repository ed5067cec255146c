//! Which layout to run.

pub mod highs;
