//! Stacked bars.

use super::parts::{colour_of, legend};
use maud::{Markup, html};

/// A bar: parts by colour, in one unit.
pub struct Bar {
    /// In front of it.
    pub label: String,
    /// Number of the colour, and the amount.
    pub parts: Vec<(usize, f64)>,
    /// Behind it.
    pub total: String,
}

/// A vertical line over all bars.
pub struct Mark {
    /// Where.
    pub at: f64,
    /// What it is.
    pub name: String,
    /// Whether it is the softer of two.
    pub soft: bool,
}

/// Bars on one scale. `shown` writes an amount with its unit.
pub fn stacked(names: &[String], bars: &[Bar], marks: &[Mark], shown: impl Fn(f64) -> String) -> Markup {
    let longest = bars.iter().map(|bar| bar.parts.iter().map(|(_, amount)| amount).sum::<f64>());
    let scale = longest.chain(marks.iter().map(|mark| mark.at)).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let percent = |amount: f64| format!("{:.2}%", (amount / scale * 100.0).clamp(0.0, 100.0));
    let used = |colour: usize| {
        bars.iter().any(|bar| bar.parts.iter().any(|(own, amount)| *own == colour && *amount > 0.0))
    };
    html! {
        (legend(names.iter().enumerate().filter(|(colour, _)| used(*colour)).map(|(colour, name)| (colour, name.as_str()))))
        div.bars {
            @for bar in bars {
                div { (bar.label) }
                div.track {
                    @for (colour, amount) in bar.parts.iter().filter(|(_, amount)| *amount > 0.0) {
                        span style=(format!("width:{};background:{}", percent(*amount), colour_of(*colour)))
                            data-tip=(format!("{} {}", names.get(*colour).map_or("", String::as_str), shown(*amount))) {}
                    }
                    @for mark in marks {
                        div.mark.limit[mark.soft] style=(format!("left:{}", percent(mark.at))) data-tip=(mark.name) {}
                    }
                }
                div { (bar.total) }
            }
        }
        @if !marks.is_empty() {
            ul.legend { @for mark in marks { li { i.line.limit[mark.soft] {} (mark.name) } } }
        }
    }
}
