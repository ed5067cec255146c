//! Which layers every stage of a row holds.

use super::hardware::assumed;
use super::row::RunRow;
use cost_models::model::{Block, Mlp, ModelSpec};
use cost_models::runtime::SplitPolicy;
use cost_models::schedule::{Placement, Schedule};
use cost_models::stages::{SplitError, default_stages, stages_from_blocks};
use cost_models::{Assumption, ParallelConfig, Runtime, StageMap};

/// The stages of a row: as its runtime splits, but for the baseline that spreads layers to balance the head.
///
/// # Errors
/// [`SplitError`] when the degrees make no stages.
pub fn stages(
    row: &RunRow,
    model: &ModelSpec,
    parallel: &ParallelConfig,
    runtime: &Runtime,
    assumptions: &mut Vec<Assumption>,
) -> Result<StageMap, SplitError> {
    let schedule = parallel.schedule.parse::<Schedule>();
    let placement = schedule.map_or(Placement::Loop, |schedule| schedule.kind.definition().placement);
    if row.schedule == "1f1b-redistributed-layers" {
        return stages_from_blocks(
            model,
            parallel,
            &redistributed(model, row.seq_len, parallel.pp),
            placement,
        );
    }
    let split = split(row, model, parallel, runtime);
    if split != SplitPolicy::Even {
        assumptions.push(assumed(format!("stages split by the rule {split:?}")));
    }
    default_stages(model, parallel, split, placement)
}

/// The runtime's rule; an even one gives way where the blocks do not divide, or the row says that the ends hold less.
fn split(row: &RunRow, model: &ModelSpec, parallel: &ParallelConfig, runtime: &Runtime) -> SplitPolicy {
    let own = runtime.memory.pipeline.split;
    let stages = u64::from(parallel.pp) * u64::from(parallel.vpp);
    let uneven = stages > 1 && !(model.blocks().count() as u64).is_multiple_of(stages);
    let shorter_ends = row.notes.contains("first & last stage hold");
    if own == SplitPolicy::Even && (uneven || shorter_ends) { SplitPolicy::CountEnds } else { own }
}

/// Blocks per stage that keep the slowest stage fastest when the last also has the head, the first ones, which hold most
/// activations, taking none of the remainder (the `Redis` baseline of
/// Balancing Pipeline Parallelism with Vocabulary Parallelism, arXiv 2411.05288, section 6.1).
fn redistributed(model: &ModelSpec, seq_len: u64, stages: u32) -> Vec<u64> {
    let blocks = model.blocks().count() as u64;
    if stages < 2 {
        return vec![blocks];
    }
    let costs: Vec<f64> = model.blocks().map(|(_, block)| block_cost(model, block, seq_len)).collect();
    let block = costs.iter().sum::<f64>() / costs.len().max(1) as f64;
    let head = 2.0 * model.hidden as f64 * model.vocab as f64;
    let others = u64::from(stages) - 1;
    let slowest = |last: u64| {
        let other = (blocks - last).div_ceil(others) as f64 * block;
        other.max(last as f64 * block + head)
    };
    let last =
        (0..=blocks / u64::from(stages)).min_by(|a, b| slowest(*a).total_cmp(&slowest(*b)).then(b.cmp(a)));
    let last = last.unwrap_or(0);
    let rest = blocks - last;
    let mut counts: Vec<u64> =
        (0..others).map(|stage| rest / others + u64::from(stage + rest % others >= others)).collect();
    counts.push(last);
    counts
}

/// Forward FLOPs per token of a block: `8 h^2 + 4 s h` of attention, `4 h f` (6 if gated) of the MLP.
fn block_cost(model: &ModelSpec, block: &Block, seq_len: u64) -> f64 {
    let h = model.hidden as f64;
    let (ffn, activation) = match block.mlp {
        Mlp::Dense { ffn, activation } => (ffn, activation),
        Mlp::Moe { ffn, topk, shared_ffn, activation, .. } => (ffn * topk + shared_ffn, activation),
    };
    let matrices = activation.up_projections() as f64 + 1.0;
    8.0 * h * h + 4.0 * seq_len as f64 * h + 2.0 * matrices * h * ffn as f64
}
