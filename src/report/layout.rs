//! A layout in words: its degrees, and what stages, blocks or hosts have of their own.

use super::number::gib;
use crate::host_memory::{HostMemory, by_host, fullest};
use crate::plan::Plan;
use cluster_profiles::Bytes;
use cost_models::ParallelConfig;
use cost_models::layerwise::Strategy;
use cost_models::shares::KindShare;

/// What the degrees do not say, a line each: blocks of uneven stages, recompute of stages that differ, strategies of blocks, what
/// is kept in host memory. A line that goes on with the one before has no name.
#[must_use]
pub fn particulars(plan: &Plan) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    let blocks = plan.blocks_by_stage();
    if blocks.iter().any(|count| *count != blocks[0]) {
        lines.push(("stages", format!("{} blocks", run_lengths(&blocks))));
    }
    let recomputes: Vec<String> = plan.stages.0.iter().map(|stage| stage.recompute.to_string()).collect();
    if recomputes.iter().any(|recompute| *recompute != recomputes[0]) {
        lines.push(("recompute by stage", run_lengths(&recomputes)));
    }
    let strategies = strategies(plan).into_iter().enumerate();
    lines.extend(strategies.map(|(index, line)| (if index == 0 { "blocks" } else { "" }, line)));
    lines.extend(offload(plan));
    lines
}

/// What leaves the GPUs, and what the fullest host then holds.
fn offload(plan: &Plan) -> Vec<(&'static str, String)> {
    let mut moved = Vec::new();
    let share = plan.inputs.runtime.memory.state.optimizer_offload;
    if share > 0.0 {
        moved.push(format!("{:.0} % of the optimizer's state in host memory", share * 100.0));
    }
    let most = plan.estimate.memory.iter().map(|rank| rank.host_bytes).fold(Bytes::ZERO, Bytes::max);
    if most > Bytes::ZERO {
        moved.push(format!("{} GiB of a GPU's activations in host memory, at most", gib(most)));
    }
    moved.extend(fullest(&by_host(plan)).map(|host| host_line(&host)));
    let lines = moved.into_iter().enumerate();
    lines.map(|(index, line)| (if index == 0 { "offload" } else { "" }, line)).collect()
}

/// What a host holds of what it has.
#[must_use]
pub fn host_line(host: &HostMemory) -> String {
    let total = gib(host.total());
    match host.capacity {
        Some(capacity) => format!("the fullest host holds {total} of its {} GiB", gib(capacity)),
        None => format!("the fullest host holds {total} GiB; its memory is not known"),
    }
}

/// What blocks have of their own, for every run of them; nothing where all are alike.
#[must_use]
pub fn strategies(plan: &Plan) -> Vec<String> {
    let runs = plan.layer_strategies.iter().flat_map(|strategies| &strategies.0);
    let lines = runs.map(|run| {
        let [first, last] = run.layers;
        let Strategy { tp, sharding, recompute } = run.strategy;
        let ranks = plan.parallel.tp * plan.parallel.dp();
        let zero = match sharding.zero_stage() {
            0 => String::new(),
            stage => format!(" (ZeRO-{stage})"),
        };
        let dp = ranks / tp.max(1);
        format!("{first} to {last}: tp {tp}   dp {dp}{zero}   recompute {recompute}")
    });
    lines.collect()
}

/// The degrees on one line, leaving out those that are 1.
#[must_use]
pub fn degrees(parallel: &ParallelConfig) -> String {
    let mut parts = vec![format!("tp {}", parallel.tp)];
    parts.push(match parallel.vpp {
        1 => format!("pp {}", parallel.pp),
        chunks => format!("pp {} x {chunks} chunks", parallel.pp),
    });
    for (name, degree) in [("cp", parallel.cp), ("ep", parallel.ep)] {
        if degree > 1 {
            parts.push(format!("{name} {degree}"));
        }
    }
    if parallel.ep > 1 && parallel.etp > 1 {
        parts.push(format!("etp {}", parallel.etp));
    }
    let zero = match (parallel.zero_stage, parallel.dp()) {
        (0, _) | (_, 1) => String::new(),
        (stage, _) => format!(" (ZeRO-{stage})"),
    };
    parts.push(match parallel.dp_replicate {
        1 => format!("dp {}{zero}", parallel.dp_shard),
        replicas => format!("dp {replicas} x {}{zero}", parallel.dp_shard),
    });
    parts.push(micro_batch(parallel));
    if parallel.pp > 1 {
        parts.push(parallel.schedule.clone());
    }
    parts.push(format!("recompute {}", parallel.recompute));
    if !parallel.rank_order.is_default() {
        parts.push(format!("ranks {}", parallel.rank_order));
    }
    parts.join("   ")
}

/// Sequences of a microbatch, by kind of GPU where they differ, and the number of microbatches; weights of state where it is
/// uneven.
fn micro_batch(parallel: &ParallelConfig) -> String {
    let by_kind = |number: &dyn Fn(&KindShare) -> u64| {
        let kinds = parallel.shares.iter().map(|share| format!("{} {}", share.gpu, number(share)));
        format!("({})", kinds.collect::<Vec<_>>().join(", "))
    };
    let sizes = if parallel.has_unequal_micro_batches() {
        by_kind(&|share| share.micro_batch_size)
    } else {
        parallel.micro_batch_size.to_string()
    };
    let state = if parallel.has_uneven_state() {
        format!("   state {}", by_kind(&|share| u64::from(share.state)))
    } else {
        String::new()
    };
    format!("micro batch {sizes} x {}{state}", parallel.num_microbatches)
}

fn run_lengths<T: PartialEq + std::fmt::Display>(values: &[T]) -> String {
    let mut runs: Vec<(&T, usize)> = Vec::new();
    for next in values {
        match runs.last_mut() {
            Some((value, length)) if *value == next => *length += 1,
            _ => runs.push((next, 1)),
        }
    }
    let run = |(value, length): &(&T, usize)| match length {
        1 => value.to_string(),
        _ => format!("{length}x{value}"),
    };
    runs.iter().map(run).collect::<Vec<_>>().join(", ")
}
