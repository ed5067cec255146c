//! A study as a page.

use super::chart::{Chart, Dot, Series, Style};
use super::parts::{COLOURS, facts, table};
use super::{page, plan};
use crate::plan::Plan;
use crate::report::number::{grouped, seconds, significant};
use crate::report::study_text::{best_table, dollars, long_time, value};
use crate::study::decide::{Decisions, Gathered, Outcome, TradeOff};
use crate::study::file::Study;
use crate::study::row::column_name;
use cluster_profiles::Seconds;
use maud::{Markup, html};
use std::collections::BTreeMap;

/// Dots of a cloud; of more points every n-th.
const MOST_DOTS: usize = 600;
/// Jobs that have charts of their own.
const MOST_JOBS: usize = 8;
/// Lines of a sweep chart: as many as there are colours to tell them apart.
const MOST_LINES: usize = COLOURS;
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
        (points(study, gathered))
        @if let Some(best) = best {
            h2 { "The plan of the first best point: " (plan::title(best)) }
            (plan::body(best))
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

/// The figures a sweep chart can show.
fn measure(name: &str) -> fn(&Outcome) -> Option<f64> {
    match name {
        "step_time_seconds" => |outcome| Some(outcome.step_time_seconds),
        "model_flops_utilization" => |outcome| Some(outcome.model_flops_utilization),
        "dollars_per_billion_tokens" => |outcome| outcome.dollars_per_billion_tokens,
        "joules_per_token" => |outcome| Some(outcome.joules_per_token),
        "training_seconds" => |outcome| outcome.training_seconds,
        "training_dollars" => |outcome| outcome.training_dollars,
        "tokens_per_second" => |outcome| Some(outcome.tokens_per_second),
        _ => |outcome| Some(outcome.tokens_per_second_per_gpu),
    }
}

/// One figure along one axis; a line for every setting of the others, the first of them where there are many.
fn sweep(study: &Study, gathered: &Gathered) -> Markup {
    let keys = study.axis_keys();
    let numeric = |key: &str| {
        let axis = study.axes.iter().find(|axis| axis.keys.iter().any(|own| own == key));
        axis.map_or(0, |axis| {
            let at = axis.keys.iter().position(|own| own == key).unwrap_or(0);
            if axis.steps.iter().all(|step| step[at].number().is_some()) { axis.steps.len() } else { 0 }
        })
    };
    let longest = keys.iter().copied().filter(|key| numeric(key) > 1).max_by_key(|key| numeric(key));
    let Some(x) = study.chart.x.as_deref().filter(|key| keys.contains(key)).or(longest) else {
        return html! {};
    };
    let at = keys.iter().position(|key| *key == x).unwrap_or(0);
    let y = study.chart.y.as_deref().unwrap_or("tokens_per_second_per_gpu");
    let zipped: Vec<&String> = study
        .axes
        .iter()
        .filter(|axis| axis.keys.iter().any(|key| key == x))
        .flat_map(|axis| &axis.keys)
        .collect();
    let mut lines: BTreeMap<String, Vec<Dot>> = BTreeMap::new();
    let mut order: Vec<String> = Vec::new();
    for outcome in &gathered.outcomes {
        let name = others(&keys, &zipped, outcome);
        let (Ok(horizontal), Some(vertical)) = (outcome.values[at].parse::<f64>(), measure(y)(outcome))
        else {
            continue;
        };
        let dot = Dot { x: horizontal, y: vertical, tip: tip(&keys, outcome) };
        if !lines.contains_key(&name) {
            order.push(name.clone());
        }
        lines.entry(name).or_default().push(dot);
    }
    let count = order.len();
    let mut series: Vec<Series> = order
        .into_iter()
        .take(MOST_LINES)
        .enumerate()
        .filter_map(|(colour, name)| {
            Some(Series { dots: lines.remove(&name)?, name, style: Style::Curve, colour })
        })
        .collect();
    if !study.measured.is_empty() {
        let dots = study.measured.iter();
        let dots = dots
            .map(|dot| Dot { x: dot.x, y: dot.y, tip: format!("{}\n{}", dot.label, dot.source) })
            .collect();
        series.push(Series { name: "published".to_owned(), style: Style::Measured, colour: 8, dots });
    }
    let shown = series.iter().filter(|one| one.style == Style::Curve).count();
    let span = series
        .iter()
        .flat_map(|one| &one.dots)
        .map(|dot| dot.x)
        .fold((f64::INFINITY, 0.0f64), |(low, high), x| (low.min(x), high.max(x)));
    let chart = Chart {
        title: format!("{} by {}", words(y), x),
        axes: [column_name(x), words(y)],
        log: [span.1 / span.0 > 8.0, false],
        diagonal: false,
        series,
    };
    html! {
        h2 { "Sweep" }
        @if shown < count { p.soft { "The first " (shown) " of " (count) " settings of the other axes; all are in the table of points." } }
        div.plots.large { (chart.render()) }
        (published(study))
    }
}

fn published(study: &Study) -> Markup {
    let rows: Vec<Vec<String>> = study
        .measured
        .iter()
        .map(|one| vec![one.label.clone(), significant(one.x), format!("{}", one.y), one.source.clone()])
        .collect();
    html! {
        @if !rows.is_empty() {
            details { summary { "Published points" } (table(&["what", "x", "y", "source"], &[3], &rows)) }
        }
    }
}

fn words(name: &str) -> String {
    match name {
        "tokens_per_second_per_gpu" => "tokens per second and GPU".to_owned(),
        "tokens_per_second" => "tokens per second".to_owned(),
        "model_flops_utilization" => "model FLOPs utilization".to_owned(),
        "dollars_per_billion_tokens" => "dollars for 1e9 tokens".to_owned(),
        other => other.replace('_', " "),
    }
}

fn others(keys: &[&str], zipped: &[&String], outcome: &Outcome) -> String {
    let own = |key: &str| zipped.iter().any(|zipped| zipped.as_str() == key);
    let named = keys.iter().zip(&outcome.values).filter(|(key, _)| !own(key));
    let text: Vec<String> = named.map(|(key, text)| format!("{key} {}", value(text))).collect();
    if text.is_empty() { "plans".to_owned() } else { text.join(", ") }
}

fn tip(keys: &[&str], outcome: &Outcome) -> String {
    let named: Vec<String> =
        keys.iter().zip(&outcome.values).map(|(key, text)| format!("{key} {}", value(text))).collect();
    format!(
        "{}\n{} per step, {} tokens/s/GPU\n{}",
        named.join(", "),
        seconds(Seconds(outcome.step_time_seconds)),
        grouped(outcome.tokens_per_second_per_gpu.round() as u64),
        outcome.layout
    )
}

/// Time against money, GPUs and energy: every point pale, the front joined.
fn fronts(decisions: &Decisions, gathered: &Gathered) -> Markup {
    let jobs = gathered.by_job();
    let by_point: BTreeMap<u64, &Outcome> =
        gathered.outcomes.iter().map(|outcome| (outcome.point, outcome)).collect();
    let drawn: Vec<(&TradeOff, &Vec<&Outcome>)> = decisions
        .fronts
        .iter()
        .filter_map(|front| Some((front, &jobs.iter().take(MOST_JOBS).find(|(job, _)| *job == front.job)?.1)))
        .collect();
    let rows = drawn.iter().flat_map(|(front, _)| {
        front.points.iter().filter_map(|(time, other, point)| {
            let outcome = by_point.get(point)?;
            Some(vec![
                point.to_string(),
                front.job.clone(),
                front.against.replace('_', " "),
                long_time(*time),
                significant(*other),
                grouped(outcome.gpus as u64),
                outcome.layout.clone(),
            ])
        })
    });
    let rows: Vec<Vec<String>> = rows.take(MOST_ROWS).collect();
    html! {
        @if !drawn.is_empty() {
            h2 { "Time against money, GPUs and energy" }
            p.soft { "A point on a line: no other is both faster and cheaper. Time is for a billion tokens." }
            @if jobs.len() > MOST_JOBS { p.soft { "The first " (MOST_JOBS) " of " (jobs.len()) " jobs." } }
            div.plots { @for (front, all) in &drawn { (front_chart(front, all, &by_point)) } }
            details {
                summary { "In numbers" }
                (table(&["point", "job", "against", "time", "amount", "GPUs", "layout"], &[1, 2, 6], &rows))
            }
        }
    }
}

fn front_chart(front: &TradeOff, all: &[&Outcome], by_point: &BTreeMap<u64, &Outcome>) -> Markup {
    let other = |outcome: &Outcome| match front.against.as_str() {
        "gpus" => Some(outcome.gpus),
        "joules_per_token" => Some(outcome.joules_per_token),
        _ => outcome.dollars_per_billion_tokens,
    };
    let tip = |outcome: &Outcome| {
        format!(
            "point {}: {}\n{} GPUs\n{}",
            outcome.point,
            outcome.values.join(", "),
            outcome.gpus,
            outcome.layout
        )
    };
    let every = all.len().div_ceil(MOST_DOTS).max(1);
    let cloud = all.iter().step_by(every);
    let cloud = cloud.filter_map(|outcome| {
        Some(Dot { x: 1e9 / outcome.tokens_per_second, y: other(outcome)?, tip: tip(outcome) })
    });
    let line = front.points.iter().map(|(x, y, point)| Dot {
        x: *x,
        y: *y,
        tip: by_point.get(point).map_or_else(String::new, |outcome| tip(outcome)),
    });
    let job = if front.job.is_empty() { "all points" } else { &front.job };
    let chart = Chart {
        title: format!("{job}: time against {}", words(&front.against)),
        axes: ["seconds for 1e9 tokens".to_owned(), words(&front.against)],
        log: [true, true],
        diagonal: false,
        series: vec![
            Series { name: "all".to_owned(), style: Style::Cloud, colour: 8, dots: cloud.collect() },
            Series { name: "front".to_owned(), style: Style::Curve, colour: 0, dots: line.collect() },
        ],
    };
    chart.render()
}

fn switches(decisions: &Decisions) -> Markup {
    let rows: Vec<Vec<String>> = decisions
        .switches
        .iter()
        .take(MOST_ROWS)
        .map(|one| {
            vec![
                one.axis.clone(),
                value(&one.from_value),
                value(&one.to_value),
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
                    significant(at.dollars_one),
                    significant(at.dollars_other),
                    significant(at.break_even_price),
                    significant(at.price),
                ]
            })
        })
        .take(MOST_ROWS)
        .collect();
    html! {
        @if !rows.is_empty() {
            h2 { "Break-even" }
            p.soft { "Dollars for a billion tokens on both, and the price of a GPU and hour of the other at which they would be the same." }
            (table(&["one", "other", "elsewhere", "one, $", "other, $", "break-even price, $", "price, $"], &[1, 2], &rows))
        }
    }
}

fn batches(decisions: &Decisions) -> Markup {
    html! {
        @if !decisions.batch_schedules.is_empty() {
            h2 { "Batch size over the training" }
            p.soft { "Throughput times statistical efficiency for the given gradient noise scale." }
        }
        @for plan in decisions.batch_schedules.iter().take(MOST_JOBS) {
            h3 { (if plan.elsewhere.is_empty() { "all" } else { &plan.elsewhere }) }
            p {
                (long_time(plan.seconds)) " in all, against " (long_time(plan.fixed_seconds)) " with the best fixed batch of "
                (grouped(plan.fixed_batch_tokens.round() as u64)) " tokens."
            }
            @let rows: Vec<Vec<String>> = plan.phases.iter().map(|phase| vec![
                grouped(phase.from_tokens.round() as u64),
                grouped(phase.to_tokens.round() as u64),
                grouped(phase.speed.batch_tokens.round() as u64),
                long_time(phase.seconds),
                phase.speed.layout.clone(),
                if phase.switches_layout { "switches" } else { "" }.to_owned(),
            ]).collect();
            (table(&["from tokens", "to tokens", "batch, tokens", "time", "layout", ""], &[4], &rows))
        }
    }
}

fn points(study: &Study, gathered: &Gathered) -> Markup {
    let mut header = vec!["point"];
    header.extend(study.axis_keys());
    header.extend(["GPUs", "step", "tokens/s/GPU", "MFU %", "$ / 1e9 tokens", "layout"]);
    let rows = gathered.outcomes.iter().take(MOST_ROWS).map(|outcome| {
        let mut row = vec![outcome.point.to_string()];
        row.extend(outcome.values.iter().map(|text| value(text)));
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
