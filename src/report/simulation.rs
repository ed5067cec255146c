//! A simulated schedule as text and as a document.

use super::number::{gib, seconds};
use super::timeline_text;
use cluster_profiles::{Bytes, Seconds};
use cost_models::schedule::{RankOrders, Timeline};
use cost_models::step::Outside;
use serde::Serialize;
use serde_json::Number;

/// Operations that still make a readable timeline in a terminal.
pub const MOST_TEXT_OPS: usize = 50_000;
/// Columns of the timeline.
const COLUMNS: usize = 96;
/// Ranks it shows.
const ROWS: usize = 16;

/// A schedule, its run, and what is said about it.
#[derive(Debug, Clone)]
pub struct Simulation {
    /// The schedule's name.
    pub schedule: String,
    /// Its orders.
    pub orders: RankOrders,
    /// Its run.
    pub timeline: Timeline,
    /// No order of the same stages and operations takes less.
    pub lower_bound: f64,
    /// What a searched order is made of.
    pub found_as: Option<String>,
    /// Lines that follow the figures, as name and text.
    pub notes: Vec<(&'static str, String)>,
    /// What a plan adds; none where times are without a unit.
    pub of_plan: Option<PlanFigures>,
}

/// What is known where the costs are those of a plan, in seconds and bytes.
#[derive(Debug, Clone)]
pub struct PlanFigures {
    /// Activation bytes of a microbatch (or slice) of every stage.
    pub stage_bytes: Vec<f64>,
    /// The whole step.
    pub step: Seconds,
    /// What hops between ranks add to it.
    pub hops: Seconds,
    /// What the busiest rank waits for others, hops apart.
    pub waiting: Seconds,
    /// The part of it beside the pipeline.
    pub outside: Outside,
}

/// The JSON document; times in the unit given, seconds for a plan.
#[derive(Debug, Serialize)]
pub struct Document<'a> {
    schedule: &'a str,
    ranks: u32,
    microbatches: u32,
    chunks: u32,
    makespan: f64,
    /// Per rank, idle time of the whole step.
    bubble: Vec<f64>,
    /// Per rank, idle time between its own first and last operation.
    span_bubble: Vec<f64>,
    bubble_fraction: f64,
    /// Per rank, microbatch-chunks held at once.
    peak_activations: Vec<Number>,
    lower_bound: f64,
    /// What a searched order is made of.
    #[serde(skip_serializing_if = "Option::is_none")]
    found_as: Option<&'a str>,
    /// Slices of a sequence, where it is cut.
    #[serde(skip_serializing_if = "is_one")]
    slices: u32,
    /// Copies of its weights every rank holds, where there are two.
    #[serde(skip_serializing_if = "is_one")]
    weight_copies: u32,
    #[serde(flatten)]
    of_plan: Option<PlanDocument>,
}

#[derive(Debug, Serialize)]
struct PlanDocument {
    peak_activation_bytes: Vec<f64>,
    step_time_seconds: Seconds,
    /// The two parts of the makespan bubble, under their names in a plan.
    time_seconds: BubbleDocument,
    outside_seconds: OutsideDocument,
}

#[derive(Debug, Serialize)]
struct BubbleDocument {
    pp: Seconds,
    bubble: Seconds,
}

#[derive(Debug, Serialize)]
struct OutsideDocument {
    dp: Seconds,
    optimizer: Seconds,
    host: Seconds,
}

const fn is_one(count: &u32) -> bool {
    *count == 1
}

impl Simulation {
    /// The JSON document.
    #[must_use]
    pub fn document(&self) -> Document<'_> {
        let Self { orders, timeline, .. } = self;
        Document {
            schedule: &self.schedule,
            ranks: orders.ranks(),
            microbatches: orders.total_microbatches(),
            chunks: orders.chunks(),
            makespan: timeline.makespan,
            bubble: timeline.bubbles(),
            span_bubble: timeline.span_bubbles(),
            bubble_fraction: timeline.bubble_fraction(),
            peak_activations: timeline.peak_activations().into_iter().map(|peak| self.chunks(peak)).collect(),
            lower_bound: self.lower_bound,
            found_as: self.found_as.as_deref(),
            slices: orders.slices(),
            weight_copies: orders.pipelines(),
            of_plan: self.of_plan.as_ref().map(|plan| PlanDocument {
                peak_activation_bytes: timeline.ranks.iter().map(|rank| rank.peak_activation_bytes).collect(),
                step_time_seconds: plan.step,
                time_seconds: BubbleDocument { pp: plan.hops, bubble: plan.waiting },
                outside_seconds: OutsideDocument {
                    dp: plan.outside.data_parallel,
                    optimizer: plan.outside.optimizer,
                    host: plan.outside.host,
                },
            }),
        }
    }

    /// One line: what it is and how much of it is idle.
    #[must_use]
    pub fn title(&self) -> String {
        let chunks = match self.orders.chunks() {
            1 => String::new(),
            chunks => format!(" x {chunks} chunks"),
        };
        format!(
            "{}, {} ranks{chunks}, {} microbatches: {:.1} % idle",
            self.schedule,
            self.orders.ranks(),
            self.orders.total_microbatches(),
            100.0 * self.timeline.bubble_fraction()
        )
    }

    /// The text for a terminal; the timeline is part of it where every operation was recorded.
    #[must_use]
    pub fn text(&self) -> String {
        let timeline = &self.timeline;
        let mut text = format!("{}\n\n", self.title());
        if timeline.ranks.iter().any(|rank| !rank.spans.is_empty()) && self.orders.len() <= MOST_TEXT_OPS {
            text.push_str(&timeline_text::render(&self.orders, timeline, COLUMNS, ROWS));
            text.push('\n');
        }
        for (name, figure) in self.figures() {
            text.push_str(&format!("  {name:<11}  {figure}\n"));
        }
        text
    }

    fn figures(&self) -> Vec<(&'static str, String)> {
        let timeline = &self.timeline;
        let time = |time: f64| self.time(time);
        let mut figures = Vec::new();
        if let Some(plan) = &self.of_plan {
            figures.push(("step", step_text(plan)));
        }
        figures.push(("makespan", time(timeline.makespan)));
        figures.push(("lower bound", time(self.lower_bound)));
        let (bubble, span) = (time(timeline.makespan_bubble()), time(timeline.span_bubble()));
        let parts = self.of_plan.as_ref().map_or_else(String::new, |plan| {
            format!("; in the step: bubble {}, pp {}", seconds(plan.waiting), seconds(plan.hops))
        });
        let whole = format!("{bubble} (makespan less busiest rank), {span} inside a rank's span{parts}");
        figures.push(("bubble", whole));
        figures.push(("activations", self.activations()));
        figures.extend(self.found_as.clone().map(|origin| ("found as", origin)));
        figures.extend(self.notes.iter().cloned());
        figures
    }

    fn activations(&self) -> String {
        let most = format!("up to {} microbatch-chunks on a rank", self.chunks(self.timeline.worst_peak()));
        if self.of_plan.is_none() {
            return most;
        }
        let bytes = |rank: &usize| self.timeline.ranks[*rank].peak_activation_bytes;
        let fullest = (0..self.timeline.ranks.len()).rev().max_by(|a, b| bytes(a).total_cmp(&bytes(b)));
        let fullest = fullest.unwrap_or(0);
        format!("{most}, up to {} GiB (rank {fullest})", gib(Bytes(bytes(&fullest))))
    }

    fn time(&self, time: f64) -> String {
        if self.of_plan.is_some() { seconds(Seconds(time)) } else { shortest(time) }
    }

    /// Slices held, in microbatches.
    fn chunks(&self, held: u32) -> Number {
        let slices = self.orders.slices();
        let fraction = || Number::from_f64(f64::from(held) / f64::from(slices));
        if held.is_multiple_of(slices) {
            Number::from(held / slices)
        } else {
            fraction().unwrap_or(Number::from(0))
        }
    }
}

fn step_text(plan: &PlanFigures) -> String {
    let outside = &plan.outside;
    let pipeline = Seconds(plan.step.get() - outside.total().get());
    format!(
        "{}: pipeline {}, dp {}, optimizer {}, host {}",
        seconds(plan.step),
        seconds(pipeline),
        seconds(outside.data_parallel),
        seconds(outside.optimizer),
        seconds(outside.host)
    )
}

/// Up to six significant digits, no trailing zeros.
fn shortest(value: f64) -> String {
    let digits = 5 - value.abs().max(1.0).log10().floor() as i32;
    let text = format!("{value:.*}", digits.clamp(0, 6) as usize);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}
