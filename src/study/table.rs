//! Results as files: CSV, and Parquet where it is compiled in.

use super::row::{Cell, Column};
use crate::error::AppError;
use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Name of the CSV file.
pub const CSV: &str = "results.csv";
/// Name of the Parquet file.
pub const PARQUET: &str = "results.parquet";
/// Name of the file of what follows from the rows.
pub const DECISIONS: &str = "decisions.json";

/// A file that takes its place only when it is whole.
pub struct Pending {
    path: PathBuf,
    file: BufWriter<tempfile::NamedTempFile>,
}

impl Pending {
    /// A file that will be `path`.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn new(path: PathBuf) -> Result<Self, AppError> {
        let folder = path.parent().unwrap_or(Path::new("."));
        let file = tempfile::NamedTempFile::new_in(folder).map_err(|source| AppError::File {
            action: "write",
            path: path.clone(),
            source,
        })?;
        Ok(Self { path, file: BufWriter::new(file) })
    }

    /// The error for a failed write.
    pub fn fail(&self, source: std::io::Error) -> AppError {
        AppError::File { action: "write", path: self.path.clone(), source }
    }

    /// Puts the file in its place.
    ///
    /// # Errors
    /// The disk is full.
    pub fn finish(self) -> Result<(), AppError> {
        let path = self.path;
        let fail = |source| AppError::File { action: "write", path: path.clone(), source };
        let file = self.file.into_inner().map_err(|error| fail(error.into_error()))?;
        file.as_file().sync_all().map_err(fail)?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            file.as_file().set_permissions(fs::Permissions::from_mode(0o644)).map_err(fail)?;
        }
        file.persist(&path).map_err(|error| fail(error.error))?;
        Ok(())
    }
}

impl Write for Pending {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

/// Writes rows one after the other, to every format there is.
pub struct Tables {
    csv: csv::Writer<Pending>,
    csv_path: PathBuf,
    #[cfg(feature = "parquet")]
    parquet: super::parquet::ParquetFile,
}

impl Tables {
    /// Tables in a folder.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn new(folder: &Path, columns: &[Column]) -> Result<Self, AppError> {
        let csv_path = folder.join(CSV);
        let mut tables = Self {
            csv: csv::Writer::from_writer(Pending::new(csv_path.clone())?),
            csv_path,
            #[cfg(feature = "parquet")]
            parquet: super::parquet::ParquetFile::new(Pending::new(folder.join(PARQUET))?, columns)?,
        };
        let written = tables.csv.write_record(columns.iter().map(|column| column.name.as_str()));
        written.map_err(|error| tables.csv_failure(error))?;
        Ok(tables)
    }

    fn csv_failure(&self, error: csv::Error) -> AppError {
        AppError::File { action: "write", path: self.csv_path.clone(), source: error.into() }
    }

    /// Adds a row.
    ///
    /// # Errors
    /// The disk is full.
    pub fn add(&mut self, row: Vec<Cell>) -> Result<(), AppError> {
        let written = self.csv.write_record(row.iter().map(ToString::to_string));
        written.map_err(|error| self.csv_failure(error))?;
        #[cfg(feature = "parquet")]
        self.parquet.add(row)?;
        Ok(())
    }

    /// Puts the files in their places and names them.
    ///
    /// # Errors
    /// The disk is full.
    pub fn finish(self) -> Result<Vec<&'static str>, AppError> {
        let path = self.csv_path.clone();
        let fail = |source: std::io::Error| AppError::File { action: "write", path: path.clone(), source };
        let pending = self.csv.into_inner().map_err(|error| fail(error.into_error()))?;
        pending.finish()?;
        let mut names = vec![CSV];
        #[cfg(feature = "parquet")]
        {
            self.parquet.finish()?;
            names.push(PARQUET);
        }
        names.shrink_to_fit();
        Ok(names)
    }
}
