//! `meshwright explain`: why a plan is what it is, or what sets two plans apart.

use super::{Ending, Format, output};
use crate::error::AppError;
use crate::files;
use crate::plan::Plan;
use crate::report::{difference, explain};
use clap::Args;
use std::path::{Path, PathBuf};

/// Say why a plan is what it is, or what sets two plans apart and what each difference costs.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// A plan.
    #[arg(value_name = "PLAN")]
    plan: PathBuf,
    /// Another plan, to compare with.
    #[arg(value_name = "OTHER")]
    other: Option<PathBuf>,
    /// How to print the answer.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Runs the verb.
///
/// # Errors
/// A plan cannot be read.
pub fn run(args: &ExplainArgs) -> Result<Ending, AppError> {
    let plan = read(&args.plan)?;
    let text = match (&args.other, args.format) {
        (None, Format::Human) => explain::text(&plan),
        (None, Format::Json) => output::json(&explain::document(&plan))?,
        (Some(other), Format::Human) => difference::text(&plan, &read(other)?),
        (Some(other), Format::Json) => output::json(&difference::difference(&plan, &read(other)?))?,
    };
    output::say(&text);
    Ok(Ending::Done)
}

fn read(path: &Path) -> Result<Plan, AppError> {
    Plan::from_json(&path.display().to_string(), &files::read_text(path)?)
}
