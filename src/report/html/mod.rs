//! Pages: one file each, with everything in it; no network, light and dark, wide and narrow. What a chart shows stands in a
//! table as well.
//!
//! Markup is written with maud, which escapes every text.

mod bars;
mod chart;
mod check;
mod front;
mod infeasible;
mod map;
mod memory;
mod parts;
mod plan;
mod simulate;
mod study;
mod sweep;
mod validate;

pub use check::check;
pub use front::front;
pub use infeasible::infeasible;
pub use plan::plan;
pub use simulate::simulate;
pub use study::study;
pub use validate::validate;

use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// A page around its content.
fn page(title: &str, content: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                // A browser asks for an icon otherwise.
                link rel="icon" href="data:,";
                style { (PreEscaped(STYLE)) }
            }
            body {
                (content)
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string() + "\n"
}
