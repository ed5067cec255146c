//! Why there is no plan as a page: what is lacking, and what would give one.

use super::parts::{facts, table};
use super::{memory, page, plan};
use crate::inputs::Inputs;
use crate::report::layout::degrees;
use crate::report::number::gib;
use cluster_profiles::Bytes;
use maud::{Markup, html};
use solver::Infeasible;
use solver::infeasible::Leanest;

/// The page of a problem without a plan.
#[must_use]
pub fn infeasible(why: &Infeasible, inputs: &Inputs) -> String {
    let title = format!("No plan: {}", plan::title_of(inputs));
    let changes = why.nearest.iter().map(|one| vec![one.change.clone(), layout(&degrees(&one.parallel))]);
    let changes: Vec<Vec<String>> = changes.collect();
    let content = html! {
        h1 { (title) }
        p { (plan::workload(inputs)) }
        p.bad { "No feasible plan: " (why.reason) "." }
        @if let Some(leanest) = &why.leanest { (lacking(why, leanest, inputs)) }
        @if changes.is_empty() {
            p { "No change of one input was found that gives a plan." }
        } @else {
            h2 { "Each of these would give a plan" }
            (table(&["change", "layout"], &[0, 1], &changes))
        }
    };
    page(&title, &content)
}

fn layout(degrees: &str) -> String {
    degrees.replace("   ", ", ")
}

/// The leanest layout against the limit.
fn lacking(why: &Infeasible, leanest: &Leanest, inputs: &Inputs) -> Markup {
    let peak = leanest.memory.peak_bytes;
    html! {
        (facts(&[
            ("needed at least", format!("{} GiB", gib(peak))),
            ("limit", format!("{} GiB", gib(leanest.limit_bytes))),
            ("lacking", format!("{} GiB", gib(why.shortfall_bytes))),
            ("largest term", why.binding_term.clone()),
        ]))
        p { "Leanest layout: " strong { (layout(&degrees(&leanest.parallel))) } }
        (memory::section(&[leanest.memory], &[], &capacities(inputs, leanest.limit_bytes)))
    }
}

/// What the GPUs have, and the limit that is not kept.
fn capacities(inputs: &Inputs, limit: Bytes) -> Vec<(String, Bytes, Bytes)> {
    let group = inputs.cluster.groups.iter().find(|group| group.gpu.memory >= limit);
    let gpu = group.map_or_else(|| inputs.cluster.gpu(), |group| &group.gpu);
    vec![(gpu.title.clone(), gpu.memory, limit)]
}
