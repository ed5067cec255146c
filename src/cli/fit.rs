//! `meshwright fit`: re-derives every fitted number from measurements.

use super::{Ending, Format, output};
use crate::error::AppError;
use crate::files;
use crate::fit::{Fitted, Line, fit_all};
use crate::report::table::Table;
use clap::Args;
use std::path::{Path, PathBuf};

/// Re-derive every fitted number of the cost model from measurements.
#[derive(Debug, Args)]
pub struct FitArgs {
    /// Folder with `kernels`, `links` and `validation`.
    #[arg(value_name = "DATA-DIR")]
    pub data: PathBuf,
    /// Write the numbers into the profiles of the repository in the working directory.
    #[arg(long)]
    pub write: bool,
    /// Form of the answer.
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub format: Format,
}

/// Runs the verb: data on stdout, everything else on stderr.
///
/// # Errors
/// [`AppError::Other`] if a file is broken, or a profile cannot be written.
pub fn run(args: &FitArgs) -> Result<Ending, AppError> {
    let fitted = fit_all(&args.data)
        .map_err(|error| AppError::Other { message: error.to_string(), hint: Some(error.hint()) })?;
    let text = match args.format {
        Format::Human => table(&fitted.lines()),
        Format::Json => output::json(&fitted.lines())?,
    };
    output::say(&text);
    if args.write {
        write_profiles(&fitted, Path::new("."))?;
    }
    Ok(Ending::Done)
}

fn write_profiles(fitted: &Fitted, root: &Path) -> Result<(), AppError> {
    let refuse = |message: String| AppError::Other {
        message,
        hint: Some("run it in the root of meshwright's repository, or without --write".to_owned()),
    };
    for (path, text) in fitted.files(root).map_err(refuse)? {
        let path = root.join(path);
        files::write_text(&path, &text)?;
    }
    Ok(())
}

fn table(lines: &[Line]) -> String {
    let mut table = Table::new(&["number", "value", "fitted to", "error", "held out", "from prior"]);
    let percent = |value: Option<f64>| value.map_or(String::new(), |v| format!("{:.1} %", 100.0 * v));
    for line in lines {
        table.row([
            line.name.clone(),
            line.value.clone(),
            line.fitted_to.clone(),
            percent(line.median_error),
            percent(line.held_out_error),
            line.pull.map_or(String::new(), |pull| format!("{pull:+.1} sd")),
        ]);
    }
    table.text()
}
