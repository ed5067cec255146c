//! Tables in the terminal.

use comfy_table::{CellAlignment, ContentArrangement, presets};

/// A table with a header line and no frame; columns of numbers are aligned to the right.
#[derive(Debug)]
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    #[must_use]
    pub fn new(header: &[&str]) -> Self {
        Self { header: header.iter().map(|&name| name.to_owned()).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The text, with a final newline and no spaces at the ends of lines.
    #[must_use]
    pub fn text(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(&self.header);
        for row in &self.rows {
            table.add_row(row);
        }
        for (index, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, 2));
            if self.is_numeric(index) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
    }

    /// Whether every cell of a column reads as a number (a dash stands for none).
    fn is_numeric(&self, column: usize) -> bool {
        let number = |cell: &String| {
            let digits = cell.chars().filter(char::is_ascii_digit).count();
            cell == "-"
                || (digits > 0 && cell.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '+'))
        };
        !self.rows.is_empty() && self.rows.iter().all(|row| row.get(column).is_some_and(number))
    }
}
