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
    outer: Option<&'a Fields<'a>>,
    prefix: String,
    faults: RefCell<Vec<String>>,
}

impl<'a> Fields<'a> {
    pub fn new(map: &'a Map<String, Value>, prefix: &str) -> Self {
        Self { map, outer: None, prefix: prefix.to_owned(), faults: RefCell::default() }
    }

    /// Fields of a part that inherits what it does not state from the whole.
    pub fn within(map: &'a Map<String, Value>, prefix: &str, outer: &'a Self) -> Self {
        Self { map, outer: Some(outer), prefix: prefix.to_owned(), faults: RefCell::default() }
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
        let own = keys.split('|').find_map(|key| {
            let value = self.map.get(key)?;
            (!value.is_null()).then_some((key, value))
        });
        own.or_else(|| self.outer.and_then(|outer| outer.find(keys)))
    }

    pub fn value(&self, keys: &str) -> Option<&'a Value> {
        self.find(keys).map(|(_, value)| value)
    }

    /// The key that [`Self::find`] finds, or the first one.
    pub fn key<'k>(&self, keys: &'k str) -> &'k str {
        self.find(keys).map_or_else(|| keys.split('|').next().unwrap_or(keys), |(key, _)| key)
    }

    /// Whether the object is a part of a larger one.
    pub fn is_part(&self) -> bool {
        !self.prefix.is_empty()
    }

    pub fn has(&self, keys: &str) -> bool {
        self.find(keys).is_some()
    }

    /// Whether the object itself has the key.
    pub fn states(&self, key: &str) -> bool {
        self.map.contains_key(key)
    }

    /// Names of all fields.
    pub fn keys(&self) -> impl Iterator<Item = &'a String> {
        self.map.keys()
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

    /// A number of things, possibly none (0 or null); a fault if missing.
    pub fn stated_count(&self, key: &str, limit: Limit) -> u64 {
        if !self.states(key) {
            self.fault(format!("{key} is missing"));
        }
        self.count(key, limit)
    }

    /// Reads a nested object; a fault if it is missing or something else.
    pub fn part<T>(&self, key: &str, read: impl FnOnce(&Fields) -> T) -> Option<T> {
        let Some((key, value)) = self.find(key) else {
            self.fault(format!("{key} is missing"));
            return None;
        };
        let Value::Object(map) = value else {
            self.fault(format!("{key} is {}, expected an object", shorten(value)));
            return None;
        };
        let part = Fields::new(map, &format!("{}{key}.", self.prefix));
        let result = read(&part);
        self.faults.borrow_mut().extend(part.into_faults());
        Some(result)
    }

    /// A list's entry as a size of at least 1.
    pub fn item(&self, keys: &str, value: &Value, limit: Limit) -> u64 {
        self.whole(self.key(keys), value, 1, limit)
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

    /// A list; a fault where the value is something else.
    pub fn list(&self, keys: &str) -> Option<&'a [Value]> {
        match self.find(keys)? {
            (_, Value::Array(list)) => Some(list),
            (key, value) => {
                self.fault(format!("{key} is {}, expected a list", shorten(value)));
                None
            }
        }
    }

    /// A finite number of at least 0.
    pub fn quantity(&self, key: &str) -> f64 {
        match self.find(key).map(|(_, value)| (value, value.as_f64())) {
            Some((_, Some(number))) if (0.0..=1e18).contains(&number) => number,
            Some((value, _)) => {
                self.fault(format!("{key} is {}, expected a number from 0 to 1e18", shorten(value)));
                0.0
            }
            None => {
                self.fault(format!("{key} is missing"));
                0.0
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
