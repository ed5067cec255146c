//! `meshwright simulate`: what a pipeline schedule looks like: a plan's with its own costs, or one for given times.

use super::{Ending, Format, output};
use crate::error::AppError;
use crate::files;
use crate::layered;
use crate::plan::Plan;
use crate::report::simulation::{MOST_TEXT_OPS, PlanFigures, Simulation};
use crate::report::timeline::Held;
use crate::report::{html, timeline_svg, timeline_trace};
use clap::{Args, ValueEnum};
use cost_models::schedule::{
    AutoOptions, ChunkTimes, GroupRule, MemoryLimit, OpCosts, RankOrders, Schedule, ScheduleKind,
    ScheduleShape, VocabularyCosts, auto_schedule, from_torch_csv, generate_for, lower_bound, record,
    simulate, to_torch_csv,
};
use std::path::{Path, PathBuf};

/// Operations of which pictures and traces are still written: more make files that no viewer opens.
const MOST_DRAWN_OPS: usize = 2_000_000;

/// Simulate a pipeline schedule: a plan's with its own costs, or one for given times.
#[derive(Debug, Clone, Args)]
pub struct SimulateArgs {
    /// A plan, whose own costs are taken; otherwise give a schedule and times.
    #[arg(value_name = "PLAN", conflicts_with_all = OWN_TIMES)]
    pub plan: Option<PathBuf>,
    /// The schedule; `meshwright catalog schedules` lists them.
    #[arg(long, value_name = "NAME", required_unless_present_any = ["plan", "order"])]
    pub schedule: Option<String>,
    /// Pipeline ranks.
    #[arg(long, value_name = "P", required_unless_present_any = ["plan", "order"])]
    pub ranks: Option<u32>,
    /// Microbatches of a step.
    #[arg(long, value_name = "M", required_unless_present_any = ["plan", "order"])]
    pub microbatches: Option<u32>,
    /// Instead of a schedule's name: torch's schedule CSV.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["schedule", "ranks", "microbatches", "chunks"])]
    pub order: Option<PathBuf>,
    /// Stages on a rank; the schedule's usual number if left out.
    #[arg(long, value_name = "V")]
    pub chunks: Option<u32>,
    /// Times of forward, input gradient and weight gradient of one chunk.
    #[arg(long, value_name = "F,I,W", value_parser = times, allow_hyphen_values = true, required_unless_present = "plan")]
    pub times: Option<ChunkTimes>,
    /// Latency of a hop between ranks.
    #[arg(long, value_name = "C", default_value_t = 0.0, allow_hyphen_values = true)]
    pub p2p: f64,
    /// Microbatches per group, for schedules that have groups.
    #[arg(long, value_name = "G")]
    pub group_size: Option<u32>,
    /// Whose rule on groups applies.
    #[arg(long, value_enum, default_value_t = Rule::Megatron)]
    pub group_rule: Rule,
    /// Equal slices of every sequence, for schedules that cut them; the times are those of the whole. For `auto`, how
    /// many it may use at most (4 if left out; 1 keeps sequences whole).
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
    /// Write the timeline as a Chrome trace, which Perfetto opens; without a plan one unit of time is a millisecond
    /// there.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Write the order as torch's schedule CSV (torchtitan); `auto` then looks only at orders that have one.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write a page with the timeline and every rank in numbers.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// How to print the answer.
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// What a plan says itself.
const OWN_TIMES: [&str; 12] = [
    "schedule",
    "ranks",
    "microbatches",
    "order",
    "chunks",
    "times",
    "p2p",
    "group_size",
    "slices",
    "vocabulary_times",
    "memory_cap",
    "allow_stale_weights",
];

/// Whose rule on groups of microbatches an interleaved schedule keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Rule {
    /// Megatron-LM.
    Megatron,
    /// torch and torchtitan.
    Torch,
}

/// Runs the verb: data on stdout, files where asked for.
///
/// # Errors
/// Shapes the schedule refuses, unusable times, files that cannot be read or written.
pub fn run(args: &SimulateArgs) -> Result<Ending, AppError> {
    output::say(&text(args)?);
    Ok(Ending::Done)
}

/// Writes the files asked for and returns what is to be printed.
///
/// # Errors
/// As [`run`].
pub fn text(args: &SimulateArgs) -> Result<String, AppError> {
    let simulation = match (&args.plan, &args.order) {
        (Some(plan), _) => of_plan(args, plan)?,
        (None, Some(order)) => of_order(args, order)?,
        (None, None) => of_schedule(args)?,
    };
    write_files(args, &simulation)?;
    match args.format {
        Format::Json => output::json(&simulation.document()),
        Format::Human => Ok(simulation.text()),
    }
}

/// A plan's pipeline with the plan's costs.
fn of_plan(args: &SimulateArgs, path: &Path) -> Result<Simulation, AppError> {
    let plan = Plan::from_json(&path.display().to_string(), &files::read_text(path)?)?;
    let pipeline = layered::pipeline(&plan, plan.parallel.num_microbatches)?;
    let mut simulation =
        simulated(args, pipeline.schedule.to_string(), pipeline.orders.clone(), &pipeline.costs)?;
    let step = pipeline.step(&simulation.timeline);
    if pipeline.staggered {
        let note = "the next one's first forwards run before this one has ended on all ranks";
        simulation.notes.push(("steps", note.to_owned()));
    }
    let stage_bytes = pipeline.costs.stages.iter().map(|stage| stage.activation_bytes).collect();
    let (hops, waiting) = (pipeline.hops(&simulation.timeline), pipeline.waiting(&simulation.timeline));
    simulation.of_plan = Some(PlanFigures { stage_bytes, step, hops, waiting, outside: pipeline.outside });
    Ok(simulation)
}

/// The order a CSV gives, with the times of the flags.
fn of_order(args: &SimulateArgs, path: &Path) -> Result<Simulation, AppError> {
    let orders = from_torch_csv(&files::read_text(path)?).map_err(|error| AppError::Content {
        origin: path.display().to_string(),
        message: error.to_string(),
        hint: Some(error.hint()),
    })?;
    let costs = costs(args, orders.stages(), 1);
    let name =
        path.file_stem().map_or_else(|| "order".to_owned(), |stem| stem.to_string_lossy().into_owned());
    simulated(args, name, orders, &costs)
}

/// A schedule by its name, with the times of the flags.
fn of_schedule(args: &SimulateArgs) -> Result<Simulation, AppError> {
    let schedule: Schedule = args.schedule.as_deref().unwrap_or_default().parse().map_err(refused)?;
    let shape = ScheduleShape { vocabulary: schedule.vocabulary, ..shape(args) };
    let mut simulation = if schedule.kind == ScheduleKind::Auto {
        of_search(args, schedule, &ScheduleShape { slices: None, ..shape })?
    } else {
        let sizes = schedule.kind.check(&shape).map_err(refused)?;
        let costs = costs(args, sizes.p * sizes.v, sizes.q);
        let orders = generate_for(schedule, &shape, &costs).map_err(refused)?;
        simulated(args, schedule.to_string(), orders, &costs)?
    };
    if simulation.orders.pipelines() > 1 {
        simulation.notes.push(("weights", "every rank holds two stages' copies".to_owned()));
    }
    if simulation.orders.slices() > 1 {
        let cut = format!("cut into {} slices: for causal attention", simulation.orders.slices());
        simulation.notes.push(("sequences", cut));
    }
    if !schedule.kind.is_synchronous() {
        simulation.notes.push(("training", "works on stale weights: check convergence".to_owned()));
    }
    Ok(simulation)
}

/// Slices that `auto` may cut sequences into unless told otherwise: those of terapipe.
const USUAL_SLICES: u32 = 4;

/// The best order for the times of the flags. One that is to be written for torch has one pipeline and whole sequences.
fn of_search(args: &SimulateArgs, schedule: Schedule, shape: &ScheduleShape) -> Result<Simulation, AppError> {
    let sizes = schedule.kind.check(shape).map_err(refused)?;
    let options = AutoOptions {
        replicated_weights: args.csv.is_none(),
        most_slices: args.slices.unwrap_or(if args.csv.is_none() { USUAL_SLICES } else { 1 }),
        ..AutoOptions::default()
    };
    let found = auto_schedule(shape, &costs(args, sizes.p * sizes.v, 1), &options).map_err(refused)?;
    let mut simulation = simulated(args, schedule.to_string(), found.orders, &found.costs)?;
    simulation.lower_bound = found.lower_bound.min(simulation.timeline.makespan);
    simulation.found_as = Some(found.origin);
    Ok(simulation)
}

fn simulated(
    args: &SimulateArgs,
    schedule: String,
    orders: RankOrders,
    costs: &OpCosts,
) -> Result<Simulation, AppError> {
    let drawn = args.svg.is_some() || args.trace.is_some() || args.html.is_some();
    if drawn && orders.len() > MOST_DRAWN_OPS {
        return Err(AppError::usage(
            format!("{} operations are more than a picture or trace holds ({MOST_DRAWN_OPS})", orders.len()),
            "use fewer microbatches, or leave out --svg, --trace and --html",
        ));
    }
    let printed = args.format == Format::Human && orders.len() <= MOST_TEXT_OPS;
    let run = if drawn || printed { record } else { simulate };
    let timeline = run(&orders, costs)
        .map_err(|error| AppError::Other { message: error.to_string(), hint: Some(error.hint()) })?;
    // A bound summed in another order may end up a rounding error above what it bounds.
    let lower_bound = lower_bound(&orders, costs).min(timeline.makespan);
    let (notes, found_as, of_plan) = (Vec::new(), None, None);
    Ok(Simulation { schedule, orders, timeline, lower_bound, found_as, notes, of_plan })
}

fn refused(error: cost_models::schedule::ScheduleError) -> AppError {
    AppError::Other { message: error.to_string(), hint: Some(error.hint()) }
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
        times: args.times.unwrap_or_default(),
        ..ScheduleShape::new(args.ranks.unwrap_or_default(), args.microbatches.unwrap_or_default())
    }
}

fn costs(args: &SimulateArgs, stages: u32, slices: u32) -> OpCosts {
    let ChunkTimes { forward, input_grad, weight_grad } = args.times.unwrap_or_default();
    let vocabulary = args.vocabulary_times.unwrap_or_default();
    let whole = OpCosts::uniform(stages, forward, input_grad, weight_grad).with_latency(args.p2p);
    OpCosts { vocabulary, ..whole.of_slices(slices) }
}

fn write_files(args: &SimulateArgs, simulation: &Simulation) -> Result<(), AppError> {
    let Simulation { orders, timeline, of_plan, .. } = simulation;
    let held = of_plan.as_ref().map_or(Held::Chunks, |plan| Held::Bytes(&plan.stage_bytes));
    let (unit, microseconds) = if of_plan.is_some() { ("s", 1e6) } else { ("time", 1e3) };
    if let Some(path) = &args.svg {
        files::write_text(path, &timeline_svg::render(orders, timeline, &simulation.title(), unit, held))?;
    }
    if let Some(path) = &args.html {
        files::write_text(path, &html::simulate(simulation))?;
    }
    if let Some(path) = &args.trace {
        files::write_text(path, &timeline_trace::render(orders, timeline, microseconds, held))?;
    }
    if let Some(path) = &args.csv {
        let csv = to_torch_csv(orders)
            .map_err(|error| AppError::Other { message: error.to_string(), hint: Some(error.hint()) })?;
        files::write_text(path, &csv)?;
    }
    Ok(())
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
