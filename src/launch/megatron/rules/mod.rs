//! What Megatron-LM demands of its flags beyond the degrees: rules as data, each with its id.
//!
//! Sources: `validate_args` in `megatron/training/arguments.py`, `TransformerConfig.__post_init__` and
//! `megatron/core/parallel_state.py` of megatron-core 0.19.2. Ids M are about sizes, P the pipeline, S sharding and
//! overlap, R recompute and offload, V values.

mod offload;
mod pipeline;
mod recompute;
mod sharding;
mod sizes;
mod values;

use crate::launch::Question;
use crate::launch::flags::FlagSet;
use cost_models::model::{Attention, Mlp};
use cost_models::rules::Violation;
use cost_models::{ModelSpec, ParallelConfig};

/// What is wrong, and what works.
pub type Fault = (String, Option<String>);

/// A demand on the flags.
pub struct FlagRule {
    /// Short name.
    pub id: &'static str,
    /// The demand in words.
    pub statement: &'static str,
    /// What clashes, if it is not met.
    pub broken: fn(&FlagFacts) -> Option<Fault>,
}

/// What the rules look at.
#[derive(Debug)]
pub struct FlagFacts<'a> {
    flags: &'a FlagSet,
    parallel: &'a ParallelConfig,
    world: u64,
    /// Transformer blocks.
    pub blocks: u64,
    heads: u64,
    kv_heads: u64,
    experts: u64,
    /// Major compute capability times ten; none for other vendors.
    capability: Option<u32>,
}

impl<'a> FlagFacts<'a> {
    /// Takes the facts.
    #[must_use]
    pub fn new(
        flags: &'a FlagSet,
        question: &Question,
        model: &ModelSpec,
        parallel: &'a ParallelConfig,
    ) -> Self {
        let first = model.blocks().next().map(|(_, block)| block.attention);
        let (heads, kv_heads) = match first {
            Some(Attention::Standard { heads, kv_heads, .. }) => (heads, kv_heads),
            Some(Attention::Latent { heads, .. }) => (heads, heads),
            _ => (1, 1),
        };
        let experts = model.blocks().map(|(_, block)| match block.mlp {
            Mlp::Moe { experts, .. } => experts,
            Mlp::Dense { .. } => 0,
        });
        Self {
            flags,
            parallel,
            world: question.world_size,
            blocks: model.blocks().count() as u64,
            heads,
            kv_heads,
            experts: experts.max().unwrap_or(0),
            capability: question.cluster.gpu().compute_capability,
        }
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.has(flag)
    }

    fn text(&self, flag: &str) -> Option<&str> {
        self.flags.text(flag)
    }

    fn is(&self, flag: &str, value: &str) -> bool {
        self.flags.text(flag) == Some(value)
    }

    /// Ranks of one model replica.
    fn model_ranks(&self) -> u64 {
        let p = self.parallel;
        u64::from(p.tp).saturating_mul(u64::from(p.pp)).saturating_mul(u64::from(p.cp))
    }

    /// Data-parallel ranks, 0 where the world does not divide.
    fn dp(&self) -> u64 {
        if self.world.is_multiple_of(self.model_ranks().max(1)) {
            self.world / self.model_ranks().max(1)
        } else {
            0
        }
    }

    fn fsdp(&self) -> bool {
        self.has("--use-megatron-fsdp") || self.has("--use-custom-fsdp")
    }
}

/// All rules, in the order they are reported.
pub fn all() -> impl Iterator<Item = &'static FlagRule> {
    [sizes::RULES, pipeline::RULES, sharding::RULES, recompute::RULES, offload::RULES, values::RULES]
        .into_iter()
        .flatten()
}

/// Every rule that the flags break.
#[must_use]
pub fn broken(facts: &FlagFacts) -> Vec<Violation> {
    let mut broken: Vec<Violation> = all()
        .filter_map(|rule| {
            let (clash, hint) = (rule.broken)(facts)?;
            Some(Violation { id: rule.id.to_owned(), message: format!("{clash}: {}", rule.statement), hint })
        })
        .collect();
    broken.extend(values::choices(facts));
    broken
}

/// Rules of the engine that are judged here, or that the flags lift.
#[must_use]
pub fn waived(flags: &FlagSet) -> Vec<&'static str> {
    let mut waived = vec!["M1", "M12", "M14", "P2", "P5"];
    if flags.has("--use-megatron-fsdp") || flags.has("--use-custom-fsdp") || flags.has("--use-torch-fsdp2") {
        waived.push("E6");
    }
    if flags.text("--microbatch-group-size-per-virtual-pipeline-stage").is_some() {
        waived.push("P6");
    }
    waived
}

/// `if wrong { Some((clash, hint)) }` in one line.
fn fault(
    wrong: bool,
    clash: impl FnOnce() -> String,
    hint: impl FnOnce() -> Option<String>,
) -> Option<Fault> {
    wrong.then(|| (clash(), hint()))
}

/// A hint that is always the same.
fn say(hint: &str) -> Option<String> {
    Some(hint.to_owned())
}
