//! torch's schedule CSV (torchtitan `pipeline_parallel_schedule_csv`): a row per rank, a cell per operation.
//!
//! A cell is stage, kind and microbatch, `2F0`; a combined pair is `(3F1;2B0)OVERLAP_F_B`; an empty cell is an idle
//! step, which carries no meaning for the order. The format is that of `_Action` in torch's
//! `torch/distributed/pipelining/schedules.py`.

use super::ScheduleKind;
use super::error::{OrderFault, OrdersError};
use super::op::{Op, OpKind};
use super::orders::{MAX_OPS, OrderParts, RankOrders, Vocabulary};
use super::registry::Schedule;

/// Why a CSV is not a schedule.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CsvError {
    /// A cell that is not an operation.
    #[error("row {row}, cell {column}: '{cell}' is not an operation")]
    Cell {
        /// Row, from 1.
        row: usize,
        /// Cell, from 1.
        column: usize,
        /// Its text, shortened.
        cell: String,
    },
    /// There are no operations.
    #[error("the schedule has no operations")]
    Empty,
    /// Two ranks run operations of one stage.
    #[error("stage {stage} is on rank {first} and on rank {second}")]
    TwoRanks {
        /// The stage.
        stage: u16,
        /// The rank that runs it first in the file.
        first: usize,
        /// The other one.
        second: usize,
    },
    /// A stage without a rank.
    #[error("no rank runs stage {stage} of {stages}")]
    NoRank {
        /// The stage.
        stage: usize,
        /// Stages, by the largest number found.
        stages: usize,
    },
    /// Operations are missing, doubled or out of order.
    #[error(transparent)]
    Orders(#[from] OrdersError),
    /// The schedule cannot be written in this format.
    #[error("torch's CSV has no {what}")]
    NotExpressible {
        /// What it lacks.
        what: &'static str,
    },
}

impl CsvError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            CsvError::Cell { .. } => "write cells as 0F0, 1I3, 1W3, 2B0 or (3F1;2B0)OVERLAP_F_B".into(),
            CsvError::Empty => "one row per rank, one cell per operation".into(),
            CsvError::TwoRanks { .. } | CsvError::NoRank { .. } => {
                "every stage lives on exactly one rank".into()
            }
            CsvError::Orders(error) => error.hint(),
            CsvError::NotExpressible { .. } => {
                "choose a schedule of one pipeline with whole sequences".into()
            }
        }
    }
}

impl Schedule {
    /// Whether its order can be written as torch's CSV and run from it: whole sequences through one pipeline, training
    /// as without one, nothing that an order does not say.
    #[must_use]
    pub fn has_torch_csv(self) -> bool {
        let definition = self.kind.definition();
        definition.synchronous
            && definition.placement.pipelines() == 1
            && definition.default_slices.is_none()
            && self.vocabulary == Vocabulary::Whole
            && !matches!(self.kind, ScheduleKind::PipeoffloadHalf | ScheduleKind::PipeoffloadFull)
    }
}

/// The schedule as CSV text, a line per rank.
///
/// # Errors
/// [`CsvError::NotExpressible`] for two pipelines, slices and vocabulary passes.
pub fn to_torch_csv(orders: &RankOrders) -> Result<String, CsvError> {
    let lacks = [
        (orders.pipelines() > 1, "second pipeline"),
        (orders.slices() > 1, "sequence slices"),
        (orders.vocabulary() != Vocabulary::Whole, "vocabulary passes"),
    ];
    if let Some(&(_, what)) = lacks.iter().find(|(lacks, _)| *lacks) {
        return Err(CsvError::NotExpressible { what });
    }
    let lines = orders.orders().iter().map(|order| cells(order).join(",") + "\n");
    Ok(lines.collect())
}

fn cells(order: &[Op]) -> Vec<String> {
    let mut cells = Vec::with_capacity(order.len());
    let mut ops = order.iter();
    while let Some(op) = ops.next() {
        match ops.as_slice().first().filter(|_| op.paired) {
            Some(mate) => {
                cells.push(format!("({op};{mate})OVERLAP_F_B"));
                ops.next();
            }
            None => cells.push(op.to_string()),
        }
    }
    cells
}

/// Reads a schedule back. Stages and microbatches are counted from the cells; communication cells (`SEND_F` and the
/// like, `UNSHARD`, `RESHARD`, `REDUCE_GRAD`) are skipped.
///
/// # Errors
/// Every way in which the text is not a schedule, with the cell or operation named.
pub fn from_torch_csv(text: &str) -> Result<RankOrders, CsvError> {
    let mut orders = Vec::new();
    for (row, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let mut order = Vec::new();
        for (column, cell) in line.split(',').enumerate() {
            parse_cell(cell.trim().trim_matches('"'), &mut order).ok_or_else(|| CsvError::Cell {
                row: row + 1,
                column: column + 1,
                cell: cell.chars().take(40).collect(),
            })?;
        }
        orders.push(order);
    }
    let all = || orders.iter().flatten();
    let stages = all().map(|op| u32::from(op.stage) + 1).max().ok_or(CsvError::Empty)?;
    let microbatches = all().map(|op| op.microbatch.saturating_add(1)).max().unwrap_or(1);
    check_size(stages, microbatches)?;
    let placement = placement(&orders, stages as usize)?;
    Ok(RankOrders::new(OrderParts {
        ranks: orders.len() as u32,
        stages,
        microbatches,
        slices: 1,
        vocabulary: Vocabulary::Whole,
        placement,
        orders,
    })?)
}

/// A file that names a far microbatch must not make us reserve memory for all before it.
fn check_size(stages: u32, microbatches: u32) -> Result<(), OrdersError> {
    let ops = u64::from(stages) * u64::from(microbatches);
    if ops <= MAX_OPS {
        return Ok(());
    }
    Err(OrdersError { faults: vec![OrderFault::TooLarge { ops, limit: MAX_OPS }], total: 1 })
}

/// Appends the operations of a cell; nothing for an idle or a communication step.
fn parse_cell(cell: &str, order: &mut Vec<Op>) -> Option<()> {
    if cell.is_empty() {
        return Some(());
    }
    if let Some(inner) = cell.strip_prefix('(').and_then(|rest| rest.strip_suffix(")OVERLAP_F_B")) {
        let (first, second) = inner.split_once(';')?;
        order.push(parse_op(first.trim())??.paired());
        order.push(parse_op(second.trim())??);
        return Some(());
    }
    order.extend(parse_op(cell)?);
    Some(())
}

const COMMUNICATION: [&str; 7] =
    ["UNSHARD", "RESHARD", "REDUCE_GRAD", "SEND_F", "RECV_F", "SEND_B", "RECV_B"];

/// `None` for text that is no action, `Some(None)` for one that computes nothing.
fn parse_op(text: &str) -> Option<Option<Op>> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).filter(|&at| at > 0)?;
    let (stage, rest) = text.split_at(digits);
    let (name, microbatch) = rest.split_at(rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len()));
    let stage: u16 = stage.parse().ok()?;
    if COMMUNICATION.contains(&name) {
        let whole = microbatch.is_empty() || microbatch.parse::<u32>().is_ok();
        return whole.then_some(None);
    }
    let mut letters = name.chars();
    let kind = OpKind::from_letter(letters.next()?).filter(|kind| !kind.is_vocabulary())?;
    letters.next().is_none().then_some(())?;
    let microbatch: u32 = microbatch.parse().ok()?;
    Some(Some(Op::new(kind, stage.into(), microbatch)))
}

fn placement(orders: &[Vec<Op>], stages: usize) -> Result<Vec<u16>, CsvError> {
    let mut homes: Vec<Option<usize>> = vec![None; stages];
    for (rank, op) in
        orders.iter().enumerate().flat_map(|(rank, order)| order.iter().map(move |op| (rank, op)))
    {
        let home = &mut homes[usize::from(op.stage)];
        match *home {
            Some(first) if first != rank => {
                return Err(CsvError::TwoRanks { stage: op.stage, first, second: rank });
            }
            _ => *home = Some(rank),
        }
    }
    let rank = |(stage, home): (usize, Option<usize>)| {
        home.and_then(|rank| u16::try_from(rank).ok()).ok_or(CsvError::NoRank { stage, stages })
    };
    homes.into_iter().enumerate().map(rank).collect()
}
