//! Plans of many kinds, without a search.

use cost_models::runtime::Runtime;
use cost_models::schedule::{Placement, Schedule};
use cost_models::stages::{default_stages, stages_from_blocks};
use cost_models::{Optimizer, ParallelConfig, Recompute, TrainingRun, Workload, rules};
use meshwright::inputs::{self, Inputs};
use meshwright::plan::{InputSource, Plan};

#[allow(dead_code, reason = "not every test that shares this file plans for H100")]
/// A layout of `model` on H100 nodes for `runtime`, if it keeps the runtime's rules. `blocks` are those of the stages.
pub fn plan(model: &str, runtime: &str, parallel: &ParallelConfig, blocks: Option<&[u64]>) -> Option<Plan> {
    plan_on("dgx-h100", model, &Runtime::named(runtime).unwrap(), parallel, blocks)
}

/// The same on nodes of `cluster`, for an engine.
pub fn plan_on(
    cluster: &str,
    model: &str,
    runtime: &Runtime,
    parallel: &ParallelConfig,
    blocks: Option<&[u64]>,
) -> Option<Plan> {
    let (model, model_source) = inputs::load_model(model).unwrap();
    let cluster = cluster_profiles::catalog::cluster(cluster).unwrap().resized(parallel.world_size()).ok()?;
    let runtime = runtime.clone();
    let workload = Workload {
        global_batch: parallel.global_batch(),
        seq_len: model.learned_positions.unwrap_or(4096).min(4096),
        precision: cluster_profiles::Precision::Bf16,
        optimizer: Optimizer::Adamw,
        gradient_dtype: None,
        expert_imbalance: 1.0,
    };
    let schedule = parallel.schedule.parse::<Schedule>();
    let placement = schedule.map_or(Placement::Loop, |schedule| schedule.kind.definition().placement);
    let stages = match blocks {
        Some(blocks) => stages_from_blocks(&model, parallel, blocks, placement),
        None => default_stages(&model, parallel, runtime.memory.pipeline.split, placement),
    }
    .ok()?;
    let run = TrainingRun {
        model: &model,
        cluster: &cluster,
        workload: &workload,
        runtime: &runtime,
        parallel,
        stages: &stages,
    };
    if !rules::broken(&run).is_empty() {
        return None;
    }
    let estimate = cost_models::estimate(&run).ok()?;
    let memory_limit = cluster.gpu().memory;
    let inputs = Inputs {
        model,
        model_source,
        cluster,
        cluster_source: InputSource::new("test", ""),
        workload,
        runtime,
        launcher: None,
        memory_limit_bytes: memory_limit,
        available: None,
        whole: None,
    };
    Some(Plan::new(inputs, parallel.clone(), stages, estimate))
}

#[allow(dead_code, reason = "not every test that shares this file draws all")]
/// Every combination of a few values of every axis that the runtime accepts.
pub fn plans(model: &str, runtime: &str, zero_stages: &[u8]) -> Vec<Plan> {
    let runtime = Runtime::named(runtime).unwrap();
    plans_on("dgx-h100", model, &runtime, zero_stages, runtime.name != "megatron-deepspeed")
}

/// The same on nodes of `cluster`, for an engine, with or without sequence parallelism where tp is above 1.
pub fn plans_on(
    cluster: &str,
    model: &str,
    runtime: &Runtime,
    zero_stages: &[u8],
    sequence_parallel: bool,
) -> Vec<Plan> {
    let mut plans = Vec::new();
    let recomputes = [Recompute::None, Recompute::Full { layers: None }, Recompute::Selective];
    for (tp, pp, vpp) in
        [(1, 1, 1), (2, 1, 1), (8, 1, 1), (1, 4, 1), (2, 2, 1), (4, 4, 2), (2, 4, 2), (8, 8, 1)]
    {
        for (cp, ep) in [(1, 1), (2, 1), (1, 4)] {
            for (index, &zero_stage) in zero_stages.iter().enumerate() {
                let recompute = recomputes[(tp as usize + pp as usize + index) % 3];
                let parallel = ParallelConfig {
                    tp,
                    pp,
                    vpp,
                    cp,
                    ep,
                    dp_shard: 4,
                    zero_stage,
                    sequence_parallel: tp > 1 && sequence_parallel,
                    micro_batch_size: 1 + u64::from(tp % 3),
                    num_microbatches: 16,
                    schedule: if vpp > 1 { "interleaved-1f1b" } else { "1f1b" }.to_owned(),
                    recompute,
                    ..ParallelConfig::default()
                };
                plans.extend(plan_on(cluster, model, runtime, &parallel, None));
            }
        }
    }
    plans
}
