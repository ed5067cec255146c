//! Which layouts are legal: the rules of every engine as data.
//!
//! A [`Rule`] is an integer check with the words that explain it; an [`Engine`] lists the rules it sets and what it can
//! do. The search uses the checks ([`Engine::allows`]) for every candidate, and `estimate` and `check` list what a given
//! layout breaks ([`broken`]), each with the nearest values that work. Sources: the validators of the engines, read or
//! run; ids as in the documentation of each rule.
//!
//! ```
//! use cost_models::{ParallelConfig, rules::{Facts, engine}};
//!
//! let facts = Facts { world: 64, node: 8, domain: 8, global_batch: 64, seq_len: 8192, heads: vec![64], kv_heads: vec![8],
//!     linear_heads: vec![], ffn: vec![28672], expert_ffn: vec![], experts: vec![], expert_bias: false, hidden: 8192,
//!     blocks: 80, units: 82, mtp: 0, tied_embeddings: false };
//! let parallel = ParallelConfig { tp: 6, dp_shard: 8, num_microbatches: 8, ..ParallelConfig::default() };
//! let broken: Vec<String> = engine("megatron-core").broken(&facts, &parallel).into_iter().map(|v| v.id).collect();
//! assert_eq!(broken, ["M1", "M5", "M16"]);
//! ```

mod engines;
mod facts;
mod orders;
mod pipeline;
mod rule;
mod sizes;
mod stage_rules;

pub use engines::{ENGINES, Engine, RecomputeFreedom, StageFreedom, UNLIMITED, engine};
pub use facts::Facts;
pub use rule::{Axis, Rule, Violation};
pub use stage_rules::stage_faults;

use crate::parallel::{ParallelConfig, Recompute};
use crate::run::TrainingRun;
use crate::shares;

impl Engine {
    /// The first rule a layout breaks, if any; no allocation.
    #[must_use]
    pub fn first_broken(&self, facts: &Facts, parallel: &ParallelConfig) -> Option<&'static str> {
        if let Some(rule) = self.rules.iter().find(|rule| !(rule.holds)(facts, parallel)) {
            return Some(rule.id);
        }
        self.first_missing(parallel).map(|missing| missing.id)
    }

    /// The first rule about the order of the ranks that a layout breaks, whatever its pipeline and sharding.
    #[must_use]
    pub fn broken_by_order(&self, facts: &Facts, parallel: &ParallelConfig) -> Option<&'static str> {
        let own = self.rules.iter().filter(|rule| orders::IDS.contains(&rule.id));
        own.into_iter().find(|rule| !(rule.holds)(facts, parallel)).map(|rule| rule.id)
    }

    /// Whether a layout keeps every rule.
    #[must_use]
    pub fn allows(&self, facts: &Facts, parallel: &ParallelConfig) -> bool {
        self.first_broken(facts, parallel).is_none()
    }

    /// Every rule a layout breaks, in the order of the engine's list.
    #[must_use]
    pub fn broken(&self, facts: &Facts, parallel: &ParallelConfig) -> Vec<Violation> {
        let rules = self.rules.iter().filter_map(|rule| rule.check(facts, parallel, self.rules));
        let missing =
            MISSING.iter().filter(|missing| (missing.used)(self, parallel)).map(|missing| Violation {
                id: missing.id.to_owned(),
                message: format!("{} has no {}", self.name, missing.what),
                hint: (missing.hint)(self),
            });
        rules.chain(missing).collect()
    }

    fn first_missing(&self, parallel: &ParallelConfig) -> Option<&'static Missing> {
        MISSING.iter().find(|missing| (missing.used)(self, parallel))
    }
}

/// Something a layout may use that an engine may not have.
struct Missing {
    id: &'static str,
    what: &'static str,
    used: fn(&Engine, &ParallelConfig) -> bool,
    hint: fn(&Engine) -> Option<String>,
}

const MISSING: &[Missing] = &[
    Missing {
        id: "A8",
        what: "pipeline parallelism",
        used: |engine, p| !engine.pipeline && p.pp > 1,
        hint: |_| Some("pp 1 works".to_owned()),
    },
    Missing {
        id: "E1",
        what: "tensor parallelism",
        used: |engine, p| !engine.tensor && p.tp > 1,
        hint: |_| Some("tp 1 works".to_owned()),
    },
    Missing {
        id: "E2",
        what: "context parallelism",
        used: |engine, p| !engine.context && p.cp > 1,
        hint: |_| Some("cp 1 works".to_owned()),
    },
    Missing {
        id: "E3",
        what: "expert parallelism",
        used: |engine, p| !engine.expert && p.ep > 1,
        hint: |_| Some("ep 1 works".to_owned()),
    },
    Missing {
        id: "E4",
        what: "expert tensor parallelism of that degree",
        used: |engine, p| !engine.expert_tensor && p.etp != 1 && p.etp != p.tp,
        hint: |_| Some("etp 1 works".to_owned()),
    },
    Missing {
        id: "E5",
        what: "sequence parallelism",
        used: |engine, p| !engine.sequence && p.sequence_parallel,
        hint: |_| None,
    },
    Missing {
        id: "E6",
        what: "such a ZeRO stage",
        used: |engine, p| !engine.zero_stages.contains(&p.zero_stage),
        hint: |engine| {
            let stages: Vec<String> = engine.zero_stages.iter().map(u8::to_string).collect();
            Some(format!("zero_stage {} works", stages.join(" or ")))
        },
    },
    Missing {
        id: "E7",
        what: "sharding over a part of the data-parallel ranks",
        used: |engine, p| !engine.hybrid_sharding && p.zero_stage > 0 && p.dp_replicate > 1 && p.dp_shard > 1,
        hint: |_| Some("dp_replicate 1 works".to_owned()),
    },
    Missing {
        id: "E8",
        what: "such a schedule",
        used: |engine, p| p.pp > 1 && !engine.runs(&p.schedule),
        hint: |engine| {
            let others =
                if engine.reads_orders { ", and any other of one pipeline by its order" } else { "" };
            Some(format!("it runs {}{others}", engine.schedules.join(", ")))
        },
    },
    Missing {
        id: "E9",
        what: "recompute of a part of the layers",
        used: |engine, p| {
            engine.recompute == RecomputeFreedom::AllOrNone
                && matches!(p.recompute, Recompute::Full { layers: Some(_) })
        },
        hint: |_| Some("recompute full or none works".to_owned()),
    },
    Missing {
        id: "E10",
        what: "activations in host memory, nor recompute of modules that a layout names",
        used: |engine, p| {
            !engine.offload && matches!(p.recompute, Recompute::Offload { .. } | Recompute::Modules(_))
        },
        hint: |_| Some("recompute none, selective or full works".to_owned()),
    },
    Missing {
        id: "E11",
        what: "micro batches of different sizes in a data-parallel group",
        used: |engine, p| !engine.unequal_micro_batches && p.has_unequal_micro_batches(),
        hint: |_| Some("one micro batch for all ranks works; fsdp1 and fsdp2 have different ones".to_owned()),
    },
    Missing {
        id: "E12",
        what: "such an order of the ranks",
        used: |engine, p| !engine.rank_orders.contains(&p.rank_order),
        hint: |engine| {
            let orders: Vec<&str> = engine.rank_orders.iter().map(|order| order.name()).collect();
            Some(format!("rank_order {} works", orders.join(" or ")))
        },
    },
];

/// Every rule a run breaks: the engine's on its degrees, the schedule's on its sizes, and the stage map's.
#[must_use]
pub fn broken(run: &TrainingRun) -> Vec<Violation> {
    let facts = Facts::new(run.model, run.cluster, run.workload);
    let engine = engine(&run.runtime.name);
    let mut broken = engine.broken(&facts, run.parallel);
    broken.extend(stage_faults(run, engine));
    broken.extend(shares::faults(run));
    broken
}
