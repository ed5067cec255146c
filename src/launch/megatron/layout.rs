//! Degrees, stages and schedule as Megatron-LM flags.

use super::{Flag, offload};
use crate::plan::Plan;
use cost_models::model::Layer;
use cost_models::{ModelSpec, ParallelConfig, RankOrder, Recompute, Stage};

/// The schedule that hides expert traffic behind another microbatch.
pub const COMBINED: &str = "combined-1f1b";
/// The switch that numbers ranks through a whole pipeline before the next data-parallel rank.
pub const PP_INSIDE: &str = "--use-tp-pp-dp-mapping";

/// The flags; what Megatron-LM cannot run is added to `reasons`.
pub fn flags(plan: &Plan, reasons: &mut Vec<String>) -> Vec<Flag> {
    let parallel = &plan.parallel;
    if parallel.zero_stage >= 2 && parallel.pp > 1 && parallel.vpp > 1 {
        reasons.push(format!(
            "ZeRO-{} (megatron-fsdp) with several chunks per pipeline rank",
            parallel.zero_stage
        ));
    }
    if plan.stages.0.iter().any(|stage| stage.recompute != parallel.recompute) {
        reasons.push("recompute that differs between stages".to_owned());
    }
    let mut flags = degrees(parallel);
    flags.push(Flag::value("--global-batch-size", plan.inputs.workload.global_batch));
    if plan.inputs.model.is_moe() {
        flags.extend(experts(parallel));
    }
    flags.extend(stage_flags(plan, reasons));
    flags.extend(sharding(parallel));
    flags.extend(recompute(parallel.recompute));
    flags
}

/// The flags of a layout alone, whatever the model.
pub fn settings(parallel: &ParallelConfig) -> Vec<Flag> {
    let mut flags = degrees(parallel);
    if parallel.ep > 1 || parallel.etp != parallel.tp {
        flags.extend(experts(parallel));
    }
    if parallel.vpp > 1 && parallel.pp > 1 {
        flags.push(Flag::value("--num-virtual-stages-per-pipeline-rank", parallel.vpp));
    }
    flags.extend(sharding(parallel));
    flags.extend(recompute(parallel.recompute));
    flags
}

fn degrees(parallel: &ParallelConfig) -> Vec<Flag> {
    let mut flags = vec![
        Flag::value("--tensor-model-parallel-size", parallel.tp),
        Flag::value("--pipeline-model-parallel-size", parallel.pp),
        Flag::value("--context-parallel-size", parallel.cp),
        Flag::value("--micro-batch-size", parallel.micro_batch_size),
    ];
    if parallel.sequence_parallel && parallel.tp > 1 {
        flags.push(Flag::switch("--sequence-parallel"));
    }
    if parallel.rank_order == RankOrder::PpInside {
        flags.push(Flag::switch(PP_INSIDE));
    }
    if parallel.schedule == COMBINED {
        flags.push(Flag::switch("--overlap-moe-expert-parallel-comm"));
    }
    flags
}

fn experts(parallel: &ParallelConfig) -> [Flag; 2] {
    [
        Flag::value("--expert-model-parallel-size", parallel.ep),
        Flag::value("--expert-tensor-parallel-size", parallel.etp),
    ]
}

fn stage_flags(plan: &Plan, reasons: &mut Vec<String>) -> Vec<Flag> {
    let parallel = &plan.parallel;
    if parallel.pp == 1 {
        return Vec::new();
    }
    let known: &[&str] = if parallel.vpp > 1 { &["interleaved-1f1b", COMBINED] } else { &["1f1b"] };
    if !known.contains(&parallel.schedule.as_str()) {
        let has = "it has 1f1b, and interleaved-1f1b and combined-1f1b with chunks";
        reasons.push(format!("schedule {} ({has})", parallel.schedule));
    }
    let letters: Vec<String> =
        plan.stages.0.iter().map(|stage| stage_letters(&plan.inputs.model, stage)).collect();
    if is_even(&letters) {
        return match parallel.vpp {
            1 => Vec::new(),
            chunks => vec![Flag::value("--num-virtual-stages-per-pipeline-rank", chunks)],
        };
    }
    vec![Flag::value("--pipeline-model-parallel-layout", letters.join("|"))]
}

/// The letters of a stage in Megatron's layout string: E embedding, t block, m MTP, L head and loss.
fn stage_letters(model: &ModelSpec, stage: &Stage) -> String {
    let letter = |layer: &Layer| match layer {
        Layer::Embedding => "E",
        Layer::Block(_) | Layer::Custom(_) => "t",
        Layer::FinalNorm => "",
        Layer::Mtp(_) => "m",
        Layer::Head => "L",
    };
    let letters: String = model.layers.get(stage.layer_range()).unwrap_or(&[]).iter().map(letter).collect();
    let run = |letter: char| letters.matches(letter).count();
    let blocks = match run('t') {
        count if count > 3 => format!("t*{count}"),
        count => "t".repeat(count),
    };
    let before = "E".repeat(run('E'));
    let after = "m".repeat(run('m')) + &"L".repeat(run('L'));
    [before, blocks, after].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(",")
}

/// Whether the stages are what Megatron builds without layout flags: equal blocks, the ends where they belong.
fn is_even(letters: &[String]) -> bool {
    let blocks =
        |text: &String| text.trim_start_matches("E,").trim_end_matches(",L").trim_end_matches('L').to_owned();
    let Some(first) = letters.first().map(blocks) else { return true };
    letters.iter().all(|text| blocks(text) == first) && !letters.iter().any(|text| text.contains('m'))
}

fn sharding(parallel: &ParallelConfig) -> Vec<Flag> {
    let mut flags = match parallel.zero_stage {
        0 => return vec![Flag::switch("--overlap-grad-reduce")],
        1 => vec![Flag::switch("--use-distributed-optimizer")],
        stage => vec![
            Flag::switch("--use-megatron-fsdp"),
            Flag::switch("--use-distributed-optimizer"),
            Flag::value(
                "--data-parallel-sharding-strategy",
                if stage == 2 { "optim_grads" } else { "optim_grads_params" },
            ),
            Flag::value("--ckpt-format", "fsdp_dtensor"),
        ],
    };
    flags.extend([Flag::switch("--overlap-grad-reduce"), Flag::switch("--overlap-param-gather")]);
    if parallel.dp_replicate > 1 {
        flags.push(Flag::value("--num-distributed-optimizer-instances", parallel.dp_replicate));
    }
    flags
}

fn recompute(wanted: Recompute) -> Vec<Flag> {
    let full = |method: &str, layers: u32| {
        vec![
            Flag::value("--recompute-granularity", "full"),
            Flag::value("--recompute-method", method),
            Flag::value("--recompute-num-layers", layers),
        ]
    };
    match wanted {
        Recompute::None => Vec::new(),
        Recompute::Selective => vec![
            Flag::value("--recompute-granularity", "selective"),
            Flag::value("--recompute-modules", "core_attn"),
        ],
        Recompute::Full { layers: None } => full("uniform", 1),
        Recompute::Full { layers: Some(layers) } => full("block", layers),
        Recompute::Offload { layers } => vec![Flag::value("--cpu-offloading-num-layers", layers)],
        Recompute::Modules(choice) => offload::flags(choice),
    }
}
