//! Writes torchtitan's Python configuration, the same as overrides, and a schedule CSV.

use super::models::{self, Registered};
use super::{FILE_SCHEDULES, SCHEDULES, Version, usual_chunks};
use crate::launch::layers::Job;
use crate::launch::verify::{self, Verify};
use crate::launch::{Exported, LaunchFile, shell};
use crate::plan::Plan;
use cost_models::model::Layer;
use cost_models::runtime::SplitPolicy;
use cost_models::schedule::{Schedule, to_torch_csv};
use cost_models::stages::default_stages;
use cost_models::step::SimulatedPipeline;
use cost_models::{ModelSpec, Recompute};
use std::borrow::Cow;

/// Name of the module that holds the configuration.
const MODULE: &str = "meshwright_plan";

/// The files, unless the model or the workload is `refused`.
pub fn export(plan: &Plan, version: Version, refused: Vec<String>) -> Result<Exported, Vec<String>> {
    let mut reasons = unfit(plan);
    reasons.extend(refused);
    let model = models::ours(&plan.inputs.model);
    let csv = schedule_csv(plan).unwrap_or_else(|reason| {
        reasons.push(reason);
        None
    });
    let (Some(model), true) = (model, reasons.is_empty()) else { return Err(reasons) };
    let fields = fields(plan, version, csv.as_ref().map(|(name, _)| name.as_str()));
    let mut files = vec![
        LaunchFile::data("meshwright_plan.py", python(plan, model, &fields, version)),
        LaunchFile::data(verify::NAME, memory_script(plan)),
    ];
    if let Some(layers) = layers_per_stage(plan).filter(|_| model.is_registered()) {
        files.push(LaunchFile::data("overrides.args", overrides(plan, model, &fields, layers)));
    }
    files.extend(csv.map(|(name, text)| LaunchFile { name: Cow::Owned(name), text, executable: false }));
    let job = Job {
        environment: vec![
            ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True".to_owned()),
            ("NCCL_NVLS_ENABLE", "0".to_owned()),
        ],
        prepare: "export PYTHONPATH=\"$PWD${PYTHONPATH:+:$PYTHONPATH}\"\n".to_owned(),
        command: format!("-m torchtitan.train --module {MODULE} --config plan \"$@\""),
    };
    Ok(Exported { files, job })
}

/// torchtitan tells what its allocator reserved.
fn memory_script(plan: &Plan) -> String {
    let verify = Verify {
        needs: "torchtitan, and the tokenizer and data set of the configuration",
        command: format!(
            "def command(rank):\n    words = [\"--module\", \"{MODULE}\", \"--config\", \"plan\", \"--comm.mode\", \"fake_backend\"]\n    \
             return [sys.executable, \"-m\", \"torchtitan.train\", *words, \"--training.steps\", \"2\", \"--metrics.log_freq\", \"1\"]\n"
        ),
        environment: "environment.update(NGPU=str(WORLD_SIZE), PYTHONPATH=os.pathsep.join([FOLDER, os.environ.get(\"PYTHONPATH\", \"\")]))"
            .to_owned(),
        pattern: "memory: *([0-9.]+)GiB",
        planned: |memory| memory.peak_bytes,
        unit: "2**30",
    };
    verify::script(plan, &verify)
}

/// What torchtitan cannot run.
fn unfit(plan: &Plan) -> Vec<String> {
    let p = &plan.parallel;
    let mut reasons = Vec::new();
    if p.zero_stage < 2 {
        reasons.push(format!("ZeRO-{} (it shards parameters: 2 or 3)", p.zero_stage));
    }
    if p.etp != 1 {
        reasons.push(format!("expert tensor parallelism of {}", p.etp));
    }
    if matches!(p.recompute, Recompute::Full { layers: Some(_) })
        || plan.stages.0.iter().any(|stage| stage.recompute != p.recompute)
    {
        reasons.push("recompute of a part of the layers".to_owned());
    }
    reasons
}

/// A field of the configuration: section, name, and its value in Python.
struct Field {
    section: &'static str,
    name: &'static str,
    value: String,
}

fn fields(plan: &Plan, version: Version, csv: Option<&str>) -> Vec<Field> {
    let p = &plan.parallel;
    let field = |section, name, value: String| Field { section, name, value };
    let degree = |name, value: u32| field("parallelism", name, value.to_string());
    let reshard = if p.zero_stage == 3 { "always" } else { "never" };
    let mut fields = vec![
        degree("data_parallel_replicate_degree", p.dp_replicate),
        degree("data_parallel_shard_degree", p.dp_shard),
        degree("tensor_parallel_degree", p.tp),
        degree("pipeline_parallel_degree", p.pp),
        degree("context_parallel_degree", p.cp),
        degree("expert_parallel_degree", p.ep),
        field("parallelism", "fsdp_reshard_after_forward", text(reshard)),
    ];
    if p.tp > 1 && !p.sequence_parallel {
        fields.push(field("parallelism", "enable_sequence_parallel", "False".to_owned()));
    }
    fields.extend(batch(plan, version));
    fields.push(field("compile", "enable", "True".to_owned()));
    fields.push(field("compile", "components", "[\"model\", \"loss\"]".to_owned()));
    if p.pp > 1 {
        let named = SCHEDULES.iter().find(|(ours, _)| *ours == p.schedule).map(|(_, theirs)| *theirs);
        let runtime = FILE_SCHEDULES[usize::from(p.vpp > 1)];
        fields.push(field("parallelism", "pipeline_parallel_schedule", text(named.unwrap_or(runtime))));
        if let Some(name) = csv {
            fields.push(field("parallelism", "pipeline_parallel_schedule_csv", text(name)));
        }
    }
    if p.pp > 1 || p.ep > 1 {
        fields.push(field("training", "disable_cuda_graphs", "True".to_owned()));
    }
    fields
}

/// Sequences of a rank and of a step; with a pipeline a rank takes all its microbatches at once.
fn batch(plan: &Plan, version: Version) -> Vec<Field> {
    let p = &plan.parallel;
    let workload = &plan.inputs.workload;
    let (seq_len, global) = (workload.seq_len, workload.global_batch);
    let per_rank = if p.pp > 1 { p.micro_batch_size * p.num_microbatches } else { p.micro_batch_size };
    let number = |section, name, value: u64| Field { section, name, value: value.to_string() };
    let mut fields = match version {
        Version::Release => vec![
            number("training", "local_batch_size", per_rank),
            number("training", "global_batch_size", global),
            number("training", "seq_len", seq_len),
        ],
        Version::Main => vec![
            number("training", "num_tokens_per_microbatch_per_dp_rank", per_rank * seq_len),
            number("training", "num_tokens_per_train_step", global * seq_len),
            number("training", "max_context_length", seq_len),
        ],
    };
    if p.pp > 1 {
        fields.push(match version {
            Version::Release => {
                number("parallelism", "pipeline_parallel_microbatch_size", p.micro_batch_size)
            }
            Version::Main => number("parallelism", "num_pp_microbatches", p.num_microbatches),
        });
    }
    fields
}

/// A Python string. Only names of our own are written.
fn text(value: &str) -> String {
    format!("\"{value}\"")
}

fn python(plan: &Plan, model: &Registered, fields: &[Field], version: Version) -> String {
    let (policy, import) = match plan.parallel.recompute {
        Recompute::None | Recompute::Offload { .. } | Recompute::Modules(_) => ("None", ""),
        Recompute::Selective => {
            ("SelectiveAC.Config()", "from torchtitan.distributed.activation_checkpoint import SelectiveAC\n")
        }
        Recompute::Full { .. } => {
            ("FullAC.Config()", "from torchtitan.distributed.activation_checkpoint import FullAC\n")
        }
    };
    let release = match version {
        Version::Release => "torchtitan 0.3.0",
        Version::Main => "torchtitan's main branch of August 2026",
    };
    let set: String = fields
        .iter()
        .map(|field| format!("    config.{}.{} = {}\n", field.section, field.name, field.value))
        .collect();
    let stages = if plan.parallel.pp > 1 {
        format!("    config.parallelism.module_fqns_per_model_part = [\n{}    ]\n", parts(plan))
    } else {
        String::new()
    };
    format!(
        "\"\"\"{} on {} GPUs, for {release}: `-m torchtitan.train --module {MODULE} --config plan`.\"\"\"\n\n\
         from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss\n\
         {import}\
         from torchtitan.models.common.config_utils import decoder_vocab_size\n\
         from torchtitan.models.{} import model_registry\n\
         from torchtitan.models.{}.config_registry import {}\n\n\n\
         def plan():\n    \
         config = {}()\n    \
         config.model_spec = model_registry(\"{}\")\n    \
         vocabulary = decoder_vocab_size(config.model_spec)\n    \
         config.loss = ChunkedLossWrapper.Config(loss_fn=CrossEntropyLoss.Config(global_vocab_size=vocabulary))\n\
         {set}{stages}    config.activation_checkpoint = {policy}\n    return config\n",
        model.ours,
        plan.parallel.world_size(),
        model.module,
        model.module,
        model.config,
        model.config,
        model.flavor,
    )
}

/// The modules of every stage, a list each.
fn parts(plan: &Plan) -> String {
    let blocks: Vec<usize> = plan.inputs.model.blocks().map(|(index, _)| index).collect();
    let name = |index: usize| match plan.inputs.model.layers.get(index) {
        Some(Layer::Embedding) => Some("tok_embeddings".to_owned()),
        Some(Layer::FinalNorm) => Some("norm".to_owned()),
        Some(Layer::Head) => Some("lm_head".to_owned()),
        _ => blocks.iter().position(|&block| block == index).map(|number| format!("layers.{number}")),
    };
    let line = |stage: &cost_models::Stage| {
        let names: Vec<String> = stage.layer_range().filter_map(name).map(|name| text(&name)).collect();
        format!("        [{}],\n", names.join(", "))
    };
    plan.stages.0.iter().map(line).collect()
}

/// Whether overrides say the whole plan: its stages are those that torchtitan makes itself, and with how many layers
/// per stage, where that has to be said.
fn layers_per_stage(plan: &Plan) -> Option<Option<u64>> {
    let p = &plan.parallel;
    if p.pp == 1 {
        return Some(None);
    }
    let placement = p.schedule.parse::<Schedule>().ok()?.kind.definition().placement;
    let own = default_stages(&plan.inputs.model, p, SplitPolicy::CountEnds, placement).ok()?;
    if own.with_recompute(p.recompute) != plan.stages {
        return None;
    }
    if p.vpp == usual_chunks(&p.schedule) {
        return Some(None);
    }
    let (stages, units) = (u64::from(p.pp) * u64::from(p.vpp), units(&plan.inputs.model));
    let layers = units.div_ceil(stages);
    (units.div_ceil(layers) == stages).then_some(Some(layers))
}

/// Blocks, with the embedding and the head as one each.
fn units(model: &ModelSpec) -> u64 {
    model.blocks().count() as u64 + 2
}

/// The fields as overrides of the nearest registered configuration.
fn overrides(plan: &Plan, model: &Registered, fields: &[Field], layers_per_stage: Option<u64>) -> String {
    let mut lines = vec![format!("--module {}", model.module), format!("--config {}", model.config)];
    for field in fields {
        let value = field.value.trim_matches('"');
        lines.push(match value {
            "True" => format!("--{}.{}", field.section, field.name),
            "False" => format!("--{}.no-{}", field.section, field.name),
            list if list.starts_with('[') => format!("--{}.{} {}", field.section, field.name, words(list)),
            value => format!("--{}.{} {}", field.section, field.name, shell::quote(value)),
        });
    }
    if let Some(layers) = layers_per_stage {
        lines.push(format!("--parallelism.pipeline_parallel_layers_per_stage {layers}"));
    }
    let mode = match plan.parallel.recompute {
        Recompute::None | Recompute::Offload { .. } | Recompute::Modules(_) => "none",
        Recompute::Selective => "selective",
        Recompute::Full { .. } => "full",
    };
    lines.push(format!("activation_checkpoint:{mode}"));
    lines.join("\n") + "\n"
}

/// The plain strings of a Python list, as torchtitan's command line takes them: one word, with commas.
fn words(list: &str) -> String {
    list.replace(['[', ']', '"', ' '], "")
}

/// The order of operations and its file, where torch has no schedule of that name. The file is called as the schedule, so
/// that whoever reads the configuration knows it.
fn schedule_csv(plan: &Plan) -> Result<Option<(String, String)>, String> {
    let p = &plan.parallel;
    if p.pp == 1 || SCHEDULES.iter().any(|(ours, _)| *ours == p.schedule) {
        return Ok(None);
    }
    let wrong = |error: &dyn std::fmt::Display| format!("schedule {}: {error}", p.schedule);
    // The very order the plan simulates: some are laid out for the plan's own costs.
    let pipeline = SimulatedPipeline::of(&plan.run()).map_err(|error| wrong(&error))?;
    let schedule: Schedule = p.schedule.parse().map_err(|error| wrong(&error))?;
    let text = to_torch_csv(&pipeline.orders).map_err(|error| wrong(&error))?;
    Ok(Some((format!("{schedule}.csv"), text)))
}
