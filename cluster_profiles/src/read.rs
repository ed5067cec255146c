//! Reads profiles: walks the parsed TOML with its positions, collects every fault, and never stops at the first.
//!
//! A reader of a struct asks its [`Section`] for each field in turn; a missing or wrong field is noted with line and
//! column and gives a placeholder, so that the remaining fields are still looked at. Placeholders never leave this
//! crate: [`read`] returns the value only if there was no fault.

use crate::error::ProfileError;
use crate::faults::{Faults, QUOTED, nearest, place, shorten};
use crate::quantity;
use crate::units::{Bytes, BytesPerSecond, FlopsPerSecond, Seconds};
use std::cell::RefCell;
use std::ops::RangeInclusive;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Longest profile that is looked at, in bytes: a link matrix of some two thousand hosts.
const LONGEST: usize = 32 << 20;
/// Longest list of tables that is looked at.
const MOST_TABLES: usize = 1 << 16;

/// Reads `text` with `reader`.
///
/// # Errors
/// [`ProfileError::Syntax`] where the text is no TOML, else [`ProfileError::Faults`] with everything that is wrong.
pub(crate) fn read<T>(
    origin: &str,
    text: &str,
    reader: impl FnOnce(&Section) -> T,
) -> Result<T, ProfileError> {
    if text.len() > LONGEST {
        let message = format!("{} bytes long, expected at most {LONGEST}", text.len());
        return Err(ProfileError::Syntax { origin: origin.to_owned(), message });
    }
    let root = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let message = place(text, &[(at, shorten(error.message()))]).concat();
        ProfileError::Syntax { origin: origin.to_owned(), message }
    })?;
    let faults = Faults::of(text);
    let section = Section {
        path: String::new(),
        at: 0,
        table: Some(root.get_ref()),
        asked: RefCell::default(),
        faults: &faults,
    };
    let value = section.finish(reader);
    faults.into_result(origin, value)
}

/// A table of the profile and its path from the root.
pub(crate) struct Section<'d> {
    path: String,
    at: usize,
    /// Absent where the table is missing: already a fault, so that its fields are not.
    table: Option<&'d DeTable<'d>>,
    asked: RefCell<Vec<&'static str>>,
    faults: &'d Faults<'d>,
}

impl<'d> Section<'d> {
    /// Runs `reader` on this section, then reports the keys it never asked for.
    fn finish<T>(self, reader: impl FnOnce(&Self) -> T) -> T {
        let value = reader(&self);
        let asked = self.asked.borrow();
        for key in self.table.into_iter().flat_map(DeTable::keys) {
            let name: &str = key.get_ref();
            if !asked.contains(&name) {
                self.faults.push(key.span().start, self.unknown(name, &asked));
            }
        }
        value
    }

    fn unknown(&self, name: &str, asked: &[&'static str]) -> String {
        let hint = match nearest(name, asked.iter().copied()).first() {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("expected {}", asked.join(", ")),
        };
        format!("{} is not a key of a profile: {hint}", self.named(&shorten(name)))
    }

    fn named(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn get(&self, key: &'static str) -> Option<&'d Spanned<DeValue<'d>>> {
        self.asked.borrow_mut().push(key);
        self.table?.get(key)
    }

    /// The value, or a fault.
    fn need(&self, key: &'static str) -> Option<&'d Spanned<DeValue<'d>>> {
        let value = self.get(key);
        if value.is_none() && self.table.is_some() {
            self.faults.push(self.at, format!("{} is missing", self.named(key)));
        }
        value
    }

    /// Notes a fault of the field `key`, or of the section where there is no such field.
    pub(crate) fn fault(&self, key: &str, message: &str) {
        let at = self.table.and_then(|t| t.get(key)).map_or(self.at, |v| v.span().start);
        self.faults.push(at, format!("{} {message}", self.named(key)));
    }

    fn wrong(&self, key: &str, value: &Spanned<DeValue>, expected: &str) {
        let text = shorten(self.faults.text.get(value.span()).unwrap_or_default());
        self.faults.push(value.span().start, format!("{} is {text}, expected {expected}", self.named(key)));
    }

    /// Whether `reader` found no fault.
    pub(crate) fn sound<T>(&self, reader: impl FnOnce(&Self) -> T) -> (T, bool) {
        let before = self.faults.count();
        let value = reader(self);
        (value, self.faults.count() == before)
    }

    /// Whether the section has this key.
    pub(crate) fn has(&self, key: &'static str) -> bool {
        self.get(key).is_some()
    }

    /// Whether the key holds a table.
    pub(crate) fn has_table(&self, key: &'static str) -> bool {
        self.get(key).is_some_and(|value| value.get_ref().is_table())
    }

    /// A non-empty string.
    pub(crate) fn text(&self, key: &'static str) -> String {
        self.need(key).map(|value| self.as_text(key, value)).unwrap_or_default()
    }

    /// A non-empty string that may be absent.
    pub(crate) fn optional_text(&self, key: &'static str) -> Option<String> {
        self.get(key).map(|value| self.as_text(key, value))
    }

    fn as_text(&self, key: &str, value: &Spanned<DeValue>) -> String {
        match value.get_ref().as_str() {
            Some(text) if !text.trim().is_empty() => text.to_owned(),
            _ => {
                self.wrong(key, value, "a string that is not empty");
                String::new()
            }
        }
    }

    /// One of the names that `parse` knows.
    pub(crate) fn parsed<T>(
        &self,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let value = self.need(key)?;
        let text = self.as_text(key, value);
        if text.is_empty() {
            return None;
        }
        parse(&text).map_err(|message| self.fault(key, &format!("is wrong: {message}"))).ok()
    }

    /// A list of strings; none where absent.
    pub(crate) fn texts(&self, key: &'static str) -> Vec<String> {
        let Some(value) = self.get(key) else { return Vec::new() };
        let Some(items) = value.get_ref().as_array() else {
            self.wrong(key, value, "a list of strings");
            return Vec::new();
        };
        items.iter().map(|item| self.as_text(key, item)).collect()
    }

    /// A truth value, false where absent.
    pub(crate) fn flag(&self, key: &'static str) -> bool {
        let Some(value) = self.get(key) else { return false };
        value.get_ref().as_bool().unwrap_or_else(|| {
            self.wrong(key, value, "true or false");
            false
        })
    }

    /// A whole number within `range`.
    pub(crate) fn count(&self, key: &'static str, range: RangeInclusive<u32>) -> u32 {
        self.need(key).map_or(1, |value| self.as_count(key, value, range))
    }

    /// A whole number within `range` that may be absent.
    pub(crate) fn optional_count(&self, key: &'static str, range: RangeInclusive<u32>) -> Option<u32> {
        self.get(key).map(|value| self.as_count(key, value, range))
    }

    fn as_count(&self, key: &str, value: &Spanned<DeValue>, range: RangeInclusive<u32>) -> u32 {
        let number =
            value.get_ref().as_integer().and_then(|i| u32::from_str_radix(i.as_str(), i.radix()).ok());
        match number {
            Some(number) if range.contains(&number) => number,
            _ => {
                self.wrong(key, value, &format!("a whole number from {} to {}", range.start(), range.end()));
                *range.start()
            }
        }
    }

    /// A number within `range`.
    pub(crate) fn number(&self, key: &'static str, range: RangeInclusive<f64>) -> f64 {
        self.need(key).map_or(1.0, |value| self.as_number(key, value, range))
    }

    /// A number within `range` that may be absent.
    pub(crate) fn optional_number(&self, key: &'static str, range: RangeInclusive<f64>) -> Option<f64> {
        self.get(key).map(|value| self.as_number(key, value, range))
    }

    fn as_number(&self, key: &str, value: &Spanned<DeValue>, range: RangeInclusive<f64>) -> f64 {
        match plain_number(value.get_ref()) {
            Some(number) if range.contains(&number) => number,
            _ => {
                self.wrong(key, value, &format!("a number from {} to {}", range.start(), range.end()));
                *range.start()
            }
        }
    }

    /// Rows of numbers within `range`; none where absent.
    pub(crate) fn rows(&self, key: &'static str, range: RangeInclusive<f64>) -> Vec<Vec<f64>> {
        let Some(value) = self.get(key) else { return Vec::new() };
        let Some(rows) = value.get_ref().as_array() else {
            self.wrong(key, value, "a list of rows of numbers");
            return Vec::new();
        };
        rows.iter()
            .map(|row| match row.get_ref().as_array() {
                Some(row) => row.iter().map(|n| self.as_number(key, n, range.clone())).collect(),
                None => {
                    self.wrong(key, row, "a row of numbers");
                    Vec::new()
                }
            })
            .collect()
    }

    /// A table; `reader` is run on it, and on nothing where it is missing.
    pub(crate) fn section<T>(&self, key: &'static str, reader: impl FnOnce(&Section) -> T) -> T {
        let value = self.need(key);
        self.sub(key, value).finish(reader)
    }

    /// A table that may be absent.
    pub(crate) fn optional_section<T>(
        &self,
        key: &'static str,
        reader: impl FnOnce(&Section) -> T,
    ) -> Option<T> {
        let value = self.get(key)?;
        Some(self.sub(key, Some(value)).finish(reader))
    }

    /// A list of tables; none where absent.
    pub(crate) fn sections<T>(&self, key: &'static str, reader: impl Fn(&Section) -> T) -> Vec<T> {
        let Some(value) = self.get(key) else { return Vec::new() };
        let Some(items) = value.get_ref().as_array() else {
            self.wrong(key, value, "a list of tables");
            return Vec::new();
        };
        if items.len() > MOST_TABLES {
            self.fault(key, &format!("has {} entries, expected at most {MOST_TABLES}", items.len()));
            return Vec::new();
        }
        items
            .iter()
            .enumerate()
            .map(|(index, item)| self.sub(&format!("{key}[{index}]"), Some(item)).finish(&reader))
            .collect()
    }

    /// What `reader` makes of nothing: stands for a value whose fault is noted already.
    pub(crate) fn placeholder<T>(&self, reader: impl FnOnce(&Section) -> T) -> T {
        self.sub("", None).finish(reader)
    }

    fn sub(&self, key: &str, value: Option<&'d Spanned<DeValue<'d>>>) -> Section<'d> {
        let table = value.and_then(|v| v.get_ref().as_table());
        if let (Some(value), None) = (value, table) {
            self.wrong(key, value, "a table");
        }
        Section {
            path: self.named(key),
            at: value.map_or(self.at, |v| v.span().start),
            table,
            asked: RefCell::default(),
            faults: self.faults,
        }
    }

    /// Pairs of a size and a time, as `[["1 MiB", "62 us"], ...]`; none where absent.
    pub(crate) fn points(&self, key: &'static str) -> Vec<(Bytes, Seconds)> {
        let Some(value) = self.get(key) else { return Vec::new() };
        let pairs = value.get_ref().as_array().map(|items| items.iter().map(|item| (item, as_pair(item))));
        let Some(pairs) = pairs else {
            self.wrong(key, value, "a list of pairs such as [\"1 MiB\", \"62 us\"]");
            return Vec::new();
        };
        pairs
            .filter_map(|(item, pair)| {
                pair.map_err(|message| {
                    self.faults.push(item.span().start, format!("{} {message}", self.named(key)));
                })
                .ok()
            })
            .collect()
    }
}

fn as_pair(item: &Spanned<DeValue>) -> Result<(Bytes, Seconds), String> {
    let expected = || "has an item that is no pair such as [\"1 MiB\", \"62 us\"]".to_owned();
    let pair = item.get_ref().as_array().filter(|pair| pair.len() == 2).ok_or_else(expected)?;
    let mut texts = pair.iter().map(|value| value.get_ref().as_str().ok_or_else(expected));
    let (size, time) = (texts.next().ok_or_else(expected)??, texts.next().ok_or_else(expected)??);
    Ok((quantity::bytes(size)?, quantity::seconds(time)?))
}

/// An integer or a float, as a float.
fn plain_number(value: &DeValue) -> Option<f64> {
    match value {
        DeValue::Integer(i) if i.radix() == 10 => i.as_str().parse().ok(),
        DeValue::Float(f) => f.as_str().parse().ok(),
        _ => None,
    }
}

macro_rules! quantity_field {
    ($field:ident, $parse:path, $write:path, $type:ident) => {
        impl Section<'_> {
            /// A quantity within `range` (SI), as a string with its unit.
            pub(crate) fn $field(&self, key: &'static str, range: RangeInclusive<f64>) -> $type {
                let low = $type(*range.start());
                let Some(value) = self.need(key) else { return low };
                let Some(text) = value.get_ref().as_str().filter(|text| text.len() <= QUOTED) else {
                    self.wrong(key, value, "a string with its unit, such as \"80 GiB\" or \"450 GB/s\"");
                    return low;
                };
                match $parse(text) {
                    Ok(quantity) if range.contains(&quantity.get()) => return quantity,
                    Ok(_) => {
                        let (low, high) = ($write(low), $write($type(*range.end())));
                        self.wrong(key, value, &format!("between {low} and {high}"));
                    }
                    Err(message) => self.fault(key, &format!("is wrong: {message}")),
                }
                low
            }
        }
    };
}

quantity_field!(bytes, quantity::bytes, quantity::write_bytes, Bytes);
quantity_field!(seconds, quantity::seconds, quantity::write_seconds, Seconds);
quantity_field!(
    bytes_per_second,
    quantity::bytes_per_second,
    quantity::write_bytes_per_second,
    BytesPerSecond
);
quantity_field!(
    flops_per_second,
    quantity::flops_per_second,
    quantity::write_flops_per_second,
    FlopsPerSecond
);
