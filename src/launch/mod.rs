//! Launchers: what each accepts, and the files that start a plan with it. One file (or folder) per launcher, one line
//! in [`ALL`].

pub mod document;
pub mod flags;
mod given;
pub mod megatron;
pub mod shell;
pub mod slurm;
pub mod torchrun;
mod words;

pub use given::{Given, Question, ReadError, nearest_divisors, nearest_values, violation};

use crate::plan::Plan;
use document::Document;
use flags::FlagSet;
use std::collections::BTreeMap;
use thiserror::Error;

/// A file of a launch folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchFile {
    /// File name inside the folder; never a path.
    pub name: &'static str,
    /// Its content.
    pub text: String,
    /// Whether it is to be executable.
    pub executable: bool,
}

impl LaunchFile {
    /// A file to be read.
    #[must_use]
    pub const fn data(name: &'static str, text: String) -> Self {
        Self { name, text, executable: false }
    }

    /// A script to be run.
    #[must_use]
    pub const fn script(name: &'static str, text: String) -> Self {
        Self { name, text, executable: true }
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
    /// The files that start `plan`.
    ///
    /// # Errors
    /// Every part of the plan that the launcher cannot express.
    fn export(&self, plan: &Plan) -> Result<Vec<LaunchFile>, LaunchError>;

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

    /// The launcher's own word for an axis of a layout, such as `--tensor-model-parallel-size` for `tp`.
    fn axis(&self, _axis: &str) -> Option<&'static str> {
        None
    }
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

/// Every launcher.
pub static ALL: &[&dyn Launcher] = &[&megatron::Megatron];

/// The launcher called `name`.
#[must_use]
pub fn named(name: &str) -> Option<&'static dyn Launcher> {
    ALL.iter().copied().find(|launcher| launcher.name() == name)
}
