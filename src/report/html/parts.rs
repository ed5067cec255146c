//! What several pages are made of: facts, tables, legends.

use maud::{Markup, html};

/// A few figures that matter most.
pub fn facts(list: &[(&str, String)]) -> Markup {
    html! {
        dl.facts {
            @for (name, value) in list {
                div { dt { (name) } dd { (value) } }
            }
        }
    }
}

/// Columns whose cells are words rather than numbers.
pub type Words<'a> = &'a [usize];

/// A table that sorts by the column that is clicked.
pub fn table(header: &[&str], words: Words, rows: &[Vec<String>]) -> Markup {
    html! {
        div.wide {
            table.sortable {
                thead { tr { @for (at, name) in header.iter().enumerate() { th.text[words.contains(&at)] { (name) } } } }
                tbody {
                    @for row in rows {
                        tr {
                            @for (at, cell) in row.iter().enumerate() {
                                @if at == 0 { th { (cell) } }
                                @else if words.contains(&at) { td.long { (cell) } }
                                @else { td { (cell) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Names of colours.
pub fn legend<'a>(names: impl Iterator<Item = (usize, &'a str)>) -> Markup {
    html! {
        ul.legend {
            @for (colour, name) in names {
                li { i style=(format!("background:{}", colour_of(colour))) {} (name) }
            }
        }
    }
}

/// Number of different colours.
pub const COLOURS: usize = 11;

/// A colour of the theme.
pub fn colour_of(number: usize) -> String {
    format!("var(--c{})", number % COLOURS)
}
