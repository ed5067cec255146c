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

/// Rows that a long table shows before all are asked for; the style sheet hides those behind them.
const FOLDED: usize = 10;

/// A table that sorts by the column that is clicked. Of a long one the first rows show, and a button for all.
pub fn table(header: &[&str], words: Words, rows: &[Vec<String>]) -> Markup {
    let long = rows.len() > FOLDED + 2;
    let classes: Vec<Option<&str>> = (0..header.len()).map(|at| class_of(at, words, rows)).collect();
    html! {
        div.wide {
            table.sortable.long[long] {
                thead { tr { @for (name, class) in header.iter().zip(&classes) { th.text[class.is_some()] { (breakable(name)) } } } }
                tbody {
                    @for row in rows {
                        tr {
                            @for (at, (cell, class)) in row.iter().zip(&classes).enumerate() {
                                @if at == 0 { th class=[class] { (cell) } }
                                @else { td class=[class] { (cell) } }
                            }
                        }
                    }
                }
            }
        }
        @if long { button.all type="button" hidden { "Show all " (rows.len()) " rows" } }
    }
}

/// Words are long text; a column of names alone is text as well (the first stands on the left anyway).
fn class_of(at: usize, words: Words, rows: &[Vec<String>]) -> Option<&'static str> {
    let name = |row: &Vec<String>| row[at].chars().next().is_some_and(char::is_alphabetic);
    if words.contains(&at) {
        return Some("long");
    }
    (at > 0 && !rows.is_empty() && rows.iter().all(name)).then_some("text")
}

/// A name that may go on in the next line behind its dots and underscores.
fn breakable(name: &str) -> Markup {
    html! { @for part in name.split_inclusive(['.', '_']) { (part) @if part.ends_with(['.', '_']) { wbr; } } }
}

/// Charts that show of many before all are asked for; the style sheet hides those behind them.
const CHARTS: usize = 6;

/// Charts side by side. Of many the first show, and a button for all.
pub fn plots(charts: &[Markup]) -> Markup {
    let many = charts.len() > CHARTS + 3;
    html! {
        div.plots.long[many] { @for chart in charts { (chart) } }
        @if many { button.all type="button" hidden { "Show all " (charts.len()) " charts" } }
    }
}

/// Names of colours.
pub fn legend<'a>(names: impl Iterator<Item = (usize, &'a str)>) -> Markup {
    html! {
        ul.legend {
            @for (colour, name) in names {
                li { i.dashed[is_dashed(colour)] style=(format!("background-color:{}", colour_of(colour))) {} (name) }
            }
        }
    }
}

/// Whether a line is dashed, to tell it from that of the same colour.
pub const fn is_dashed(number: usize) -> bool {
    number >= COLOURS
}

/// Number of different colours.
pub const COLOURS: usize = 11;

/// A colour of the theme.
pub fn colour_of(number: usize) -> String {
    format!("var(--c{})", number % COLOURS)
}
