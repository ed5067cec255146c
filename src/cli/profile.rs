//! `meshwright profile`: measurements of a real cluster in, a profile out; and the script that takes them.

use super::{Ending, Format, output};
use crate::error::AppError;
use crate::profile::{self, Hints, Kind};
use crate::report::profile as report;
use crate::{files, inputs};
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};

/// Make a profile of a real cluster: import measurements, or write the script that takes them.
#[derive(Debug, Args)]
pub struct ProfileArgs {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    Import(Box<ImportArgs>),
    Script(ScriptArgs),
}

/// Write the probe: a Python script that needs torch alone and times a model's layers and the cluster's links.
#[derive(Debug, Args)]
pub struct ScriptArgs {
    /// The model whose layers are timed: a catalogue name, a config.json or a model file.
    #[arg(long, value_name = "MODEL")]
    pub model: String,
    /// The script to write.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Sequence lengths to time.
    #[arg(long, value_name = "TOKENS", value_delimiter = ',', default_value = "4096", value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub seq_len: Vec<u32>,
    /// Micro batches to time.
    #[arg(long, value_name = "SEQUENCES", value_delimiter = ',', default_value = "1,2", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub micro_batch: Vec<u32>,
    /// Tensor parallel degrees to time.
    #[arg(long, value_name = "T", value_delimiter = ',', default_value = "1,2,4,8", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub tp: Vec<u32>,
    /// Context parallel degrees to time.
    #[arg(long, value_name = "C", value_delimiter = ',', default_value = "1,2", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub cp: Vec<u32>,
    /// Expert parallel degrees to time, of a model with experts.
    #[arg(long, value_name = "E", value_delimiter = ',', default_value = "1,2,4,8", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub ep: Vec<u32>,
}

/// Read the output of measurement tools into a cluster profile.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The tool that wrote the files.
    #[arg(value_name = "KIND", value_enum)]
    pub kind: Kind,
    /// Its output.
    #[arg(value_name = "FILES", required = true)]
    pub files: Vec<PathBuf>,
    /// The profile to write.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Cluster that gives what was not measured: a catalogue name, or a profile that an earlier import wrote.
    #[arg(long, value_name = "CLUSTER")]
    pub base: Option<String>,
    /// Name of the profile (default: the name of the file written).
    #[arg(long)]
    pub name: Option<String>,
    /// Ranks of the measured group, where the tool does not print them.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1 << 20))]
    pub ranks: Option<u32>,
    /// Ranks of the group on one host, where the tool does not print them.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    pub per_node: Option<u32>,
    /// The model whose layers were measured: a catalogue name or a config.json.
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Form of the answer.
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub format: Format,
}

/// Runs the verb: data on stdout, everything else on stderr.
///
/// # Errors
/// A file is not what its kind says, or the profile cannot be written.
pub fn run(args: &ProfileArgs) -> Result<Ending, AppError> {
    match &args.task {
        Task::Import(args) => import(args),
        Task::Script(args) => script(args),
    }
}

fn script(args: &ScriptArgs) -> Result<Ending, AppError> {
    let (model, _) = inputs::load_model(&args.model)?;
    let degrees = profile::probe::Degrees { tp: args.tp.clone(), cp: args.cp.clone(), ep: args.ep.clone() };
    let plan = profile::probe::Plan::new(&model, &args.seq_len, &args.micro_batch, &degrees)?;
    files::write_text(&args.out, &plan.script()?)?;
    let out = args.out.display();
    output::complain(&format!(
        "Wrote {out}. To run it: torchrun --nproc-per-node 8 {out} --out probe.json\n\
         Then: meshwright profile import probe probe.json --out cluster.toml\n"
    ));
    Ok(Ending::Done)
}

fn import(args: &ImportArgs) -> Result<Ending, AppError> {
    let base = args.base.as_deref().map(inputs::load_cluster).transpose()?.map(|(cluster, _)| cluster);
    let model = args.model.as_deref().map(inputs::load_model).transpose()?.map(|(model, _)| model);
    let stem = args.out.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let hints =
        Hints { base, name: args.name.clone().or(stem), ranks: args.ranks, per_node: args.per_node, model };
    let paths: Vec<&Path> = args.files.iter().map(PathBuf::as_path).collect();
    let imported = profile::import(args.kind, &paths, hints)?;
    files::write_text(&args.out, &imported.cluster.to_toml()?)?;
    let text = match args.format {
        Format::Human => report::text(&imported),
        Format::Json => output::json(&imported)?,
    };
    output::say(&text);
    output::complain(&format!(
        "\nWrote {}. To plan with it: --cluster {}\n",
        args.out.display(),
        args.out.display()
    ));
    Ok(Ending::Done)
}
