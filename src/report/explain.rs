//! Why a plan is what it is: where the step goes, what fills the memory, what lost, what it rests on.

use super::layout::{degrees, particulars};
use super::number::{gib, seconds, signed};
use crate::plan::Plan;
use crate::room::tightest;
use cluster_profiles::{Bytes, Seconds};
use cost_models::Assumption;
use serde::Serialize;
use std::fmt::Write;

/// The parts of an explanation, for programs.
#[derive(Debug, Serialize)]
pub struct Explanation {
    /// Kinds of time with their share of the step, largest first.
    pub time: Vec<Share>,
    /// Terms of memory on the heaviest rank with their share of the peak, largest first.
    pub memory: Vec<Share>,
    /// The heaviest pipeline rank.
    pub heaviest_rank: u32,
    /// Bytes left below the limit there.
    pub headroom_bytes: Bytes,
    /// The limit there.
    pub limit_bytes: Bytes,
    /// What the numbers rest on.
    pub assumptions: Vec<Assumption>,
}

/// A part of a whole.
#[derive(Debug, Serialize)]
pub struct Share {
    /// Its name.
    pub name: &'static str,
    /// Its amount, in seconds or bytes.
    pub amount: f64,
    /// Its share of the whole.
    pub share: f64,
}

fn shares(parts: impl IntoIterator<Item = (&'static str, f64)>) -> Vec<Share> {
    let parts: Vec<(&'static str, f64)> = parts.into_iter().collect();
    let whole: f64 = parts.iter().map(|(_, amount)| amount).sum();
    let mut shares: Vec<Share> = parts
        .into_iter()
        .filter(|(_, amount)| *amount > 0.0)
        .map(|(name, amount)| Share { name, amount, share: amount / whole })
        .collect();
    shares.sort_by(|a, b| b.amount.total_cmp(&a.amount));
    shares
}

/// The explanation of one plan.
#[must_use]
pub fn document(plan: &Plan) -> Explanation {
    let room = tightest(&plan.run(), &plan.estimate, plan.inputs.memory_limit_bytes);
    let rank = room.memory;
    Explanation {
        time: shares(plan.estimate.time_seconds.parts().map(|(name, time)| (name, time.get()))),
        memory: shares(rank.terms().map(|(name, bytes)| (name, bytes.get()))),
        heaviest_rank: rank.rank,
        headroom_bytes: room.left(),
        limit_bytes: room.limit,
        assumptions: plan.estimate.assumptions.clone(),
    }
}

/// The explanation of one plan, for people.
#[must_use]
pub fn text(plan: &Plan) -> String {
    let explanation = document(plan);
    let mut lines: String =
        particulars(plan).iter().map(|(what, how)| format!("  {what:<7} {how}\n")).collect();
    lines.push_str(&super::shares::lines(plan));
    let mut out = format!("{}\n{lines}\n", degrees(&plan.parallel));
    let _ = writeln!(out, "Step of {}:", seconds(plan.estimate.step_time_seconds));
    for part in &explanation.time {
        let _ = writeln!(
            out,
            "  {:<14} {:>10}  {:>5.1} %",
            part.name.replace('_', " "),
            seconds(Seconds(part.amount)),
            part.share * 100.0
        );
    }
    let _ = writeln!(
        out,
        "\nMemory of pipeline rank {}, {} GiB below the limit of {} GiB:",
        explanation.heaviest_rank,
        gib(explanation.headroom_bytes),
        gib(explanation.limit_bytes)
    );
    for part in &explanation.memory {
        let _ = writeln!(
            out,
            "  {:<14} {:>6} GiB  {:>5.1} %",
            part.name,
            gib(Bytes(part.amount)),
            part.share * 100.0
        );
    }
    out.push_str(&alternatives(plan));
    out.push_str(&proof(plan));
    let _ = writeln!(out, "\nWhat the numbers rest on:");
    for assumption in &explanation.assumptions {
        let _ = writeln!(out, "  {:<13} {}", assumption.basis, assumption.what);
    }
    out
}

fn alternatives(plan: &Plan) -> String {
    let mut out = String::new();
    if !plan.alternatives.is_empty() {
        out.push_str("\nWhat lost, and why:\n");
    }
    for alternative in &plan.alternatives {
        let slower = (alternative.step_time_seconds / plan.estimate.step_time_seconds - 1.0) * 100.0;
        let _ = writeln!(
            out,
            "  {} %  {}\n          {}",
            signed(slower),
            degrees(&alternative.parallel),
            alternative.why
        );
    }
    out
}

fn proof(plan: &Plan) -> String {
    let Some(certificate) = &plan.certificate else { return String::new() };
    let mut out = format!("\n{}\n", super::summary::certificate_sentence(certificate));
    if let Some(sentence) = super::summary::unbalanced_sentence(certificate) {
        let _ = writeln!(out, "{sentence}");
    }
    for (rule, count) in &certificate.pruned {
        let _ = writeln!(out, "  {:>14}  excluded by {rule}", super::number::grouped(*count));
    }
    out
}
