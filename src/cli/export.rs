//! `meshwright export`: the files of a launcher.

use super::{Ending, Format, output};
use crate::error::AppError;
use crate::files;
use crate::launch::layers::{self, Layer, Seats};
use crate::launch::{self, LaunchFile};
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
    /// What starts it on the nodes: torchrun, slurm, slurm-tasks, mpi, hostfile, pytorchjob, trainjob, skypilot, ray.
    #[arg(long, value_name = "LAYER", value_delimiter = ',', default_values = layers::USUAL)]
    layer: Vec<String>,
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
    let layers = chosen(&args.layer, &plan)?;
    let exported = launch::folder(&plan, launcher, &layers).map_err(|error| AppError::Other {
        message: error.to_string(),
        hint: (plan.inputs.launcher.as_deref() != Some(args.to.as_str()))
            .then(|| format!("plan for it: `meshwright plan ... --launcher {}`", args.to)),
    })?;
    write(&args.out, &exported, args.force)?;
    report(args, &exported, &lost(&plan, &layers), &launcher.unstated(&plan))
}

/// What of the planned placement each layer cannot keep.
fn lost(plan: &Plan, layers: &[&'static dyn Layer]) -> Vec<(&'static str, &'static str)> {
    let Ok(seats) = Seats::of(plan) else { return Vec::new() };
    layers.iter().filter_map(|layer| Some((layer.name(), layer.loses(&seats)?))).collect()
}

/// The layers of these names, with the `launch.sh` that most of them start.
fn chosen(names: &[String], plan: &Plan) -> Result<Vec<&'static dyn Layer>, AppError> {
    let known: Vec<&str> = layers::ALL.iter().map(|layer| layer.name()).collect();
    let unknown: Vec<String> = names
        .iter()
        .filter(|name| layers::named(name).is_none())
        .map(|name| format!("unknown launch layer `{}`", name.escape_default()))
        .collect();
    if !unknown.is_empty() {
        return Err(AppError::Usage { faults: unknown, hint: Some(format!("use {}", known.join(", "))) });
    }
    let asked: Vec<&'static dyn Layer> = names.iter().filter_map(|name| layers::named(name)).collect();
    let alone = asked.iter().all(|layer| layer.starts_every_rank());
    let scattered = Seats::of(plan).is_ok_and(|seats| seats.scattered().is_some());
    let usual = layers::USUAL.iter().take(usize::from(!(alone && scattered)));
    Ok(usual.filter_map(|name| layers::named(name)).chain(asked).collect())
}

fn report(
    args: &ExportArgs,
    exported: &[LaunchFile],
    lost: &[(&str, &str)],
    unstated: &[String],
) -> Result<Ending, AppError> {
    let paths: Vec<String> =
        exported.iter().map(|file| args.out.join(&*file.name).display().to_string()).collect();
    match args.format {
        Format::Json => {
            let lost: Vec<_> = lost
                .iter()
                .map(|(layer, what)| serde_json::json!({ "layer": layer, "what": what }))
                .collect();
            let document = serde_json::json!({
                "launcher": args.to, "files": paths, "lost": lost, "unstated": unstated,
            });
            output::say(&output::json(&document)?);
        }
        Format::Human => {
            output::complain(&format!("Wrote {}\n", paths.join(", ")));
            for (layer, what) in lost {
                output::complain(&format!("{layer} does not keep {what}\n"));
            }
            if !unstated.is_empty() {
                let facts = unstated.join(", ");
                output::complain(&format!(
                    "the files of {} do not state (`check` asks for it): {facts}\n",
                    args.to
                ));
            }
        }
    }
    Ok(Ending::Done)
}

/// Writes the files; nothing is written if one of them exists and `force` is off.
pub(super) fn write(folder: &Path, exported: &[LaunchFile], force: bool) -> Result<(), AppError> {
    let fail = |source| AppError::File { action: "write", path: folder.to_owned(), source };
    std::fs::create_dir_all(folder).map_err(fail)?;
    let existing: Vec<&str> = exported
        .iter()
        .map(|file| &*file.name)
        .filter(|name| folder.join(name).symlink_metadata().is_ok())
        .collect();
    if !existing.is_empty() && !force {
        return Err(AppError::Other {
            message: format!("{} in `{}` would be overwritten", existing.join(", "), folder.display()),
            hint: Some("--force overwrites, or choose another --out".to_owned()),
        });
    }
    for file in exported {
        let path = folder.join(&*file.name);
        files::write_text(&path, &file.text)?;
        if file.executable {
            files::make_executable(&path)?;
        }
    }
    Ok(())
}
