//! The results of one folder, or of several shards, as tables.

use super::journal::{Entry, Finished, Manifest, RowReader};
use super::row::Cell;
use super::table::Tables;
use crate::error::AppError;
use std::path::{Path, PathBuf};

/// Rows of a whole study, in the order of its points, wherever they lie.
#[derive(Debug)]
pub struct Rows {
    /// The study.
    pub manifest: Manifest,
    /// Folder (as an index) and entry of every point.
    entries: Vec<(Entry, usize)>,
    readers: Vec<RowReader>,
}

impl Rows {
    /// The rows of one folder, all of its shard.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of_folder(folder: &Path) -> Result<Self, AppError> {
        Self::of(vec![Finished::open(folder)?])
    }

    /// The rows of several shards of one study.
    ///
    /// # Errors
    /// They are of different studies, points are missing, or two shards disagree about a point.
    pub fn of_shards(folders: &[PathBuf]) -> Result<Self, AppError> {
        let shards = folders.iter().map(|folder| Finished::open(folder)).collect::<Result<Vec<_>, _>>()?;
        let Some(first) = shards.first() else {
            return Err(AppError::usage("no folder is given", "name the folders of the shards"));
        };
        let others = shards.iter().filter(|shard| shard.manifest.digest != first.manifest.digest);
        let faults: Vec<String> = others
            .map(|other| {
                format!(
                    "`{}` is of another study than `{}`, or of another version of it",
                    other.folder.display(),
                    first.folder.display()
                )
            })
            .collect();
        if !faults.is_empty() {
            return Err(AppError::Other {
                message: faults.join("\n       "),
                hint: Some("merge shards of one study".to_owned()),
            });
        }
        let counts: Vec<String> = shards
            .iter()
            .map(|shard| {
                let [number, of] = shard.manifest.shard;
                format!("{} (shard {number}/{of}): {} points", shard.folder.display(), shard.entries.len())
            })
            .collect();
        let rows = Self::of(shards)?;
        let (found, points) = (rows.entries.len() as u64, rows.manifest.points);
        if found == points {
            return Ok(rows);
        }
        Err(AppError::Other {
            message: format!(
                "{} of {points} points are missing\n       {}",
                points.saturating_sub(found),
                counts.join("\n       ")
            ),
            hint: Some(
                "run the missing shards, or run those that were stopped again; they go on where they were"
                    .to_owned(),
            ),
        })
    }

    fn of(shards: Vec<Finished>) -> Result<Self, AppError> {
        let mut readers = shards.iter().map(Finished::rows).collect::<Result<Vec<_>, _>>()?;
        let each = shards.iter().enumerate();
        let mut entries: Vec<(Entry, usize)> =
            each.flat_map(|(index, shard)| shard.entries.iter().map(move |entry| (*entry, index))).collect();
        entries.sort_unstable_by_key(|(entry, shard)| (entry.point, *shard, entry.offset));
        let mut kept: Vec<(Entry, usize)> = Vec::with_capacity(entries.len());
        for (entry, shard) in entries {
            match kept.last() {
                Some((last, other)) if last.point == entry.point => {
                    let (one, two) = (readers[*other].at(*last)?, readers[shard].at(entry)?);
                    if one != two {
                        return Err(AppError::Other {
                            message: format!("two folders disagree about point {}", entry.point),
                            hint: Some("remove the folder that is not of this study".to_owned()),
                        });
                    }
                }
                _ => kept.push((entry, shard)),
            }
        }
        let manifest = shards.into_iter().next().map(|shard| shard.manifest);
        let manifest = manifest
            .ok_or_else(|| AppError::usage("no folder is given", "name the folders of the shards"))?;
        Ok(Self { manifest: Manifest { shard: [1, 1], ..manifest }, entries: kept, readers })
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Hands over every row in the order of the points.
    ///
    /// # Errors
    /// A file changed meanwhile, or `take` fails.
    pub fn each(&mut self, mut take: impl FnMut(Vec<Cell>) -> Result<(), AppError>) -> Result<(), AppError> {
        for (entry, shard) in &self.entries {
            take(self.readers[*shard].at(*entry)?)?;
        }
        Ok(())
    }

    /// Writes the tables into a folder and names them.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn write_tables(&mut self, folder: &Path) -> Result<Vec<&'static str>, AppError> {
        let mut tables = Tables::new(folder, &self.manifest.columns)?;
        self.each(|row| tables.add(row))?;
        tables.finish()
    }
}
