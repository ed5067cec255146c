//! The charts of a study: one figure along one axis, and time against money, GPUs and energy.

use super::chart::{Chart, Dot, Series, Style};
use super::parts::{COLOURS, plots, table};
use crate::report::number::{amount, grouped, long_time, seconds, significant};
use crate::study::decide::{Decisions, Gathered, Outcome, TradeOff};
use crate::study::file::Study;
use crate::study::key::setting;
use crate::study::row::column_name;
use cluster_profiles::Seconds;
use maud::{Markup, html};
use std::collections::BTreeMap;

/// Dots of a cloud; of more points every n-th.
const MOST_DOTS: usize = 600;
/// Jobs that have charts of their own.
const MOST_JOBS: usize = 8;
/// Lines of a sweep chart: as many as colours, whole and dashed, tell apart.
const MOST_LINES: usize = 2 * COLOURS;
/// Rows of a table.
const MOST_ROWS: usize = 200;

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

/// Keys whose value changes nothing about a figure, such as prices about speed: lines that differ in them alone are one.
fn idle(
    keys: &[&str],
    zipped: &[&String],
    figure: fn(&Outcome) -> Option<f64>,
    outcomes: &[Outcome],
) -> Vec<String> {
    let changes = |at: usize| {
        let mut known: BTreeMap<Vec<&str>, Option<f64>> = BTreeMap::new();
        outcomes.iter().any(|outcome| {
            let rest = outcome.values.iter().enumerate().filter(|(other, _)| *other != at);
            let own = figure(outcome);
            *known.entry(rest.map(|(_, value)| value.as_str()).collect()).or_insert(own) != own
        })
    };
    let several = |at: usize| outcomes.iter().any(|outcome| outcome.values[at] != outcomes[0].values[at]);
    let others = (0..keys.len()).filter(|at| zipped.iter().all(|key| key.as_str() != keys[*at]));
    others.filter(|at| several(*at) && !changes(*at)).map(|at| keys[at].to_owned()).collect()
}

/// One figure along one axis; a line for every setting of the others, the first of them where there are many.
pub fn sweep(study: &Study, gathered: &Gathered) -> Markup {
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
    let y = study.chart.y.as_deref().unwrap_or("tokens_per_second_per_gpu");
    let zipped = zipped(study, x);
    let idle = idle(&keys, &zipped, measure(y), &gathered.outcomes);
    let left_out: Vec<&String> = zipped.iter().copied().chain(&idle).collect();
    let (mut series, count) = curves(&keys, x, measure(y), &left_out, &gathered.outcomes);
    series.extend(measured(study));
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
        @if !idle.is_empty() { p.soft { "The lines are the same for every " (idle.join(", ")) "." } }
        @if shown < count { p.soft { "The first " (shown) " of " (count) " settings of the other axes; all are in the table of points." } }
        div.plots.large { (chart.render()) }
        (published(study))
    }
}

/// The keys that vary together with `x`.
fn zipped<'a>(study: &'a Study, x: &str) -> Vec<&'a String> {
    let axes = study.axes.iter().filter(|axis| axis.keys.iter().any(|key| key == x));
    axes.flat_map(|axis| &axis.keys).collect()
}

/// A line for every setting of the keys that are not left out, as many as are drawn; and how many there are.
fn curves(
    keys: &[&str],
    x: &str,
    figure: fn(&Outcome) -> Option<f64>,
    left_out: &[&String],
    outcomes: &[Outcome],
) -> (Vec<Series>, usize) {
    let at = keys.iter().position(|key| *key == x).unwrap_or(0);
    let mut lines: Vec<(String, Vec<Dot>)> = Vec::new();
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    for outcome in outcomes {
        let (Ok(x), Some(y)) = (outcome.values[at].parse::<f64>(), figure(outcome)) else { continue };
        let name = others(keys, left_out, outcome);
        let line = *known.entry(name.clone()).or_insert(lines.len());
        if line == lines.len() {
            lines.push((name, Vec::new()));
        }
        let dots = &mut lines[line].1;
        if line < MOST_LINES && !dots.iter().any(|dot| (dot.x, dot.y) == (x, y)) {
            dots.push(Dot { x, y, tip: tip(keys, outcome) });
        }
    }
    let count = lines.len();
    let shown = lines.into_iter().take(MOST_LINES).enumerate();
    let series = shown.map(|(colour, (name, dots))| Series { dots, name, style: Style::Curve, colour });
    (series.collect(), count)
}

/// What was measured, if the study knows of any.
fn measured(study: &Study) -> Option<Series> {
    let dots = study.measured.iter();
    let dots =
        dots.map(|dot| Dot { x: dot.x, y: dot.y, tip: format!("{}\n{}", dot.label, dot.source) }).collect();
    let series = Series { name: "published".to_owned(), style: Style::Measured, colour: 8, dots };
    (!study.measured.is_empty()).then_some(series)
}

fn published(study: &Study) -> Markup {
    let rows: Vec<Vec<String>> = study
        .measured
        .iter()
        .map(|one| vec![one.label.clone(), significant(one.x), format!("{}", one.y), one.source.clone()])
        .collect();
    html! {
        @if !rows.is_empty() {
            details { summary { "Published points" } (table(&["what", "x", "y", "source"], &[0, 3], &rows)) }
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
    let text: Vec<String> = named.map(|(key, text)| setting(key, text)).collect();
    if text.is_empty() { "plans".to_owned() } else { text.join(", ") }
}

fn tip(keys: &[&str], outcome: &Outcome) -> String {
    let named: Vec<String> = keys.iter().zip(&outcome.values).map(|(key, text)| setting(key, text)).collect();
    format!(
        "{}\n{} per step, {} tokens/s/GPU\n{}",
        named.join(", "),
        seconds(Seconds(outcome.step_time_seconds)),
        grouped(outcome.tokens_per_second_per_gpu.round() as u64),
        outcome.layout
    )
}

/// Time against money, GPUs and energy: every point pale, the front joined.
pub fn fronts(decisions: &Decisions, gathered: &Gathered) -> Markup {
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
                amount(*other),
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
            (plots(&drawn.iter().map(|(front, all)| front_chart(front, all, &by_point)).collect::<Vec<_>>()))
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
