//! `meshwright estimate`: time and memory of a given layout.

use super::inputs::InputArgs;
use super::layout::LayoutArgs;
use super::{Ending, Format, output};
use crate::error::AppError;
use crate::files;
use crate::layered;
use crate::offload::Offload;
use crate::plan::Plan;
use crate::report::summary;
use clap::Args;
use std::path::PathBuf;

/// Predict time and memory of a layout: one given by flags, or that of a plan.
#[derive(Debug, Args)]
pub struct EstimateArgs {
    /// A plan, whose own layout is estimated again; otherwise give the inputs and the degrees.
    #[arg(value_name = "PLAN", conflicts_with_all = ["InputArgs", "LayoutArgs"])]
    plan: Option<PathBuf>,
    #[command(flatten)]
    inputs: InputArgs,
    #[command(flatten)]
    layout: LayoutArgs,
    /// Write the estimate as a plan.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// How to print the answer.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Runs the verb.
///
/// # Errors
/// Wrong inputs, or a layout that breaks rules (all of them are listed).
pub fn run(args: &EstimateArgs) -> Result<Ending, AppError> {
    let plan = match &args.plan {
        Some(path) => again(Plan::from_json(&path.display().to_string(), &files::read_text(path)?)?)?,
        None => of_flags(args)?,
    };
    if let Some(path) = &args.out {
        files::write_text(path, &output::json(&plan)?)?;
    }
    match args.format {
        Format::Human => output::say(&summary::text(&plan)),
        Format::Json => output::say(&output::json(&plan)?),
    }
    Ok(Ending::Done)
}

/// The plan's own layout, estimated again.
fn again(plan: Plan) -> Result<Plan, AppError> {
    let strategies = plan.layer_strategies.clone();
    let estimate = layered::estimate(&plan.run(), strategies.as_ref(), plan.inputs.memory_limit_bytes)?;
    let available = plan.inputs.available.clone();
    let mut again = Plan::new(plan.inputs, plan.parallel, plan.stages, estimate);
    again.inputs.available = available;
    Ok(Plan { placement: plan.placement, layer_strategies: strategies, ..again })
}

fn of_flags(args: &EstimateArgs) -> Result<Plan, AppError> {
    let mut inputs = args.inputs.load()?;
    match args.inputs.offload {
        Some(Offload::Optimizer) => inputs = inputs.offloaded()?,
        Some(Offload::Activations | Offload::Any) => {
            return Err(AppError::usage(
                "--offload activations: an estimate needs the number of layers, or the modules",
                "state it as --recompute offload:LAYERS or --recompute offload:core_attn+attn_proj",
            ));
        }
        Some(Offload::Never) | None => {}
    }
    let (parallel, stages) = args.layout.resolve(&inputs, args.inputs.gpus)?;
    if args.inputs.offload == Some(Offload::Never) && parallel.recompute.is_moving() {
        return Err(AppError::usage(
            format!(
                "--recompute {} contradicts --offload never: it moves activations to host memory",
                parallel.recompute
            ),
            "drop --offload never, or the modules after offload:",
        ));
    }
    if args.inputs.gpus.is_none() {
        inputs.cluster = inputs.cluster.resized(parallel.world_size())?;
    }
    let run = cost_models::TrainingRun {
        model: &inputs.model,
        cluster: &inputs.cluster,
        workload: &inputs.workload,
        runtime: &inputs.runtime,
        parallel: &parallel,
        stages: &stages,
    };
    let strategies = args.layout.strategies();
    let estimate = layered::estimate(&run, strategies, inputs.memory_limit_bytes)?;
    let plan = Plan::new(inputs, parallel, stages, estimate);
    Ok(Plan { layer_strategies: strategies.cloned(), ..plan })
}
