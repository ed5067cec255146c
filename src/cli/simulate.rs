//! `meshwright simulate`: what a pipeline schedule looks like for given times.

use crate::cli::Format;
use crate::report::{timeline_svg, timeline_text, timeline_trace};
use clap::{Args, ValueEnum};
use cost_models::schedule::{
    AutoOptions, ChunkTimes, CsvError, GroupRule, MemoryLimit, OpCosts, RankOrders, Schedule, ScheduleError,
    ScheduleKind, ScheduleShape, SimulateError, Timeline, VocabularyCosts, auto_schedule, generate_for,
    lower_bound, record, to_torch_csv,
};
use serde::Serialize;
use serde_json::Number;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Simulate a pipeline schedule.
#[derive(Debug, Clone, Args)]
pub struct SimulateArgs {
    /// The schedule; `meshwright catalog schedules` lists them.
    #[arg(long, value_name = "NAME")]
    pub schedule: String,
    /// Pipeline ranks.
    #[arg(long, value_name = "P")]
    pub ranks: u32,
    /// Microbatches of a step.
    #[arg(long, value_name = "M")]
    pub microbatches: u32,
    /// Stages on a rank; the schedule's usual number if left out.
    #[arg(long, value_name = "V")]
    pub chunks: Option<u32>,
    /// Times of forward, input gradient and weight gradient of one chunk.
    #[arg(long, value_name = "F,I,W", value_parser = times, allow_hyphen_values = true)]
    pub times: ChunkTimes,
    /// Latency of a hop between ranks.
    #[arg(long, value_name = "C", default_value_t = 0.0, allow_hyphen_values = true)]
    pub p2p: f64,
    /// Microbatches per group, for schedules that have groups.
    #[arg(long, value_name = "G")]
    pub group_size: Option<u32>,
    /// Whose rule on groups applies.
    #[arg(long, value_enum, default_value_t = Rule::Megatron)]
    pub group_rule: Rule,
    /// Equal slices of every sequence, for schedules that cut them; the times are those of the whole.
    #[arg(long, value_name = "Q")]
    pub slices: Option<u32>,
    /// Times of the two passes of a split output layer, for the suffixes -vocab1 and -vocab2.
    #[arg(long, value_name = "S,T", value_parser = passes, allow_hyphen_values = true)]
    pub vocabulary_times: Option<VocabularyCosts>,
    /// Most microbatch-chunks a rank may hold, for `auto`.
    #[arg(long, value_name = "CHUNKS")]
    pub memory_cap: Option<u32>,
    /// Allow schedules that work on stale weights.
    #[arg(long)]
    pub allow_stale_weights: bool,
    /// Write the timeline as a picture.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Write the timeline as a Chrome trace, which Perfetto opens; one unit of time is a millisecond there.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Write the order as torch's schedule CSV (torchtitan).
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Form of the answer.
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub format: Format,
}

/// Whose rule on groups of microbatches an interleaved schedule keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Rule {
    /// Megatron-LM.
    Megatron,
    /// torch and torchtitan.
    Torch,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum SimulateVerbError {
    /// The schedule does not exist, or not for this shape.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The times are not usable.
    #[error(transparent)]
    Simulate(#[from] SimulateError),
    /// The schedule has no CSV form.
    #[error(transparent)]
    Csv(#[from] CsvError),
    /// A file cannot be written.
    #[error("{path}: {source}")]
    Write {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
}

impl SimulateVerbError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            SimulateVerbError::Schedule(error) => error.hint(),
            SimulateVerbError::Simulate(error) => error.hint(),
            SimulateVerbError::Csv(error) => error.hint(),
            SimulateVerbError::Write { .. } => {
                "name a file in a folder that exists and can be written".into()
            }
        }
    }
}

/// The JSON document; times in the unit of `--times`.
#[derive(Debug, Serialize)]
struct Answer {
    schedule: String,
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
}

/// A simulated schedule with what is printed of it.
struct Simulated {
    schedule: Schedule,
    orders: RankOrders,
    timeline: Timeline,
    lower_bound: f64,
    origin: Option<String>,
}

/// Runs the verb: data on stdout, files where asked for.
///
/// # Errors
/// [`SimulateVerbError`] for shapes the schedule refuses, unusable times and files that cannot be written.
pub fn run(args: &SimulateArgs) -> Result<(), SimulateVerbError> {
    let text = text(args)?;
    let printed = std::io::stdout().lock().write_all(text.as_bytes());
    printed.map_err(|source| SimulateVerbError::Write { path: "standard output".into(), source })
}

/// Writes the files asked for and returns what is to be printed.
///
/// # Errors
/// As [`run`].
pub fn text(args: &SimulateArgs) -> Result<String, SimulateVerbError> {
    let simulated = simulated(args)?;
    write_files(args, &simulated)?;
    Ok(match args.format {
        Format::Json => {
            let answer = answer(args, &simulated);
            serde_json::to_string_pretty(&answer).unwrap_or_default() + "\n"
        }
        Format::Human => human(args, &simulated),
    })
}

fn simulated(args: &SimulateArgs) -> Result<Simulated, SimulateVerbError> {
    let schedule: Schedule = args.schedule.parse()?;
    let shape = shape(args);
    let sizes = schedule.kind.check(&ScheduleShape { vocabulary: schedule.vocabulary, ..shape })?;
    let slices = f64::from(sizes.q);
    let ChunkTimes { forward, input_grad, weight_grad } = args.times;
    let times = [forward, input_grad, weight_grad].map(|time| time / slices);
    let mut costs = OpCosts::uniform(sizes.p * sizes.v, times[0], times[1], times[2]).with_latency(args.p2p);
    costs.vocabulary = args.vocabulary_times.unwrap_or_default();
    let (orders, bound, origin) = if schedule.kind == ScheduleKind::Auto {
        let options = AutoOptions { replicated_weights: true, ..AutoOptions::default() };
        let found = auto_schedule(&shape, &costs, &options)?;
        (found.orders, found.lower_bound, Some(found.origin))
    } else {
        let orders = generate_for(schedule, &shape, &costs)?;
        let bound = lower_bound(&orders, &costs);
        (orders, bound, None)
    };
    let timeline = record(&orders, &costs)?;
    // A bound summed in another order may end up a rounding error above what it bounds.
    let lower_bound = bound.min(timeline.makespan);
    Ok(Simulated { schedule, orders, timeline, lower_bound, origin })
}

fn shape(args: &SimulateArgs) -> ScheduleShape {
    ScheduleShape {
        chunks: args.chunks,
        group_size: args.group_size,
        group_rule: match args.group_rule {
            Rule::Megatron => GroupRule::Megatron,
            Rule::Torch => GroupRule::Torch,
        },
        slices: args.slices,
        allow_asynchronous: args.allow_stale_weights,
        memory_limit: args.memory_cap.map(MemoryLimit::Chunks),
        times: args.times,
        ..ScheduleShape::new(args.ranks, args.microbatches)
    }
}

fn write_files(args: &SimulateArgs, simulated: &Simulated) -> Result<(), SimulateVerbError> {
    let Simulated { orders, timeline, .. } = simulated;
    if let Some(path) = &args.svg {
        write(path, &timeline_svg::render(orders, timeline, &title(args, simulated), "time"))?;
    }
    if let Some(path) = &args.trace {
        write(path, &timeline_trace::render(orders, timeline, 1000.0))?;
    }
    if let Some(path) = &args.csv {
        write(path, &to_torch_csv(orders)?)?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), SimulateVerbError> {
    let failed = |source| SimulateVerbError::Write { path: path.display().to_string(), source };
    std::fs::write(path, text).map_err(failed)
}

fn answer(args: &SimulateArgs, simulated: &Simulated) -> Answer {
    let Simulated { schedule, orders, timeline, .. } = simulated;
    Answer {
        schedule: schedule.to_string(),
        ranks: args.ranks,
        microbatches: args.microbatches,
        chunks: orders.chunks(),
        makespan: timeline.makespan,
        bubble: timeline.bubbles(),
        span_bubble: timeline.span_bubbles(),
        bubble_fraction: timeline.bubble_fraction(),
        peak_activations: timeline.peak_activations().into_iter().map(|peak| chunks(orders, peak)).collect(),
        lower_bound: simulated.lower_bound,
    }
}

/// Slices held, in microbatches.
fn chunks(orders: &RankOrders, held: u32) -> Number {
    let slices = orders.slices();
    let fraction = || Number::from_f64(f64::from(held) / f64::from(slices));
    if held.is_multiple_of(slices) {
        Number::from(held / slices)
    } else {
        fraction().unwrap_or(Number::from(0))
    }
}

fn title(args: &SimulateArgs, simulated: &Simulated) -> String {
    let chunks = match simulated.orders.chunks() {
        1 => String::new(),
        chunks => format!(" x {chunks} chunks"),
    };
    let idle = 100.0 * simulated.timeline.bubble_fraction();
    let schedule = simulated.schedule;
    format!("{schedule}, {} ranks{chunks}, {} microbatches: {idle:.1} % idle", args.ranks, args.microbatches)
}

fn human(args: &SimulateArgs, simulated: &Simulated) -> String {
    let Simulated { orders, timeline, lower_bound, .. } = simulated;
    let peaks = timeline.peak_activations();
    let worst = peaks.iter().copied().max().unwrap_or(0);
    let mut text = format!("{}\n\n", title(args, simulated));
    if timeline.ranks.iter().map(|rank| rank.spans.len()).sum::<usize>() <= 50_000 {
        text.push_str(&timeline_text::render(orders, timeline, 96, 16));
        text.push('\n');
    }
    text.push_str(&format!("  makespan     {}\n", shortest(timeline.makespan)));
    text.push_str(&format!("  lower bound  {}\n", shortest(*lower_bound)));
    text.push_str(&format!(
        "  bubble       {} (makespan less busiest rank), {} inside a rank's span\n",
        shortest(timeline.makespan_bubble()),
        shortest(timeline.span_bubble())
    ));
    text.push_str(&format!("  activations  up to {} microbatch-chunks on a rank\n", chunks(orders, worst)));
    if let Some(origin) = &simulated.origin {
        text.push_str(&format!("  found as     {origin}\n"));
    }
    if orders.pipelines() > 1 {
        text.push_str("  weights      every rank holds two stages' copies\n");
    }
    if !simulated.schedule.kind.is_synchronous() {
        text.push_str("  training     works on stale weights: check convergence\n");
    }
    text
}

/// Up to six significant digits, no trailing zeros.
fn shortest(value: f64) -> String {
    let digits = 5 - value.abs().max(1.0).log10().floor() as i32;
    let text = format!("{value:.*}", digits.clamp(0, 6) as usize);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn times(text: &str) -> Result<ChunkTimes, String> {
    let [forward, input_grad, weight_grad] = numbers(text, "F,I,W")?;
    Ok(ChunkTimes { forward, input_grad, weight_grad })
}

fn passes(text: &str) -> Result<VocabularyCosts, String> {
    let [s, t] = numbers(text, "S,T")?;
    Ok(VocabularyCosts { s, t, ..VocabularyCosts::default() })
}

fn numbers<const N: usize>(text: &str, form: &str) -> Result<[f64; N], String> {
    let parsed = text.split(',').map(|part| part.trim().parse::<f64>().map_err(|_| part.to_owned()));
    let numbers: Vec<f64> =
        parsed.collect::<Result<_, _>>().map_err(|part| format!("'{part}' is not a number; give {form}"))?;
    let count = numbers.len();
    if let Some(bad) = numbers.iter().find(|number| !(number.is_finite() && **number >= 0.0)) {
        return Err(format!("{bad} is not a time; times are finite and not negative"));
    }
    numbers.try_into().map_err(|_| format!("{count} numbers; give {form}"))
}
