//! Reads named values from a JSON object, and collects every fault on the way.

use serde_json::{Map, Value};
use std::cell::RefCell;

/// The largest value a kind of size may have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit(pub u64);

/// Layers of a model.
pub(super) const LAYERS: Limit = Limit(10_000);
/// Heads, and experts a token visits.
pub(super) const HEADS: Limit = Limit(1 << 16);
/// Widths: hidden, head, latent.
pub(super) const WIDTH: Limit = Limit(1 << 20);
/// Inner width of an MLP.
pub(super) const FFN: Limit = Limit(1 << 24);
/// Vocabulary entries.
pub(super) const VOCAB: Limit = Limit(1 << 27);
/// Experts of a layer.
pub(super) const EXPERTS: Limit = Limit(1 << 16);
/// Tokens of a sequence or window.
pub(super) const TOKENS: Limit = Limit(1 << 40);

/// An object's fields. A faulty field is noted and read as its smallest legal value, so that reading goes on and all
/// faults come out together.
pub(super) struct Fields<'a> {
    map: &'a Map<String, Value>,
    prefix: String,
    faults: RefCell<Vec<String>>,
}

impl<'a> Fields<'a> {
    pub fn new(map: &'a Map<String, Value>, prefix: &str) -> Self {
        Self { map, prefix: prefix.to_owned(), faults: RefCell::default() }
    }

    /// Every fault found, in reading order.
    pub fn into_faults(self) -> Vec<String> {
        let mut faults = self.faults.into_inner();
        let mut seen = std::collections::BTreeSet::new();
        faults.retain(|fault| seen.insert(fault.clone()));
        faults
    }

    pub fn fault(&self, message: impl Into<String>) {
        self.faults.borrow_mut().push(format!("{}{}", self.prefix, message.into()));
    }

    /// The value of the first of the `|`-separated keys that is present and not null, with the key it was found under.
    fn find<'k>(&self, keys: &'k str) -> Option<(&'k str, &'a Value)> {
        keys.split('|').find_map(|key| {
            let value = self.map.get(key)?;
            (!value.is_null()).then_some((key, value))
        })
    }

    pub fn value(&self, keys: &str) -> Option<&'a Value> {
        self.find(keys).map(|(_, value)| value)
    }

    pub fn has(&self, keys: &str) -> bool {
        self.find(keys).is_some()
    }

    /// A size of at least 1; a fault if missing.
    pub fn size(&self, keys: &str, limit: Limit) -> u64 {
        self.optional_size(keys, limit).unwrap_or_else(|| {
            self.fault(format!("{} is missing", keys.split('|').next().unwrap_or(keys)));
            1
        })
    }

    pub fn size_or(&self, keys: &str, limit: Limit, default: u64) -> u64 {
        self.optional_size(keys, limit).unwrap_or(default)
    }

    /// A size of at least 1; none if missing or null.
    pub fn optional_size(&self, keys: &str, limit: Limit) -> Option<u64> {
        self.find(keys).map(|(key, value)| self.whole(key, value, 1, limit))
    }

    /// A number of things, possibly none; 0 if missing.
    pub fn count(&self, keys: &str, limit: Limit) -> u64 {
        self.find(keys).map_or(0, |(key, value)| self.whole(key, value, 0, limit))
    }

    fn whole(&self, key: &str, value: &Value, low: u64, Limit(high): Limit) -> u64 {
        match whole_number(value) {
            Some(number) if (low..=high).contains(&number) => number,
            _ => {
                self.fault(format!(
                    "{key} is {}, expected a whole number from {low} to {high}",
                    shorten(value)
                ));
                low.max(1)
            }
        }
    }

    pub fn flag(&self, keys: &str, default: bool) -> bool {
        match self.find(keys) {
            None => default,
            Some((_, Value::Bool(flag))) => *flag,
            Some((key, value)) => {
                self.fault(format!("{key} is {}, expected true or false", shorten(value)));
                default
            }
        }
    }

    pub fn text(&self, keys: &str) -> Option<&'a str> {
        match self.find(keys)? {
            (_, Value::String(text)) => Some(text),
            (key, value) => {
                self.fault(format!("{key} is {}, expected a text", shorten(value)));
                None
            }
        }
    }
}

/// A whole number, also where it is written as `4096.0`.
fn whole_number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let number = value.as_f64()?;
        (number.fract() == 0.0 && (0.0..9.0e15).contains(&number)).then_some(number as u64)
    })
}

/// A value as a message shows it.
pub(super) fn shorten(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 40 {
        return text;
    }
    text.chars().take(37).chain("...".chars()).collect()
}
