//! Launchers: what each accepts, and the files that start a plan with it. One file (or folder) per launcher, one line
//! in [`ALL`].

mod accelerate;
mod bridge;
mod colossalai;
mod deepspeed;
pub mod document;
mod draft;
pub mod flags;
mod galvatron;
mod given;
pub mod layers;
mod maxtext;
pub mod megatron;
mod nanotron;
mod python;
pub mod shell;
mod torchtitan;
mod verify;
mod words;

pub use given::{Given, Question, ReadError, nearest_divisors, nearest_values, not_planned, violation};

use crate::offload;
use crate::plan::Plan;
use cost_models::rules::{RecomputeFreedom, engine};
use cost_models::runtime::RuntimeFacts;
use cost_models::{ModelSpec, ParallelConfig, Recompute, Runtime, RuntimeError, Workload};
use document::Document;
use flags::FlagSet;
use layers::{Job, Layer, Seats, Start};
use solver::Constraints;
use solver::term::Field;
use std::borrow::Cow;
use std::collections::BTreeMap;
use thiserror::Error;

/// A file of a launch folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchFile {
    /// File name inside the folder; never a path.
    pub name: Cow<'static, str>,
    /// Its content.
    pub text: String,
    /// Whether it is to be executable.
    pub executable: bool,
}

impl LaunchFile {
    /// A file to be read.
    #[must_use]
    pub const fn data(name: &'static str, text: String) -> Self {
        Self { name: Cow::Borrowed(name), text, executable: false }
    }

    /// A script to be run.
    #[must_use]
    pub const fn script(name: &'static str, text: String) -> Self {
        Self { name: Cow::Borrowed(name), text, executable: true }
    }
}

/// A plan that a launcher cannot run. All reasons at once.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{launcher} cannot run this plan: {}", .reasons.join("; "))]
pub struct LaunchError {
    /// The launcher.
    pub launcher: &'static str,
    /// What it cannot express.
    pub reasons: Vec<String>,
}

/// A launcher.
pub trait Launcher: Sync {
    /// Name on the command line.
    fn name(&self) -> &'static str;
    /// One line for people, with the version the flags belong to.
    fn summary(&self) -> &'static str;
    /// The runtime it starts, as in `catalog runtimes`.
    fn runtime(&self) -> &'static str;
    /// What the runs that it starts have in common beyond the runtime's profile.
    fn facts(&self) -> RuntimeFacts {
        RuntimeFacts::default()
    }

    /// What of a model and a workload it cannot run, whatever the layout.
    fn refuses(&self, _model: &ModelSpec, _workload: &Workload) -> Vec<String> {
        Vec::new()
    }

    /// What of `plan` its files do not hold, each with the option of `check` that states it.
    fn unstated(&self, _plan: &Plan) -> Vec<String> {
        Vec::new()
    }

    /// The files that start `plan`.
    ///
    /// # Errors
    /// Every part of the plan that the launcher cannot express.
    fn export(&self, plan: &Plan) -> Result<Exported, LaunchError>;

    /// Layouts that the runtime has and this launcher cannot start, as terms that a search forbids.
    fn forbids(&self) -> &'static [&'static str] {
        &[]
    }

    /// How freely recompute can be chosen, where that is not as the runtime has it.
    fn recompute(&self) -> Option<RecomputeFreedom> {
        None
    }

    /// Whether it can keep the optimizer's state in host memory.
    fn offloads_optimizer(&self) -> bool {
        false
    }

    /// Whether it can keep activations of some layers or modules in host memory.
    fn offloads_activations(&self) -> bool {
        false
    }

    /// The flags or keys of a configuration.
    fn flags(&self, document: &Document) -> FlagSet {
        keys(document)
    }

    /// The run that a configuration describes; none for a launcher whose configurations are not read.
    ///
    /// # Errors
    /// Every fact that is missing and every value that makes no sense.
    fn read(&self, _question: &Question) -> Option<Result<Given, ReadError>> {
        None
    }

    /// Whether its files can give every block its own tensor parallelism, sharding and recompute.
    fn has_layer_strategies(&self) -> bool {
        false
    }

    /// The flags or keys that state a layout for sequences of `seq_len` tokens in this launcher's words; none where its
    /// configurations are not read.
    fn settings(&self, _parallel: &ParallelConfig, _seq_len: u64) -> Vec<Setting> {
        Vec::new()
    }
}

impl dyn Launcher {
    /// The engine of the runs that it starts.
    ///
    /// # Errors
    /// The runtime has no profile.
    pub fn engine(&self) -> Result<Runtime, RuntimeError> {
        Runtime::for_run(self.runtime(), &self.facts())
    }
}

/// A flag or key, and its value (empty for a switch).
pub type Setting = (&'static str, String);

/// Settings that are 1 are left out, as their defaults.
fn degrees(pairs: &[(&'static str, u32)]) -> Vec<Setting> {
    pairs.iter().filter(|(_, degree)| *degree > 1).map(|(key, degree)| (*key, degree.to_string())).collect()
}

/// What to take out of a configuration (`-`) and what to put in (`+`) for another layout.
#[must_use]
pub fn difference(
    launcher: &dyn Launcher,
    old: &ParallelConfig,
    new: &ParallelConfig,
    seq_len: u64,
) -> Vec<String> {
    let (old, new) = (launcher.settings(old, seq_len), launcher.settings(new, seq_len));
    let line = |sign: char, (key, value): &Setting| format!("{sign} {key} {value}").trim_end().to_owned();
    let gone = old.iter().filter(|setting| !new.contains(setting)).map(|setting| line('-', setting));
    let come = new.iter().filter(|setting| !old.contains(setting)).map(|setting| line('+', setting));
    gone.chain(come).collect()
}

/// The dotted keys of a tree, or the flags of a command line without their dashes.
#[must_use]
pub fn keys(document: &Document) -> FlagSet {
    match document {
        Document::Tree(tree) => FlagSet::new(document::flatten(tree), BTreeMap::new()),
        Document::Words { words, variables } => {
            let flags = FlagSet::from_words(words.iter().map(String::as_str));
            let bare =
                flags.iter().map(|(name, value)| (name.trim_start_matches('-').to_owned(), value.to_owned()));
            FlagSet::new(bare.collect(), variables.clone())
        }
    }
}

/// What a launcher makes of a plan: its own files, and what every node runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    /// Files of the launcher.
    pub files: Vec<LaunchFile>,
    /// What a launch layer starts.
    pub job: Job,
}

/// Every launcher.
pub static ALL: &[&dyn Launcher] = &[
    &megatron::Megatron,
    &megatron::ZeroBubble,
    &bridge::Bridge,
    &torchtitan::Torchtitan(torchtitan::Version::Release),
    &torchtitan::Torchtitan(torchtitan::Version::Main),
    &deepspeed::DeepSpeed,
    &nanotron::Nanotron,
    &accelerate::Accelerate,
    &colossalai::ColossalAi,
    &maxtext::MaxText,
    &galvatron::Galvatron,
];

/// All files that start `plan`: the launcher's, and those of the launch layers. A file that two layers write is written
/// once.
///
/// # Errors
/// Every part of the plan that the launcher or its layers cannot express, and every fault of the plan's structure.
pub fn folder(
    plan: &Plan,
    launcher: &dyn Launcher,
    layers: &[&'static dyn Layer],
) -> Result<Vec<LaunchFile>, LaunchError> {
    let fail = |reasons| LaunchError { launcher: launcher.name(), reasons };
    let faults = crate::check::structure::faults(plan);
    if !faults.is_empty() {
        return Err(fail(faults.into_iter().map(|fault| fault.message).collect()));
    }
    let seats = Seats::of(plan).and_then(|seats| match layers::unable(&seats, layers) {
        Some(reason) => Err(vec![reason]),
        None => Ok(seats),
    });
    let exported = launcher.export(plan);
    let mut held = held_elsewhere(plan, launcher);
    if plan.layer_strategies.is_some() && !launcher.has_layer_strategies() {
        held.push("strategies by layer".to_owned());
    }
    held.extend(unequal(plan));
    held.extend(numbered_otherwise(plan, launcher));
    let (Ok(seats), Ok(exported), true) = (&seats, &exported, held.is_empty()) else {
        let own = exported.err().map(|error| error.reasons).unwrap_or_default();
        let mut reasons: Vec<String> = own.into_iter().chain(seats.err().unwrap_or_default()).collect();
        reasons.extend(held);
        reasons.dedup();
        return Err(fail(reasons));
    };
    let start = Start { plan, seats, job: &exported.job };
    let mut files: Vec<LaunchFile> = Vec::new();
    for file in layers.iter().flat_map(|layer| layer.files(&start)).chain(exported.files.iter().cloned()) {
        if !files.iter().any(|other| other.name == file.name) {
            files.push(file);
        }
    }
    Ok(files)
}

/// Whether a recompute names what only some launchers keep in host memory or repeat.
const fn moves(recompute: Recompute) -> bool {
    matches!(recompute, Recompute::Offload { .. } | Recompute::Modules(_))
}

/// What a plan keeps in host memory and the launcher cannot.
fn held_elsewhere(plan: &Plan, launcher: &dyn Launcher) -> Vec<String> {
    let optimizer = offload::is_used(&plan.inputs) && !launcher.offloads_optimizer();
    let moved = plan.stages.0.iter().any(|stage| moves(stage.recompute));
    let activations = moved && !launcher.offloads_activations();
    let reasons =
        [(optimizer, "optimizer state in host memory"), (activations, "activations in host memory")];
    reasons.into_iter().filter(|(held, _)| *held).map(|(_, reason)| reason.to_owned()).collect()
}

/// Shares by kind of GPU, which no launcher here can start: each has one micro batch for all of its ranks (Megatron's
/// `--micro-batch-size`, torchtitan's `training.local_batch_size`, `DeepSpeed`'s `train_micro_batch_size_per_gpu`, the batch size
/// that Accelerate's sampler shards take to be that of every process) and even shards.
fn unequal(plan: &Plan) -> Vec<String> {
    let parallel = &plan.parallel;
    let sizes = parallel.micro_batch_sizes().map(|size| size.to_string()).collect::<Vec<_>>().join(" and ");
    let micro_batches = parallel.has_unequal_micro_batches().then(|| {
        format!(
            "micro batches of {sizes} sequences by kind of GPU: it has one size for all ranks (a training loop that feeds every rank \
             by itself finds its size in `placement.ranks` of the plan)"
        )
    });
    let state = parallel.has_uneven_state().then(|| "uneven shards of state by kind of GPU".to_owned());
    micro_batches.into_iter().chain(state).collect()
}

/// An order of the ranks that the launcher does not have, where it makes a difference.
fn numbered_otherwise(plan: &Plan, launcher: &dyn Launcher) -> Option<String> {
    let parallel = &plan.parallel;
    let none: [&str; 0] = [];
    let barred = Constraints::parse(&none, launcher.forbids()).unwrap_or_default();
    let orders = engine(launcher.runtime()).rank_orders.iter().map(|order| order.name());
    let own: Vec<&str> = orders.filter(|name| barred.allows_name(Field::RankOrder, name)).collect();
    let lacks = !own.contains(&parallel.rank_order.name());
    (lacks && parallel.pp > 1 && parallel.dp() > 1)
        .then(|| format!("ranks in the order {} (it numbers them {})", parallel.rank_order, own.join(" or ")))
}

/// The launcher called `name`.
#[must_use]
pub fn named(name: &str) -> Option<&'static dyn Launcher> {
    ALL.iter().copied().find(|launcher| launcher.name() == name)
}
