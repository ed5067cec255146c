//! The one representation of a schedule: per rank, the order of its operations.

use super::error::{OrderFault, OrdersError};
use super::op::{Op, OpKind};

/// The largest number of operations a schedule may have; more is refused instead of exhausting memory.
pub const MAX_OPS: u64 = 30_000_000;

/// How the output layer is split over the ranks, if it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub enum Vocabulary {
    /// The output layer belongs to the last stage.
    #[default]
    Whole,
    /// Vocabulary parallelism, Algorithm 1: the last stage's backward waits for every rank's `T`.
    TwoBarriers,
    /// Vocabulary parallelism, Algorithm 2: the last stage's backward waits for every rank's `S` only.
    OneBarrier,
    /// All ranks run `S` of a microbatch at the same time, as tensor parallelism would; there is no `T`.
    Interlaced,
}

/// Everything [`RankOrders::new`] takes.
#[derive(Debug, Clone, PartialEq)]
pub struct OrderParts {
    /// Number of pipeline ranks.
    pub ranks: u32,
    /// Stages of one pipeline.
    pub stages: u32,
    /// Microbatches of one pipeline.
    pub microbatches: u32,
    /// Slices every sequence is cut into; 1 where sequences stay whole.
    pub slices: u32,
    /// The output layer's passes.
    pub vocabulary: Vocabulary,
    /// Rank of every stage, pipeline after pipeline: `stages` entries for each pipeline.
    pub placement: Vec<u16>,
    /// Per rank, its operations in the order it runs them.
    pub orders: Vec<Vec<Op>>,
}

/// A complete schedule: every stage runs every microbatch exactly once, on the rank that holds it, forward before
/// backward. Cannot be built otherwise.
#[derive(Debug, Clone, PartialEq)]
pub struct RankOrders {
    parts: OrderParts,
    split_backward: bool,
}

impl RankOrders {
    /// Checks the parts.
    ///
    /// # Errors
    /// Names every missing, doubled, misplaced or misordered operation (at most [`OrdersError::SHOWN`] of them).
    /// A schedule whose orders wait for each other in a circle passes: the simulator finds those.
    pub fn new(parts: OrderParts) -> Result<RankOrders, OrdersError> {
        super::validate::check(&parts)?;
        let split_backward = parts.orders.iter().flatten().any(|op| op.kind == OpKind::W);
        Ok(RankOrders { parts, split_backward })
    }

    /// Number of pipeline ranks.
    pub fn ranks(&self) -> u32 {
        self.parts.ranks
    }

    /// Stages of one pipeline.
    pub fn stages(&self) -> u32 {
        self.parts.stages
    }

    /// Pipelines that run over the ranks: 2 for bidirectional schedules, which hold the weights twice.
    pub fn pipelines(&self) -> u32 {
        (self.parts.placement.len() as u32) / self.parts.stages
    }

    /// Microbatches of one pipeline.
    pub fn microbatches(&self) -> u32 {
        self.parts.microbatches
    }

    /// Microbatches of a step, all pipelines together.
    pub fn total_microbatches(&self) -> u32 {
        self.parts.microbatches * self.pipelines()
    }

    /// Slices of a sequence.
    pub fn slices(&self) -> u32 {
        self.parts.slices
    }

    /// What the last stage's backward waits for.
    pub fn vocabulary(&self) -> Vocabulary {
        self.parts.vocabulary
    }

    /// Stages, of all pipelines, on one rank.
    pub fn chunks(&self) -> u32 {
        (self.parts.placement.len() as u32) / self.parts.ranks
    }

    /// Whether any backward is split into input and weight gradient.
    pub fn splits_backward(&self) -> bool {
        self.split_backward
    }

    /// Rank of every stage, pipeline after pipeline.
    pub fn placement(&self) -> &[u16] {
        &self.parts.placement
    }

    /// The operations of each rank in their order.
    pub fn orders(&self) -> &[Vec<Op>] {
        &self.parts.orders
    }

    /// Number of operations of all ranks.
    pub fn len(&self) -> usize {
        self.parts.orders.iter().map(Vec::len).sum()
    }

    /// Never: a schedule has at least one operation.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The parts again, to build a changed schedule from.
    pub fn into_parts(self) -> OrderParts {
        self.parts
    }

    /// The stage's position within its pipeline.
    pub fn depth_of(&self, stage: u16) -> u32 {
        u32::from(stage) % self.parts.stages
    }
}

/// Collects faults up to a limit, counting the rest.
#[derive(Default)]
pub(super) struct Faults {
    shown: Vec<OrderFault>,
    total: usize,
}

impl Faults {
    pub(super) fn add(&mut self, fault: OrderFault) {
        self.total += 1;
        if self.shown.len() < OrdersError::SHOWN {
            self.shown.push(fault);
        }
    }

    pub(super) fn into_result(self) -> Result<(), OrdersError> {
        match self.total {
            0 => Ok(()),
            total => Err(OrdersError { faults: self.shown, total }),
        }
    }
}
