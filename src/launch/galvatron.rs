//! Galvatron 2: the strategy file its runtime trains with, a value per layer.

use super::layers::Job;
use super::{Exported, LaunchError, LaunchFile, Launcher};
use crate::plan::Plan;
use cluster_profiles::Precision;
use cost_models::rules::RecomputeFreedom;
use cost_models::{ModelSpec, Recompute, Workload};
use serde_json::json;

/// The launcher.
#[derive(Debug)]
pub struct Galvatron;

impl Launcher for Galvatron {
    fn name(&self) -> &'static str {
        "galvatron"
    }

    fn summary(&self) -> &'static str {
        "Galvatron 2: galvatron_config.json with a strategy per layer, for its train_dist.py"
    }

    fn runtime(&self) -> &'static str {
        "megatron-core"
    }

    /// The strategy has no format: the script of a model trains in bf16 unless it is told otherwise.
    fn refuses(&self, _: &ModelSpec, workload: &Workload) -> Vec<String> {
        let known = workload.precision == Precision::Bf16;
        if known { Vec::new() } else { vec![format!("{} training", workload.precision)] }
    }

    fn forbids(&self) -> &'static [&'static str] {
        &["vpp>1", "ep>1", "zero=1", "recompute=selective", "rank_order=tp-cp-ep-pp-dp"]
    }

    /// Its strategy has a checkpoint flag per layer.
    fn recompute(&self) -> Option<RecomputeFreedom> {
        Some(RecomputeFreedom::PerStage)
    }

    fn export(&self, plan: &Plan) -> Result<Exported, LaunchError> {
        let mut reasons = unfit(plan);
        reasons.extend(self.refuses(&plan.inputs.model, &plan.inputs.workload));
        if !reasons.is_empty() {
            return Err(LaunchError { launcher: self.name(), reasons });
        }
        let job = Job {
            environment: vec![("CUDA_DEVICE_MAX_CONNECTIONS", "1".to_owned())],
            prepare: ": \"${TRAIN_SCRIPT:?set TRAIN_SCRIPT to the train_dist.py of your model}\"\n"
                .to_owned(),
            command: "\"$TRAIN_SCRIPT\" --galvatron_config_path galvatron_config.json \"$@\"".to_owned(),
        };
        let text = serde_json::to_string_pretty(&strategy(plan)).unwrap_or_default() + "\n";
        Ok(Exported { files: vec![LaunchFile::data("galvatron_config.json", text)], job })
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
    if plan.stages.0.iter().any(|stage| stage.recompute == Recompute::Selective) {
        reasons.push(format!("recompute {} (whole layers)", p.recompute));
    }
    reasons
}

/// The lists have an entry per block, joined by commas, as Galvatron's search writes them.
fn strategy(plan: &Plan) -> serde_json::Value {
    let p = &plan.parallel;
    let blocks = plan.inputs.model.blocks().count();
    let each = |value: u64| vec![value.to_string(); blocks].join(",");
    let division: Vec<String> = plan
        .stages
        .0
        .iter()
        .map(|stage| {
            stage
                .layer_range()
                .filter(|&layer| plan.inputs.model.blocks().any(|(block, _)| block == layer))
                .count()
                .to_string()
        })
        .collect();
    json!({
        "pp_deg": p.pp,
        "tp_sizes_enc": each(p.tp.into()),
        "tp_consecutive_flags": each(1),
        "cp_sizes_enc": each(p.cp.into()),
        "dp_types_enc": each(u64::from(p.zero_stage == 3)),
        "use_sp": each(0),
        "checkpoint": checkpoints(plan).join(","),
        "global_bsz": plan.inputs.workload.global_batch,
        "chunks": p.num_microbatches,
        "pp_division": division.join(","),
        "pipeline_type": if p.schedule == "gpipe" { "gpipe" } else { "pipedream_flush" },
        "default_dp_type": if p.zero_stage >= 2 { "zero2" } else { "ddp" },
        "vtp": p.tp,
        "vsp": 0,
        "embed_sdp": u64::from(p.zero_stage == 3),
    })
}

/// 1 for every block that is recomputed: the first blocks of its stage, or all.
fn checkpoints(plan: &Plan) -> Vec<String> {
    let is_block = |layer: &usize| plan.inputs.model.blocks().any(|(block, _)| block == *layer);
    let of_stage = |stage: &cost_models::Stage| {
        let count = match stage.recompute {
            Recompute::Full { layers } => layers.unwrap_or(u32::MAX),
            Recompute::None | Recompute::Selective | Recompute::Offload { .. } | Recompute::Modules(_) => 0,
        };
        let blocks = stage.layer_range().filter(is_block).count();
        (0..blocks).map(|block| u32::from((block as u32) < count).to_string()).collect::<Vec<_>>()
    };
    plan.stages.0.iter().flat_map(of_stage).collect()
}
