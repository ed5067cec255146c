//! A set of flags or dotted keys, their values, what was read of it, and what is wrong with it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Largest number a flag may hold.
const MOST: u64 = 1 << 40;
/// Largest degree of parallelism.
const MOST_DEGREE: u64 = 1 << 20;
/// Most sequences of a step, and most tokens of a sequence.
pub const MOST_BATCH: u64 = 1 << 30;

/// A flag whose value makes no sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlagFault {
    /// The flag.
    pub flag: String,
    /// Its value.
    pub value: String,
    /// What was expected.
    pub expected: String,
}

impl fmt::Display for FlagFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.value.is_empty() {
            return write!(out, "{} is missing or empty, expected {}", self.flag, self.expected);
        }
        write!(out, "{} is `{}`, expected {}", self.flag, self.value, self.expected)
    }
}

/// Flags with their values as text (empty for a switch), and the environment variables of the run.
#[derive(Debug, Clone, Default)]
pub struct FlagSet {
    flags: BTreeMap<String, String>,
    variables: BTreeMap<String, String>,
    read: RefCell<BTreeSet<String>>,
    faults: RefCell<Vec<FlagFault>>,
}

impl FlagSet {
    /// Flags with their values, dashes included, or dotted keys.
    #[must_use]
    pub fn new(flags: BTreeMap<String, String>, variables: BTreeMap<String, String>) -> Self {
        Self { flags, variables, ..Self::default() }
    }

    /// The words of a command line: a flag takes the words that follow it up to the next flag.
    #[must_use]
    pub fn from_words<'a>(words: impl IntoIterator<Item = &'a str>) -> Self {
        let mut flags: BTreeMap<String, String> = BTreeMap::new();
        let mut last: Option<String> = None;
        for word in words {
            if word == super::words::END {
                last = None;
                continue;
            }
            let number = word.trim_start_matches('-').starts_with(|c: char| c.is_ascii_digit() || c == '.');
            if word.starts_with("--") && word.len() > 2 && !number {
                let (name, value) = word.split_once('=').unwrap_or((word, ""));
                flags.insert(name.to_owned(), value.to_owned());
                last = Some(name.to_owned());
            } else if let Some(values) = last.as_ref().and_then(|name| flags.get_mut(name)) {
                let gap = if values.is_empty() { "" } else { " " };
                values.push_str(gap);
                values.push_str(word);
            }
        }
        Self::new(flags, BTreeMap::new())
    }

    /// The same with these environment variables.
    #[must_use]
    pub fn with_variables(mut self, variables: BTreeMap<String, String>) -> Self {
        self.variables = variables;
        self
    }

    /// The same with `value` for a flag that is absent.
    #[must_use]
    pub fn or(mut self, flag: &str, value: Option<impl ToString>) -> Self {
        if let Some(value) = value {
            self.flags.entry(flag.to_owned()).or_insert_with(|| value.to_string());
        }
        self
    }

    /// Whether there are no flags.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.flags.is_empty()
    }

    /// Names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.flags.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether a switch is set.
    #[must_use]
    pub fn has(&self, flag: &str) -> bool {
        self.text(flag).is_some_and(|value| !matches!(value, "false" | "False" | "0" | "none" | "null"))
    }

    /// The value of a flag; none where it is absent, or null.
    #[must_use]
    pub fn text(&self, flag: &str) -> Option<&str> {
        self.read.borrow_mut().insert(flag.to_owned());
        self.flags.get(flag).map(String::as_str).filter(|value| !matches!(*value, "null" | "None"))
    }

    /// The value of the first of these flags that is there.
    #[must_use]
    pub fn first<'a>(&self, flags: &[&'a str]) -> Option<&'a str> {
        let found: Vec<&str> = flags.iter().copied().filter(|flag| self.text(flag).is_some()).collect();
        found.first().copied()
    }

    /// A number that is at least 1.
    #[must_use]
    pub fn count(&self, flag: &str) -> Option<u64> {
        self.number(flag, 1)
    }

    /// A number that may be 0.
    #[must_use]
    pub fn amount(&self, flag: &str) -> Option<u64> {
        self.number(flag, 0)
    }

    fn number(&self, flag: &str, least: u64) -> Option<u64> {
        let text = self.text(flag)?;
        let number = text.parse().ok().filter(|n| (least..=MOST).contains(n));
        if number.is_none() {
            self.fault(flag, text, &format!("a number from {least}"));
        }
        number
    }

    /// A degree of parallelism; 1 where it is not stated.
    #[must_use]
    pub fn degree(&self, flag: &str) -> u32 {
        self.at_most(flag, MOST_DEGREE).unwrap_or(1) as u32
    }

    /// A number from 1 to `most`.
    #[must_use]
    pub fn at_most(&self, flag: &str, most: u64) -> Option<u64> {
        let number = self.count(flag)?;
        if number > most {
            self.fault(flag, &number.to_string(), &format!("at most {most}"));
        }
        Some(number.min(most))
    }

    /// A number from 1 that has to be there.
    #[must_use]
    pub fn required(&self, flag: &str, most: u64) -> u64 {
        if self.text(flag).is_none() {
            self.fault(flag, "", "a number");
        }
        self.at_most(flag, most).unwrap_or(1)
    }

    /// A finite number.
    #[must_use]
    pub fn real(&self, flag: &str) -> Option<f64> {
        let text = self.text(flag)?;
        let number = text.parse().ok().filter(|n: &f64| n.is_finite());
        if number.is_none() {
            self.fault(flag, text, "a number");
        }
        number
    }

    /// The words of a list flag, with or without brackets and commas.
    #[must_use]
    pub fn words(&self, flag: &str) -> Vec<&str> {
        let text = self.text(flag).unwrap_or_default();
        text.split(|c: char| c.is_whitespace() || "[],'\"".contains(c))
            .filter(|word| !word.is_empty())
            .collect()
    }

    /// An environment variable.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// Notes a value that makes no sense.
    pub fn fault(&self, flag: &str, value: &str, expected: &str) {
        let value: String = value.chars().take(40).collect();
        let fault = FlagFault { flag: flag.to_owned(), value, expected: expected.to_owned() };
        let mut faults = self.faults.borrow_mut();
        if !faults.contains(&fault) {
            faults.push(fault);
        }
    }

    /// Values that make no sense, as far as they were read.
    #[must_use]
    pub fn faults(&self) -> Vec<FlagFault> {
        self.faults.borrow().clone()
    }

    /// Flags that were neither read nor are `known` to change nothing.
    #[must_use]
    pub fn unknown(&self, known: impl Fn(&str) -> bool) -> Vec<String> {
        let read = self.read.borrow();
        let strange = |flag: &&String| !read.contains(flag.as_str()) && !known(flag);
        self.flags.keys().filter(strange).map(|flag| flag.chars().take(80).collect()).collect()
    }
}
