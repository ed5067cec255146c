//! How many microbatches of which chunks a rank holds at once.
//!
//! Memory depends only on the order of a rank's own operations: an activation is charged at the start of F and
//! released at the end of B, or of W where the backward is split. Closed forms where they exist (one chunk per rank), a
//! walk over the order elsewhere.

use super::error::MemoryError;
use crate::parallel::ParallelConfig;
use crate::schedule::{
    OpKind, Placement, RankOrders, Schedule, ScheduleKind, ScheduleShape, Vocabulary, generate,
};

/// Microbatches in flight on every rank of a schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct InFlight {
    ranks: Vec<RankInFlight>,
    /// The first chunks of every rank, this many, are kept in host memory.
    offloaded: usize,
}

/// Microbatch-chunks of offloaded chunks on the device at once: on their way out or back, or just in use (full offload of the
/// authors' slot rule leaves 2 to 5, whatever the number of ranks).
const OFFLOAD_BUFFERS: f64 = 5.0;

#[derive(Debug, Clone, PartialEq)]
enum RankInFlight {
    /// At most this many microbatches of the rank's only chunk.
    Count(f64),
    /// The chunk charged (or, with a minus, released) by each operation; chunks count from 1.
    Walk { order: Vec<i32>, share: f64 },
}

impl InFlight {
    /// Counts for a layout's schedule in the shape that its engine runs it in
    /// ([`Runtime::schedule_shape`](crate::Runtime::schedule_shape)).
    ///
    /// # Errors
    /// [`MemoryError::UnknownSchedule`], or [`MemoryError::Schedule`] with the schedule's broken rules.
    pub fn new(parallel: &ParallelConfig, shape: &ScheduleShape) -> Result<Self, MemoryError> {
        if let Some(counts) = closed_form(parallel) {
            return Ok(Self { ranks: counts.into_iter().map(RankInFlight::Count).collect(), offloaded: 0 });
        }
        let name = &parallel.schedule;
        let broken = |source| MemoryError::Schedule { name: name.clone(), source };
        let schedule: Schedule =
            name.parse().map_err(|_| MemoryError::UnknownSchedule { name: name.clone() })?;
        let sizes = schedule.kind.check(&ScheduleShape { vocabulary: Vocabulary::Whole, ..*shape });
        let extra = match schedule.kind {
            ScheduleKind::Interleaved => Some(0),
            ScheduleKind::Combined => Some(1),
            _ => None,
        };
        if let Some(extra) = extra {
            let round = schedule.kind.definition().round;
            return Ok(Self::interleaved(parallel, sizes.map_or(parallel.pp, |sizes| round(&sizes)), extra));
        }
        let (orders, sizes) = (generate(schedule, shape).map_err(broken)?, sizes.map_err(broken)?);
        let offloaded = (schedule.kind.definition().offloaded_chunks)(&sizes);
        Ok(Self { offloaded: offloaded as usize, ..Self::of(&orders) })
    }

    /// Counts for given orders.
    #[must_use]
    pub fn of(orders: &RankOrders) -> Self {
        let chunks = chunks_of_stages(orders);
        let share = 1.0 / f64::from(orders.slices().max(1));
        let ranks = orders.orders().iter().map(|ops| {
            let split: Vec<bool> = split_stages(orders, ops);
            let order = ops.iter().filter_map(|op| match op.kind {
                OpKind::F => Some(chunks[usize::from(op.stage)]),
                OpKind::B | OpKind::W => Some(-chunks[usize::from(op.stage)]),
                OpKind::I if !split[usize::from(op.stage)] => Some(-chunks[usize::from(op.stage)]),
                OpKind::I | OpKind::S | OpKind::T => None,
            });
            RankInFlight::Walk { order: order.collect(), share }
        });
        Self { ranks: ranks.collect(), offloaded: 0 }
    }

    /// Interleaved 1F1B without building all orders: the peak is reached within the first groups of microbatches. `extra`
    /// forwards more come before the first backward.
    fn interleaved(parallel: &ParallelConfig, group: u32, extra: u64) -> Self {
        let (p, v) = (u64::from(parallel.pp), u64::from(parallel.vpp));
        let group = u64::from(group).max(1);
        let m = parallel.num_microbatches.min(group * 3 + p);
        let table = virtual_chunks(m, v, group);
        let ranks = (0..p).map(|rank| {
            let warmup = (2 * (p - 1 - rank) + (v - 1) * group + extra).min(m * v) as usize;
            RankInFlight::Walk { order: one_forward_one_backward(&table, v as i32, warmup), share: 1.0 }
        });
        Self { ranks: ranks.collect(), offloaded: 0 }
    }

    /// Ranks.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.ranks.len()
    }

    /// Most bytes `rank` ever holds when a microbatch of its chunk `i` holds `chunk_bytes[i]`.
    #[must_use]
    pub fn peak(&self, rank: usize, chunk_bytes: &[f64]) -> f64 {
        let (moved, kept) = chunk_bytes.split_at(self.offloaded.min(chunk_bytes.len()));
        let resident: Vec<f64> = moved.iter().map(|_| 0.0).chain(kept.iter().copied()).collect();
        if moved.is_empty() {
            return self.peak_resident(rank, chunk_bytes);
        }
        let largest = moved.iter().copied().fold(0.0, f64::max);
        let buffered = self.peak_resident(rank, moved).min(OFFLOAD_BUFFERS * largest);
        self.peak_resident(rank, &resident) + buffered
    }

    /// The same without offload.
    fn peak_resident(&self, rank: usize, chunk_bytes: &[f64]) -> f64 {
        match self.ranks.get(rank) {
            None => 0.0,
            Some(RankInFlight::Count(count)) => count * chunk_bytes.iter().sum::<f64>(),
            Some(RankInFlight::Walk { order, share }) => share * walk(order, chunk_bytes),
        }
    }
}

/// Largest running sum.
fn walk(order: &[i32], chunk_bytes: &[f64]) -> f64 {
    let bytes = |chunk: i32| chunk_bytes.get(chunk.unsigned_abs() as usize - 1).copied().unwrap_or(0.0);
    let mut held = 0.0;
    order.iter().fold(0.0, |peak: f64, &chunk| {
        held += bytes(chunk) * f64::from(chunk.signum());
        peak.max(held)
    })
}

/// Schedules of one chunk per rank whose count is a formula: SCHEDULES of the catalogue, symbols p ranks, m microbatches.
///
/// 1F1B holds min(m, p - r) (arXiv 2006.09503); ZB-1p keeps the memory of rank 0 on every rank, ZB-2p twice that less
/// one (arXiv 2401.10241, section 3); vocabulary passes add one microbatch per barrier (arXiv 2411.05288, section 5).
fn closed_form(parallel: &ParallelConfig) -> Option<Vec<f64>> {
    let (p, m) = (u64::from(parallel.pp), parallel.num_microbatches);
    let ahead = ["gpipe", "combined-1f1b"].contains(&parallel.schedule.as_str());
    if p == 1 && parallel.vpp == 1 && !ahead {
        return Some(vec![1.0]);
    }
    let count: fn(u64, u64) -> u64 = match parallel.schedule.as_str() {
        "gpipe" => |_, _| u64::MAX,
        "1f1b" | "1f1b-redistributed-layers" => |p, r| p - r,
        "zb-1p" => |p, _| p,
        "zb-2p" | "zb-2p-sync" => |p, _| 2 * p - 1,
        "1f1b-vocab2" => |p, r| p - r + 1,
        "1f1b-vocab1" => |p, r| p - r + 2,
        "1f1b-interlaced" => |p, r| 3 * p / 2 - r,
        _ => return None,
    };
    let one_chunk = parallel.vpp == 1;
    one_chunk.then(|| (0..p).map(|r| m.min(count(p, r)) as f64).collect())
}

/// Chunk (from 1) of every virtual microbatch: groups of `group` microbatches, chunk by chunk.
fn virtual_chunks(m: u64, v: u64, group: u64) -> Vec<i32> {
    let groups = (0..m).step_by(group as usize);
    groups
        .flat_map(|start| {
            (0..v).flat_map(move |chunk| (start..(start + group).min(m)).map(move |_| chunk as i32 + 1))
        })
        .collect()
}

/// `warmup` forwards, then one forward and one backward in turn, the backwards with chunks mirrored.
fn one_forward_one_backward(table: &[i32], v: i32, warmup: usize) -> Vec<i32> {
    let backward = |k: usize| -(v + 1 - table[k]);
    let mut order: Vec<i32> = table[..warmup].to_vec();
    let steady = table[warmup..].iter().enumerate();
    order.extend(steady.flat_map(|(k, &chunk)| [chunk, backward(k)]));
    order.extend((table.len() - warmup..table.len()).map(backward));
    order
}

/// Position (from 1) of every stage among those of its rank.
fn chunks_of_stages(orders: &RankOrders) -> Vec<i32> {
    let mut seen = vec![0; orders.ranks() as usize];
    let placement = orders.placement().iter();
    placement
        .map(|&rank| {
            seen[usize::from(rank)] += 1;
            seen[usize::from(rank)]
        })
        .collect()
}

/// Whether a stage's weight gradients are operations of their own.
fn split_stages(orders: &RankOrders, ops: &[crate::schedule::Op]) -> Vec<bool> {
    let mut split = vec![false; orders.placement().len()];
    ops.iter().filter(|op| op.kind == OpKind::W).for_each(|op| split[usize::from(op.stage)] = true);
    split
}

/// How a schedule's stages lie on the ranks; a loop for an unknown one.
#[must_use]
pub fn placement(schedule: &str) -> Placement {
    let known: Option<Schedule> = schedule.parse().ok();
    known.map_or(Placement::Loop, |schedule| schedule.kind.definition().placement)
}
