//! Reading measurement files: line by line in bounded memory, with line numbers in every error.

use crate::error::AppError;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Longest line that is looked at, in bytes.
const LONGEST_LINE: usize = 1 << 20;
/// Characters of a value that an error quotes.
const QUOTED: usize = 60;

/// A file to import.
#[derive(Debug, Clone)]
pub struct Input {
    path: PathBuf,
}

/// The lines of a file, one at a time.
#[derive(Debug)]
pub struct Lines<'i> {
    input: &'i Input,
    reader: BufReader<File>,
    buffer: Vec<u8>,
    number: u64,
    ended: bool,
}

impl Input {
    /// The file at `path`.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Its name without folders: what provenance shows, so that a profile names no machine's paths.
    #[must_use]
    pub fn name(&self) -> String {
        self.path.file_name().map_or_else(|| "-".to_owned(), |name| name.to_string_lossy().into_owned())
    }

    /// Opens the file.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn open(&self) -> Result<BufReader<File>, AppError> {
        let fail = |source| AppError::File { action: "read", path: self.path.clone(), source };
        File::open(&self.path).map(BufReader::new).map_err(fail)
    }

    /// Its lines.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn lines(&self) -> Result<Lines<'_>, AppError> {
        Ok(Lines { input: self, reader: self.open()?, buffer: Vec::new(), number: 0, ended: true })
    }

    /// The whole text.
    ///
    /// # Errors
    /// It cannot be read, is too large or no UTF-8.
    pub fn text(&self) -> Result<String, AppError> {
        crate::files::read_text(&self.path)
    }

    /// Whether the first character that is no space is a brace or bracket.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn is_json(&self) -> Result<bool, AppError> {
        let mut start = [0_u8; 512];
        let fail = |source| AppError::File { action: "read", path: self.path.clone(), source };
        let read = self.open()?.read(&mut start).map_err(fail)?;
        let text = String::from_utf8_lossy(&start[..read]);
        Ok(untagged(&text).trim_start().starts_with(['{', '[']))
    }

    /// An error at a line.
    #[must_use]
    pub fn fault(&self, line: u64, message: impl AsRef<str>) -> AppError {
        self.hinted(line, message, None)
    }

    /// An error at a line with what to do about it.
    #[must_use]
    pub fn hinted(&self, line: u64, message: impl AsRef<str>, hint: Option<String>) -> AppError {
        let origin = self.path.display().to_string();
        let readable: String =
            message.as_ref().chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
        AppError::Content { origin, message: format!("line {line}: {readable}"), hint }
    }

    /// An error of the file as a whole.
    #[must_use]
    pub fn whole(&self, message: impl Into<String>, hint: impl Into<String>) -> AppError {
        let origin = self.path.display().to_string();
        AppError::Content { origin, message: message.into(), hint: Some(hint.into()) }
    }

    /// A JSON document that does not parse.
    #[must_use]
    pub fn json(&self, error: &serde_json::Error) -> AppError {
        let cut = if error.is_eof() { ": the file is cut" } else { "" };
        self.fault(error.line() as u64, format!("no valid JSON, {error}{cut}"))
    }
}

impl Lines<'_> {
    /// The next line without its ending (LF or CRLF) and colour codes; none at the end.
    ///
    /// # Errors
    /// The line is longer than a megabyte or no UTF-8.
    pub fn next_line(&mut self) -> Result<Option<&str>, AppError> {
        self.buffer.clear();
        let fail = |source| AppError::File { action: "read", path: self.input.path.clone(), source };
        let mut limited = (&mut self.reader).take(LONGEST_LINE as u64 + 1);
        if limited.read_until(b'\n', &mut self.buffer).map_err(fail)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        if self.buffer.len() > LONGEST_LINE {
            return Err(self.fault("longer than a megabyte: this is no log"));
        }
        self.ended = self.buffer.ends_with(b"\n");
        while matches!(self.buffer.last(), Some(b'\n' | b'\r')) {
            self.buffer.pop();
        }
        if self.number == 1 && self.buffer.starts_with(b"\xef\xbb\xbf") {
            self.buffer.drain(..3);
        }
        strip_colours(&mut self.buffer);
        match std::str::from_utf8(&self.buffer) {
            Ok(text) => Ok(Some(untagged(text))),
            Err(error) => {
                let at = error.valid_up_to() + 1;
                Err(self.input.fault(self.number, format!("no UTF-8 text (byte {at} of the line)")))
            }
        }
    }

    /// Number of the line that was read last, from 1.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Whether the line that was read last has its end; the last one of a file that was cut has none.
    #[must_use]
    pub const fn ended(&self) -> bool {
        self.ended
    }

    /// Refuses a value on a line without its end: nobody can tell whether digits are missing.
    ///
    /// # Errors
    /// The line that was read last has no end.
    pub fn refuse_cut(&self) -> Result<(), AppError> {
        if self.ended {
            return Ok(());
        }
        let message = "the file ends inside this line: its last digits may be missing";
        let hint = "copy the file again; if it is whole, end it with a line break";
        Err(self.input.hinted(self.number, message, Some(hint.to_owned())))
    }

    /// An error at the line that was read last.
    #[must_use]
    pub fn fault(&self, message: impl AsRef<str>) -> AppError {
        self.input.fault(self.number, message)
    }
}

/// The line without the rank that `mpirun --tag-output` puts before it: `[1,0]<stdout>:`, `[job@1,0]<stderr>: `.
fn untagged(line: &str) -> &str {
    let Some((tag, rest)) = line.split_once('>') else { return line };
    let own = tag.starts_with('[') && (tag.ends_with("]<stdout") || tag.ends_with("]<stderr"));
    if own && !tag.contains('\n') { rest.strip_prefix(':').unwrap_or(rest) } else { line }
}

/// Removes terminal colour codes (`ESC [ ... letter`).
fn strip_colours(bytes: &mut Vec<u8>) {
    if !bytes.contains(&0x1b) {
        return;
    }
    let mut clean = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter().copied();
    while let Some(byte) = rest.next() {
        if byte == 0x1b {
            let _ = rest.by_ref().find(u8::is_ascii_alphabetic);
        } else {
            clean.push(byte);
        }
    }
    *bytes = clean;
}

/// A finite number; the message says what is wrong with it otherwise.
///
/// # Errors
/// NaN, infinity, a decimal comma, or no number at all.
pub fn number(text: &str) -> Result<f64, String> {
    if let Ok(value) = text.parse::<f64>()
        && value.is_finite()
    {
        return Ok(value);
    }
    let short: String = text.chars().take(QUOTED).collect();
    let lower = short.to_ascii_lowercase();
    if lower.contains("nan") || lower.contains("inf") {
        return Err(format!("`{short}` is no measurement"));
    }
    if text.contains(',') {
        return Err(format!("`{short}` has a comma: run the tool with LC_ALL=C, or write 1.5 for 1,5"));
    }
    Err(format!("`{short}` is no number"))
}

/// A positive number of at most `most`.
///
/// # Errors
/// As [`number`], or out of range.
pub fn positive(text: &str, most: f64) -> Result<f64, String> {
    let value = number(text)?;
    if value > 0.0 && value <= most {
        Ok(value)
    } else {
        Err(format!("`{text}` is not within 0 and {most:e}"))
    }
}

/// Fastest rate between two ranks or hosts that is believed, in bytes per second.
pub const FASTEST: f64 = 4e12;

/// Refuses rates that no link has.
///
/// # Errors
/// More than 4 TB/s.
pub fn believable(rate: f64) -> Result<(), String> {
    if rate <= FASTEST {
        return Ok(());
    }
    Err(format!(
        "{:.0} TB/s is no rate of a link (at most {:.0} TB/s): another unit?",
        rate / 1e12,
        FASTEST / 1e12
    ))
}

/// The first date (`2025-03-01`, with a time if one follows) in `text`, as written.
#[must_use]
pub fn date(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let shape = |at: usize, pattern: &[u8]| {
        bytes.len() >= at + pattern.len()
            && pattern.iter().zip(&bytes[at..]).all(|(p, b)| match p {
                b'0' => b.is_ascii_digit(),
                b'T' => matches!(b, b'T' | b' ' | b'_'),
                other => other == b,
            })
    };
    let at = (0..bytes.len().saturating_sub(9)).find(|at| shape(*at, b"0000-00-00"))?;
    let end = if shape(at, b"0000-00-00T00:00:00") { at + 19 } else { at + 10 };
    text.get(at..end).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_no_measurements_are_refused() {
        for text in ["nan", "-nan", "inf", "Infinity", "12,5", "1.2.3", "", "--"] {
            assert!(number(text).is_err(), "{text}");
        }
        assert_eq!(number("1.5e3"), Ok(1500.0));
        assert!(positive("0", 1.0).is_err() && positive("-1", 1.0).is_err() && positive("2", 1.0).is_err());
    }

    #[test]
    fn dates_are_found_as_written() {
        assert_eq!(date("[2025-03-01 12:30:59.123] x"), Some("2025-03-01 12:30:59".to_owned()));
        assert_eq!(date("run of 2025-03-01, 5 GB"), Some("2025-03-01".to_owned()));
        assert_eq!(date("all of 20250301"), None);
    }
}
