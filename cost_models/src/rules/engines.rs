//! What every engine can do, and the rules it sets. A new engine is an entry here.

use super::orders::*;
use super::pipeline::*;
use super::rule::Rule;
use super::sizes::*;
use crate::order::RankOrder;
use crate::schedule::{GroupRule, Schedule};

/// How freely an engine deals out layers over stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StageFreedom {
    /// The engine's own split, whatever it is.
    Own,
    /// Any contiguous layers, listed for every stage.
    Listed,
}

/// How freely an engine chooses what is recomputed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecomputeFreedom {
    /// All layers or none.
    AllOrNone,
    /// The first layers of every stage, equally many on each.
    Layers,
    /// Any layers of any stage.
    PerStage,
}

/// What an engine can do.
pub struct Engine {
    /// Its name, as in the runtime profiles.
    pub name: &'static str,
    /// ZeRO stages it has.
    pub zero_stages: &'static [u8],
    /// Schedules it runs that a search looks at; with one pipeline rank all are the same.
    pub schedules: &'static [&'static str],
    /// Whether it takes the order of operations as torch's schedule CSV, and so runs any schedule that has one.
    pub reads_orders: bool,
    /// How it groups the microbatches of interleaved schedules.
    pub groups: GroupRule,
    /// Stage maps it accepts.
    pub stages: StageFreedom,
    /// Recompute it offers.
    pub recompute: RecomputeFreedom,
    /// Whether saved activations of some layers or modules can wait in host memory.
    pub offload: bool,
    /// Whether it has pipeline parallelism.
    pub pipeline: bool,
    /// Whether it has tensor parallelism.
    pub tensor: bool,
    /// Whether it has context parallelism.
    pub context: bool,
    /// Whether it has expert parallelism.
    pub expert: bool,
    /// Whether it has expert tensor parallelism of its own degree.
    pub expert_tensor: bool,
    /// Whether it has sequence parallelism.
    pub sequence: bool,
    /// Whether the state can be sharded over a part of the data-parallel ranks.
    pub hybrid_sharding: bool,
    /// Whether blocks may differ in tensor parallelism, sharding and recompute ([`crate::layerwise`]).
    pub layerwise: bool,
    /// Whether the ranks of a data-parallel group may have micro batches of different sizes: where the training loop feeds every
    /// rank by itself, and no collective carries activations between these ranks.
    pub unequal_micro_batches: bool,
    /// Orders its ranks may be numbered in, the one plans have by default first.
    pub rank_orders: &'static [RankOrder],
    /// Its rules.
    pub rules: &'static [&'static Rule],
}

/// The rules every engine has, and these.
macro_rules! rules {
    ($($rule:ident),* $(,)?) => {
        &[&POSITIVE, &WORLD, &BATCH, $(&$rule),*]
    };
}

type Rules = &'static [&'static Rule];

const FORK_RULES: Rules =
    rules![HEADS, SP_NEEDS_TP, SP_TOKENS, WIDTHS, CHUNKS_NEED_RANKS, INTERLEAVED_GROUPS, STAGES,];

const ZERO_BUBBLE_RULES: Rules = rules![
    HEADS,
    SP_NEEDS_TP,
    SP_TOKENS,
    WIDTHS,
    CHUNKS_NEED_RANKS,
    INTERLEAVED_GROUPS,
    STAGES,
    EVEN_BUT_ENDS,
];

const EVEN_RULES: Rules = rules![
    HEADS,
    SP_NEEDS_TP,
    SP_TOKENS,
    WIDTHS,
    CHUNKS_NEED_RANKS,
    INTERLEAVED_GROUPS,
    STAGES,
    EVEN_STAGES,
];

const MEGATRON_RULES: Rules = rules![
    EXPERT_WORLD,
    EXPERTS_BESIDE_PIPELINE,
    HEADS,
    CONTEXT,
    EXPERTS,
    EXPERTS_NEED_SP,
    EXPERT_BIAS,
    LINEAR_HEADS,
    SP_NEEDS_TP,
    SP_TOKENS,
    WIDTHS,
    EXPERT_WIDTHS,
    EXPERT_AXES,
    EXPERT_REPLICAS,
    CHUNKS_NEED_RANKS,
    INTERLEAVED_GROUPS,
    COMBINED,
    OFFLOAD,
    MODULES,
    STAGES,
];

const DEEPSPEED_RULES: Rules =
    rules![EXPERT_WORLD, HEADS, EXPERTS, SP_NEEDS_TP, WIDTHS, EXPERT_AXES, STAGES, PIPELINE_ZERO];

const TITAN_RULES: Rules = rules![
    WHOLE_KV_HEADS,
    CONTEXT,
    EXPERTS,
    TITAN_EXPERT_DOMAIN,
    EXPERT_REPLICAS,
    LINEAR_HEADS,
    SP_NEEDS_TP,
    SP_TOKENS,
    WIDTHS,
    CHUNKS_NEED_RANKS,
    INTERLEAVED_ROUNDS,
    STAGES,
    TIED_PIPELINE,
];

const FSDP1_RULES: Rules = rules![HYBRID_NEEDS_SHARDS];

const NANOTRON_RULES: Rules =
    rules![WHOLE_KV_HEADS, CONTEXT, NANOTRON_EXPERTS, SP_NEEDS_TP, SP_TOKENS, WIDTHS, STAGES];

const COLOSSAL_RULES: Rules = rules![
    HEADS,
    EXPERTS,
    SP_NEEDS_TP,
    SP_TOKENS,
    WIDTHS,
    CHUNKS_NEED_RANKS,
    INTERLEAVED_GROUPS,
    STAGES,
    PIPELINE_ZERO,
    EXPERTS_INSIDE_PIPELINE,
];

const GALVATRON_RULES: Rules =
    rules![WHOLE_KV_HEADS, CONTEXT, SP_NEEDS_TP, TP_NEEDS_SP, POWERS_OF_TWO, SP_TOKENS, WIDTHS, STAGES,];

const JAX_RULES: Rules =
    rules![EXPERT_WORLD, HEADS, EXPERTS, SP_NEEDS_TP, SP_TOKENS, WIDTHS, STAGES, EVEN_STAGES];

impl Engine {
    /// Whether it runs a schedule, by name or by its order.
    #[must_use]
    pub fn runs(&self, schedule: &str) -> bool {
        let by_order = || schedule.parse().is_ok_and(|schedule: Schedule| schedule.has_torch_csv());
        self.schedules.contains(&schedule) || (self.reads_orders && by_order())
    }
}

/// The schedules of Megatron-LM.
const WITH_COMBINED: &[&str] = &["1f1b", "interleaved-1f1b", "combined-1f1b"];

/// What most engines share.
const BASE: Engine = Engine {
    name: "",
    zero_stages: &[0, 1],
    schedules: &["1f1b", "interleaved-1f1b"],
    reads_orders: false,
    groups: GroupRule::Megatron,
    stages: StageFreedom::Own,
    recompute: RecomputeFreedom::Layers,
    offload: false,
    pipeline: true,
    tensor: true,
    context: false,
    expert: false,
    expert_tensor: false,
    sequence: true,
    hybrid_sharding: false,
    layerwise: false,
    unequal_micro_batches: false,
    rank_orders: &[RankOrder::DpInside],
    rules: FORK_RULES,
};

/// Every engine, in the order of the documentation.
pub const ENGINES: &[Engine] = &[
    Engine {
        name: "megatron-core",
        schedules: WITH_COMBINED,
        stages: StageFreedom::Listed,
        offload: true,
        context: true,
        expert: true,
        expert_tensor: true,
        hybrid_sharding: true,
        rank_orders: &RankOrder::ALL,
        rules: MEGATRON_RULES,
        ..BASE
    },
    Engine { name: "megatron-2021", zero_stages: &[0], sequence: false, rules: EVEN_RULES, ..BASE },
    Engine {
        name: "megatron-deepspeed",
        zero_stages: &[0, 1, 2, 3],
        schedules: &["1f1b"],
        expert: true,
        sequence: false,
        rules: DEEPSPEED_RULES,
        ..BASE
    },
    Engine {
        name: "zero-bubble",
        schedules: &[
            "1f1b",
            "interleaved-1f1b",
            "zb-h1",
            "zb-h2",
            "zb-1p",
            "zb-2p",
            "zb-v",
            "v-half",
            "v-min",
            "v-zb",
        ],
        rules: ZERO_BUBBLE_RULES,
        ..BASE
    },
    Engine {
        name: "vocabulary-parallel",
        schedules: &["1f1b", "1f1b-vocab1", "1f1b-vocab2", "v-half", "v-half-vocab1", "v-half-vocab2"],
        stages: StageFreedom::Listed,
        ..BASE
    },
    Engine {
        name: "nanotron",
        schedules: &["1f1b", "gpipe"],
        recompute: RecomputeFreedom::AllOrNone,
        context: true,
        rules: NANOTRON_RULES,
        ..BASE
    },
    Engine { name: "aleph-alpha", schedules: &["1f1b"], recompute: RecomputeFreedom::AllOrNone, ..BASE },
    Engine {
        name: "fsdp1",
        zero_stages: &[2, 3],
        schedules: &["1f1b"],
        recompute: RecomputeFreedom::AllOrNone,
        pipeline: false,
        tensor: false,
        sequence: false,
        hybrid_sharding: true,
        unequal_micro_batches: true,
        rules: FSDP1_RULES,
        ..BASE
    },
    Engine {
        name: "fsdp2",
        zero_stages: &[2, 3],
        schedules: &[
            "1f1b",
            "interleaved-1f1b",
            "gpipe",
            "looped-bfs",
            "zb-h1",
            "zb-h2",
            "interleaved-zb",
            "zb-v",
            "v-half",
            "v-min",
            "1f1b-v",
            "generalized-interleaved",
            "generalized-interleaved-half",
            "dualpipev",
        ],
        reads_orders: true,
        groups: GroupRule::Torch,
        stages: StageFreedom::Listed,
        recompute: RecomputeFreedom::AllOrNone,
        context: true,
        expert: true,
        hybrid_sharding: true,
        unequal_micro_batches: true,
        rules: TITAN_RULES,
        ..BASE
    },
    Engine {
        name: "torch",
        zero_stages: &[0],
        schedules: &["1f1b", "interleaved-1f1b", "gpipe", "looped-bfs", "zb-h1", "interleaved-zb", "zb-v"],
        groups: GroupRule::Torch,
        stages: StageFreedom::Listed,
        recompute: RecomputeFreedom::AllOrNone,
        context: true,
        rules: TITAN_RULES,
        ..BASE
    },
    Engine { name: "internevo", hybrid_sharding: true, ..BASE },
    Engine {
        name: "jax",
        zero_stages: &[1, 3],
        schedules: &["1f1b", "gpipe"],
        recompute: RecomputeFreedom::AllOrNone,
        expert: true,
        rules: JAX_RULES,
        ..BASE
    },
    Engine {
        name: "colossalai",
        zero_stages: &[0, 1, 2],
        schedules: &["1f1b", "interleaved-1f1b", "zb-v"],
        stages: StageFreedom::Listed,
        recompute: RecomputeFreedom::PerStage,
        expert: true,
        rank_orders: &RankOrder::ALL,
        rules: COLOSSAL_RULES,
        ..BASE
    },
    Engine { name: "megascale", rules: EVEN_RULES, ..BASE },
    Engine {
        name: "galvatron",
        zero_stages: &[0, 2, 3],
        schedules: &["1f1b", "gpipe"],
        stages: StageFreedom::Listed,
        recompute: RecomputeFreedom::PerStage,
        context: true,
        layerwise: true,
        rules: GALVATRON_RULES,
        ..BASE
    },
];

/// Name of the engine without limits of its own.
pub const UNLIMITED: &str = "unlimited";

/// What no engine can do without: the arithmetic of a layout. A launcher's limits are measured against it.
const WITHOUT_LIMITS: Engine = Engine {
    name: UNLIMITED,
    schedules: WITH_COMBINED,
    zero_stages: &[0, 1, 2, 3],
    stages: StageFreedom::Listed,
    context: true,
    expert: true,
    expert_tensor: true,
    hybrid_sharding: true,
    rank_orders: &RankOrder::ALL,
    rules: MEGATRON_RULES,
    ..BASE
};

/// The engine of a runtime; Megatron-core's rules for one that has no entry.
#[must_use]
pub fn engine(runtime: &str) -> &'static Engine {
    if runtime == UNLIMITED {
        return &WITHOUT_LIMITS;
    }
    ENGINES.iter().find(|engine| engine.name == runtime).unwrap_or(&ENGINES[0])
}
