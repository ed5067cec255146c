//! Stages, chunks and microbatches.

use super::rule::{Axis, Rule};
use crate::modules::{Module, ModuleChoice};
use crate::parallel::Recompute;

/// Chunks need a pipeline.
pub const CHUNKS_NEED_RANKS: Rule = Rule {
    id: "P5",
    statement: "several chunks per rank need more than one pipeline rank",
    axis: Axis::Vpp,
    holds: |_, p| p.vpp == 1 || p.pp > 1,
    clash: |_, p| format!("{} chunks with pp {}", p.vpp, p.pp),
};

/// Megatron's interleaving fills groups of pp microbatches.
pub const INTERLEAVED_GROUPS: Rule = Rule {
    id: "P6",
    statement: "interleaving works in groups of pp microbatches: pp divides num_microbatches",
    axis: Axis::Microbatches,
    holds: |_, p| !is_interleaved(&p.schedule) || p.pp == 0 || p.num_microbatches.is_multiple_of(p.pp.into()),
    clash: |_, p| format!("{} microbatches with pp {}", p.num_microbatches, p.pp),
};

/// torch's interleaving works in equal rounds.
pub const INTERLEAVED_ROUNDS: Rule = Rule {
    id: "T7",
    statement: "interleaving works in max(1, num_microbatches / pp) rounds of equal size",
    axis: Axis::Microbatches,
    holds: |_, p| {
        !is_interleaved(&p.schedule)
            || p.pp == 0
            || p.num_microbatches.is_multiple_of((p.num_microbatches / u64::from(p.pp)).max(1))
    },
    clash: |_, p| format!("{} microbatches with pp {}", p.num_microbatches, p.pp),
};

fn is_interleaved(schedule: &str) -> bool {
    matches!(schedule, "interleaved-1f1b" | "combined-1f1b")
}

/// What Megatron's combined forward-backward (`--overlap-moe-expert-parallel-comm`) asks for; its tokens are 16-bit, and its
/// dispatcher exchanges them.
pub const COMBINED: Rule = Rule {
    id: "S6",
    statement: "combined-1f1b needs expert parallelism, chunks where there is a pipeline, no full recompute, and at most one MTP layer",
    axis: Axis::Ep,
    holds: |f, p| {
        let chunks = p.pp == 1 || p.vpp > 1;
        let full = matches!(p.recompute, Recompute::Full { .. });
        p.schedule != "combined-1f1b" || (p.ep > 1 && chunks && !full && f.mtp <= 1)
    },
    clash: |f, p| {
        format!(
            "ep {}, {} chunks with pp {}, recompute {}, {} MTP layers",
            p.ep, p.vpp, p.pp, p.recompute, f.mtp
        )
    },
};

/// Megatron's `--cpu-offloading-num-layers` (`transformer_config.py`).
pub const OFFLOAD: Rule = Rule {
    id: "R4",
    statement: "activations wait in host memory only with pp 1, and of at least one and not all layers",
    axis: Axis::Pp,
    holds: |f, p| match p.recompute {
        Recompute::Offload { layers } => {
            p.pp == 1
                && p.vpp == 1
                && p.schedule != "combined-1f1b"
                && (1..f.blocks).contains(&u64::from(layers))
        }
        _ => true,
    },
    clash: |f, p| format!("{} of {} layers with pp {}, {}", p.recompute, f.blocks, p.pp, p.schedule),
};

/// Megatron's `--offload-modules` and `--recompute-modules` (`transformer_config.py`). A core attention that is repeated
/// moves nothing, and modules that the model does not have change nothing.
pub const MODULES: Rule = Rule {
    id: "R5",
    statement: "of the modules that wait in host memory attn_proj goes with core_attn, core_attn is not repeated, and those of experts need experts and no repeated moe, which combined-1f1b excludes",
    axis: Axis::Ep,
    holds: |f, p| match p.recompute {
        Recompute::Modules(ModuleChoice { repeated, moved, .. }) => {
            let inside = moved.has(Module::ExpertFc1) || moved.has(Module::MoeAct);
            let routed = inside
                || moved.has(Module::MlpNorm)
                || [Module::MoeAct, Module::Moe, Module::SharedExperts].iter().any(|own| repeated.has(*own));
            (!moved.has(Module::AttnProj) || moved.has(Module::CoreAttn))
                && !(moved.has(Module::CoreAttn) && repeated.has(Module::CoreAttn))
                && (f.is_moe() || !routed)
                && !(repeated.has(Module::Moe) && (inside || p.schedule == "combined-1f1b"))
        }
        _ => true,
    },
    clash: |f, p| {
        format!("{} with {}, {}", p.recompute, if f.is_moe() { "experts" } else { "no experts" }, p.schedule)
    },
};

/// Every stage has something to do.
pub const STAGES: Rule = Rule {
    id: "P9",
    statement: "there are no more stages than blocks, embedding and head together",
    axis: Axis::Pp,
    holds: |f, p| u64::from(p.pp) * u64::from(p.vpp) <= f.units,
    clash: |f, p| format!("pp {} x {} chunks with {} layers", p.pp, p.vpp, f.units),
};

/// Engines that deal out layers evenly, without exceptions.
pub const EVEN_STAGES: Rule = Rule {
    id: "P2",
    statement: "every stage has the same number of blocks: pp x vpp divides them",
    axis: Axis::Pp,
    holds: |f, p| {
        let stages = u64::from(p.pp) * u64::from(p.vpp);
        stages > 0 && f.blocks.is_multiple_of(stages)
    },
    clash: |f, p| format!("pp {} x {} chunks with {} blocks", p.pp, p.vpp, f.blocks),
};

/// The zero-bubble fork deals out blocks evenly; it may leave the first and the last stage one short.
pub const EVEN_BUT_ENDS: Rule = Rule {
    id: "Z1",
    statement: "stages have the same number of blocks, the first and the last may both have one less: pp x vpp divides the blocks, or the blocks and two",
    axis: Axis::Pp,
    holds: |f, p| {
        let stages = u64::from(p.pp) * u64::from(p.vpp);
        stages > 0 && (f.blocks.is_multiple_of(stages) || (f.blocks + 2).is_multiple_of(stages))
    },
    clash: |f, p| format!("pp {} x {} chunks with {} blocks", p.pp, p.vpp, f.blocks),
};

/// DeepSpeed's pipeline engine accumulates gradients itself.
pub const PIPELINE_ZERO: Rule = Rule {
    id: "D3",
    statement: "with a pipeline the ZeRO stage is at most 1",
    axis: Axis::Zero,
    holds: |_, p| p.pp == 1 || p.zero_stage < 2,
    clash: |_, p| format!("ZeRO {} with pp {}", p.zero_stage, p.pp),
};

/// torchtitan does not share a matrix between stages.
pub const TIED_PIPELINE: Rule = Rule {
    id: "T9",
    statement: "a model whose head is its embedding has no pipeline",
    axis: Axis::Pp,
    holds: |f, p| p.pp == 1 || !f.tied_embeddings,
    clash: |_, p| format!("pp is {} with tied embeddings", p.pp),
};
