//! `meshwright export`: the files of a launcher.

use super::{Ending, Format, output};
use crate::error::AppError;
use crate::files;
use crate::launch::LaunchFile;
use crate::plan::Plan;
use clap::Args;
use std::path::{Path, PathBuf};

/// Write the files that start a plan.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// A plan.
    #[arg(value_name = "PLAN")]
    plan: PathBuf,
    /// Launcher; see `catalog launchers`.
    #[arg(long, value_name = "LAUNCHER")]
    to: String,
    /// Folder to write into; made if it does not exist.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Overwrite files that exist.
    #[arg(long)]
    force: bool,
    /// How to print the answer.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Runs the verb.
///
/// # Errors
/// The plan cannot be read, the launcher cannot run it, or a file exists or cannot be written.
pub fn run(args: &ExportArgs) -> Result<Ending, AppError> {
    let origin = args.plan.display().to_string();
    let plan = Plan::from_json(&origin, &files::read_text(&args.plan)?)?;
    let launcher = super::inputs::launcher(&args.to)?;
    let exported = launcher.export(&plan).map_err(|error| AppError::Other {
        message: error.to_string(),
        hint: Some(format!("plan for it: `meshwright plan ... --launcher {}`", args.to)),
    })?;
    write(&args.out, &exported, args.force)?;
    report(args, &exported)
}

fn report(args: &ExportArgs, exported: &[LaunchFile]) -> Result<Ending, AppError> {
    let paths: Vec<String> =
        exported.iter().map(|file| args.out.join(file.name).display().to_string()).collect();
    match args.format {
        Format::Json => {
            output::say(&output::json(&serde_json::json!({ "launcher": args.to, "files": paths }))?)
        }
        Format::Human => output::complain(&format!("Wrote {}\n", paths.join(", "))),
    }
    Ok(Ending::Done)
}

/// Writes the files; nothing is written if one of them exists and `force` is off.
fn write(folder: &Path, exported: &[LaunchFile], force: bool) -> Result<(), AppError> {
    let fail = |source| AppError::File { action: "write", path: folder.to_owned(), source };
    std::fs::create_dir_all(folder).map_err(fail)?;
    let existing: Vec<&str> =
        exported.iter().map(|file| file.name).filter(|name| folder.join(name).exists()).collect();
    if !existing.is_empty() && !force {
        return Err(AppError::Other {
            message: format!("{} in `{}` would be overwritten", existing.join(", "), folder.display()),
            hint: Some("--force overwrites, or choose another --out".to_owned()),
        });
    }
    for file in exported {
        let path = folder.join(file.name);
        files::write_text(&path, &file.text)?;
        if file.executable {
            files::make_executable(&path)?;
        }
    }
    Ok(())
}
