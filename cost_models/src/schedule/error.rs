//! What can be wrong with a schedule, its costs or its run.

use super::op::Op;

/// Something a shape asks for that a schedule or launcher does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} = {value}: {rule}")]
pub struct ShapeFault {
    /// Field of [`ScheduleShape`](super::ScheduleShape).
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// The rule that is broken, with its owner where it is a launcher's.
    pub rule: String,
    /// What would do.
    pub hint: String,
}

/// Why no order could be generated.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ScheduleError {
    /// No schedule has this name.
    #[error("schedule '{name}' is not known")]
    Unknown {
        /// The name asked for.
        name: String,
        /// The nearest known name, or all of them.
        hint: String,
    },
    /// The shape breaks rules of the schedule; all of them are listed.
    #[error("schedule {schedule}: {}", list(faults))]
    Shape {
        /// The schedule's name.
        schedule: String,
        /// Every broken rule.
        faults: Vec<ShapeFault>,
    },
    /// The schedule's copies of activations cannot be moved in time.
    #[error("schedule {schedule}: no slot on the host link for {copy} of rank {rank}")]
    Offload {
        /// The schedule's name.
        schedule: String,
        /// The copy that found no place.
        copy: String,
        /// Its rank.
        rank: usize,
    },
    /// No candidate of the automatic scheduler stays within the memory cap.
    #[error("no schedule of {ranks} ranks and {microbatches} microbatches stays within {cap}")]
    MemoryCap {
        /// Pipeline ranks.
        ranks: u32,
        /// Microbatches.
        microbatches: u32,
        /// The cap, in words.
        cap: String,
    },
    /// The order is not a schedule.
    #[error(transparent)]
    Orders(#[from] OrdersError),
    /// The costs are not usable, or the order deadlocks.
    #[error(transparent)]
    Simulate(#[from] SimulateError),
}

impl ScheduleError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            ScheduleError::Unknown { hint, .. } => hint.clone(),
            ScheduleError::Shape { faults, .. } => {
                faults.iter().map(|fault| fault.hint.as_str()).collect::<Vec<_>>().join("; ")
            }
            ScheduleError::Offload { .. } => "offload fewer chunks, or use a faster host link".into(),
            ScheduleError::MemoryCap { .. } => {
                "raise the cap, use more chunks, or recompute activations".into()
            }
            ScheduleError::Orders(error) => error.hint(),
            ScheduleError::Simulate(error) => error.hint(),
        }
    }
}

/// One thing wrong with a set of rank orders.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum OrderFault {
    /// A count is zero.
    #[error("{field} is 0")]
    Zero {
        /// The count.
        field: &'static str,
    },
    /// Another number of orders than ranks.
    #[error("{found} rank orders for {expected} ranks")]
    RankCount {
        /// Ranks.
        expected: u32,
        /// Orders.
        found: usize,
    },
    /// The placement does not list whole pipelines.
    #[error("a placement of {found} stages for pipelines of {stages}")]
    PlacementLength {
        /// Stages of a pipeline.
        stages: u32,
        /// Entries found.
        found: usize,
    },
    /// A stage is placed on a rank that does not exist.
    #[error("a stage is placed on rank {rank} of {ranks}")]
    PlacementRank {
        /// The rank named.
        rank: u32,
        /// Ranks.
        ranks: u32,
    },
    /// Too many operations.
    #[error("{ops} microbatch-stages, more than {limit}")]
    TooLarge {
        /// Asked for.
        ops: u64,
        /// Allowed.
        limit: u64,
    },
    /// An operation that should be there is not.
    #[error("rank {rank} lacks {op}")]
    Missing {
        /// Where it belongs.
        rank: usize,
        /// The operation.
        op: Op,
    },
    /// An operation is there twice.
    #[error("rank {rank} runs {op} twice")]
    Doubled {
        /// The rank.
        rank: usize,
        /// The operation.
        op: Op,
    },
    /// An operation comes before one of the same rank that it needs.
    #[error("rank {rank} runs {op} before what it needs")]
    TooEarly {
        /// The rank.
        rank: usize,
        /// The operation.
        op: Op,
    },
    /// An operation of a stage that another rank holds.
    #[error("rank {rank} runs {op}, which belongs to rank {home}")]
    WrongRank {
        /// The rank.
        rank: usize,
        /// The operation.
        op: Op,
        /// The rank of the stage.
        home: usize,
    },
    /// A stage that does not exist.
    #[error("rank {rank} runs {op}, but there are {stages} stages")]
    UnknownStage {
        /// The rank.
        rank: usize,
        /// The operation.
        op: Op,
        /// Stages.
        stages: usize,
    },
    /// A microbatch that does not exist.
    #[error("rank {rank} runs {op}, but there are {microbatches} microbatches")]
    UnknownMicrobatch {
        /// The rank.
        rank: usize,
        /// The operation.
        op: Op,
        /// Microbatches, or slices of them.
        microbatches: usize,
    },
    /// A combined pair that is not one forward with one backward.
    #[error("rank {rank}: {op} is combined with something else than a forward with a backward")]
    Pair {
        /// The rank.
        rank: usize,
        /// The first operation of the pair.
        op: Op,
    },
}

/// A set of rank orders that is not a schedule.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("not a schedule, {total} faults: {}", list(faults))]
pub struct OrdersError {
    /// The first faults.
    pub faults: Vec<OrderFault>,
    /// How many there are.
    pub total: usize,
}

impl OrdersError {
    /// How many faults are kept.
    pub const SHOWN: usize = 20;

    /// What to do about it.
    pub fn hint(&self) -> String {
        "every stage runs F, then B or I and W, once for every microbatch, on the rank that holds the stage"
            .into()
    }
}

/// An operation that waits for one that never runs.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("rank {rank} holds {op} until {waits_for}")]
pub struct Blocked {
    /// The waiting rank.
    pub rank: usize,
    /// The operation it stands at.
    pub op: Op,
    /// The operation it waits for.
    pub waits_for: Op,
}

/// Why a schedule has no timeline.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SimulateError {
    /// A list of costs has the wrong length.
    #[error("costs: {field} has {found} entries, needs {expected}")]
    CostLength {
        /// The list.
        field: &'static str,
        /// Its length.
        found: usize,
        /// The right length.
        expected: usize,
    },
    /// A cost is negative or not a number.
    #[error("costs: {field}[{index}] = {value} is not a finite number of at least 0")]
    CostValue {
        /// The list.
        field: &'static str,
        /// Position in it.
        index: usize,
        /// The value.
        value: f64,
    },
    /// Ranks wait for each other in a circle.
    #[error("deadlock: {}", list(cycle))]
    Deadlock {
        /// The circle.
        cycle: Vec<Blocked>,
    },
}

impl SimulateError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            SimulateError::CostLength { .. } => {
                "give one entry per stage (hops: one per neighbouring pair)".into()
            }
            SimulateError::CostValue { .. } => "times and bytes are finite and not negative".into(),
            SimulateError::Deadlock { .. } => {
                "move one operation of the circle before the one it waits behind".into()
            }
        }
    }
}

fn list<T: std::fmt::Display>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join("; ")
}
