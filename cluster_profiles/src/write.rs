//! Writes profiles as TOML, in the layout of the embedded files: scalars first, one-line tables for what belongs
//! together, quantities with the unit that makes them shortest. [`read`](crate::read) gets the same value back.

use crate::quantity;
use crate::units::{Bytes, BytesPerSecond, FlopsPerSecond, Seconds};

/// A TOML text in the making.
#[derive(Debug, Default)]
pub(crate) struct Toml(String);

impl Toml {
    /// The text.
    pub(crate) fn finish(self) -> String {
        self.0
    }

    /// Starts a table, or an element of a list of tables with `"[groups]"` for the name.
    pub(crate) fn table(&mut self, name: &str) {
        if !self.0.is_empty() {
            self.0.push('\n');
        }
        self.0.push_str(&format!("[{name}]\n"));
    }

    /// A key with a value that is TOML already.
    pub(crate) fn raw(&mut self, key: &str, value: &str) {
        self.0.push_str(&format!("{key} = {value}\n"));
    }

    /// A string.
    pub(crate) fn text(&mut self, key: &str, value: &str) {
        self.raw(key, &quoted(value));
    }

    /// A string that may be absent.
    pub(crate) fn optional_text(&mut self, key: &str, value: Option<&String>) {
        if let Some(value) = value {
            self.text(key, value);
        }
    }

    /// A list of strings; nothing where it is empty.
    pub(crate) fn texts(&mut self, key: &str, values: &[String]) {
        if !values.is_empty() {
            let values: Vec<String> = values.iter().map(|value| quoted(value)).collect();
            self.raw(key, &format!("[{}]", values.join(", ")));
        }
    }

    /// A number.
    pub(crate) fn number(&mut self, key: &str, value: f64) {
        self.raw(key, &number(value));
    }

    /// A number that may be absent.
    pub(crate) fn optional_number(&mut self, key: &str, value: Option<f64>) {
        if let Some(value) = value {
            self.number(key, value);
        }
    }

    /// An amount of memory.
    pub(crate) fn bytes(&mut self, key: &str, value: Bytes) {
        self.text(key, &quantity::write_bytes(value));
    }

    /// A duration.
    pub(crate) fn seconds(&mut self, key: &str, value: Seconds) {
        self.text(key, &quantity::write_seconds(value));
    }

    /// A transfer rate.
    pub(crate) fn bytes_per_second(&mut self, key: &str, value: BytesPerSecond) {
        self.text(key, &quantity::write_bytes_per_second(value));
    }

    /// A rate of arithmetic.
    pub(crate) fn flops_per_second(&mut self, key: &str, value: FlopsPerSecond) {
        self.text(key, &quantity::write_flops_per_second(value));
    }
}

/// A TOML string with its quotes.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted.push_str(&format!("\\U{:08X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// A TOML number: plain where it is short, with an exponent where it is not.
pub(crate) fn number(value: f64) -> String {
    let plain = format!("{value}");
    if plain.len() <= 17 { plain } else { format!("{value:e}") }
}
