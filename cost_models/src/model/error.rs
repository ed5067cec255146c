//! What can be wrong with a model.

use thiserror::Error;

/// A model that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ModelError {
    /// The catalogue has no such model.
    #[error("the catalogue has no model named `{name}`")]
    Unknown {
        /// The name asked for.
        name: String,
        /// The nearest names that exist.
        nearest: Vec<String>,
    },
    /// The text is neither JSON nor TOML; the message has line and column.
    #[error("{origin}: {message}")]
    Syntax {
        /// Where the text comes from.
        origin: String,
        /// What is wrong, with line and column.
        message: String,
    },
    /// A Hugging Face configuration of a family that is not known.
    #[error("{origin}: architecture `{architecture}` is not known{}", missing_keys(.missing))]
    UnknownArchitecture {
        /// Where the text comes from.
        origin: String,
        /// `architectures[0]` or `model_type`.
        architecture: String,
        /// Keys of a plain decoder that the configuration lacks.
        missing: Vec<String>,
        /// The families that are known.
        known: Vec<&'static str>,
    },
    /// The values make no model. All faults are listed.
    #[error("{origin}: {}", .faults.join("; "))]
    Faults {
        /// Where the text comes from.
        origin: String,
        /// One message per fault, naming key and value.
        faults: Vec<String>,
    },
}

fn missing_keys(missing: &[String]) -> String {
    if missing.is_empty() {
        return ", though it has the sizes of a plain decoder".to_owned();
    }
    format!(", and it lacks keys of a plain decoder: {}", missing.join(", "))
}

impl ModelError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unknown { nearest, .. } if !nearest.is_empty() => {
                Some(format!("did you mean {}?", nearest.join(" or ")))
            }
            Self::Unknown { .. } => Some(
                "`meshwright catalog models` lists them; a path to a config.json or a model file works too".into(),
            ),
            Self::Syntax { .. } => Some(
                "a model is a Hugging Face config.json, or a JSON or TOML file with keys such as layers, hidden and heads"
                    .into(),
            ),
            Self::UnknownArchitecture { known, .. } => Some(format!(
                "describe it in a model file with keys such as layers, hidden, heads, ffn and vocab, or layer by \
                 layer; known families: {}",
                known.join(", ")
            )),
            Self::Faults { .. } => None,
        }
    }
}
