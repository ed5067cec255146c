//! Degrees, and what they must divide: rules shared by most engines, and where engines differ.
//!
//! Ids M are Megatron-LM's, T torchtitan's, N nanotron's, D DeepSpeed's, A Accelerate's; the same condition has one id
//! per engine only where the engines differ.

use super::facts::Facts;
use super::rule::{Axis, Rule};
use crate::parallel::ParallelConfig;

/// Whether `divisor` divides every number.
fn divides_all(divisor: u64, numbers: &[u64]) -> bool {
    divisor > 0 && numbers.iter().all(|number| number.is_multiple_of(divisor))
}

fn product(degrees: &[u32]) -> u64 {
    degrees.iter().fold(1u64, |product, &degree| product.saturating_mul(u64::from(degree)))
}

fn list(numbers: &[u64]) -> String {
    let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
    numbers.join(", ")
}

/// Ranks of the layout, saturating.
fn ranks(p: &ParallelConfig) -> u64 {
    product(&[p.tp, p.cp, p.pp, p.dp_replicate, p.dp_shard])
}

/// Every degree counts something.
pub const POSITIVE: Rule = Rule {
    id: "M0",
    statement: "every degree, the micro batch and the number of microbatches are at least 1",
    axis: Axis::Tp,
    holds: |_, p| {
        let degrees = [p.tp, p.pp, p.vpp, p.cp, p.ep, p.etp, p.dp_replicate, p.dp_shard];
        degrees.iter().all(|&degree| degree > 0) && p.micro_batch_size > 0 && p.num_microbatches > 0
    },
    clash: |_, _| "a degree is 0".to_owned(),
};

/// The ranks are the GPUs.
pub const WORLD: Rule = Rule {
    id: "M1",
    statement: "tp x cp x pp x dp_replicate x dp_shard is the number of GPUs",
    axis: Axis::DpShard,
    holds: |f, p| ranks(p) == f.world,
    clash: |f, p| {
        format!(
            "tp {} x cp {} x pp {} x dp {} x {} is {}, not {}",
            p.tp,
            p.cp,
            p.pp,
            p.dp_replicate,
            p.dp_shard,
            ranks(p),
            f.world
        )
    },
};

/// The expert grid tiles a pipeline rank.
pub const EXPERT_WORLD: Rule = Rule {
    id: "M2",
    statement: "etp x ep x pp divides the number of GPUs",
    axis: Axis::Ep,
    holds: |f, p| {
        let grid = product(&[p.etp, p.ep, p.pp]);
        grid > 0 && f.world.is_multiple_of(grid)
    },
    clash: |f, p| format!("etp {} x ep {} x pp {} does not divide {}", p.etp, p.ep, p.pp, f.world),
};

/// Megatron's attention heads.
pub const HEADS: Rule = Rule {
    id: "M5",
    statement: "tp divides the attention heads, and the key-value heads divide tp or are divided by it",
    axis: Axis::Tp,
    holds: |f, p| {
        let tp = u64::from(p.tp);
        let shared = |&kv: &u64| kv > 0 && (kv.is_multiple_of(tp.max(1)) || tp.is_multiple_of(kv));
        divides_all(tp, &f.heads) && f.kv_heads.iter().all(shared)
    },
    clash: heads_clash,
};

/// torchtitan and nanotron do not replicate key-value heads.
pub const WHOLE_KV_HEADS: Rule = Rule {
    id: "T6b",
    statement: "tp divides the attention heads and the key-value heads",
    axis: Axis::Tp,
    holds: |f, p| divides_all(p.tp.into(), &f.heads) && divides_all(p.tp.into(), &f.kv_heads),
    clash: heads_clash,
};

fn heads_clash(f: &Facts, p: &ParallelConfig) -> String {
    format!("tp is {} with {} heads and {} key-value heads", p.tp, list(&f.heads), list(&f.kv_heads))
}

/// Context parallelism cuts a sequence into twice as many pieces as it has ranks.
pub const CONTEXT: Rule = Rule {
    id: "M7",
    statement: "with context parallelism 2 cp divides the sequence length",
    axis: Axis::Cp,
    holds: |f, p| p.cp == 1 || divides_all(2 * u64::from(p.cp), &[f.seq_len]),
    clash: |f, p| format!("cp is {} with sequences of {}", p.cp, f.seq_len),
};

/// Experts are dealt out evenly.
pub const EXPERTS: Rule = Rule {
    id: "M9",
    statement: "ep divides the number of experts of every layer that has any",
    axis: Axis::Ep,
    holds: |f, p| p.ep == 1 || (f.is_moe() && divides_all(p.ep.into(), &f.experts)),
    clash: |f, p| match f.experts.as_slice() {
        [] => format!("ep is {} in a model without experts", p.ep),
        experts => format!("ep is {} with {} experts", p.ep, list(experts)),
    },
};

/// Galvatron's relocation of activations between layers takes them as split over the sequence.
pub const TP_NEEDS_SP: Rule = Rule {
    id: "G1",
    statement: "tensor parallelism comes with sequence parallelism",
    axis: Axis::SequenceParallel,
    holds: |_, p| p.tp == 1 || p.sequence_parallel,
    clash: |_, p| format!("tp {} without sequence parallelism", p.tp),
};

/// The groups of layers with different degrees lie in each other, and Galvatron's search knows no other degrees.
pub const POWERS_OF_TWO: Rule = Rule {
    id: "G2",
    statement: "tp is a power of two",
    axis: Axis::Tp,
    holds: |_, p| p.tp.is_power_of_two(),
    clash: |_, p| format!("tp is {}", p.tp),
};

/// Experts with tensor and expert parallelism train wrongly without sequence parallelism.
pub const EXPERTS_NEED_SP: Rule = Rule {
    id: "M10",
    statement: "a model with experts needs sequence parallelism when tp and ep are both above 1",
    axis: Axis::SequenceParallel,
    holds: |f, p| !f.is_moe() || p.tp == 1 || p.ep == 1 || p.sequence_parallel,
    clash: |_, p| format!("tp {} and ep {} without sequence parallelism", p.tp, p.ep),
};

/// Biased experts are not split.
pub const EXPERT_BIAS: Rule = Rule {
    id: "M11",
    statement: "experts with biases are not split over expert tensor parallel ranks",
    axis: Axis::Etp,
    holds: |f, p| !f.expert_bias || p.etp == 1,
    clash: |_, p| format!("etp is {}", p.etp),
};

/// The batch is whole microbatches.
pub const BATCH: Rule = Rule {
    id: "M12",
    statement: "micro_batch_size x num_microbatches x dp is the global batch",
    axis: Axis::Microbatches,
    holds: |f, p| batch(p) == f.global_batch,
    clash: |f, p| {
        if !p.shares.is_empty() {
            let (each, m) = (p.sequences_per_microbatch(), p.num_microbatches);
            return format!(
                "{each} sequences over all ranks x {m} microbatches is {}, not {}",
                batch(p),
                f.global_batch
            );
        }
        format!(
            "micro batch {} x {} microbatches x dp {} is {}, not {}",
            p.micro_batch_size,
            p.num_microbatches,
            product(&[p.dp_replicate, p.dp_shard]),
            batch(p),
            f.global_batch
        )
    },
};

fn batch(p: &ParallelConfig) -> u64 {
    p.sequences_per_microbatch().saturating_mul(p.num_microbatches)
}

/// Linear attention is split by heads over both axes.
pub const LINEAR_HEADS: Rule = Rule {
    id: "M13",
    statement: "tp x cp divides the heads of linear attention",
    axis: Axis::Tp,
    holds: |f, p| divides_all(product(&[p.tp, p.cp]), &f.linear_heads),
    clash: |f, p| format!("tp {} x cp {} with {} heads", p.tp, p.cp, list(&f.linear_heads)),
};

/// Sequence parallelism belongs to tensor parallelism.
pub const SP_NEEDS_TP: Rule = Rule {
    id: "M14",
    statement: "sequence parallelism works over the tensor parallel ranks: it needs tp above 1",
    axis: Axis::SequenceParallel,
    holds: |_, p| !p.sequence_parallel || p.tp > 1,
    clash: |_, _| "sequence parallelism with tp 1".to_owned(),
};

/// Every tensor-parallel rank keeps equally many tokens.
pub const SP_TOKENS: Rule = Rule {
    id: "T3",
    statement: "with sequence parallelism tp x cp divides the sequence length",
    axis: Axis::Tp,
    holds: |f, p| !p.sequence_parallel || divides_all(product(&[p.tp, p.cp]), &[f.seq_len]),
    clash: |f, p| format!("tp {} x cp {} with sequences of {}", p.tp, p.cp, f.seq_len),
};

/// Inner widths are split evenly.
pub const WIDTHS: Rule = Rule {
    id: "M16",
    statement: "tp divides the inner width of every MLP",
    axis: Axis::Tp,
    holds: |f, p| divides_all(p.tp.into(), &f.ffn),
    clash: |f, p| format!("tp is {} with widths {}", p.tp, list(&f.ffn)),
};

/// The same for experts.
pub const EXPERT_WIDTHS: Rule = Rule {
    id: "M17",
    statement: "etp divides the inner width of every expert",
    axis: Axis::Etp,
    holds: |f, p| divides_all(p.etp.into(), &f.expert_ffn),
    clash: |f, p| format!("etp is {} with widths {}", p.etp, list(&f.expert_ffn)),
};

/// A model without experts has no expert axes.
pub const EXPERT_AXES: Rule = Rule {
    id: "M18",
    statement: "etp above 1 needs experts",
    axis: Axis::Etp,
    holds: |f, p| f.is_moe() || p.etp == 1 || p.etp == p.tp,
    clash: |_, p| format!("etp is {} in a model without experts", p.etp),
};

/// torchtitan takes the expert ranks from the other axes of a stage.
pub const TITAN_EXPERT_DOMAIN: Rule = Rule {
    id: "T2",
    statement: "ep divides dp_shard x cp x tp: its ranks are borrowed from those axes",
    axis: Axis::Ep,
    holds: |_, p| p.ep > 0 && product(&[p.dp_shard, p.cp, p.tp]).is_multiple_of(p.ep.into()),
    clash: |_, p| format!("ep {} does not divide {} x {} x {}", p.ep, p.dp_shard, p.cp, p.tp),
};

/// nanotron's expert ranks are an axis of their own.
pub const NANOTRON_EXPERTS: Rule = Rule {
    id: "N1",
    statement: "expert parallelism is an axis of its own outside dp: only ep 1 is planned",
    axis: Axis::Ep,
    holds: |_, p| p.ep == 1,
    clash: |_, p| format!("ep is {}", p.ep),
};

/// Sharding over one rank is no sharding.
pub const HYBRID_NEEDS_SHARDS: Rule = Rule {
    id: "A3",
    statement: "with replicas and tp or cp above 1 the state is sharded too (dp_shard above 1)",
    axis: Axis::DpShard,
    holds: |_, p| p.zero_stage == 0 || p.dp_replicate == 1 || p.dp_shard > 1 || (p.tp == 1 && p.cp == 1),
    clash: |_, p| format!("dp_replicate is {}, dp_shard {}", p.dp_replicate, p.dp_shard),
};

/// Replicas split the experts' data-parallel ranks too.
pub const EXPERT_REPLICAS: Rule = Rule {
    id: "S12",
    statement: "dp_replicate divides the data-parallel ranks of the experts, world / (etp x ep x pp)",
    axis: Axis::DpReplicate,
    holds: |f, p| {
        !f.is_moe() || p.dp_replicate <= 1 || {
            let ranks = p.expert_dp();
            ranks > 0 && ranks.is_multiple_of(p.dp_replicate)
        }
    },
    clash: |_, p| {
        format!("dp_replicate is {} with {} data-parallel ranks of experts", p.dp_replicate, p.expert_dp())
    },
};
