//! `meshwright plan`: the fastest layout that fits.

use super::inputs::{InputArgs, note_capped};
use super::progress::Bar;
use super::{Ending, Format, output};
use crate::error::AppError;
use crate::files;
use crate::inputs::{self, Inputs, MOST_GAP};
use crate::launch::{self, Launcher};
use crate::limits;
use crate::offload::Offload;
use crate::pareto::Front;
use crate::plan::Plan;
use crate::replan::{self, Request};
use crate::report::{html, infeasible, pareto, summary};
use crate::require::Require;
use crate::{Answer, Wishes};
use clap::Args;
use cluster_profiles::{Seconds, quantity};
use solver::pareto::Trade;
use solver::term::Field;
use solver::{Constraints, Objective};
use std::path::PathBuf;
use std::time::Duration;

/// Find the fastest layout that fits.
#[derive(Debug, Args)]
pub struct PlanArgs {
    #[command(flatten)]
    inputs: InputArgs,
    /// What to be best at: step-time, tokens-per-dollar, gpus (fewest that keep the step --within), energy.
    #[arg(long, default_value = "step-time", value_name = "OBJECTIVE")]
    objective: String,
    /// Longest step for objective gpus, such as 4s.
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    within: Option<Seconds>,
    /// Keep these, such as tp=8,pp=4,schedule=1f1b. May be repeated.
    #[arg(long, value_name = "AXIS=VALUE,...")]
    fix: Vec<String>,
    /// Exclude these, such as 'tp=16', 'ep>8', cross-node-tp. May be repeated.
    #[arg(long, value_name = "TERM,...")]
    forbid: Vec<String>,
    /// Refuse plans that rest on less: measured (kernels, links and engine measured, or fitted to measurements), validated
    /// (published runs of the engine on this GPU kind, with every axis the layout uses).
    #[arg(long, value_enum, value_name = "BASIS")]
    require: Option<Require>,
    /// Answer with the best so far after this long, such as 2s.
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    time_limit: Option<Seconds>,
    /// Be content with a plan that no other beats by more, such as 1%: quicker. 0 proves the best.
    #[arg(long, value_name = "SHARE", value_parser = parse_gap, default_value = "0")]
    gap: f64,
    /// Layouts to rank: the plan and the best others.
    #[arg(long, value_name = "K", default_value_t = 4)]
    top: usize,
    /// Also show what a shorter step costs: the plans that no other beats in step time and gpus, memory or price.
    #[arg(long, value_name = "COST", value_parser = parse_trade)]
    pareto: Option<Trade>,
    /// Plan for what is left without these hosts, on the same global batch.
    #[arg(long, value_name = "HOST,...", value_delimiter = ',')]
    lost: Vec<String>,
    /// The plan that ran so far: says what has to move. Without --model and --cluster its own inputs are planned again.
    #[arg(long, value_name = "PLAN")]
    from: Option<PathBuf>,
    /// Prefer the plan whose move and this many steps are soonest done.
    #[arg(long, value_name = "STEPS", requires = "from")]
    horizon: Option<u64>,
    /// Write the plan to a file.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write a page about the plan, or why there is none.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// How to print the answer.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

fn parse_seconds(text: &str) -> Result<Seconds, String> {
    quantity::seconds(text)
}

/// A relative gap: `1%` or `0.01`.
fn parse_gap(text: &str) -> Result<f64, String> {
    inputs::share(text, MOST_GAP)
}

fn parse_trade(text: &str) -> Result<Trade, String> {
    Trade::parse(text).ok_or_else(|| format!("unknown cost `{text}`: use gpus, memory or price"))
}

/// Runs the verb.
///
/// # Errors
/// Wrong inputs, or constraints that contradict each other.
pub fn run(args: &PlanArgs) -> Result<Ending, AppError> {
    let from = args.old_plan()?;
    let inputs = args.inputs_after(from.as_ref())?;
    let inputs = match args.inputs.offload {
        Some(Offload::Optimizer) => inputs.offloaded()?,
        _ => inputs,
    };
    let wishes = args.wishes(args.unable())?;
    let bar = Bar::new();
    refuse_on_mixed(args, &inputs)?;
    let request = Request { lost: args.lost.clone(), from, horizon: args.horizon };
    if let Some(trade) = args.pareto {
        let front = crate::pareto::front(&inputs, &wishes, trade, &request, &bar);
        if let Some(front) = front? {
            bar.finish();
            return report_front(args, &front, trade);
        }
    }
    let asked = args.html.is_some().then(|| inputs.clone());
    let answer = if request.is_empty() {
        crate::plan(inputs, &wishes, &bar)
    } else {
        replan::plan(inputs, &wishes, &request, &bar)
    };
    let answer = answer.map(|answer| with_limits(args, &wishes, answer, &bar));
    bar.finish();
    match answer?? {
        Answer::Plan(plan) => report(args, &plan),
        Answer::Infeasible(infeasible) => {
            if let (Some(path), Some(inputs)) = (&args.html, &asked) {
                files::write_text(path, &html::infeasible(&infeasible, inputs))?;
            }
            match args.format {
                Format::Human => output::complain(&infeasible::text(&infeasible)),
                Format::Json => output::say(&output::json(&infeasible::document(&infeasible))?),
            }
            Ok(Ending::NoFeasiblePlan)
        }
        Answer::Stopped { considered } => Err(AppError::Other {
            message: format!("no fitting layout was found among {considered} within the time limit"),
            hint: Some("raise --time-limit".to_owned()),
        }),
    }
}

/// Choices over numbers of GPUs or limits of memory know one kind of GPU only.
fn refuse_on_mixed(args: &PlanArgs, inputs: &Inputs) -> Result<(), AppError> {
    let asked = [(args.pareto.is_some(), "--pareto"), (args.objective == "gpus", "--objective gpus")];
    match asked.iter().find(|(asked, _)| *asked && !inputs.cluster.is_homogeneous()) {
        Some((_, flag)) => Err(AppError::usage(
            format!("{flag} needs a cluster of one kind of GPU, and {} has several", inputs.cluster.name),
            "plan each kind alone, or without it".to_owned(),
        )),
        None => Ok(()),
    }
}

/// Where a launcher is named, what its limits cost.
fn with_limits(args: &PlanArgs, wishes: &Wishes, mut answer: Answer, bar: &Bar) -> Result<Answer, AppError> {
    if let (Answer::Plan(plan), Objective::StepTime) = (&mut answer, wishes.objective) {
        plan.launcher_limits = limits::of(plan, &args.wishes(&[])?, bar);
    }
    Ok(answer)
}

fn report(args: &PlanArgs, plan: &Plan) -> Result<Ending, AppError> {
    deliver(args, plan, &output::json(plan)?, &summary::text(plan), || html::plan(plan))
}

fn report_front(args: &PlanArgs, front: &Front, trade: Trade) -> Result<Ending, AppError> {
    let text = format!("{}{}", summary::text(&front.plan), pareto::text(front, trade));
    deliver(args, &front.plan, &output::json(front)?, &text, || html::front(front, trade))
}

/// Writes the document and the page where they were asked for, and prints the document or the text.
fn deliver(
    args: &PlanArgs,
    plan: &Plan,
    document: &str,
    text: &str,
    page: impl Fn() -> String,
) -> Result<Ending, AppError> {
    if let Some(path) = &args.out {
        files::write_text(path, document)?;
    }
    if let Some(path) = &args.html {
        files::write_text(path, &page())?;
    }
    match args.format {
        Format::Human => output::say(text),
        Format::Json => output::say(document),
    }
    if let (Some(path), Format::Human) = (&args.out, args.format) {
        output::say(&next_step(plan, &path.display().to_string()));
    }
    Ok(Ending::Done)
}

/// The command that exports a plan: to its launcher, else to the first of its engine that can start it.
fn next_step(plan: &Plan, path: &str) -> String {
    let runs =
        |to: &str| format!("Wrote {path}. To run it: meshwright export {path} --to {to} --out launch\n");
    if let Some(named) = plan.inputs.launcher.as_deref() {
        return match launch::named(named).map(|launcher| launcher.export(plan)) {
            Some(Err(error)) => format!("Wrote {path}. {error}\n"),
            _ => runs(named),
        };
    }
    let starts = |launcher: &&&dyn Launcher| {
        launcher.runtime() == plan.inputs.runtime.name && launcher.export(plan).is_ok()
    };
    if !plan.parallel.shares.is_empty() {
        let own = if plan.parallel.has_unequal_micro_batches() {
            "`placement.ranks` has the micro batch of every rank for the training loop"
        } else {
            "`parallel.shares` has what every kind of GPU holds"
        };
        return format!("Wrote {path}. {own}.\n");
    }
    launch::ALL
        .iter()
        .find(starts)
        .map_or_else(|| format!("Wrote {path}.\n"), |launcher| runs(launcher.name()))
}

impl PlanArgs {
    fn old_plan(&self) -> Result<Option<Plan>, AppError> {
        let read = |path: &PathBuf| Plan::from_json(&path.display().to_string(), &files::read_text(path)?);
        self.from.as_ref().map(read).transpose()
    }

    /// The inputs named by flags; those of the old plan where none is named.
    fn inputs_after(&self, from: Option<&Plan>) -> Result<Inputs, AppError> {
        match from {
            Some(old) if self.inputs.is_empty() => {
                let asked = self.inputs.memory_limit;
                let inputs = old.inputs.clone().remaining(&self.lost, self.inputs.gpus, asked)?;
                note_capped(asked, &inputs);
                Ok(inputs)
            }
            _ => self.inputs.load_without(&self.lost),
        }
    }

    /// What the launcher cannot do.
    fn unable(&self) -> &'static [&'static str] {
        let launcher = self.inputs.launcher.as_deref().and_then(launch::named);
        launcher.map_or(&[], |launcher| launcher.forbids())
    }

    /// What the user asks for, without what a launcher is `unable` to do.
    fn wishes(&self, unable: &[&str]) -> Result<Wishes, AppError> {
        let mut faults = Vec::new();
        let mut hint = None;
        let objective = Objective::parse(&self.objective, self.within).unwrap_or_else(|fault| {
            faults.push(fault);
            Objective::StepTime
        });
        let forbid: Vec<&str> =
            self.forbid.iter().map(String::as_str).chain(unable.iter().copied()).collect();
        let fix: Vec<&str> = self.fix.iter().map(String::as_str).collect();
        let constraints = Constraints::parse(&fix, &forbid).unwrap_or_else(|error| {
            faults.extend(error.faults.iter().cloned());
            hint = Some(error.hint());
            Constraints::default()
        });
        if self.inputs.offload == Some(Offload::Never) {
            let fixed = constraints.fixed_names(Field::Recompute);
            faults.extend(fixed.into_iter().filter(|name| name.contains("offload")).map(|name| {
                format!(
                    "--fix recompute={name} contradicts --offload never: it moves activations to host memory"
                )
            }));
        }
        if self.pareto.is_some() && objective != Objective::StepTime {
            faults.push(format!("--pareto trades step time, not --objective {}", self.objective));
        }
        if self.top == 0 || self.top > 1000 {
            faults.push(format!("--top is {}, expected 1 to 1000", self.top));
        }
        if !faults.is_empty() {
            return Err(AppError::Usage { faults, hint });
        }
        let time_limit = self.time_limit.map(|limit| Duration::from_secs_f64(limit.get().min(1e9)));
        let (top, require, offload) = (self.top, self.require, self.inputs.offload);
        let wishes =
            Wishes { objective, constraints, time_limit, top, require, offload, ..Wishes::default() };
        Ok(Wishes { gap: self.gap, ..wishes })
    }
}
