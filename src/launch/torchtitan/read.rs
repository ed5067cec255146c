//! Reads torchtitan's flags, or the TOML of releases up to 0.2.

mod names;
mod pipeline;

pub use names::flags;

use super::models;
use super::{RELEASE, TOML_RELEASE};
use crate::launch::draft::{Draft, left};
use crate::launch::flags::{FlagSet, MOST_BATCH};
use crate::launch::{Given, Question, ReadError, nearest_values};
use cluster_profiles::Precision;
use cost_models::{ParallelConfig, Recompute};
use pipeline::pipeline;

/// Sections that change nothing here.
const PASSED_OVER: &[&str] = &[
    "job.",
    "profiling.",
    "profiler.",
    "metrics.",
    "lr_scheduler.",
    "checkpoint.",
    "comm.",
    "validation.",
    "validator.",
    "debug.",
    "dataloader.",
    "tokenizer.",
    "hf_assets_path",
    "dump_folder",
    "experimental.",
    "fault_tolerance.",
    "float8.",
    "mx.",
    "quantize.",
    "loss.",
    "override.",
    "optimizer.",
    "model.",
    "compile.",
    "training.dataset",
    "training.max_norm",
    "training.steps",
    "training.gc_",
    "training.dtype",
    "training.mixed_precision",
    "training.disable_cuda_graphs",
    "training.deterministic",
    "training.seed",
    "memory_estimation.",
    "activation_checkpoint.",
    "parallelism.spmd_backend",
    "parallelism.enable_",
    "parallelism.disable_",
    "parallelism.no",
    "parallelism.fsdp",
    "parallelism.context_parallel_",
    "parallelism.pipeline_parallel_split_points",
    "parallelism.pipeline_parallel_expert",
    "parallelism.expert_parallel_",
    "nproc",
    "nnodes",
    "rdzv",
    "node",
    "local-ranks",
    "role",
    "tee",
    "master",
];

/// The run.
pub fn given(question: &Question) -> Result<Given, ReadError> {
    let flags = question.flags;
    let mut draft = Draft::new(question, "fsdp2", ["T1", "T4"]);
    draft.passed_over = PASSED_OVER;
    draft.parallel = degrees(flags, question.world_size);
    reshard(flags, &mut draft);
    compile(flags, &mut draft);
    draft.model = model(flags);
    batch(flags, &mut draft);
    pipeline(flags, &mut draft);
    draft.parallel.recompute = recompute(flags, &mut draft);
    let low = |key: &str| flags.text(key).is_some();
    if low("float8.recipe_name")
        || flags.has("float8.enable_fsdp_float8_all_gather")
        || low("quantize.linear.float8.recipe_name")
    {
        draft.precision = Precision::Fp8;
    }
    cuda_graphs(flags, &mut draft);
    draft.waived.push("M14");
    draft.finish()
}

/// Nothing is compiled unless the configuration says so.
fn compile(flags: &FlagSet, draft: &mut Draft) {
    let toml = flags.text("model.name").is_some();
    draft.facts.release = Some(if toml { TOML_RELEASE } else { RELEASE });
    draft.facts.compiled = Some(flags.has("compile.enable") || flags.has("training.compile"));
}

fn reshard(flags: &FlagSet, draft: &mut Draft) {
    const VALUES: [&str; 3] = ["default", "always", "never"];
    let stated = flags.text("parallelism.fsdp_reshard_after_forward").unwrap_or("default");
    if !VALUES.contains(&stated) {
        let shown: String = stated.chars().take(40).collect();
        let hint = format!("it takes {}", VALUES.join(", "));
        draft.break_rule("T10", format!("parallelism.fsdp_reshard_after_forward is `{shown}`"), hint);
    }
}

fn degrees(flags: &FlagSet, world: u64) -> ParallelConfig {
    let degree = |key: &str| flags.degree(&format!("parallelism.{key}"));
    let (tp, pp, cp) = (
        degree("tensor_parallel_degree"),
        degree("pipeline_parallel_degree"),
        degree("context_parallel_degree"),
    );
    let dp_replicate = degree("data_parallel_replicate_degree");
    let automatic = matches!(flags.text("parallelism.data_parallel_shard_degree"), None | Some("-1"));
    let dp_shard = if automatic {
        left(world, &[tp, pp, cp, dp_replicate])
    } else {
        degree("data_parallel_shard_degree")
    };
    let never = flags.text("parallelism.fsdp_reshard_after_forward") == Some("never");
    let sequence = flags
        .text("parallelism.enable_sequence_parallel")
        .is_none_or(|value| !matches!(value, "false" | "False"))
        && !flags.has("parallelism.no_enable_sequence_parallel");
    ParallelConfig {
        tp,
        pp,
        cp,
        ep: degree("expert_parallel_degree"),
        etp: 1,
        dp_replicate,
        dp_shard,
        zero_stage: if never
            || pp > 1 && flags.text("parallelism.fsdp_reshard_after_forward") != Some("always")
        {
            2
        } else {
            3
        },
        sequence_parallel: tp > 1 && sequence,
        ..ParallelConfig::default()
    }
}

fn model(flags: &FlagSet) -> Option<cost_models::ModelSpec> {
    let module = flags.text("module").or_else(|| flags.text("model.name")).unwrap_or_default();
    let flavor = flags.text("model.flavor").unwrap_or_default();
    let config = flags.text("config").unwrap_or_default();
    let found = models::theirs(module, flavor, config)?;
    cost_models::model::catalog::get(found.ours).ok()
}

/// Sequences per rank and step: 0.3.0 and before count sequences, the main branch tokens.
fn batch(flags: &FlagSet, draft: &mut Draft) {
    let positive = |key: &str| {
        flags.text(key).filter(|value| !value.starts_with('-')).and_then(|_| flags.at_most(key, MOST_BATCH))
    };
    let seq_len = positive("training.seq_len").or_else(|| positive("training.max_context_length"));
    draft.seq_len = seq_len;
    let sequences = |tokens: Option<u64>| {
        tokens.zip(seq_len.or(draft.question.seq_len)).map(|(tokens, seq)| (tokens / seq).max(1))
    };
    let tokens =
        |key: &str| flags.text(key).filter(|value| !value.starts_with('-')).and_then(|_| flags.count(key));
    let per_rank = positive("training.local_batch_size")
        .or_else(|| positive("training.batch_size"))
        .or_else(|| sequences(tokens("training.num_tokens_per_microbatch_per_dp_rank")));
    let global = positive("training.global_batch_size")
        .or_else(|| sequences(tokens("training.num_tokens_per_train_step")));
    let per_rank = per_rank.unwrap_or_else(|| {
        draft.assumed.push(
            "8 sequences per rank, torchtitan's default: training.local_batch_size is not set".to_owned(),
        );
        8
    });
    let pp = draft.parallel.pp;
    let dp = u64::from(draft.parallel.dp_replicate).saturating_mul(u64::from(draft.parallel.dp_shard));
    let global = global.unwrap_or_else(|| per_rank.saturating_mul(dp));
    draft.global_batch = Some(global);
    draft.parallel.micro_batch_size = per_rank;
    if pp > 1 {
        let size = flags.count("parallelism.pipeline_parallel_microbatch_size").unwrap_or(1);
        let parts =
            flags.count("parallelism.num_pp_microbatches").map_or(per_rank / size.max(1), |count| count);
        let whole =
            flags.text("parallelism.num_pp_microbatches").is_some() || per_rank.is_multiple_of(size.max(1));
        if parts == 0 || !whole || !per_rank.is_multiple_of(parts) {
            let hint = format!("parallelism.pipeline_parallel_microbatch_size {} works", 1);
            draft.break_rule(
                "T4a",
                format!("{per_rank} sequences per rank in microbatches of {size}: they divide evenly"),
                hint,
            );
        }
        draft.parallel.micro_batch_size = (per_rank / parts.max(1)).max(1);
        let round = per_rank.saturating_mul(dp).max(1);
        if !global.is_multiple_of(round) {
            let hint =
                nearest_values("training.global_batch_size", global, |batch| batch.is_multiple_of(round));
            let message =
                format!("a global batch of {global} is no multiple of {per_rank} per rank x dp {dp}");
            draft.break_rule("T4", message, hint);
        }
        if global > round {
            draft
                .assumed
                .push("one pipeline flush: gradient accumulation over several is not modelled".to_owned());
        }
        if parts < u64::from(pp) {
            let hint = format!(
                "training.local_batch_size {} works",
                draft.parallel.micro_batch_size * u64::from(pp)
            );
            draft.break_rule("T7a", format!("{parts} microbatches with pp {pp}: older releases hang, newer ones idle; as many as stages or more"), hint);
        }
    }
}

fn recompute(flags: &FlagSet, draft: &mut Draft) -> Recompute {
    match flags.text("activation_checkpoint.mode") {
        Some("none" | "None") => Recompute::None,
        Some("full") => Recompute::Full { layers: None },
        Some("selective") | None => Recompute::Selective,
        Some(other) => {
            let shown: String = other.chars().take(40).collect();
            draft.assumed.push(format!("selective recompute instead of `{shown}`, which is not modelled"));
            Recompute::Selective
        }
    }
}

/// Release 0.3.0 captures CUDA graphs unless told not to, and cannot with a pipeline.
fn cuda_graphs(flags: &FlagSet, draft: &mut Draft) {
    let release = flags.text("config").is_some();
    if release && draft.parallel.pp > 1 && !flags.has("training.disable_cuda_graphs") {
        let hint = "add --training.disable_cuda_graphs".to_owned();
        draft.break_rule("T8", "CUDA graphs with a pipeline: 0.3.0 refuses them", hint);
    }
}
