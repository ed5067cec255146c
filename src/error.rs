//! One error for the whole application: what went wrong, its causes, what to do, and the exit code.

use crate::validate::ValidateError;
use cluster_profiles::ProfileError;
use cost_models::model::ModelError;
use cost_models::rules::Violation;
use cost_models::{EstimateError, RuntimeError};
use std::path::PathBuf;
use thiserror::Error;

/// Anything a verb can fail with.
#[derive(Debug, Error)]
pub enum AppError {
    /// A cluster or GPU profile.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A runtime.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// A layout that cannot be estimated.
    #[error(transparent)]
    Estimate(#[from] EstimateError),
    /// Runs that cannot be validated against.
    #[error(transparent)]
    Validate(#[from] ValidateError),
    /// A file that cannot be read or written.
    #[error("cannot {action} `{}`", .path.display())]
    File {
        /// "read" or "write".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A file whose content is wrong.
    #[error("{origin}: {message}")]
    Content {
        /// The file.
        origin: String,
        /// What is wrong and where.
        message: String,
        /// What to change.
        hint: Option<String>,
    },
    /// Flags that contradict each other or make no sense. All faults at once.
    #[error("{}", .faults.join("\n       "))]
    Usage {
        /// One message per fault, naming flag and value.
        faults: Vec<String>,
        /// What to change.
        hint: Option<String>,
    },
    /// A layout that breaks rules of the launcher. All broken rules at once.
    #[error("the layout breaks rules of its runtime:{}", .0.iter().map(broken_line).collect::<String>())]
    Illegal(Vec<Violation>),
    /// Any other failure, with its own hint.
    #[error("{message}")]
    Other {
        /// What went wrong.
        message: String,
        /// What to do.
        hint: Option<String>,
    },
}

impl AppError {
    /// Wrong content of a file.
    #[must_use]
    pub fn content(origin: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Content { origin: origin.into(), message: message.into(), hint: None }
    }

    /// A single fault of the flags.
    #[must_use]
    pub fn usage(fault: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Usage { faults: vec![fault.into()], hint: Some(hint.into()) }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Profile(error) => error.hint(),
            Self::Model(error) => error.hint(),
            Self::Runtime(_) => Some("`meshwright catalog runtimes` lists them".to_owned()),
            Self::Estimate(error) => error.hint(),
            Self::Validate(error) => Some(error.hint()),
            Self::File { action: "read", .. } => Some("check the path and its permissions".to_owned()),
            Self::File { source, .. } => Some(writing(source.kind()).to_owned()),
            Self::Content { hint, .. } | Self::Usage { hint, .. } | Self::Other { hint, .. } => hint.clone(),
            Self::Illegal(_) => Some("`meshwright plan` finds a legal layout".to_owned()),
        }
    }

    /// 2 for wrong usage, 1 for everything else.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Usage { .. } => 2,
            _ => 1,
        }
    }
}

fn broken_line(rule: &Violation) -> String {
    let hint = rule.hint.as_ref().map_or_else(String::new, |hint| format!(" ({hint})"));
    format!("\n  {}: {}{hint}", rule.id, rule.message)
}

/// The error, its causes, an empty line and the hint, as shown on stderr.
#[must_use]
pub fn render(error: &AppError) -> String {
    let mut text = format!("error: {error}\n");
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text.push_str(&format!("  caused by: {inner}\n"));
        cause = inner.source();
    }
    if let Some(hint) = error.hint() {
        text.push_str(&format!("\nhint: {hint}\n"));
    }
    text
}

/// What helps where a file cannot be written.
const fn writing(kind: std::io::ErrorKind) -> &'static str {
    use std::io::ErrorKind::{AlreadyExists, FileTooLarge, NotADirectory, QuotaExceeded, StorageFull};
    match kind {
        AlreadyExists | NotADirectory => "a file stands where a folder should: name another path",
        StorageFull | QuotaExceeded | FileTooLarge => {
            "make room and start it again: a study goes on where it was"
        }
        _ => "check that the folder exists and can be written",
    }
}
