//! Columns and cells: what a table holds, whatever it is about.

use serde::{Deserialize, Serialize};

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ColumnKind {
    /// Text.
    Text,
    /// A whole number.
    Integer,
    /// A number.
    Number,
}

/// A column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Its name, with the unit.
    pub name: String,
    /// What it holds.
    pub kind: ColumnKind,
}

/// A cell; nothing where the point has none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    /// Nothing.
    None,
    /// A whole number.
    Integer(i64),
    /// A number.
    Number(f64),
    /// Text.
    Text(String),
}

impl Cell {
    /// The number it is, if it is one.
    #[must_use]
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Integer(count) => Some(*count as f64),
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// The text it is, if it is one.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl std::fmt::Display for Cell {
    fn fmt(&self, out: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::Integer(count) => write!(out, "{count}"),
            Self::Number(number) => write!(out, "{number}"),
            Self::Text(text) => out.write_str(text),
        }
    }
}
