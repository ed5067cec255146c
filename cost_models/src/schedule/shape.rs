//! How large a schedule is wanted.

use super::error::{ScheduleError, ShapeFault};
use super::orders::{MAX_OPS, Vocabulary};
use std::fmt::Display;

/// Whose rule for groups of microbatches applies to interleaved schedules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum GroupRule {
    /// Megatron-LM: a group size of p (the default) to m, and m a multiple of it or a last group of at least p.
    #[default]
    Megatron,
    /// torch: max(1, m / p) rounds of equal size.
    Torch,
}

impl GroupRule {
    /// Microbatches of a group over `ranks` ranks: what was asked for, else p for Megatron-LM; m / rounds for torch.
    #[must_use]
    pub fn group(self, ranks: u32, microbatches: u32, asked: Option<u32>) -> u32 {
        match self {
            GroupRule::Megatron => asked.unwrap_or(ranks),
            GroupRule::Torch => microbatches / (microbatches / ranks.max(1)).max(1),
        }
    }
}

/// Average times of a chunk's operations; some orders are laid out for given times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChunkTimes {
    /// `F`.
    pub forward: f64,
    /// `I`.
    pub input_grad: f64,
    /// `W`.
    pub weight_grad: f64,
}

impl Default for ChunkTimes {
    fn default() -> ChunkTimes {
        ChunkTimes { forward: 1.0, input_grad: 1.0, weight_grad: 1.0 }
    }
}

/// How much activation memory a searched schedule may use on every rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MemoryLimit {
    /// This many microbatch-stages.
    Chunks(u32),
    /// This many bytes, by [`StageCosts::activation_bytes`](super::StageCosts::activation_bytes).
    Bytes(f64),
}

impl std::fmt::Display for MemoryLimit {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MemoryLimit::Chunks(chunks) => write!(out, "{chunks} microbatch-chunks"),
            MemoryLimit::Bytes(bytes) => write!(out, "{bytes} bytes"),
        }
    }
}

/// Ranks, microbatches and the choices a schedule leaves open.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScheduleShape {
    /// Pipeline ranks, p.
    pub ranks: u32,
    /// Microbatches of a step, m; over both directions where there are two.
    pub microbatches: u32,
    /// Stages of one pipeline on a rank, v; `None` for the schedule's usual number.
    pub chunks: Option<u32>,
    /// Microbatches per group: interleaved schedules' group size, units of back-to-back schedules.
    pub group_size: Option<u32>,
    /// Whose group rule to hold to.
    pub group_rule: GroupRule,
    /// Equal or uneven slices a sequence is cut into, for sliced schedules.
    pub slices: Option<u32>,
    /// Split of the output layer over the ranks.
    pub vocabulary: Vocabulary,
    /// Whether schedules that change training (stale weights) may be used.
    pub allow_asynchronous: bool,
    /// Limit that searched schedules keep to.
    pub memory_limit: Option<MemoryLimit>,
    /// Times for orders that depend on them.
    pub times: ChunkTimes,
}

impl ScheduleShape {
    /// A shape with every choice left to the schedule.
    pub fn new(ranks: u32, microbatches: u32) -> ScheduleShape {
        ScheduleShape {
            ranks,
            microbatches,
            chunks: None,
            group_size: None,
            group_rule: GroupRule::default(),
            slices: None,
            vocabulary: Vocabulary::Whole,
            allow_asynchronous: false,
            memory_limit: None,
            times: ChunkTimes::default(),
        }
    }

    /// The same shape with `chunks` stages a rank.
    pub fn with_chunks(self, chunks: u32) -> ScheduleShape {
        ScheduleShape { chunks: Some(chunks), ..self }
    }

    /// The same shape with groups of `group_size` microbatches.
    pub fn with_group_size(self, group_size: u32) -> ScheduleShape {
        ScheduleShape { group_size: Some(group_size), ..self }
    }

    /// The same shape with `slices` slices a sequence.
    pub fn with_slices(self, slices: u32) -> ScheduleShape {
        ScheduleShape { slices: Some(slices), ..self }
    }
}

/// A shape with the schedule's choices made: what generators work from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sizes {
    /// Pipeline ranks.
    pub p: u32,
    /// Microbatches of a step.
    pub m: u32,
    /// Stages of one pipeline on a rank.
    pub v: u32,
    /// Slices.
    pub q: u32,
    /// The group size asked for.
    pub group: Option<u32>,
    /// Whose group rule.
    pub group_rule: GroupRule,
    /// Limit that searched schedules keep to.
    pub memory_limit: Option<MemoryLimit>,
    /// Times for orders that depend on them.
    pub times: ChunkTimes,
}

/// Gathers broken rules.
pub struct Rules {
    schedule: String,
    faults: Vec<ShapeFault>,
}

impl Rules {
    /// No rule broken yet.
    pub fn new(schedule: &str) -> Rules {
        Rules { schedule: schedule.into(), faults: Vec::new() }
    }

    /// Records a broken rule unless it holds; only then is anything written out.
    pub fn require(
        &mut self,
        holds: bool,
        field: &'static str,
        value: impl Display,
        rule: impl Display,
        hint: impl Display,
    ) {
        if !holds {
            let (value, rule, hint) = (value.to_string(), rule.to_string(), hint.to_string());
            self.faults.push(ShapeFault { field, value, rule, hint });
        }
    }

    /// All broken rules as one error.
    ///
    /// # Errors
    /// [`ScheduleError::Shape`] when there are any.
    pub fn finish(self) -> Result<(), ScheduleError> {
        if self.faults.is_empty() {
            return Ok(());
        }
        Err(ScheduleError::Shape { schedule: self.schedule, faults: self.faults })
    }
}

/// Operations that orders found by search may have: a search simulates a schedule many times.
const MOST_SEARCHED_OPS: u64 = 2_000_000;

/// The rule of schedules that are searched, or rearranged until nothing gets better.
pub(super) fn searchable(sizes: &Sizes, rules: &mut Rules) {
    let ops = 3 * u64::from(sizes.p * sizes.v) * u64::from(sizes.m);
    let hint = "use a schedule that needs no search, or fewer microbatches";
    rules.require(ops <= MOST_SEARCHED_OPS, "operations", ops, "more than a search simulates in time", hint);
}

/// The rules every schedule shares.
pub(super) fn check_sizes(shape: &ScheduleShape, v: u32, q: u32, rules: &mut Rules) {
    let positive = "must be at least 1";
    rules.require(shape.ranks > 0, "ranks", shape.ranks, positive, "give the number of pipeline ranks");
    rules.require(shape.microbatches > 0, "microbatches", shape.microbatches, positive, "give at least one");
    rules.require(v > 0, "chunks", v, positive, "give at least one stage a rank");
    rules.require(q > 0, "slices", q, positive, "give at least one slice a sequence");
    rules.require(shape.group_size != Some(0), "group_size", 0, positive, "leave it out for the default");
    let stages = u64::from(shape.ranks) * u64::from(v);
    rules.require(
        stages < 32_768,
        "ranks x chunks",
        stages,
        "at most 32767 stages",
        "use fewer ranks or chunks",
    );
    let ops = stages as u128 * 3 * u128::from(shape.microbatches) * u128::from(q);
    let hint = "use fewer microbatches, slices or stages";
    rules.require(ops <= u128::from(MAX_OPS), "operations", ops, "more than a simulation can hold", hint);
    let times = shape.times;
    for time in [times.forward, times.input_grad, times.weight_grad] {
        let usable = (0.0..=1e18).contains(&time);
        let rule = "times lie between 0 and 1e18";
        rules.require(usable, "times", format_args!("{time:e}"), rule, "give them in a larger unit");
    }
}
