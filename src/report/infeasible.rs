//! Why nothing fits, and what would.

use super::layout::degrees;
use super::number::gib;
use serde_json::{Value, json};
use solver::Infeasible;
use std::fmt::Write;

/// The answer for programs, under the key `infeasible`.
#[must_use]
pub fn document(infeasible: &Infeasible) -> Value {
    json!({ "infeasible": infeasible })
}

/// The answer for people.
#[must_use]
pub fn text(infeasible: &Infeasible) -> String {
    let mut out = format!("no feasible plan: {}\n", infeasible.reason);
    if let Some(leanest) = &infeasible.leanest {
        let _ = writeln!(
            out,
            "\n  leanest layout  {}\n  it lacks {} GiB; its largest term is {}",
            degrees(&leanest.parallel),
            gib(infeasible.shortfall_bytes),
            infeasible.binding_term
        );
    }
    if !infeasible.nearest.is_empty() {
        out.push_str("\nhint: each of these would give a plan\n");
    }
    for change in &infeasible.nearest {
        let _ = writeln!(out, "  {}  ({})", change.change, degrees(&change.parallel));
    }
    out
}
