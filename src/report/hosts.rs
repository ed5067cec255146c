//! Which hosts a plan runs on, and what moves to them, where there is something to say.

use super::number::{gib, seconds, significant};
use crate::plan::Plan;
use crate::replan::{Moved, Replan};
use std::fmt::Write;

/// Names shown before the rest is counted.
const SHOWN: usize = 8;

/// Lines of the summary; nothing where hosts are taken in their own order and nothing was lost.
#[must_use]
pub fn lines(plan: &Plan) -> String {
    let placement = &plan.placement;
    let mut text = String::new();
    if !plan.inputs.cluster.is_even() || !placement.spare.is_empty() || plan.replan.is_some() {
        let _ = write!(text, "  hosts   {}", names(&placement.hosts));
        if !placement.spare.is_empty() {
            let _ = write!(text, "   left out: {}", names(&placement.spare));
        }
        text.push('\n');
    }
    if let Some(replan) = &plan.replan {
        text.push_str(&replanned(plan, replan));
    }
    text
}

fn names(hosts: &[String]) -> String {
    let shown = hosts.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(" ");
    match hosts.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn replanned(plan: &Plan, replan: &Replan) -> String {
    let mut text = String::new();
    if !replan.lost.is_empty() {
        let _ = writeln!(text, "  lost    {}", names(&replan.lost));
    }
    if let Some(moved) = &replan.moved {
        let _ = writeln!(text, "  moves   {}", moved_line(moved));
    }
    if let Some(old) = replan.old_step_time_seconds {
        let change = (plan.estimate.step_time_seconds / old - 1.0) * 100.0;
        let word = if change < 0.0 { "shorter" } else { "longer" };
        let _ = writeln!(
            text,
            "  before  {} a step; the new one is {} % {word}",
            seconds(old),
            significant(change.abs())
        );
    }
    if let (Some(fastest), Some(steps)) = (replan.fastest_step_time_seconds, replan.horizon_steps) {
        let _ = writeln!(
            text,
            "  horizon the fastest layout takes {} a step, but moving to it does not pay back within {steps} steps",
            seconds(fastest)
        );
    }
    text
}

/// What moves, on one line.
#[must_use]
pub fn moved_line(moved: &Moved) -> String {
    if moved.total_bytes.get() < 1.0 {
        return "nothing: every GPU has its state already".to_owned();
    }
    let checkpoint = match moved.from_checkpoint_bytes.get() {
        bytes if bytes < 1.0 => "all of it on remaining GPUs".to_owned(),
        _ => format!("{} GiB of it only in the checkpoint", gib(moved.from_checkpoint_bytes)),
    };
    format!(
        "{} GiB to {} ranks, {checkpoint}; most to {}: {} GiB, {} over its links",
        gib(moved.total_bytes),
        moved.ranks.len(),
        moved.busiest_host,
        gib(moved.busiest_host_bytes),
        seconds(moved.seconds)
    )
}
