//! What follows from a study, as a person wants to read it in a terminal.

use super::number::{amount, dollars, grouped, long_time, seconds, significant};
use super::table::Table;
use crate::study::decide::{BatchPlan, BreakEven, Decisions, Outcome, PointSensitivities, Switch, TradeOff};
use crate::study::file::Study;
use crate::study::key::shown;
use cluster_profiles::Seconds;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Lines of a part that are shown; the rest is in the files.
const SHOWN: usize = 12;

/// The whole text, with a final newline.
#[must_use]
pub fn text(study: &Study, decisions: &Decisions) -> String {
    let mut out = format!("{}\n\n  {}\n", study.title, counts(decisions));
    part(&mut out, "why points are without use, one of each", &reasons(&decisions.reasons));
    part(&mut out, "best of every job", &best(study, &decisions.best));
    part(&mut out, "worth its price: nothing is both faster and cheaper", &fronts(&decisions.fronts));
    part(&mut out, "the best layout switches", &switches(&decisions.switches));
    part(&mut out, "break-even", &break_even(&decisions.break_even));
    part(&mut out, "batch size over the training", &batches(&decisions.batch_schedules));
    part(&mut out, "what would help the best points", &sensitivities(&decisions.sensitivities));
    out
}

fn part(out: &mut String, title: &str, body: &str) {
    if !body.is_empty() {
        let _ = write!(out, "\n{title}\n{body}");
    }
}

/// Points by status, and what binds those without use.
#[must_use]
pub fn counts(decisions: &Decisions) -> String {
    let counts = decisions.counts.iter().map(|(status, count)| format!("{} {status}", grouped(*count)));
    let counts: Vec<String> = counts.collect();
    let binding = decisions.binding.iter().map(|(what, count)| format!("{what} {}", grouped(*count)));
    let binding: Vec<String> = binding.collect();
    let why =
        if binding.is_empty() { String::new() } else { format!("; what binds: {}", binding.join(", ")) };
    format!("points: {}{why}", counts.join(", "))
}

fn reasons(list: &BTreeMap<String, String>) -> String {
    let line = |(what, reason): (&String, &String)| format!("  {what}: {reason}\n");
    list.iter().take(SHOWN).map(line).collect::<String>() + &more(list.len())
}

/// The table of best points: values of the axes, then figures.
#[must_use]
pub fn best_table(study: &Study, list: &[Outcome]) -> (Vec<String>, Vec<Vec<String>>) {
    let trained = list.iter().any(|outcome| outcome.training_seconds.is_some());
    let mut header: Vec<String> = study.axis_keys().iter().map(|key| (*key).to_owned()).collect();
    let more = ["GPUs", "step", "tokens/s/GPU", "MFU %", "cost of 1e9 tokens", "J/token"];
    header.extend(more.map(str::to_owned));
    if trained {
        header.extend(["training", "training cost"].map(str::to_owned));
    }
    header.push("layout".to_owned());
    let optional = |value: Option<f64>, text: fn(f64) -> String| value.map_or_else(|| "-".to_owned(), text);
    let row = |outcome: &Outcome| {
        let mut cells: Vec<String> =
            study.axis_keys().iter().zip(&outcome.values).map(|(key, text)| shown(key, text)).collect();
        cells.extend([
            grouped(outcome.gpus as u64),
            seconds(Seconds(outcome.step_time_seconds)),
            grouped(outcome.tokens_per_second_per_gpu.round() as u64),
            significant(outcome.model_flops_utilization * 100.0),
            optional(outcome.dollars_per_billion_tokens, dollars),
            amount(outcome.joules_per_token),
        ]);
        if trained {
            cells.push(optional(outcome.training_seconds, long_time));
            cells.push(optional(outcome.training_dollars, dollars));
        }
        cells.push(outcome.layout.clone());
        cells
    };
    (header, list.iter().map(row).collect())
}

fn best(study: &Study, list: &[Outcome]) -> String {
    let (header, rows) = best_table(study, list);
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut table = Table::new(&header);
    rows.into_iter().take(SHOWN).for_each(|row| table.row(row));
    if list.is_empty() { String::new() } else { indented(&table.text()) + &more(list.len()) }
}

fn fronts(list: &[TradeOff]) -> String {
    let mut out = String::new();
    for front in list.iter().filter(|front| front.against == "dollars_per_billion_tokens").take(SHOWN) {
        let points = front.points.iter().take(6);
        let points: Vec<String> = points
            .map(|(time, money, point)| format!("{} {} (point {point})", long_time(*time), dollars(*money)))
            .collect();
        let job = if front.job.is_empty() { "all" } else { &front.job };
        let _ = writeln!(out, "  {job}, for 1e9 tokens: {}", points.join("  "));
    }
    out
}

fn switches(list: &[Switch]) -> String {
    let mut out = String::new();
    for switch in list.iter().take(SHOWN) {
        let _ = writeln!(
            out,
            "  {} {} -> {}  {}: {} -> {}",
            switch.axis,
            shown(&switch.axis, &switch.from_value),
            shown(&switch.axis, &switch.to_value),
            switch.elsewhere,
            switch.from_layout,
            switch.to_layout
        );
    }
    out + &more(list.len())
}

fn break_even(list: &[BreakEven]) -> String {
    let mut out = String::new();
    for pair in list {
        for at in pair.pairs.iter().take(SHOWN) {
            let _ = writeln!(
                out,
                "  {} costs as much as {} at {} per GPU and hour (price {})  {}",
                pair.other,
                pair.one,
                dollars(at.break_even_price),
                dollars(at.price),
                at.elsewhere
            );
        }
    }
    out
}

fn batches(list: &[BatchPlan]) -> String {
    let mut out = String::new();
    for plan in list.iter().take(SHOWN) {
        let saved = (1.0 - plan.seconds / plan.fixed_seconds) * 100.0;
        let against = if saved < 0.005 {
            "no less than".to_owned()
        } else {
            format!("{} % less than", significant(saved))
        };
        let _ = writeln!(
            out,
            "  {}  {}, {against} the best fixed batch of {} tokens",
            plan.elsewhere,
            long_time(plan.seconds),
            grouped(plan.fixed_batch_tokens.round() as u64)
        );
        for phase in plan.phases.iter().take(SHOWN) {
            let _ = writeln!(
                out,
                "    from {} tokens: batch of {} tokens, {}{}",
                grouped(phase.from_tokens as u64),
                grouped(phase.speed.batch_tokens.round() as u64),
                phase.speed.layout,
                if phase.switches_layout { "  (another layout)" } else { "" }
            );
        }
    }
    out
}

/// The first job in full; of the others what helps most.
fn sensitivities(list: &[PointSensitivities]) -> String {
    let Some((first, others)) = list.split_first() else { return String::new() };
    let step = |time: Option<f64>| time.map_or_else(|| "fits not".to_owned(), |time| seconds(Seconds(time)));
    let mut table = Table::new(&["one percent more", "step changes by %", "halved", "doubled"]);
    for number in &first.numbers {
        table.row([
            number.name.clone(),
            format!("{:+.3}", number.elasticity),
            step(Some(number.step_halved_seconds)),
            step(Some(number.step_doubled_seconds)),
        ]);
    }
    let (halved, doubled) = (first.memory_halved_seconds, first.memory_doubled_seconds);
    table.row(["GPU memory, planned anew".to_owned(), String::new(), step(halved), step(doubled)]);
    let mut out = indented(&table.text());
    for other in others {
        let most = other.numbers.iter().take(3);
        let most: Vec<String> =
            most.map(|number| format!("{} {:+.2}", number.name, number.elasticity)).collect();
        let (job, most) = (&other.job, most.join(", "));
        let _ = writeln!(out, "  {job} (point {}): {most}", other.point);
    }
    out
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

fn more(count: usize) -> String {
    if count > SHOWN {
        format!("  ... {} more in decisions.json\n", grouped((count - SHOWN) as u64))
    } else {
        String::new()
    }
}
