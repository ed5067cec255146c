//! A verdict on a layout as a page.

use super::bars::{Bar, Mark, stacked};
use super::page;
use super::parts::{facts, table};
use crate::check::Check;
use crate::check::remedies::Remedy;
use crate::report::number::{gib, seconds, significant};
use cluster_profiles::Seconds;
use maud::{Markup, html};

/// The page of a verdict on what is called `subject`.
#[must_use]
pub fn check(check: &Check, subject: &str) -> String {
    let title = format!("Check of {subject}");
    page(&title, &html! { h1 { (title) } (body(check)) })
}

fn body(check: &Check) -> Markup {
    let verdict = match (check.valid, check.fits) {
        (true, true) => "Valid, and it fits.",
        (true, false) => "Valid, but it does not fit.",
        (false, true) => "Not valid; its memory would fit.",
        (false, false) => "Not valid, and it would not fit.",
    };
    html! {
        p.good[check.passes()].bad[!check.passes()] { (verdict) }
        (facts(&figures(check)))
        @if !check.broken_rules.is_empty() { (rules(check)) }
        @if check.peak_bytes.get() > 0.0 { (memory(check)) }
        (changes("To free memory", &check.remedies))
        (changes("To be faster", &check.faster))
        (list("Warnings", &check.warnings))
        (list("Assumed", &check.assumed))
        (list("Not understood", &check.unknown))
    }
}

fn figures(check: &Check) -> Vec<(&'static str, String)> {
    let mut list = vec![("broken rules", check.broken_rules.len().to_string())];
    if check.peak_bytes.get() > 0.0 {
        list.push((
            "peak memory",
            format!("{} of {} GiB", gib(check.peak_bytes), gib(check.memory_limit_bytes)),
        ));
        list.push(("fullest pipeline rank", check.fullest_rank.to_string()));
        list.push(("largest term", format!("{} {} GiB", check.largest_term, gib(check.largest_term_bytes))));
    }
    list.extend(check.step_time_seconds.map(|step| ("step", seconds(Seconds(step)))));
    list.extend(check.model_flops_utilization.map(|mfu| ("MFU", format!("{} %", significant(mfu * 100.0)))));
    list
}

fn rules(check: &Check) -> Markup {
    let rule = |rule: &cost_models::rules::Violation| {
        vec![rule.id.clone(), rule.message.clone(), rule.hint.clone().unwrap_or_default()]
    };
    let rows: Vec<Vec<String>> = check.broken_rules.iter().map(rule).collect();
    html! { h2 { "Broken rules" } (table(&["rule", "what", "what works"], &[1, 2], &rows)) }
}

fn memory(check: &Check) -> Markup {
    let rest = (check.peak_bytes - check.largest_term_bytes).as_gib().max(0.0);
    let bar = Bar {
        label: format!("rank {}", check.fullest_rank),
        parts: vec![(0, check.largest_term_bytes.as_gib()), (8, rest)],
        total: format!("{} GiB", gib(check.peak_bytes)),
    };
    let mut names = vec![String::new(); 9];
    names[0].clone_from(&check.largest_term);
    "everything else".clone_into(&mut names[8]);
    let limit = check.memory_limit_bytes;
    let mark = Mark { at: limit.as_gib(), name: format!("limit {} GiB", gib(limit)), soft: false };
    html! {
        h2 { "Memory of the fullest pipeline rank" }
        (stacked(&names, &[bar], &[mark], |amount| format!("{amount:.1} GiB")))
        @if check.shortfall_bytes.get() > 0.0 { p.bad { (gib(check.shortfall_bytes)) " GiB too much." } }
    }
}

fn changes(title: &str, list: &[Remedy]) -> Markup {
    let row = |change: &Remedy| {
        vec![
            change.change.clone(),
            gib(change.freed_bytes),
            format!("{:+.2}", change.slower * 100.0),
            if change.fits { "yes" } else { "no" }.to_owned(),
        ]
    };
    let rows: Vec<Vec<String>> = list.iter().map(row).collect();
    html! {
        @if !rows.is_empty() {
            h2 { (title) }
            (table(&["change", "frees GiB", "time %", "fits"], &[0], &rows))
        }
    }
}

fn list(title: &str, lines: &[String]) -> Markup {
    html! {
        @if !lines.is_empty() {
            h2 { (title) }
            ul { @for line in lines { li { (line) } } }
        }
    }
}
