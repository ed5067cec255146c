//! Launchers: what each accepts, and the files that start a plan with it. One file (or folder) per launcher, one line
//! in [`ALL`].

pub mod megatron;
pub mod shell;
pub mod slurm;
pub mod torchrun;

use crate::plan::Plan;
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
}

/// Every launcher.
pub static ALL: &[&dyn Launcher] = &[&megatron::Megatron];

/// The launcher called `name`.
#[must_use]
pub fn named(name: &str) -> Option<&'static dyn Launcher> {
    ALL.iter().copied().find(|launcher| launcher.name() == name)
}
