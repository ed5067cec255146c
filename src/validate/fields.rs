//! One record of a table, read column by column: blanks are unknowns, every fault names line, column and value.

use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// A value that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Line of the file, from 1.
    pub line: u64,
    /// Column (or flag) it stands in.
    pub column: String,
    /// The value, shortened.
    pub value: String,
    /// What is wrong and what was expected.
    pub message: String,
}

impl Fault {
    /// A fault of `column`, whose text is `value`.
    pub fn new(line: u64, column: &str, value: &str, message: impl Into<String>) -> Self {
        Self { line, column: column.to_owned(), value: shortened(value), message: message.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "line {}, column {}: `{}` {}", self.line, self.column, self.value, self.message)
    }
}

/// At most 60 characters of a value, without control characters.
pub fn shortened(text: &str) -> String {
    first_characters(text, 60)
}

/// At most `most` characters of a text, without control characters.
pub fn first_characters(text: &str, most: usize) -> String {
    let mut short: String = text.chars().take(most).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(most).is_some() {
        short.push('…');
    }
    short
}

/// Which column stands where.
#[derive(Debug)]
pub struct Header {
    columns: BTreeMap<String, usize>,
    /// Fields of a record.
    pub width: usize,
}

impl Header {
    /// Reads the header line.
    ///
    /// # Errors
    /// The names that stand twice.
    pub fn new<'a>(names: impl Iterator<Item = &'a str>) -> Result<Self, Vec<String>> {
        let mut columns = BTreeMap::new();
        let mut twice = Vec::new();
        let mut width = 0;
        for name in names {
            if columns.insert(name.trim().to_owned(), width).is_some() {
                twice.push(shortened(name));
            }
            width += 1;
        }
        if twice.is_empty() { Ok(Self { columns, width }) } else { Err(twice) }
    }

    /// Whether there is such a column.
    #[must_use]
    pub fn has(&self, column: &str) -> bool {
        self.columns.contains_key(column)
    }

    /// Columns whose name is not in `known`, sorted.
    #[must_use]
    pub fn strangers(&self, known: &[&str]) -> Vec<String> {
        self.columns.keys().filter(|name| !known.contains(&name.as_str())).map(|n| shortened(n)).collect()
    }
}

/// A record under a header. The readers return `None` for a blank, and for a fault, which they keep.
pub struct Fields<'a> {
    header: &'a Header,
    record: &'a csv::StringRecord,
    line: u64,
    /// What was wrong so far.
    pub faults: Vec<Fault>,
}

impl<'a> Fields<'a> {
    /// The record that starts on `line`.
    #[must_use]
    pub const fn new(header: &'a Header, record: &'a csv::StringRecord, line: u64) -> Self {
        Self { header, record, line, faults: Vec::new() }
    }

    /// The text of a column, trimmed; empty where blank or where there is no such column.
    #[must_use]
    pub fn text(&self, column: &str) -> &'a str {
        let index = self.header.columns.get(column);
        index.and_then(|&index| self.record.get(index)).unwrap_or("").trim()
    }

    /// Keeps a fault of `column`.
    pub fn fault(&mut self, column: &str, message: impl Into<String>) {
        let value = self.text(column);
        self.faults.push(Fault::new(self.line, column, value, message));
    }

    /// A text that must not be blank.
    pub fn required_text(&mut self, column: &str) -> String {
        let text = self.text(column);
        if text.is_empty() {
            self.fault(column, "is blank, but the run cannot be read without it");
        }
        text.to_owned()
    }

    /// A whole number from 1 to `high`.
    pub fn count(&mut self, column: &str, high: u64) -> Option<u64> {
        self.integer(column, 1, high)
    }

    /// A whole number from `low` to `high`.
    pub fn integer(&mut self, column: &str, low: u64, high: u64) -> Option<u64> {
        let text = self.text(column);
        if text.is_empty() {
            return None;
        }
        let whole = |x: f64| (x.fract() == 0.0 && (0.0..1.8e19).contains(&x)).then_some(x as u64);
        let value = text.parse().ok().or_else(|| text.parse::<f64>().ok().and_then(whole));
        match value {
            Some(value) if (low..=high).contains(&value) => Some(value),
            _ => {
                self.fault(column, format!("is not a whole number from {low} to {high}"));
                None
            }
        }
    }

    /// A whole number from 1 to `high` that must not be blank.
    pub fn required_count(&mut self, column: &str, high: u64) -> u64 {
        let value = self.count(column, high);
        if value.is_none() && self.text(column).is_empty() {
            self.fault(column, "is blank, but the run cannot be read without it");
        }
        value.unwrap_or(1)
    }

    /// A positive, finite number below `high`.
    pub fn positive(&mut self, column: &str, high: f64) -> Option<f64> {
        let text = self.text(column);
        if text.is_empty() {
            return None;
        }
        match text.parse::<f64>() {
            Ok(value) if value > 0.0 && value < high => Some(value),
            _ => {
                self.fault(column, format!("is not a positive number below {high:e}"));
                None
            }
        }
    }

    /// `1` or `0`.
    pub fn flag(&mut self, column: &str) -> Option<bool> {
        match self.text(column) {
            "" => None,
            "1" => Some(true),
            "0" => Some(false),
            _ => {
                self.fault(column, "is neither 1 nor 0");
                None
            }
        }
    }

    /// One of a few words.
    pub fn word<T: Copy>(&mut self, column: &str, words: &[(&str, T)]) -> Option<T> {
        let text = self.text(column);
        if text.is_empty() {
            return None;
        }
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.fault(column, format!("is unknown: expected one of {}", known.join(", ")));
        }
        found
    }
}
