//! A verdict on a layout, as a person wants to read it in a terminal.

use super::number::{gib, seconds, significant};
use crate::check::Check;
use crate::check::remedies::Remedy;
use cluster_profiles::Seconds;
use std::fmt::Write;

/// Changes that are shown of a list.
const SHOWN: usize = 5;

/// The whole text, with a final newline.
#[must_use]
pub fn text(check: &Check) -> String {
    let mut out = rules(check);
    out.push_str(&memory(check));
    out.push_str(&time(check));
    out.push_str(&changes("to free memory", &check.remedies));
    out.push_str(&changes("to be faster", &check.faster));
    for warning in &check.warnings {
        let _ = writeln!(out, "warning  {warning}");
    }
    for what in &check.assumed {
        let _ = writeln!(out, "assumed  {what}");
    }
    if !check.unknown.is_empty() {
        let _ = writeln!(out, "unknown  {}", check.unknown.join(", "));
    }
    out
}

fn rules(check: &Check) -> String {
    if check.valid {
        return "valid    no rule is broken\n".to_owned();
    }
    let count = check.broken_rules.len();
    let mut out = format!("invalid  {count} broken rule{}\n", if count == 1 { "" } else { "s" });
    for rule in &check.broken_rules {
        let _ = writeln!(out, "  {:<4} {}", rule.id, rule.message);
        if let Some(hint) = &rule.hint {
            let _ = writeln!(out, "       hint: {hint}");
        }
    }
    out
}

fn memory(check: &Check) -> String {
    if check.peak_bytes.get() <= 0.0 {
        return "memory   not estimated: the layout is too broken\n".to_owned();
    }
    let verdict = if check.fits {
        "fits    ".to_owned()
    } else if check.peak_bytes <= check.memory_capacity_bytes {
        format!("tight    {} GiB inside the safety margin:", gib(check.shortfall_bytes))
    } else {
        format!("too big  by {} GiB:", gib(check.shortfall_bytes))
    };
    format!(
        "{verdict} peak {}, limit {} of {} GiB, on pipeline rank {}; largest: {} {} GiB\n",
        gib(check.peak_bytes),
        gib(check.memory_limit_bytes),
        gib(check.memory_capacity_bytes),
        check.fullest_rank,
        check.largest_term,
        gib(check.largest_term_bytes),
    )
}

fn time(check: &Check) -> String {
    let (Some(step), Some(mfu)) = (check.step_time_seconds, check.model_flops_utilization) else {
        return String::new();
    };
    format!("time     {} per step, MFU {} %\n", seconds(Seconds(step)), significant(mfu * 100.0))
}

fn changes(title: &str, list: &[Remedy]) -> String {
    if list.is_empty() {
        return String::new();
    }
    let mut out = format!("\n{title}\n");
    for change in list.iter().take(SHOWN) {
        let sign = if change.slower < 0.0 { '-' } else { '+' };
        let _ = writeln!(
            out,
            "  {:<46} frees {:>7} GiB  {sign}{:>4} % time{}",
            if change.flags.is_empty() { change.change.as_str() } else { "" },
            gib(change.freed_bytes),
            significant((change.slower * 100.0).abs()),
            if change.fits { "" } else { "  (still too big)" },
        );
        for line in &change.flags {
            let _ = writeln!(out, "    {line}");
        }
    }
    out
}
