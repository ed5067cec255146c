//! The only place that prints.

use crate::error::AppError;
use serde::Serialize;
use std::io::Write;

/// Writes `text` to stdout. A reader that went away is not an error.
pub fn say(text: &str) {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

/// Writes `text` to stderr.
pub fn complain(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// Pretty JSON with a final newline.
///
/// # Errors
/// The document cannot be written as JSON.
pub fn json(document: &impl Serialize) -> Result<String, AppError> {
    let text = serde_json::to_string_pretty(document)
        .map_err(|error| AppError::Other { message: error.to_string(), hint: None })?;
    Ok(text + "\n")
}
