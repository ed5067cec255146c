//! `meshwright study`: a plan for every point of a grid, and what follows from them.

use super::{Ending, Format, export, output};
use crate::error::AppError;
use crate::files;
use crate::report::{html, study_text};
use crate::study::engine::{ENGINES, Sharded};
use crate::study::table::DECISIONS;
use crate::study::{self, Decisions, Rows, Study, Watch, decide, journal};
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::path::{Path, PathBuf};

/// Plan every point of a grid of what-if questions.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct StudyArgs {
    /// What to do with shards instead.
    #[command(subcommand)]
    what: Option<StudyWhat>,
    /// The study (TOML).
    #[arg(value_name = "STUDY.toml", required = true)]
    study: Option<PathBuf>,
    /// Folder of the results; a run that was stopped goes on from what is there.
    #[arg(long, value_name = "DIR", required = true)]
    out: Option<PathBuf>,
    /// Plan only part I of N.
    #[arg(long, value_name = "I/N", value_parser = parse_shard)]
    shard: Option<Shard>,
    #[command(flatten)]
    report: ReportArgs,
}

/// How results are shown.
#[derive(Debug, Args)]
struct ReportArgs {
    /// Write a page with charts.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// How to print the answer.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Debug, Subcommand)]
enum StudyWhat {
    /// Put the results of shards together.
    Merge {
        /// Folders of the shards.
        #[arg(value_name = "DIR", required = true)]
        folders: Vec<PathBuf>,
        /// Folder of the merged results.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        #[command(flatten)]
        report: ReportArgs,
    },
    /// Write files that run the shards on an engine and merge them.
    Export {
        /// The study (TOML).
        #[arg(value_name = "STUDY.toml")]
        study: PathBuf,
        /// slurm, kubernetes or ray.
        #[arg(long, value_name = "ENGINE")]
        engine: String,
        /// Number of shards.
        #[arg(long, value_name = "N", default_value_t = 8)]
        shards: u64,
        /// Folder of the results, on storage that all shards share.
        #[arg(long, value_name = "DIR")]
        results: String,
        /// Folder to write the files into.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Overwrite files that exist.
        #[arg(long)]
        force: bool,
    },
}

/// Number of a shard (from 1) and how many there are.
#[derive(Debug, Clone, Copy)]
struct Shard([u64; 2]);

/// Most shards of a study.
const MOST_SHARDS: u64 = 10_000;

fn parse_shard(text: &str) -> Result<Shard, String> {
    let numbers = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
    match numbers {
        Some((number, shards)) if (1..=MOST_SHARDS).contains(&shards) && (1..=shards).contains(&number) => {
            Ok(Shard([number, shards]))
        }
        _ => Err(format!("expected I/N with I from 1 to N and N up to {MOST_SHARDS}, such as 2/8")),
    }
}

/// Runs the verb.
///
/// # Errors
/// A wrong study, a folder that cannot be used, results that do not belong together.
pub fn run(args: &StudyArgs) -> Result<Ending, AppError> {
    match (&args.what, &args.study, &args.out) {
        (Some(StudyWhat::Merge { folders, out, report }), ..) => merge(folders, out, report),
        (Some(StudyWhat::Export { study, engine, shards, results, out, force }), ..) => {
            export_files(study, engine, *shards, results, out, *force)
        }
        (None, Some(study), Some(out)) => {
            run_points(study, out, args.shard.map_or([1, 1], |s| s.0), &args.report)
        }
        (None, ..) => {
            Err(AppError::usage("STUDY.toml and --out are missing", "meshwright study STUDY.toml --out DIR"))
        }
    }
}

fn read(path: &Path) -> Result<Study, AppError> {
    Study::read(&path.display().to_string(), &files::read_text(path)?)
}

fn run_points(path: &Path, out: &Path, shard: [u64; 2], report: &ReportArgs) -> Result<Ending, AppError> {
    let study = read(path)?;
    let bar = Bar::new();
    let done = study::run(&study, out, shard, &bar);
    bar.0.finish_and_clear();
    let done = done?;
    if done.before > 0 && report.format == Format::Human {
        output::complain(&format!("{} of {} points were done before.\n", done.before, done.points));
    }
    let ending = finish(&study, Rows::of_folder(out)?, out, report)?;
    // A shard is done when its points are, whether any of them has a plan: engines take other codes for a failure.
    Ok(if shard[1] > 1 { Ending::Done } else { ending })
}

fn merge(folders: &[PathBuf], out: &Path, report: &ReportArgs) -> Result<Ending, AppError> {
    let fail = |source| AppError::File { action: "write", path: out.to_owned(), source };
    let rows = Rows::of_shards(folders)?;
    std::fs::create_dir_all(out).map_err(fail)?;
    let lock = journal::lock(out)?;
    journal::claim(out, &rows.manifest)?;
    let study = Study::read(&rows.manifest.name, &rows.manifest.study)?;
    let ending = finish(&study, rows, out, report);
    drop(lock);
    ending
}

/// Writes tables, decisions and the page, and reports.
fn finish(study: &Study, mut rows: Rows, out: &Path, report: &ReportArgs) -> Result<Ending, AppError> {
    let mut names = rows.write_tables(out)?;
    let (decisions, gathered, best) = decide(study, &mut rows)?;
    files::write_text(&out.join(DECISIONS), &output::json(&decisions)?)?;
    names.push(DECISIONS);
    if let Some(path) = &report.html {
        files::write_text(path, &html::study(study, &decisions, &gathered, best.as_ref()))?;
    }
    show(study, &decisions, report)?;
    if report.format == Format::Human {
        let paths: Vec<String> = names.iter().map(|name| out.join(name).display().to_string()).collect();
        output::complain(&format!("Wrote {}\n", paths.join(", ")));
    }
    Ok(if decisions.best.is_empty() { Ending::NoFeasiblePlan } else { Ending::Done })
}

fn show(study: &Study, decisions: &Decisions, report: &ReportArgs) -> Result<(), AppError> {
    match report.format {
        Format::Human => output::say(&study_text::text(study, decisions)),
        Format::Json => output::say(&output::json(decisions)?),
    }
    Ok(())
}

fn export_files(
    study: &Path,
    engine: &str,
    shards: u64,
    results: &str,
    out: &Path,
    force: bool,
) -> Result<Ending, AppError> {
    let plans = read(study)?;
    let Some(engine) = ENGINES.iter().find(|known| known.name == engine) else {
        let names: Vec<&str> = ENGINES.iter().map(|engine| engine.name).collect();
        return Err(AppError::usage(
            format!("unknown engine `{engine}`"),
            format!("use {}", names.join(", ")),
        ));
    };
    let mut faults = Vec::new();
    if !(1..=MOST_SHARDS).contains(&shards) {
        faults.push(format!("--shards is {shards}, expected 1 to {MOST_SHARDS}"));
    }
    let study = absolute(study);
    let results = absolute(Path::new(results));
    for (what, text) in [("the study's path", study.as_str()), ("--results", results.as_str())] {
        if text.is_empty() || text.chars().any(char::is_control) {
            faults.push(format!("{what} is empty or has control characters"));
        }
    }
    if engine.name == "kubernetes" && results.contains(':') {
        faults.push("--results has a colon, which Kubernetes takes in no mountPath".to_owned());
    }
    if !faults.is_empty() {
        return Err(AppError::Usage { faults, hint: None });
    }
    let named = plans.files();
    let folder = absolute(Path::new("."));
    let (name, text) = (plans.name, plans.text);
    let files = (engine.files)(&Sharded { name, study, text, files: named, folder, out: results, shards });
    export::write(out, &files, force)?;
    let paths: Vec<String> = files.iter().map(|file| out.join(&*file.name).display().to_string()).collect();
    output::complain(&format!("Wrote {}. To run it: {}\n", paths.join(", "), engine.start));
    Ok(Ending::Done)
}

/// The path from the root: the files that name it are started from folders of their own.
fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

/// A bar with rate and time left, on a terminal only.
struct Bar(ProgressBar);

impl Bar {
    fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = "{bar:30} {human_pos} of {human_len} points  {per_sec}  {eta} left";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        Self(bar)
    }
}

impl Watch for Bar {
    fn begin(&self, points: u64, done: u64) {
        self.0.set_length(points);
        self.0.set_position(done);
        self.0.reset_eta();
    }

    fn advance(&self, points: u64) {
        self.0.inc(points);
    }
}
