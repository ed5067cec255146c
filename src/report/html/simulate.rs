//! A simulated schedule as a page.

use super::page;
use super::parts::{facts, table};
use crate::report::number::significant;
use crate::report::simulation::Simulation;
use crate::report::timeline::Held;
use crate::report::timeline_svg;
use maud::{PreEscaped, html};

/// Operations up to which a timeline is drawn.
const MOST_OPERATIONS: usize = 60_000;

/// The page of a simulation.
#[must_use]
pub fn simulate(simulation: &Simulation) -> String {
    let Simulation { orders, timeline, lower_bound, of_plan, .. } = simulation;
    let title = &simulation.title();
    let held = of_plan.as_ref().map_or(Held::Chunks, |plan| Held::Bytes(&plan.stage_bytes));
    let unit = if of_plan.is_some() { "s" } else { "time" };
    let (bubbles, spans) = (timeline.bubbles(), timeline.span_bubbles());
    let rows: Vec<Vec<String>> = timeline
        .ranks
        .iter()
        .enumerate()
        .map(|(rank, line)| {
            let held = f64::from(line.peak_activations) / f64::from(orders.slices());
            [line.busy, bubbles[rank], spans[rank], held].into_iter().fold(
                vec![rank.to_string()],
                |mut row, number| {
                    row.push(significant(number));
                    row
                },
            )
        })
        .collect();
    let operations: usize = timeline.ranks.iter().map(|rank| rank.spans.len()).sum();
    let content = html! {
        h1 { (title) }
        (facts(&[
            ("makespan", significant(timeline.makespan)),
            ("lower bound", significant(*lower_bound)),
            ("idle", format!("{} %", significant(timeline.bubble_fraction() * 100.0))),
            ("makespan bubble", significant(timeline.makespan_bubble())),
            ("span bubble", significant(timeline.span_bubble())),
        ]))
        h2 { "Timeline" }
        @if operations <= MOST_OPERATIONS {
            div.timeline-scroll { (PreEscaped(timeline_svg::render(orders, timeline, title, unit, held))) }
        } @else {
            p { (operations) " operations are too many to draw; the table has every rank." }
        }
        h2 { "Every pipeline rank" }
        (table(&["rank", "busy", "idle", "idle inside its span", "microbatch-chunks held"], &[], &rows))
    };
    page(title, &content)
}
