//! What can be wrong with the files of a validation.

use thiserror::Error;

/// A file that cannot be used at all. Faults of single rows are no errors: they are reported, and the row is skipped.
#[derive(Debug, Error)]
pub enum ValidateError {
    /// A file cannot be read.
    #[error("cannot read {path}: {reason}")]
    Io {
        /// The path.
        path: String,
        /// Why.
        reason: String,
    },
    /// A table of runs is broken as a whole.
    #[error("{origin} {reason}")]
    Table {
        /// The file.
        origin: String,
        /// What is wrong.
        reason: String,
    },
    /// The file of models is no JSON object of models.
    #[error("{origin} is not a file of models: {reason}")]
    Models {
        /// The file.
        origin: String,
        /// What is wrong, with line and column.
        reason: String,
    },
    /// A table names models, but no file describes them.
    #[error("no file of models is given, and {origin} only names its models")]
    NoModels {
        /// The table.
        origin: String,
    },
    /// An output file cannot be written.
    #[error("cannot write {path}: {reason}")]
    Write {
        /// The path.
        path: String,
        /// Why.
        reason: String,
    },
}

impl ValidateError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Io { .. } => "give the path of a table of runs (CSV, or JSONL of Megatron-LM flags)".to_owned(),
            Self::Table { .. } => {
                "the first line names the columns (id, kind, model, seq_len, gpu, n_gpus, runtime, tp, pp, ...), \
                 every further line is one run"
                    .to_owned()
            }
            Self::Models { .. } => {
                "it is one JSON object: a name, and under it layers, hidden, heads, ffn, vocab and so on".to_owned()
            }
            Self::NoModels { .. } => "add --models MODELS.json".to_owned(),
            Self::Write { .. } => "give a path in an existing folder that can be written".to_owned(),
        }
    }
}
