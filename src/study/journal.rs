//! The folder of a running study: a lock, a manifest that says whose folder it is, and a journal with a line per finished
//! point, in whatever order they finish.
//!
//! A line is written with one call and is whole or the last; what a kill leaves of the last is cut off at the next start.

use super::row::{Cell, Column};
use super::table::{CSV, DECISIONS, PARQUET};
use crate::error::AppError;
use crate::files;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Version of the manifest.
pub const SCHEMA: &str = "meshwright.study/1";

/// Whose folder it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`SCHEMA`].
    pub schema: String,
    /// Name of the study.
    pub name: String,
    /// Digest of the study, its inputs and this version of meshwright.
    pub digest: String,
    /// Points of the whole study.
    pub points: u64,
    /// Which part of them: number (from 1) and how many parts.
    pub shard: [u64; 2],
    /// Columns of a row.
    pub columns: Vec<Column>,
    /// The study file.
    pub study: String,
}

/// A line of the journal.
#[derive(Serialize, Deserialize)]
struct Line {
    row: Vec<Cell>,
}

/// Where the row of a point stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The point.
    pub point: u64,
    /// First byte of its line.
    pub offset: u64,
}

/// An open folder.
#[derive(Debug)]
pub struct Journal {
    folder: PathBuf,
    file: File,
    end: u64,
    entries: Vec<Entry>,
    // Held until the journal is dropped; a process that is killed lets go of it as well.
    _lock: File,
}

const MANIFEST: &str = "study.json";
const ROWS: &str = "rows.jsonl";

impl Journal {
    /// Opens a folder for this study: a new one, or one that was begun.
    ///
    /// # Errors
    /// Another run has it open, it belongs to another study, or it cannot be written.
    pub fn open(folder: &Path, manifest: &Manifest) -> Result<Self, AppError> {
        let fail = |path: &Path| {
            let path = path.to_owned();
            move |source| AppError::File { action: "write", path, source }
        };
        fs::create_dir_all(folder).map_err(fail(folder))?;
        let lock = lock(folder)?;
        claim(folder, manifest)?;
        let rows = folder.join(ROWS);
        let mut options = OpenOptions::new();
        let file =
            options.read(true).write(true).create(true).truncate(false).open(&rows).map_err(fail(&rows))?;
        let (entries, end) = scan(&rows, &file, manifest.columns.len())?;
        file.set_len(end).map_err(fail(&rows))?;
        let mut journal = Self { folder: folder.to_owned(), file, end, entries, _lock: lock };
        journal.file.seek(SeekFrom::Start(end)).map_err(fail(&rows))?;
        Ok(journal)
    }

    /// Points that are done.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Adds the row of a point.
    ///
    /// # Errors
    /// The disk is full or gone; all rows before stay.
    pub fn add(&mut self, point: u64, row: &[Cell]) -> Result<(), AppError> {
        let path = self.folder.join(ROWS);
        let fail = |source| AppError::File { action: "write", path: path.clone(), source };
        let mut line = serde_json::to_string(&Line { row: row.to_vec() }).unwrap_or_default();
        line.push('\n');
        self.file.write_all(line.as_bytes()).map_err(fail)?;
        self.entries.push(Entry { point, offset: self.end });
        self.end += line.len() as u64;
        Ok(())
    }

    /// Makes sure that all rows are on the disk.
    ///
    /// # Errors
    /// They are not.
    pub fn sync(&self) -> Result<(), AppError> {
        let path = self.folder.join(ROWS);
        self.file.sync_all().map_err(|source| AppError::File { action: "write", path, source })
    }
}

/// A folder that is only read.
#[derive(Debug)]
pub struct Finished {
    /// Where it lies.
    pub folder: PathBuf,
    /// Whose it is.
    pub manifest: Manifest,
    /// Its rows, by point.
    pub entries: Vec<Entry>,
}

impl Finished {
    /// Looks at a folder.
    ///
    /// # Errors
    /// It is none of a study, or cannot be read.
    pub fn open(folder: &Path) -> Result<Self, AppError> {
        let manifest = read_manifest(folder)?;
        let rows = folder.join(ROWS);
        let file = File::open(&rows).map_err(|source| AppError::File {
            action: "read",
            path: rows.clone(),
            source,
        })?;
        let (mut entries, _) = scan(&rows, &file, manifest.columns.len())?;
        entries.sort_unstable();
        Ok(Self { folder: folder.to_owned(), manifest, entries })
    }

    /// Its rows, to be read one by one.
    ///
    /// # Errors
    /// The file is gone.
    pub fn rows(&self) -> Result<RowReader, AppError> {
        let path = self.folder.join(ROWS);
        let file = File::open(&path).map_err(|source| AppError::File {
            action: "read",
            path: path.clone(),
            source,
        })?;
        Ok(RowReader { path, file: BufReader::new(file) })
    }
}

/// Reads rows by their offsets.
#[derive(Debug)]
pub struct RowReader {
    path: PathBuf,
    file: BufReader<File>,
}

impl RowReader {
    /// The row at an offset.
    ///
    /// # Errors
    /// The file changed meanwhile.
    pub fn at(&mut self, entry: Entry) -> Result<Vec<Cell>, AppError> {
        let fail = |source| AppError::File { action: "read", path: self.path.clone(), source };
        self.file.seek(SeekFrom::Start(entry.offset)).map_err(fail)?;
        let mut text = String::new();
        self.file.read_line(&mut text).map_err(fail)?;
        let line: Line = serde_json::from_str(&text)
            .map_err(|error| AppError::content(self.path.display().to_string(), error.to_string()))?;
        Ok(line.row)
    }
}

/// Holds a folder until it is dropped.
///
/// # Errors
/// Another run holds it.
pub fn lock(folder: &Path) -> Result<File, AppError> {
    let path = folder.join("lock");
    let fail = |source| AppError::File { action: "write", path: path.clone(), source };
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path).map_err(fail)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(AppError::Other {
            message: format!("another run is writing to `{}`", folder.display()),
            hint: Some("wait for it, stop it, or name another --out".to_owned()),
        }),
        Err(TryLockError::Error(source)) => Err(fail(source)),
    }
}

/// Reads the manifest of a folder.
///
/// # Errors
/// There is none, or of another version.
pub fn read_manifest(folder: &Path) -> Result<Manifest, AppError> {
    let path = folder.join(MANIFEST);
    let text = files::read_text(&path)?;
    let manifest: Manifest = serde_json::from_str(&text).map_err(|error| AppError::Content {
        origin: path.display().to_string(),
        message: format!("not the manifest of a study: {error}"),
        hint: Some("name a folder that `meshwright study --out` wrote".to_owned()),
    })?;
    if manifest.schema == SCHEMA {
        return Ok(manifest);
    }
    let message = format!("schema is `{}`, this version reads `{SCHEMA}`", manifest.schema);
    Err(AppError::content(path.display().to_string(), message))
}

/// Makes a folder that of a study, or of a shard of it.
///
/// # Errors
/// It is another's, or cannot be written.
pub fn claim(folder: &Path, manifest: &Manifest) -> Result<(), AppError> {
    let path = folder.join(MANIFEST);
    if path.exists() {
        return belongs(&read_manifest(folder)?, manifest, folder);
    }
    let written = [ROWS, CSV, PARQUET, DECISIONS];
    if let Some(foreign) = written.iter().find(|name| folder.join(name).exists()) {
        return Err(AppError::Other {
            message: format!("`{}` has a {foreign} that is of no study", folder.display()),
            hint: Some("name another --out, or remove the file".to_owned()),
        });
    }
    let text = serde_json::to_string_pretty(manifest).unwrap_or_default() + "\n";
    files::write_text(&path, &text)
}

fn belongs(found: &Manifest, wanted: &Manifest, folder: &Path) -> Result<(), AppError> {
    let what = if found.digest != wanted.digest {
        "belongs to another study, or to another version of it"
    } else if found.shard != wanted.shard {
        "holds another shard of the study"
    } else {
        return Ok(());
    };
    Err(AppError::Other {
        message: format!(
            "`{}` {what} (`{}`, shard {}/{})",
            folder.display(),
            found.name,
            found.shard[0],
            found.shard[1]
        ),
        hint: Some("name another --out, or remove the folder".to_owned()),
    })
}

/// Whole lines of a journal, and where they end. Nothing after the first line that is not whole counts.
fn scan(path: &Path, file: &File, columns: usize) -> Result<(Vec<Entry>, u64), AppError> {
    let mut entries = Vec::new();
    let mut offset = 0;
    let mut reader = BufReader::new(file.take(u64::MAX));
    let mut line = Vec::new();
    loop {
        line.clear();
        let length = reader.read_until(b'\n', &mut line).map_err(|source| AppError::File {
            action: "read",
            path: path.to_owned(),
            source,
        })?;
        if length == 0 || line.last() != Some(&b'\n') {
            break;
        }
        let Ok(Line { row }) = serde_json::from_slice::<Line>(&line) else { break };
        let (Some(Cell::Integer(point)), true) = (row.first(), row.len() == columns) else { break };
        entries.push(Entry { point: *point as u64, offset });
        offset += length as u64;
    }
    Ok((entries, offset))
}
