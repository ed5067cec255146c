//! The architectures a table of runs names.

use super::ValidateError;
use cost_models::ModelSpec;
use std::collections::BTreeMap;

/// Models by name; one that cannot be planned keeps the reason.
#[derive(Debug, Default)]
pub struct Models(BTreeMap<String, Result<ModelSpec, String>>);

impl Models {
    /// Reads one JSON object: a name, and under it the compact description of a model.
    ///
    /// # Errors
    /// [`ValidateError::Models`] if the text is no such object. A model with faults is no error: the rows that name it
    /// are reported.
    pub fn read(origin: &str, text: &str) -> Result<Self, ValidateError> {
        let refuse = |reason: String| ValidateError::Models { origin: origin.to_owned(), reason };
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let value: serde_json::Value =
            serde_json::from_str(text).map_err(|error| refuse(error.to_string()))?;
        let serde_json::Value::Object(entries) = value else {
            return Err(refuse("its top level is not an object".to_owned()));
        };
        let read =
            |name: &String, value| ModelSpec::from_compact(name, value).map_err(|error| error.to_string());
        Ok(Self(entries.iter().map(|(name, value)| (name.clone(), read(name, value))).collect()))
    }

    /// The model called `name`.
    ///
    /// # Errors
    /// Why there is none.
    pub fn get(&self, name: &str) -> Result<&ModelSpec, String> {
        match self.0.get(name) {
            Some(Ok(model)) => Ok(model),
            Some(Err(reason)) => Err(format!("cannot be planned: {reason}")),
            None => Err("is not in the file of models".to_owned()),
        }
    }

    /// How many there are, and how many of them can be planned.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.0.len(), self.0.values().filter(|model| model.is_ok()).count())
    }
}
