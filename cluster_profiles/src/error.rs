//! What can be wrong with a profile.

use thiserror::Error;

/// A profile that cannot be used.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ProfileError {
    /// The catalogue has no such entry.
    #[error("the catalogue has no {kind} named `{name}`")]
    Unknown {
        /// "GPU" or "cluster".
        kind: &'static str,
        /// The name asked for.
        name: String,
        /// The nearest names that exist.
        nearest: Vec<String>,
    },
    /// The cluster has no such host.
    #[error("`{cluster}` has no host named `{name}`")]
    UnknownHost {
        /// Name of the cluster.
        cluster: String,
        /// The name asked for.
        name: String,
        /// The nearest names that exist.
        nearest: Vec<String>,
    },
    /// The text is not a valid profile; the message has line and column.
    #[error("{origin}: {message}")]
    Syntax {
        /// File name or catalogue entry.
        origin: String,
        /// What is wrong, with line and column.
        message: String,
    },
    /// The profile is well formed, but its figures make no sense. All faults are listed.
    #[error("{origin}: {}", listed(.faults))]
    Faults {
        /// File name or catalogue entry.
        origin: String,
        /// One message per fault, naming field and value.
        faults: Vec<String>,
    },
    /// A number of GPUs that the cluster cannot be resized to.
    #[error("`{cluster}` cannot have {gpus} GPUs: {reason}")]
    Size {
        /// Name of the cluster.
        cluster: String,
        /// The number asked for.
        gpus: u64,
        /// Why not.
        reason: String,
    },
}

/// One fault on the same line, several on a line each.
fn listed(faults: &[String]) -> String {
    match faults {
        [fault] => fault.clone(),
        _ => format!("{} faults\n  {}", faults.len(), faults.join("\n  ")),
    }
}

impl ProfileError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unknown { nearest, .. } if !nearest.is_empty() => {
                Some(format!("did you mean {}?", nearest.join(" or ")))
            }
            Self::Unknown { kind: "cluster", .. } => {
                Some("`meshwright catalog clusters` lists them; a path to a TOML profile works too".into())
            }
            Self::UnknownHost { nearest, .. } if !nearest.is_empty() => {
                Some(format!("did you mean {}?", nearest.join(" or ")))
            }
            Self::UnknownHost { .. } => {
                Some("hosts are named in the profile, else node0, node1 and so on".into())
            }
            Self::Unknown { .. } => Some("`meshwright catalog gpus` lists them".into()),
            Self::Syntax { .. } => {
                Some("quantities are strings with a unit, such as \"80 GiB\" or \"450 GB/s\"".into())
            }
            Self::Faults { .. } | Self::Size { .. } => None,
        }
    }
}
