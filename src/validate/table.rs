//! Reading a table of runs: what stands in it, and what could not be read.

use super::ValidateError;
use super::fields::{Fault, Header, shortened};
use super::row::{CITATIONS, COLUMNS, REQUIRED, RunRow};
use serde::Serialize;
use std::borrow::Cow;

/// A row that is not scored because it cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unread {
    /// Line of the file, from 1.
    pub line: u64,
    /// The row's id, where it has one.
    pub id: String,
    /// Everything that is wrong with it.
    pub faults: Vec<Fault>,
}

/// The rows of a table.
#[derive(Debug, Default)]
pub struct Table {
    /// Rows that could be read.
    pub rows: Vec<RunRow>,
    /// Rows that could not.
    pub unread: Vec<Unread>,
    /// Columns that are not known and were not read.
    pub ignored_columns: Vec<String>,
}

/// Reads a CSV table of runs, byte-order mark and any line ends allowed.
///
/// # Errors
/// [`ValidateError`] if there is no header, it names a column twice, or lacks a column without which no row can be
/// read. Faults of single rows are kept in [`Table::unread`].
pub fn read_csv(origin: &str, bytes: &[u8]) -> Result<Table, ValidateError> {
    let bytes = plain(bytes);
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(bytes.as_ref());
    let header = read_header(origin, &mut reader)?;
    let known: Vec<&str> = COLUMNS.iter().chain(CITATIONS).copied().collect();
    let mut table = Table { ignored_columns: header.strangers(&known), ..Table::default() };
    let mut record = csv::ByteRecord::new();
    loop {
        match reader.read_byte_record(&mut record) {
            Ok(false) => return Ok(table),
            Ok(true) => table.take(&header, &record),
            Err(error) => return Err(broken(origin, &error)),
        }
    }
}

/// The bytes without a byte-order mark and with plain line ends, so that lines are counted alike.
#[must_use]
pub fn plain(bytes: &[u8]) -> Cow<'_, [u8]> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if !bytes.contains(&b'\r') {
        return Cow::Borrowed(bytes);
    }
    let mut plain = Vec::with_capacity(bytes.len());
    for (index, &byte) in bytes.iter().enumerate() {
        match byte {
            b'\r' if bytes.get(index + 1) == Some(&b'\n') => {}
            b'\r' => plain.push(b'\n'),
            other => plain.push(other),
        }
    }
    Cow::Owned(plain)
}

fn read_header(origin: &str, reader: &mut csv::Reader<&[u8]>) -> Result<Header, ValidateError> {
    let refuse = |reason: String| ValidateError::Table { origin: origin.to_owned(), reason };
    let names = reader.headers().map_err(|error| broken(origin, &error))?;
    if names.iter().all(|name| name.trim().is_empty()) {
        return Err(refuse("is empty: its first line must name the columns".to_owned()));
    }
    let header = Header::new(names.iter())
        .map_err(|twice| refuse(format!("its header names {} twice", twice.join(", "))))?;
    let missing: Vec<&str> = REQUIRED.iter().copied().filter(|column| !header.has(column)).collect();
    if missing.is_empty() {
        return Ok(header);
    }
    Err(refuse(format!("its header lacks the columns {}", missing.join(", "))))
}

fn broken(origin: &str, error: &csv::Error) -> ValidateError {
    ValidateError::Table { origin: origin.to_owned(), reason: format!("is not a CSV table: {error}") }
}

impl Table {
    fn take(&mut self, header: &Header, record: &csv::ByteRecord) {
        let line = record.position().map_or(0, csv::Position::line);
        match read_record(header, record, line) {
            Ok(row) => self.rows.push(row),
            Err(faults) => {
                let id = record.get(0).map(|id| shortened(&String::from_utf8_lossy(id))).unwrap_or_default();
                self.unread.push(Unread { line, id, faults });
            }
        }
    }
}

fn read_record(header: &Header, record: &csv::ByteRecord, line: u64) -> Result<RunRow, Vec<Fault>> {
    if record.len() != header.width {
        let message = format!("fields, but the header has {}", header.width);
        return Err(vec![Fault::new(line, "(all)", &record.len().to_string(), message)]);
    }
    let text = csv::StringRecord::from_byte_record(record.clone())
        .map_err(|error| vec![Fault::new(line, "(all)", "", format!("is not UTF-8: {error}"))])?;
    RunRow::read(header, &text, line)
}
