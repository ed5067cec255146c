//! Results as Parquet: one optional leaf per column, row groups of a fixed number of rows, no compression (dictionaries make
//! them small).

use super::row::{Cell, Column, ColumnKind};
use super::table::Pending;
use crate::error::AppError;
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;
use std::sync::Arc;

/// Rows of a row group.
const GROUP: usize = 8192;

/// A file being written.
pub struct ParquetFile {
    writer: SerializedFileWriter<Pending>,
    kinds: Vec<ColumnKind>,
    rows: Vec<Vec<Cell>>,
}

fn failed(error: &ParquetError) -> AppError {
    AppError::Other {
        message: format!("cannot write {}: {error}", super::table::PARQUET),
        hint: Some("check that the folder can be written and the disk has room".to_owned()),
    }
}

fn leaf(column: &Column) -> Result<Arc<Type>, ParquetError> {
    let (physical, logical) = match column.kind {
        ColumnKind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        ColumnKind::Integer => (Physical::INT64, None),
        ColumnKind::Number => (Physical::DOUBLE, None),
    };
    let builder = Type::primitive_type_builder(&column.name, physical).with_repetition(Repetition::OPTIONAL);
    builder.with_logical_type(logical).build().map(Arc::new)
}

impl ParquetFile {
    /// A file with these columns.
    ///
    /// # Errors
    /// It cannot be begun.
    pub fn new(file: Pending, columns: &[Column]) -> Result<Self, AppError> {
        let open = || {
            let fields = columns.iter().map(leaf).collect::<Result<Vec<_>, _>>()?;
            let schema = Type::group_type_builder("study").with_fields(fields).build()?;
            let properties = WriterProperties::builder().set_created_by("meshwright".to_owned()).build();
            SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties))
        };
        let writer = open().map_err(|error| failed(&error))?;
        Ok(Self { writer, kinds: columns.iter().map(|column| column.kind).collect(), rows: Vec::new() })
    }

    /// Adds a row.
    ///
    /// # Errors
    /// The disk is full.
    pub fn add(&mut self, row: Vec<Cell>) -> Result<(), AppError> {
        self.rows.push(row);
        if self.rows.len() == GROUP { self.write_group() } else { Ok(()) }
    }

    fn write_group(&mut self) -> Result<(), AppError> {
        let rows = std::mem::take(&mut self.rows);
        if rows.is_empty() {
            return Ok(());
        }
        self.try_group(&rows).map_err(|error| failed(&error))
    }

    fn try_group(&mut self, rows: &[Vec<Cell>]) -> Result<(), ParquetError> {
        let mut group = self.writer.next_row_group()?;
        let mut at = 0;
        while let Some(mut column) = group.next_column()? {
            write_column(&mut column, self.kinds[at], rows, at)?;
            column.close()?;
            at += 1;
        }
        group.close()?;
        Ok(())
    }

    /// Puts the file in its place.
    ///
    /// # Errors
    /// The disk is full.
    pub fn finish(mut self) -> Result<(), AppError> {
        self.write_group()?;
        self.writer.into_inner().map_err(|error| failed(&error))?.finish()
    }
}

fn write_column(
    column: &mut SerializedColumnWriter,
    kind: ColumnKind,
    rows: &[Vec<Cell>],
    at: usize,
) -> Result<(), ParquetError> {
    let levels: Vec<i16> = rows.iter().map(|row| i16::from(row[at] != Cell::None)).collect();
    let present = rows.iter().map(|row| &row[at]).filter(|cell| **cell != Cell::None);
    match kind {
        ColumnKind::Text => {
            let values: Vec<ByteArray> =
                present.map(|cell| ByteArray::from(cell.to_string().as_str())).collect();
            column.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None)?;
        }
        ColumnKind::Integer => {
            let values: Vec<i64> = present.map(|cell| cell.number().unwrap_or(0.0) as i64).collect();
            column.typed::<Int64Type>().write_batch(&values, Some(&levels), None)?;
        }
        ColumnKind::Number => {
            let values: Vec<f64> = present.map(|cell| cell.number().unwrap_or(f64::NAN)).collect();
            column.typed::<DoubleType>().write_batch(&values, Some(&levels), None)?;
        }
    }
    Ok(())
}
