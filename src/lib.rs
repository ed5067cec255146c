//! Plans distributed training.

pub mod cli;
pub mod report;
pub mod validate;
