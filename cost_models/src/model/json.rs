//! JSON with the mistakes that a plain parser hides: a key that stands twice in one object is an error.

use super::ModelError;
use super::strict::Strict;
use serde_json::Value;

/// Longest text that is read, in bytes; real configurations have a few thousand.
const LONGEST: usize = 16 << 20;

/// Reads a JSON document.
///
/// # Errors
/// [`ModelError::Syntax`] with line and column, and the line itself.
pub(super) fn parse(origin: &str, text: &str) -> Result<Value, ModelError> {
    let fail = |message| ModelError::Syntax { origin: origin.to_owned(), message };
    if text.len() > LONGEST {
        return Err(fail(format!("has {} bytes, expected at most {LONGEST}", text.len())));
    }
    match serde_json::from_str::<Strict>(text) {
        Ok(Strict(value)) => Ok(value),
        Err(error) => {
            let line = text.lines().nth(error.line().saturating_sub(1)).unwrap_or_default().trim();
            let shown: String = line.chars().take(80).collect();
            Err(fail(format!("{error}: `{shown}`")))
        }
    }
}
