//! A study as a page.

use super::parts::{facts, table};
use super::sweep::{fronts, sweep};
use super::{page, plan};
use crate::plan::Plan;
use crate::report::number::{dollars, grouped, long_time, seconds, significant};
use crate::report::study_text::best_table;
use crate::study::decide::{BatchPlan, Decisions, Gathered, PointSensitivities, Sensitivity};
use crate::study::file::Study;
use crate::study::key::shown;
use cluster_profiles::Seconds;
use maud::{Markup, html};

/// Rows of a table.
const MOST_ROWS: usize = 200;

/// The page of a study, with the plan of its best point.
#[must_use]
pub fn study(study: &Study, decisions: &Decisions, gathered: &Gathered, best: Option<&Plan>) -> String {
    let content = html! {
        h1 { (study.title) }
        (counts(decisions))
        (best_points(study, decisions))
        (sweep(study, gathered))
        (fronts(decisions, gathered))
        (switches(decisions))
        (break_even(decisions))
        (batches(decisions))
        (helping(decisions))
        (points(study, gathered))
        @if let Some(best) = best {
            h2 { "The plan of the first best point" }
            details {
                summary { (plan::title(best)) }
                (plan::body(best))
            }
        }
    };
    page(&study.title, &content)
}

fn counts(decisions: &Decisions) -> Markup {
    let total: u64 = decisions.counts.values().sum();
    let mut list = vec![("points", grouped(total))];
    list.extend(decisions.counts.iter().map(|(status, count)| (status.as_str(), grouped(*count))));
    let rows: Vec<Vec<String>> = decisions
        .binding
        .iter()
        .map(|(what, count)| {
            let why = decisions.reasons.get(what).cloned().unwrap_or_default();
            vec![what.clone(), grouped(*count), why]
        })
        .collect();
    html! {
        (facts(&list))
        @if !rows.is_empty() {
            details {
                summary { "What binds the points without use" }
                (table(&["what", "points", "the first says"], &[2], &rows))
            }
        }
    }
}

fn best_points(study: &Study, decisions: &Decisions) -> Markup {
    let (header, rows) = best_table(study, &decisions.best);
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    html! {
        h2 { "Best point of every job" }
        @if rows.is_empty() { p.bad { "No point has a plan that keeps the constraints." } }
        @else { (table(&header, &[header.len() - 1], &rows[..rows.len().min(MOST_ROWS)])) }
    }
}

fn switches(decisions: &Decisions) -> Markup {
    let rows: Vec<Vec<String>> = decisions
        .switches
        .iter()
        .take(MOST_ROWS)
        .map(|one| {
            vec![
                one.axis.clone(),
                shown(&one.axis, &one.from_value),
                shown(&one.axis, &one.to_value),
                one.elsewhere.clone(),
                one.from_layout.clone(),
                one.to_layout.clone(),
            ]
        })
        .collect();
    html! {
        @if !rows.is_empty() {
            h2 { "Where the best layout switches" }
            details {
                summary { (decisions.switches.len()) " switches" }
                (table(&["along", "from", "to", "elsewhere", "old layout", "new layout"], &[3, 4, 5], &rows))
            }
        }
    }
}

fn break_even(decisions: &Decisions) -> Markup {
    let rows: Vec<Vec<String>> = decisions
        .break_even
        .iter()
        .flat_map(|pair| {
            pair.pairs.iter().map(|at| {
                vec![
                    pair.one.clone(),
                    pair.other.clone(),
                    at.elsewhere.clone(),
                    dollars(at.dollars_one),
                    dollars(at.dollars_other),
                    dollars(at.break_even_price),
                    dollars(at.price),
                ]
            })
        })
        .take(MOST_ROWS)
        .collect();
    html! {
        @if !rows.is_empty() {
            h2 { "Break-even" }
            p.soft { "Dollars for a billion tokens on both, and the price of a GPU and hour of the other at which they would be the same." }
            (table(&["one", "other", "elsewhere", "one", "other", "break-even price", "price"], &[1, 2], &rows))
        }
    }
}

fn batches(decisions: &Decisions) -> Markup {
    let plans = &decisions.batch_schedules;
    let name =
        |plan: &BatchPlan| if plan.elsewhere.is_empty() { "all".to_owned() } else { plan.elsewhere.clone() };
    let totals = plans.iter().take(MOST_ROWS).map(|plan| {
        vec![
            name(plan),
            long_time(plan.seconds),
            grouped(plan.fixed_batch_tokens.round() as u64),
            long_time(plan.fixed_seconds),
            significant((1.0 - plan.seconds / plan.fixed_seconds) * 100.0),
        ]
    });
    let totals: Vec<Vec<String>> = totals.collect();
    let phases = plans.iter().flat_map(|plan| {
        plan.phases.iter().map(|phase| {
            vec![
                name(plan),
                grouped(phase.from_tokens.round() as u64),
                grouped(phase.to_tokens.round() as u64),
                grouped(phase.speed.batch_tokens.round() as u64),
                long_time(phase.seconds),
                phase.speed.layout.clone(),
                if phase.switches_layout { "another layout" } else { "" }.to_owned(),
            ]
        })
    });
    let phases: Vec<Vec<String>> = phases.take(MOST_ROWS).collect();
    html! {
        @if !totals.is_empty() {
            h2 { "Batch size over the training" }
            p.soft { "Throughput times statistical efficiency for the given gradient noise scale, against the best fixed batch." }
            (table(&["setting", "time", "fixed batch, tokens", "time with it", "saved, %"], &[0], &totals))
            details {
                summary { "Phases: where batch and layout switch" }
                (table(&["setting", "from tokens", "to tokens", "batch, tokens", "time", "layout", ""], &[0, 5, 6], &phases))
            }
        }
    }
}

/// What would help the best point of every job; of a single job it goes without saying which.
fn helping(decisions: &Decisions) -> Markup {
    let several = decisions.sensitivities.len() > 1;
    let rows = decisions.sensitivities.iter().flat_map(|point| {
        let job = if point.job.is_empty() { "all".to_owned() } else { point.job.clone() };
        let lead = if several { vec![job, point.point.to_string()] } else { Vec::new() };
        helping_one(point).into_iter().map(move |row| [lead.clone(), row].concat())
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let (lead, words): (&[&str], &[usize]) = if several { (&["job", "point"], &[0, 2]) } else { (&[], &[0]) };
    let header = [lead, &["number", "change of the step, %", "halved", "doubled"]].concat();
    html! {
        @if !rows.is_empty() {
            h2 { "What would help the best points" }
            p.soft {
                "By how many percent the step changes for one percent more of a number, and the step with half and with twice as \
                 much; the layout stays but for memory."
            }
            (table(&header, words, &rows))
        }
    }
}

/// The numbers of one point, GPU memory last.
fn helping_one(point: &PointSensitivities) -> Vec<Vec<String>> {
    let step = |time: Option<f64>| time.map_or_else(|| "fits not".to_owned(), |time| seconds(Seconds(time)));
    let number = |one: &Sensitivity| {
        let (halved, doubled) = (step(Some(one.step_halved_seconds)), step(Some(one.step_doubled_seconds)));
        vec![one.name.clone(), format!("{:+.3}", one.elasticity), halved, doubled]
    };
    let mut rows: Vec<Vec<String>> = point.numbers.iter().map(number).collect();
    let (halved, doubled) = (step(point.memory_halved_seconds), step(point.memory_doubled_seconds));
    rows.push(vec!["GPU memory, planned anew".to_owned(), String::new(), halved, doubled]);
    rows
}

fn points(study: &Study, gathered: &Gathered) -> Markup {
    let mut header = vec!["point"];
    header.extend(study.axis_keys());
    header.extend(["GPUs", "step", "tokens/s/GPU", "MFU %", "cost of 1e9 tokens", "layout"]);
    let rows = gathered.outcomes.iter().take(MOST_ROWS).map(|outcome| {
        let mut row = vec![outcome.point.to_string()];
        row.extend(study.axis_keys().iter().zip(&outcome.values).map(|(key, text)| shown(key, text)));
        row.extend([
            grouped(outcome.gpus as u64),
            seconds(Seconds(outcome.step_time_seconds)),
            grouped(outcome.tokens_per_second_per_gpu.round() as u64),
            significant(outcome.model_flops_utilization * 100.0),
            outcome.dollars_per_billion_tokens.map_or_else(|| "-".to_owned(), dollars),
            outcome.layout.clone(),
        ]);
        row
    });
    let rows: Vec<Vec<String>> = rows.collect();
    html! {
        h2 { "Points" }
        details {
            summary { "The first " (rows.len()) " of " (grouped(gathered.outcomes.len() as u64)) " with a plan; all are in results.csv" }
            (table(&header, &[header.len() - 1], &rows))
        }
    }
}
