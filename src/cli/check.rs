//! `meshwright check`: is it valid, does it fit, what would be faster?

use super::{Ending, Format, output};
use crate::check::{self, Check};
use crate::error::AppError;
use crate::files;
use crate::inputs;
use crate::launch::{self, Given, Launcher, Question, ReadError, document};
use crate::plan::Plan;
use crate::report::{check as report, html};
use clap::Args;
use cluster_profiles::{Bytes, Cluster, quantity};
use std::path::{Path, PathBuf};

/// Verify a plan, or the configuration of a launcher: every broken rule, whether it fits, what would help.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// A plan; otherwise name a launcher and its configuration.
    #[arg(value_name = "PLAN", conflicts_with_all = ["launcher", "args", "world_size", "cluster"])]
    plan: Option<PathBuf>,
    /// Launcher the configuration is for; see `catalog launchers`.
    #[arg(long, value_name = "NAME")]
    launcher: Option<String>,
    /// The configuration: a shell line or script, JSON, YAML or TOML.
    #[arg(long, value_name = "FILE")]
    args: Option<PathBuf>,
    /// GPUs of the run.
    #[arg(long, value_name = "N")]
    world_size: Option<u64>,
    /// Catalogue name or a cluster profile (TOML); it says which GPUs and links.
    #[arg(long, value_name = "CLUSTER")]
    cluster: Option<String>,
    /// The model, where the configuration does not describe it: catalogue name or file.
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Tokens of a sequence, where the configuration does not say.
    #[arg(long, value_name = "TOKENS")]
    seq_len: Option<u64>,
    /// Sequences of a step, where the configuration does not say.
    #[arg(long, value_name = "SEQUENCES")]
    global_batch: Option<u64>,
    /// Sequences of a microbatch, where the configuration does not say.
    #[arg(long, value_name = "SEQUENCES")]
    micro_batch: Option<u64>,
    /// Memory a GPU may use, such as 74GiB (default: its capacity less a safety margin, as `estimate`).
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    memory_limit: Option<Bytes>,
    /// Write a page about it.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// How to print the answer.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

fn parse_bytes(text: &str) -> Result<Bytes, String> {
    quantity::bytes(text)
}

/// Runs the verb.
///
/// # Errors
/// A file that cannot be read, or facts that are missing (all of them are named).
pub fn run(args: &CheckArgs) -> Result<Ending, AppError> {
    let check = match &args.plan {
        Some(path) => check::check(&read_plan(path)?),
        None => of_configuration(args)?,
    };
    if let Some(path) = &args.html {
        let subject = args
            .plan
            .as_ref()
            .or(args.args.as_ref())
            .map_or_else(String::new, |path| path.display().to_string());
        files::write_text(path, &html::check(&check, &subject))?;
    }
    match args.format {
        Format::Human => output::say(&report::text(&check)),
        Format::Json => output::say(&output::json(&check)?),
    }
    Ok(if check.passes() { Ending::Done } else { Ending::NoFeasiblePlan })
}

fn read_plan(path: &Path) -> Result<Plan, AppError> {
    Plan::from_json(&path.display().to_string(), &files::read_text(path)?)
}

fn of_configuration(args: &CheckArgs) -> Result<Check, AppError> {
    let mut faults = args.faults();
    let launcher = match args.launcher.as_deref().map(super::inputs::launcher).transpose() {
        Ok(launcher) => launcher,
        Err(AppError::Usage { faults: found, .. }) => {
            faults.extend(found);
            None
        }
        Err(other) => return Err(other),
    };
    let (Some(launcher), Some(path), Some(name), Some(world_size), true) =
        (launcher, &args.args, &args.cluster, args.world_size, faults.is_empty())
    else {
        return Err(AppError::Usage { faults, hint: Some(EXAMPLE.to_owned()) });
    };
    let origin = path.display().to_string();
    let flags = launcher.flags(&document::parse(&origin, &files::read_text(path)?)?);
    if flags.is_empty() {
        return Err(AppError::content(origin, format!("has no flags or keys of {}", launcher.name())));
    }
    let model = args.model.as_deref().map(inputs::load_model).transpose()?.map(|(model, _)| model);
    let (cluster, note) = sized(inputs::load_cluster(name)?.0, world_size)?;
    let question = Question {
        flags: &flags,
        world_size,
        cluster: &cluster,
        model: model.as_ref(),
        seq_len: args.seq_len,
        global_batch: args.global_batch,
        micro_batch: args.micro_batch,
    };
    let mut given = read(launcher, &question, &origin)?;
    given.assumed.extend(note);
    let limit = inputs::memory_limit(&cluster, &given.runtime, args.memory_limit);
    Ok(check::check_given(&given, &cluster, limit, Some(launcher)))
}

fn read(launcher: &dyn Launcher, question: &Question, origin: &str) -> Result<Given, AppError> {
    match launcher.read(question) {
        Some(Ok(given)) => Ok(given),
        Some(Err(error)) => Err(refusal(error, origin)),
        None => {
            let reading: Vec<&str> =
                launch::ALL.iter().filter(|l| l.read(question).is_some()).map(|l| l.name()).collect();
            let fault = format!("configurations of {} are written, not read", launcher.name());
            Err(AppError::usage(fault, format!("`check` reads those of {}", reading.join(", "))))
        }
    }
}

/// Missing facts are a matter of usage, senseless values one of the file.
fn refusal(error: ReadError, origin: &str) -> AppError {
    if let Some(what) = error.not_planned {
        return AppError::Content {
            origin: origin.to_owned(),
            message: format!("not planned here: {what}"),
            hint: Some("meshwright plans full training of language models".to_owned()),
        };
    }
    if error.faults.is_empty() {
        let faults = error.missing.into_iter().map(|fact| format!("missing: {fact}")).collect();
        return AppError::Usage { faults, hint: Some(EXAMPLE.to_owned()) };
    }
    let faults: Vec<String> = error.faults.iter().map(ToString::to_string).collect();
    let missing = error.missing.iter().map(|fact| format!("missing: {fact}"));
    AppError::content(origin, faults.into_iter().chain(missing).collect::<Vec<_>>().join("; "))
}

/// The cluster with `gpus` GPUs. Where they do not fill nodes, as many of each node as divide them are used.
fn sized(mut cluster: Cluster, gpus: u64) -> Result<(Cluster, Option<String>), AppError> {
    if let Ok(cluster) = cluster.resized(gpus) {
        return Ok((cluster, None));
    }
    if !cluster.is_homogeneous() {
        return Ok((cluster.resized(gpus)?, None));
    }
    let node = &mut cluster.groups[0].node;
    let whole = node.gpus;
    node.gpus = (1..=whole).rev().find(|&used| gpus.is_multiple_of(used.into())).unwrap_or(1);
    node.domain = node.domain.min(node.gpus);
    let note = format!("{} of the {whole} GPUs of every node: {gpus} do not fill nodes", node.gpus);
    Ok((cluster.resized(gpus)?, Some(note)))
}

const EXAMPLE: &str =
    "for example: meshwright check --launcher megatron --args train.sh --world-size 64 --cluster dgx-h100";

impl CheckArgs {
    fn faults(&self) -> Vec<String> {
        let required = [
            ("--launcher (whose configuration it is)", self.launcher.is_none()),
            ("--args (the configuration)", self.args.is_none()),
            ("--world-size (the number of GPUs)", self.world_size.is_none()),
            ("--cluster (which GPUs and links)", self.cluster.is_none()),
        ];
        let missing = required.into_iter().filter(|(_, absent)| *absent);
        let mut faults: Vec<String> = missing.map(|(what, _)| format!("missing: {what}")).collect();
        if self.world_size.is_some_and(|gpus| gpus == 0 || gpus > 1 << 20) {
            faults.push("--world-size is from 1 to 1048576".to_owned());
        }
        let sizes = [
            ("--seq-len", self.seq_len),
            ("--global-batch", self.global_batch),
            ("--micro-batch", self.micro_batch),
        ];
        for (flag, value) in sizes {
            if value.is_some_and(|value| value == 0 || value > 1 << 30) {
                faults.push(format!("{flag} is from 1 to 1073741824"));
            }
        }
        faults
    }
}
