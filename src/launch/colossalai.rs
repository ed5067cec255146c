//! ColossalAI 0.5: the `HybridParallelPlugin` of a plan, as a Python module.

use super::layers::Job;
use super::{Exported, LaunchError, LaunchFile, Launcher};
use crate::plan::Plan;
use cluster_profiles::Precision;
use cost_models::{ModelSpec, RankOrder, Recompute, Workload};

/// The launcher.
#[derive(Debug)]
pub struct ColossalAi;

impl Launcher for ColossalAi {
    fn name(&self) -> &'static str {
        "colossalai"
    }

    fn summary(&self) -> &'static str {
        "ColossalAI 0.5: plugin.py with the HybridParallelPlugin for a training script of your own"
    }

    fn runtime(&self) -> &'static str {
        "colossalai"
    }

    fn refuses(&self, _: &ModelSpec, workload: &Workload) -> Vec<String> {
        let known = matches!(workload.precision, Precision::Bf16 | Precision::Fp16 | Precision::Fp32);
        if known { Vec::new() } else { vec![format!("{} training", workload.precision)] }
    }

    fn forbids(&self) -> &'static [&'static str] {
        &["cp>1", "schedule=zb-v", "recompute=selective"]
    }

    fn export(&self, plan: &Plan) -> Result<Exported, LaunchError> {
        let mut reasons = unfit(plan);
        reasons.extend(self.refuses(&plan.inputs.model, &plan.inputs.workload));
        if !reasons.is_empty() {
            return Err(LaunchError { launcher: self.name(), reasons });
        }
        let job = Job {
            environment: vec![("CUDA_DEVICE_MAX_CONNECTIONS", "1".to_owned())],
            prepare: ": \"${TRAIN_SCRIPT:?set TRAIN_SCRIPT to your training script}\"\nexport PYTHONPATH=\"$PWD${PYTHONPATH:+:$PYTHONPATH}\"\n".to_owned(),
            command: "\"$TRAIN_SCRIPT\" \"$@\"".to_owned(),
        };
        Ok(Exported { files: vec![LaunchFile::data("plugin.py", plugin(plan))], job })
    }
}

fn unfit(plan: &Plan) -> Vec<String> {
    let p = &plan.parallel;
    let mut reasons = Vec::new();
    if p.cp > 1 {
        reasons.push(format!("context parallelism of {} (its ring needs a script of its own)", p.cp));
    }
    if p.etp > 1 && plan.inputs.model.is_moe() {
        reasons.push(format!("expert tensor parallelism of {}", p.etp));
    }
    if p.zero_stage > 2 || p.zero_stage > 1 && p.pp > 1 {
        reasons.push(format!("ZeRO-{} (0 to 2, with a pipeline 0 and 1)", p.zero_stage));
    }
    if p.dp_replicate > 1 && p.dp_shard > 1 {
        reasons.push("sharding over a part of the data-parallel ranks".to_owned());
    }
    if p.pp > 1 && style(plan).is_none() {
        reasons.push(format!("schedule {} (it has 1f1b, interleaved-1f1b, zb-v)", p.schedule));
    }
    if p.schedule == "zb-v" && p.pp > 1 {
        reasons.push("zb-v: its plugin wants the nodes of the schedule from a profile of its own".to_owned());
    }
    if plan.stages.0.iter().any(|stage| stage.recompute == Recompute::Selective) {
        reasons.push("recompute selective (it checkpoints whole layers)".to_owned());
    }
    if p.vpp > 1 && matches!(p.recompute, Recompute::Full { layers: Some(_) }) {
        reasons.push(format!("recompute {} with several chunks (whole chunks)", p.recompute));
    }
    reasons
}

fn style(plan: &Plan) -> Option<&'static str> {
    match (plan.parallel.schedule.as_str(), plan.parallel.vpp) {
        ("1f1b", 1) => Some("1f1b"),
        ("interleaved-1f1b", 2..) => Some("interleaved"),
        ("zb-v", 2) => Some("zbv"),
        _ => None,
    }
}

fn plugin(plan: &Plan) -> String {
    let p = &plan.parallel;
    let yes = |on: bool| if on { "True" } else { "False" };
    let mut fields = vec![
        ("tp_size", p.tp.to_string()),
        ("pp_size", p.pp.to_string()),
        ("zero_stage", p.zero_stage.to_string()),
        ("precision", format!("\"{}\"", plan.inputs.workload.precision)),
        ("enable_sequence_parallelism", yes(p.sequence_parallel).to_owned()),
    ];
    if p.sequence_parallel {
        fields.push(("sequence_parallelism_mode", "\"split_gather\"".to_owned()));
    }
    if p.pp > 1 {
        fields.push(("microbatch_size", p.micro_batch_size.to_string()));
        fields.push(("pp_style", format!("\"{}\"", style(plan).unwrap_or("1f1b"))));
        fields.push(("num_model_chunks", p.vpp.to_string()));
        fields.push(("custom_policy", "None".to_owned()));
        // Left to itself the plugin puts data parallelism outside the pipeline.
        let outside = yes(p.rank_order == RankOrder::PpInside).to_owned();
        fields.push((if p.ep == 1 { "dp_outside" } else { "moe_dp_outside" }, outside));
    }
    let (class, experts) = match p.ep {
        1 => ("HybridParallelPlugin", String::new()),
        ep => ("MoeHybridParallelPlugin", format!("        ep_size={ep},\n")),
    };
    let lines: String = fields.iter().map(|(name, value)| format!("        {name}={value},\n")).collect();
    let blocks = listed(&block_counts(plan));
    let (import, checkpoint) = checkpointing(plan);
    let lines = lines + &checkpoint;
    format!(
        "\"\"\"The plan as ColossalAI's plugin. The batch of a rank and step is LOCAL_BATCH sequences.\"\"\"\n\n\
         from colossalai.booster.plugin import {class}\n{import}\nLOCAL_BATCH = {}\nGRADIENT_CHECKPOINTING = {}\nBLOCKS_PER_STAGE = [{}]\n\n\n\
         def plugin():\n    return {class}(\n{experts}{lines}    )\n",
        p.micro_batch_size * p.num_microbatches,
        yes(matches!(p.recompute, Recompute::Full { .. })),
        blocks,
    )
}

/// Blocks of every stage.
fn block_counts(plan: &Plan) -> Vec<u32> {
    let is_block = |layer: &usize| plan.inputs.model.blocks().any(|(block, _)| block == *layer);
    let stages = plan.stages.0.iter();
    stages.map(|stage| stage.layer_range().filter(is_block).count() as u32).collect()
}

fn listed(counts: &[u32]) -> String {
    counts.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

/// How many blocks every stage has and checkpoints, where there is one stage per rank: an import and the arguments.
fn checkpointing(plan: &Plan) -> (&'static str, String) {
    let p = &plan.parallel;
    if p.pp == 1 || p.vpp > 1 {
        return ("", String::new());
    }
    let blocks = block_counts(plan);
    let layers = format!("        num_layers_per_stage=[{}],\n", listed(&blocks));
    if !matches!(p.recompute, Recompute::Full { .. }) {
        return ("", layers);
    }
    let repeated: Vec<u32> = plan
        .stages
        .0
        .iter()
        .zip(&blocks)
        .map(|(stage, &blocks)| match stage.recompute {
            Recompute::Full { layers } => layers.unwrap_or(blocks).min(blocks),
            Recompute::None | Recompute::Selective | Recompute::Offload { .. } | Recompute::Modules(_) => 0,
        })
        .collect();
    let config = format!(
        "        gradient_checkpoint_config=PipelineGradientCheckpointConfig(num_ckpt_layers_per_stage=[{}]),\n",
        listed(&repeated)
    );
    ("from colossalai.shardformer import PipelineGradientCheckpointConfig\n", layers + &config)
}
