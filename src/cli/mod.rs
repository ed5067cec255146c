//! The command line: one file per verb.

mod catalog;
pub mod check;
mod estimate;
mod explain;
mod export;
mod fit;
pub mod inputs;
mod kind_shares;
mod layout;
pub mod output;
mod plan;
mod profile;
mod progress;
pub mod simulate;
mod study;
pub mod validate;

use crate::error::AppError;
use clap::{Parser, Subcommand, ValueEnum};
use std::process::ExitCode;

/// Plans distributed training: what to run, whether it fits, and why.
#[derive(Debug, Parser)]
#[command(name = "meshwright", version, propagate_version = true, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

/// How to print the answer; JSON goes to stdout alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// Text for people.
    #[default]
    Human,
    /// One JSON document.
    Json,
}

/// How a verb ended, when it did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Done.
    Done,
    /// No plan fits, or the checked plan is not valid or does not fit.
    NoFeasiblePlan,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Plan(Box<plan::PlanArgs>),
    Estimate(Box<estimate::EstimateArgs>),
    Explain(explain::ExplainArgs),
    Check(check::CheckArgs),
    Export(export::ExportArgs),
    Simulate(Box<simulate::SimulateArgs>),
    Study(study::StudyArgs),
    Profile(profile::ProfileArgs),
    Validate(validate::ValidateArgs),
    Fit(fit::FitArgs),
    Catalog(catalog::CatalogArgs),
}

impl Cli {
    /// Runs the verb.
    ///
    /// # Errors
    /// Whatever the verb fails with; see [`AppError::exit_code`].
    pub fn run(&self) -> Result<Ending, AppError> {
        match &self.verb {
            Verb::Plan(args) => plan::run(args),
            Verb::Estimate(args) => estimate::run(args),
            Verb::Explain(args) => explain::run(args),
            Verb::Check(args) => check::run(args),
            Verb::Export(args) => export::run(args),
            Verb::Simulate(args) => simulate::run(args),
            Verb::Study(args) => study::run(args),
            Verb::Profile(args) => profile::run(args),
            Verb::Validate(args) => Ok(validate::run(args).map(|()| Ending::Done)?),
            Verb::Fit(args) => fit::run(args),
            Verb::Catalog(args) => catalog::run(args),
        }
    }
}

/// Parses the process's arguments, runs the verb, reports the error. The exit code: 0 done, 1 error, 2 usage, 3 no
/// feasible plan.
#[must_use]
pub fn main() -> ExitCode {
    match Cli::parse().run() {
        Ok(Ending::Done) => ExitCode::SUCCESS,
        Ok(Ending::NoFeasiblePlan) => ExitCode::from(3),
        Err(error) => {
            output::complain(&crate::error::render(&error));
            ExitCode::from(error.exit_code())
        }
    }
}
