//! Which layout to run.
