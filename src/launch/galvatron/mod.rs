//! Hetu-Galvatron (main, 2026): the strategy file its runtime trains with, a value per block.
//!
//! Keys as `galvatron/core/runtime/hybrid_parallel_config.py` and `galvatron/utils/config_utils.py` read them: lists are
//! numbers joined by commas, one per block; `dp_types_enc` is 1 for ZeRO-3 and 0 for `default_dp_type`; `vtp`, `vcp` and
//! `vocab_sdp` are those of embedding and head (its search writes `embed_sdp`, which its runtime passes over).

mod read;

use super::layers::Job;
use super::{Exported, Given, LaunchError, LaunchFile, Launcher, Question, ReadError};
use crate::plan::Plan;
use cluster_profiles::Precision;
use cost_models::layerwise::{Sharding, Strategy};
use cost_models::model::Layer;
use cost_models::rules::RecomputeFreedom;
use cost_models::{ModelSpec, Recompute, Stage, Workload};
use serde_json::json;

/// The launcher.
#[derive(Debug)]
pub struct Galvatron;

impl Launcher for Galvatron {
    fn name(&self) -> &'static str {
        "galvatron"
    }

    fn summary(&self) -> &'static str {
        "Hetu-Galvatron (main, 2026): galvatron_config.json with a strategy per block, for its train_dist.py"
    }

    fn runtime(&self) -> &'static str {
        "galvatron"
    }

    /// bf16 alone is planned; its pipelines know no layers but blocks between embedding and head.
    fn refuses(&self, model: &ModelSpec, workload: &Workload) -> Vec<String> {
        let mut reasons = Vec::new();
        if workload.precision != Precision::Bf16 {
            reasons.push(format!("{} training", workload.precision));
        }
        if model.layers.iter().any(|layer| matches!(layer, Layer::Mtp(_))) {
            reasons.push("multi-token prediction".to_owned());
        }
        reasons
    }

    fn forbids(&self) -> &'static [&'static str] {
        &["vpp>1", "ep>1", "zero=1", "recompute=selective", "rank_order=tp-cp-ep-pp-dp"]
    }

    /// Its strategy has a checkpoint flag per layer.
    fn recompute(&self) -> Option<RecomputeFreedom> {
        Some(RecomputeFreedom::PerStage)
    }

    fn has_layer_strategies(&self) -> bool {
        true
    }

    fn unstated(&self, _: &Plan) -> Vec<String> {
        vec!["--model".to_owned(), "--seq-len".to_owned()]
    }

    fn export(&self, plan: &Plan) -> Result<Exported, LaunchError> {
        let mut reasons = unfit(plan);
        reasons.extend(self.refuses(&plan.inputs.model, &plan.inputs.workload));
        let strategies = strategies(plan);
        let (Some(strategies), true) = (strategies, reasons.is_empty()) else {
            if reasons.is_empty() {
                reasons.push("strategies that do not hold every block once".to_owned());
            }
            return Err(LaunchError { launcher: self.name(), reasons });
        };
        let text = serde_json::to_string_pretty(&document(plan, &strategies)).unwrap_or_default() + "\n";
        Ok(Exported { files: vec![LaunchFile::data(FILE, text)], job: job(plan) })
    }

    fn read(&self, question: &Question) -> Option<Result<Given, ReadError>> {
        Some(read::read(question))
    }
}

/// Name of the strategy file.
const FILE: &str = "galvatron_config.json";

/// What starts it: its training script with the model's own YAML, the plan's values over it.
fn job(plan: &Plan) -> Job {
    let values = [
        ("parallel.galvatron_config_path", format!("$PWD/{FILE}")),
        ("parallel.async_grad_reduce", "true".to_owned()),
        ("parallel.mixed_precision", "bf16".to_owned()),
        ("train.sequence_parallel", "true".to_owned()),
        ("train.use_flash_attn", "true".to_owned()),
        ("train.seq_length", plan.inputs.workload.seq_len.to_string()),
    ];
    let values: Vec<String> =
        values.iter().map(|(key, value)| format!("\"++runtime.{key}={value}\"")).collect();
    Job {
        environment: vec![
            ("CUDA_DEVICE_MAX_CONNECTIONS", "1".to_owned()),
            ("TORCH_NCCL_AVOID_RECORD_STREAMS", "1".to_owned()),
            ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True".to_owned()),
        ],
        prepare: ": \"${TRAIN_SCRIPT:?set TRAIN_SCRIPT to the train_dist.py of your model}\"\n\
                  : \"${TRAIN_CONFIG:?set TRAIN_CONFIG to its YAML, with model and data}\"\n"
            .to_owned(),
        command: format!("\"$TRAIN_SCRIPT\" \"$TRAIN_CONFIG\" {} \"$@\"", values.join(" ")),
    }
}

fn unfit(plan: &Plan) -> Vec<String> {
    let p = &plan.parallel;
    let mut reasons = Vec::new();
    for (axis, degree) in [("vpp", p.vpp), ("ep", p.ep)] {
        if degree > 1 {
            reasons.push(format!("{axis} {degree}"));
        }
    }
    if p.pp > 1 && !matches!(p.schedule.as_str(), "1f1b" | "gpipe") {
        reasons.push(format!("schedule {} (it has gpipe and 1f1b)", p.schedule));
    }
    if p.zero_stage == 1 || p.dp_replicate > 1 && p.dp_shard > 1 {
        reasons.push(format!(
            "ZeRO-{} over {} x {} ranks (it has DDP, ZeRO-2 and ZeRO-3 over all)",
            p.zero_stage, p.dp_replicate, p.dp_shard
        ));
    }
    if p.tp > 1 && !p.sequence_parallel {
        reasons.push(format!("tp {} without sequence parallelism", p.tp));
    }
    if plan.stages.0.iter().any(|stage| stage.recompute == Recompute::Selective) {
        reasons.push(format!("recompute {} (whole layers)", p.recompute));
    }
    if let Some(stage) = division(plan).iter().position(|blocks| *blocks == 0) {
        reasons.push(format!("stage {stage} without a block"));
    }
    reasons
}

const fn is_block(layer: &Layer) -> bool {
    matches!(layer, Layer::Block(_) | Layer::Custom(_))
}

/// Blocks of a stage.
fn blocks_of(plan: &Plan, stage: &Stage) -> usize {
    let layers = plan.inputs.model.layers.get(stage.layer_range()).unwrap_or(&[]);
    layers.iter().filter(|layer| is_block(layer)).count()
}

fn division(plan: &Plan) -> Vec<usize> {
    plan.stages.0.iter().map(|stage| blocks_of(plan, stage)).collect()
}

/// The strategy of every block: its own, or the plan's with what its stage recomputes.
fn strategies(plan: &Plan) -> Option<Vec<Strategy>> {
    let blocks = plan.inputs.model.layers.iter().filter(|layer| is_block(layer)).count();
    if let Some(strategies) = &plan.layer_strategies {
        return strategies.by_block(blocks);
    }
    let sharding = Sharding::of_stage(plan.parallel.zero_stage)?;
    let strategy = |again: bool| Strategy {
        tp: plan.parallel.tp,
        sharding,
        recompute: if again { Recompute::Full { layers: None } } else { Recompute::None },
    };
    let of_stage = |stage: &Stage| {
        let count = match stage.recompute {
            Recompute::Full { layers } => layers.unwrap_or(u32::MAX),
            Recompute::None | Recompute::Selective | Recompute::Offload { .. } | Recompute::Modules(_) => 0,
        };
        (0..blocks_of(plan, stage)).map(|block| strategy((block as u32) < count)).collect::<Vec<_>>()
    };
    Some(plan.stages.0.iter().flat_map(of_stage).collect())
}

/// The lists have an entry per block, joined by commas, as Galvatron's search writes them.
fn document(plan: &Plan, strategies: &[Strategy]) -> serde_json::Value {
    let p = &plan.parallel;
    let each = |value: &dyn Fn(&Strategy) -> u64| {
        strategies.iter().map(|strategy| value(strategy).to_string()).collect::<Vec<_>>().join(",")
    };
    let division: Vec<String> = division(plan).iter().map(usize::to_string).collect();
    let is_whole = |sharding: Sharding| sharding == Sharding::Ddp;
    let ddp = p.zero_stage == 0 || strategies.iter().any(|strategy| is_whole(strategy.sharding));
    json!({
        "pp_deg": p.pp,
        "tp_sizes_enc": each(&|strategy| strategy.tp.into()),
        "tp_consecutive_flags": each(&|_| 1),
        "cp_sizes_enc": each(&|_| p.cp.into()),
        "dp_types_enc": each(&|strategy| u64::from(strategy.sharding == Sharding::Zero3)),
        "use_sp": each(&|_| 0),
        "checkpoint": each(&|strategy| u64::from(strategy.recompute != Recompute::None)),
        "global_bsz": plan.inputs.workload.global_batch,
        "chunks": p.num_microbatches,
        "pp_division": division.join(","),
        "pipeline_type": if p.schedule == "gpipe" { "gpipe" } else { "pipedream_flush" },
        "default_dp_type": if ddp { "ddp" } else { "zero2" },
        "vtp": p.tp,
        "vsp": 0,
        "vcp": p.cp,
        "vocab_sdp": u64::from(p.zero_stage == 3),
        "embed_sdp": u64::from(p.zero_stage == 3),
        "world_size": p.world_size(),
    })
}
