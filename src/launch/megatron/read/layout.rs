//! The layout that Megatron-LM flags describe.

use super::super::offload;
use super::FlagSet;
use crate::launch::flags::MOST_BATCH;
use crate::launch::megatron::layout::{COMBINED, PP_INSIDE};
use cost_models::runtime::SplitPolicy;
use cost_models::schedule::Placement;
use cost_models::stages::{SplitError, default_stages, stages_from_blocks, stages_from_layout};
use cost_models::{ModelSpec, ParallelConfig, RankOrder, Recompute, StageMap};

/// Most sequences of a microbatch.
const MOST_MICRO_BATCH: u64 = 1 << 20;

/// How the flags split the blocks.
pub(super) enum Split {
    Policy(SplitPolicy),
    Blocks(Vec<u64>),
    Layout(String),
}

impl Split {
    pub(super) fn stages(
        &self,
        model: &ModelSpec,
        parallel: &ParallelConfig,
    ) -> Result<StageMap, SplitError> {
        match self {
            Self::Policy(policy) => default_stages(model, parallel, *policy, Placement::Loop),
            Self::Blocks(counts) => stages_from_blocks(model, parallel, counts, Placement::Loop),
            Self::Layout(layout) => stages_from_layout(model, parallel, layout),
        }
    }
}

/// The degrees, and the split.
pub(super) fn layout(flags: &FlagSet, world_size: u64, model: &ModelSpec) -> (ParallelConfig, Split) {
    let tp = flags.degree("--tensor-model-parallel-size");
    let pp = flags.degree("--pipeline-model-parallel-size");
    let cp = flags.degree("--context-parallel-size");
    let micro_batch_size = flags.required("--micro-batch-size", MOST_MICRO_BATCH);
    let global_batch = flags.at_most("--global-batch-size", MOST_BATCH);
    let dp = data_parallel(world_size, [tp, pp, cp], global_batch.map(|batch| batch / micro_batch_size));
    let instances = flags.degree("--num-distributed-optimizer-instances").min(dp);
    let blocks = model.blocks().count() as u64;
    let split = split(flags, blocks, pp);
    let vpp = chunks(flags, blocks, pp, &split);
    let modules = offload::read(flags, model).map(Recompute::Modules);
    let recompute = modules.unwrap_or_else(|| recompute(flags, pp, blocks));
    let ep = flags.degree("--expert-model-parallel-size");
    // Where the flag is not allowed the flags' own rule says so.
    let combined = flags.has("--overlap-moe-expert-parallel-comm")
        && ep > 1
        && (vpp > 1 || pp == 1)
        && !matches!(recompute, Recompute::Full { .. })
        && flags.amount("--mtp-num-layers").is_none_or(|blocks| blocks <= 1);
    let schedule = match (combined, vpp > 1 && pp > 1) {
        (true, _) => COMBINED,
        (false, true) => "interleaved-1f1b",
        (false, false) => "1f1b",
    };
    let parallel = ParallelConfig {
        tp,
        pp,
        vpp,
        cp,
        ep,
        etp: flags
            .text("--expert-tensor-parallel-size")
            .map_or(tp, |_| flags.degree("--expert-tensor-parallel-size")),
        dp_replicate: if dp.is_multiple_of(instances) { instances } else { 1 },
        dp_shard: if dp.is_multiple_of(instances) { dp / instances } else { dp },
        zero_stage: zero_stage(flags),
        sequence_parallel: flags.has("--sequence-parallel") && tp > 1,
        micro_batch_size,
        num_microbatches: global_batch
            .map_or(1, |batch| batch / micro_batch_size.saturating_mul(u64::from(dp)))
            .max(1),
        schedule: schedule.to_owned(),
        recompute,
        rank_order: if flags.has(PP_INSIDE) { RankOrder::PpInside } else { RankOrder::DpInside },
        ..ParallelConfig::default()
    };
    (parallel, split)
}

/// `world / (tp pp cp)`, at most the microbatches of a step: some published world sizes contradict the batch.
fn data_parallel(world_size: u64, degrees: [u32; 3], most: Option<u64>) -> u32 {
    let model = degrees.iter().fold(1u64, |product, &degree| product.saturating_mul(u64::from(degree)));
    let dp = (world_size / model.max(1)).min(most.unwrap_or(u64::MAX)).max(1);
    u32::try_from(dp).unwrap_or(u32::MAX)
}

fn zero_stage(flags: &FlagSet) -> u8 {
    let distributed_optimizer = flags.has("--use-distributed-optimizer");
    if flags.has("--use-torch-fsdp2") {
        return 3;
    }
    let fsdp = flags.has("--use-megatron-fsdp") || flags.has("--use-custom-fsdp");
    match flags.text("--data-parallel-sharding-strategy") {
        Some("optim_grads_params") if fsdp => 3,
        Some("optim_grads") if fsdp => 2,
        Some("optim") if fsdp => 1,
        _ => u8::from(distributed_optimizer),
    }
}

fn split(flags: &FlagSet, blocks: u64, pp: u32) -> Split {
    if let Some(layout) = flags.text("--pipeline-model-parallel-layout") {
        return Split::Layout(layout.to_owned());
    }
    let first = flags.count("--decoder-first-pipeline-num-layers");
    let last = flags.count("--decoder-last-pipeline-num-layers");
    if first.is_some() || last.is_some() {
        return uneven(blocks, pp, first, last);
    }
    let embedding = flags.has("--account-for-embedding-in-pipeline-split");
    let loss = flags.has("--account-for-loss-in-pipeline-split");
    match (embedding, loss) {
        (true, true) => Split::Policy(SplitPolicy::CountEnds),
        (false, false) => Split::Policy(SplitPolicy::Even),
        (embedding, _) if pp > 1 => one_end(blocks, pp, embedding),
        _ => Split::Policy(SplitPolicy::Even),
    }
}

/// Stated blocks of the first or last rank, the rest evenly.
fn uneven(blocks: u64, pp: u32, first: Option<u64>, last: Option<u64>) -> Split {
    let pp = u64::from(pp).min(blocks + 2);
    let middle = pp.saturating_sub(u64::from(first.is_some()) + u64::from(last.is_some()));
    let rest = blocks.saturating_sub(first.unwrap_or(0)).saturating_sub(last.unwrap_or(0));
    let each = rest.checked_div(middle).unwrap_or(0);
    let counts = first.into_iter().chain((0..middle).map(|_| each)).chain(last);
    Split::Blocks(counts.collect())
}

/// Only the embedding or only the loss counts as a block.
fn one_end(blocks: u64, pp: u32, embedding: bool) -> Split {
    let pp = u64::from(pp).min(blocks + 2) as u32;
    let each = (blocks + 1) / u64::from(pp);
    let short = if embedding { 0 } else { pp - 1 };
    Split::Blocks((0..pp).map(|rank| each.saturating_sub(u64::from(rank == short))).collect())
}

fn chunks(flags: &FlagSet, blocks: u64, pp: u32, split: &Split) -> u32 {
    if let Split::Layout(layout) = split {
        let stages = cost_models::stages::layout_stages(layout).unwrap_or(pp as usize);
        return (stages as u32 / pp).max(1);
    }
    let per_chunk = flags.count("--num-layers-per-virtual-pipeline-stage");
    let chunks = per_chunk.map(|layers| (blocks / u64::from(pp).saturating_mul(layers)) as u32);
    chunks.unwrap_or_else(|| flags.degree("--num-virtual-stages-per-pipeline-rank")).max(1)
}

/// Activations are moved where Megatron-LM does it; where it refuses to, the flags' own rule says so.
fn recompute(flags: &FlagSet, pp: u32, blocks: u64) -> Recompute {
    let moved =
        flags.count("--cpu-offloading-num-layers").filter(|layers| pp == 1 && (1..blocks).contains(layers));
    let layers = flags.at_most("--recompute-num-layers", 1 << 16).map(|n| n as u32);
    match (flags.text("--recompute-granularity"), flags.text("--recompute-method")) {
        (None, _) if flags.has("--recompute-activations") => Recompute::Selective,
        (None, _) => moved.map_or(Recompute::None, |layers| Recompute::Offload { layers: layers as u32 }),
        (Some("selective"), _) => Recompute::Selective,
        (Some("full"), Some("block")) => Recompute::Full { layers },
        (Some("full"), _) => Recompute::Full { layers: None },
        (Some(other), _) => {
            flags.fault("--recompute-granularity", other, "full or selective");
            Recompute::None
        }
    }
}
