//! A plan as a page.

use super::bars::{Bar, stacked};
use super::parts::{facts, table};
use super::{map, memory, page};
use crate::host_memory::by_host;
use crate::inputs::Inputs;
use crate::layered;
use crate::plan::Plan;
use crate::report::layout::{degrees, particulars};
use crate::report::number::{gib, grouped, parameters, seconds, significant};
use crate::report::shares;
use crate::report::summary::{certificate_sentence, hardware};
use crate::report::timeline::Held;
use crate::report::timeline_svg;
use crate::room::tightest;
use crate::study::decide::{Sensitivity, sensitivities};
use cluster_profiles::{Bytes, Seconds};
use cost_models::ParallelConfig;
use cost_models::schedule::{Timeline, record};
use cost_models::sites::limit_on;
use cost_models::step::SimulatedPipeline;
use maud::{Markup, PreEscaped, html};

/// Operations that are drawn at most; of a longer step the first microbatches.
const MOST_OPERATIONS: u64 = 2500;

/// The page of a plan.
#[must_use]
pub fn plan(plan: &Plan) -> String {
    let title = title(plan);
    page(&title, &html! { h1 { (title) } (body(plan)) })
}

/// What the plan is for.
pub fn title(plan: &Plan) -> String {
    title_of(&plan.inputs)
}

/// What is trained on what.
pub fn title_of(inputs: &Inputs) -> String {
    format!("{} on {} ({})", inputs.model.name, hardware(&inputs.cluster), inputs.cluster.name)
}

/// Title, capacity and limit of every kind of GPU, the largest first.
fn capacities(plan: &Plan) -> Vec<(String, Bytes, Bytes)> {
    let inputs = &plan.inputs;
    let mut kinds: Vec<(String, Bytes, Bytes)> = Vec::new();
    for (index, group) in inputs.cluster.groups.iter().enumerate() {
        if kinds.iter().all(|(title, ..)| *title != group.gpu.title) {
            let limit = limit_on(&inputs.cluster, &inputs.runtime, inputs.memory_limit_bytes, index);
            kinds.push((group.gpu.title.clone(), group.gpu.memory, limit));
        }
    }
    kinds.sort_by(|a, b| b.1.get().total_cmp(&a.1.get()));
    kinds
}

/// What is trained how.
pub fn workload(inputs: &Inputs) -> String {
    let workload = &inputs.workload;
    format!(
        "{} parameters, {}, {} sequences of {} tokens, {}",
        parameters(inputs.model.parameters_total()),
        workload.precision,
        grouped(workload.global_batch),
        grouped(workload.seq_len),
        inputs.runtime.name
    )
}

/// Everything but the heading.
pub fn body(plan: &Plan) -> Markup {
    html! {
        p { (workload(&plan.inputs)) }
        p { strong { (layout(&plan.parallel)) } }
        @for line in beyond_degrees(plan) { p { (line) } }
        (headline(plan))
        (time(plan))
        (shares(plan))
        (memory::section(&plan.estimate.memory, &shares::memories(plan), &capacities(plan)))
        (memory::hosts(&plan.placement.hosts, &by_host(plan)))
        (timeline(plan))
        (map::section(plan))
        (alternatives(plan))
        (helping(&sensitivities(plan)))
        (basis(plan))
    }
}

/// The degrees with commas: a browser takes several spaces for one.
fn layout(parallel: &ParallelConfig) -> String {
    degrees(parallel).replace("   ", ", ")
}

/// What the degrees do not say: what goes on with a line is put behind it.
fn beyond_degrees(plan: &Plan) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for (what, how) in particulars(plan) {
        let how = how.replace("   ", ", ");
        match lines.last_mut() {
            Some(line) if what.is_empty() => line.extend(["; ", &how]),
            _ => lines.push(format!("{what}: {how}")),
        }
    }
    lines
}

fn headline(plan: &Plan) -> Markup {
    let estimate = &plan.estimate;
    let room = tightest(&plan.run(), estimate, plan.inputs.memory_limit_bytes);
    let [low, high] = estimate.step_time_interval_seconds;
    html! {
        (facts(&[
            ("step", seconds(estimate.step_time_seconds)),
            ("most runs of this kind", format!("{} to {}", seconds(low), seconds(high))),
            ("tokens/s/GPU", grouped(estimate.tokens_per_second_per_gpu.round() as u64)),
            ("MFU", format!("{} %", significant(estimate.model_flops_utilization * 100.0))),
            ("idle, mean of ranks", format!("{} %", significant(estimate.bubble_fraction * 100.0))),
            ("peak memory", format!("{} of {} GiB", gib(room.memory.peak_bytes), gib(room.capacity))),
        ]))
        @if !estimate.fits { p.bad { "This layout does not fit the memory limit." } }
        @for warning in &estimate.warnings { p.bad { (warning) } }
        @if let Some(certificate) = &plan.certificate { p { (certificate_sentence(certificate)) "." } }
    }
}

/// What the ranks on every kind of GPU take, where that differs.
fn shares(plan: &Plan) -> Markup {
    let rows = shares::rows(plan);
    html! {
        @if !rows.is_empty() {
            h2 { "Shares by kind of GPU" }
            (table(&shares::HEADER, &[], &rows))
        }
    }
}

fn time(plan: &Plan) -> Markup {
    let parts = plan.estimate.time_seconds.parts();
    let names: Vec<String> = parts.iter().map(|(name, _)| name.replace('_', " ")).collect();
    let total = plan.estimate.step_time_seconds;
    let bar = Bar {
        label: "step".to_owned(),
        parts: parts.iter().enumerate().map(|(colour, (_, time))| (colour, time.get())).collect(),
        total: seconds(total),
    };
    let used = names.iter().zip(&parts).filter(|(_, (_, time))| time.get() > 0.0);
    let rows: Vec<Vec<String>> = used
        .map(|(name, (_, time))| {
            vec![name.clone(), seconds(*time), format!("{} %", significant(*time / total * 100.0))]
        })
        .collect();
    html! {
        h2 { "Time of a step by kind" }
        (stacked(&names, &[bar], &[], |time| seconds(Seconds(time))))
        details { summary { "In numbers" } (table(&["kind", "time", "share"], &[], &rows)) }
    }
}

/// The pipeline with the start and end of every operation: all microbatches, or as many of the first as make no more than
/// [`MOST_OPERATIONS`] (one round at least). None without a pipeline, and for schedules known by their closed form.
fn recorded(plan: &Plan) -> Option<(SimulatedPipeline, Timeline)> {
    let parallel = &plan.parallel;
    if parallel.pp == 1 {
        return None;
    }
    let mut shown = parallel.num_microbatches;
    let (all, round) = (parallel.num_microbatches, u64::from(parallel.pp));
    let per_microbatch = 2 * round * u64::from(parallel.vpp);
    if all * per_microbatch > MOST_OPERATIONS {
        let rounds = (MOST_OPERATIONS / per_microbatch / round).max(1);
        shown = (rounds * round).min(all);
    }
    let pipeline = layered::pipeline(plan, shown).ok()?;
    let timeline = record(&pipeline.orders, &pipeline.costs).ok()?;
    Some((pipeline, timeline))
}

fn timeline(plan: &Plan) -> Markup {
    let Some((pipeline, timeline)) = recorded(plan) else { return html! {} };
    let orders = &pipeline.orders;
    let bytes: Vec<f64> = pipeline.costs.stages.iter().map(|stage| stage.activation_bytes).collect();
    let (shown, all) = (u64::from(orders.total_microbatches()), plan.parallel.num_microbatches);
    let idle = format!("{} ({shown} microbatches)", plan.parallel.schedule);
    let busy: Vec<Vec<String>> = timeline
        .ranks
        .iter()
        .enumerate()
        .map(|(rank, line)| {
            let idle = (1.0 - line.busy / timeline.makespan) * 100.0;
            vec![
                rank.to_string(),
                seconds(Seconds(line.busy)),
                significant(idle),
                line.peak_activations.to_string(),
            ]
        })
        .collect();
    html! {
        h2 { "Timeline of the pipeline" }
        @if shown < all {
            p.soft { "The first " (shown) " of " (all) " microbatches; the whole step has less idle time: " (significant(plan.estimate.bubble_fraction * 100.0)) " %." }
        }
        div.timeline-scroll { (PreEscaped(timeline_svg::render(orders, &timeline, &idle, "seconds", Held::Bytes(&bytes)))) }
        details {
            summary { "In numbers" }
            (table(&["pipeline rank", "busy", "idle %", "microbatch-chunks held"], &[], &busy))
        }
    }
}

fn alternatives(plan: &Plan) -> Markup {
    if plan.alternatives.is_empty() {
        return html! {};
    }
    let best = plan.estimate.step_time_seconds;
    let own = vec![layout(&plan.parallel), seconds(best), "0".to_owned(), "the plan".to_owned()];
    let others = plan.alternatives.iter().map(|other| {
        let slower = (other.step_time_seconds / best - 1.0) * 100.0;
        vec![
            layout(&other.parallel),
            seconds(other.step_time_seconds),
            significant(slower),
            other.why.clone(),
        ]
    });
    let rows: Vec<Vec<String>> = std::iter::once(own).chain(others).collect();
    html! {
        h2 { "Other layouts" }
        (table(&["layout", "step", "slower by %", "why"], &[0, 3], &rows))
    }
}

/// What a faster part would bring.
pub fn helping(list: &[Sensitivity]) -> Markup {
    let rows: Vec<Vec<String>> = list
        .iter()
        .map(|one| {
            vec![
                one.name.clone(),
                format!("{:+.3}", one.elasticity),
                seconds(Seconds(one.step_halved_seconds)),
                seconds(Seconds(one.step_doubled_seconds)),
            ]
        })
        .collect();
    html! {
        @if !rows.is_empty() {
            h2 { "What faster hardware would bring" }
            p.soft { "The same layout; by how many percent the step changes for one percent more of a number, and the step with half and with twice as much." }
            (table(&["number", "change of the step, %", "halved", "doubled"], &[], &rows))
        }
    }
}

fn basis(plan: &Plan) -> Markup {
    let list = plan.estimate.assumptions.iter().map(|one| vec![one.basis.clone(), one.what.clone()]);
    let rows: Vec<Vec<String>> = list.collect();
    html! {
        h2 { "What the numbers rest on" }
        (table(&["basis", "what"], &[1], &rows))
    }
}
