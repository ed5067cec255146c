//! What is wrong with a profile: messages with line and column, the nearest names, values cut to a readable length.

use crate::error::ProfileError;
use std::cell::{Cell, RefCell};

/// Faults that are listed; more are counted.
const LISTED: usize = 50;
/// Faults that are kept to be listed in the order of the text.
const KEPT: usize = 10_000;
/// Characters of a quoted value in a message.
pub(crate) const QUOTED: usize = 60;

/// Everything found wrong so far, each with its byte position.
pub(crate) struct Faults<'d> {
    /// The profile.
    pub(crate) text: &'d str,
    list: RefCell<Vec<(usize, String)>>,
    count: Cell<usize>,
}

impl<'d> Faults<'d> {
    /// None yet.
    pub(crate) fn of(text: &'d str) -> Self {
        Self { text, list: RefCell::default(), count: Cell::new(0) }
    }

    /// Notes one.
    pub(crate) fn push(&self, at: usize, message: String) {
        self.count.set(self.count.get() + 1);
        if self.count.get() <= KEPT {
            self.list.borrow_mut().push((at, message));
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.count.get()
    }

    /// The value if there was no fault.
    pub(crate) fn into_result<T>(self, origin: &str, value: T) -> Result<T, ProfileError> {
        let mut list = self.list.into_inner();
        if list.is_empty() {
            return Ok(value);
        }
        list.sort();
        let more = self.count.get().saturating_sub(LISTED);
        list.truncate(LISTED);
        let mut faults = place(self.text, &list);
        if more > 0 {
            faults.push(format!("and {more} more"));
        }
        Err(ProfileError::Faults { origin: origin.to_owned(), faults })
    }
}

/// Puts line and column (both from 1) before each message; `list` is sorted by position.
pub(crate) fn place(text: &str, list: &[(usize, String)]) -> Vec<String> {
    let (mut line, mut start, mut seen) = (1, 0, 0);
    list.iter()
        .map(|(at, message)| {
            for (offset, _) in text.get(seen..*at).unwrap_or_default().match_indices('\n') {
                line += 1;
                start = seen + offset + 1;
            }
            seen = *at;
            let column = text.get(start..*at).unwrap_or_default().chars().count() + 1;
            format!("line {line}, column {column}: {message}")
        })
        .collect()
}

/// The names nearest to `wanted` by edit distance, best first, at most three.
pub(crate) fn nearest<'n>(wanted: &str, names: impl Iterator<Item = &'n str>) -> Vec<String> {
    if wanted.len() > QUOTED {
        return Vec::new();
    }
    let mut ranked: Vec<(usize, &str)> =
        names.map(|name| (strsim::osa_distance(wanted, name), name)).collect();
    ranked.sort_unstable();
    let allowed = (wanted.len() / 3).clamp(1, 4);
    ranked.into_iter().filter(|(d, _)| *d <= allowed).take(3).map(|(_, name)| name.to_owned()).collect()
}

/// The start of a value that may be very long, on one line.
pub(crate) fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(QUOTED).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(QUOTED).is_some() {
        short.push_str("...");
    }
    short
}
