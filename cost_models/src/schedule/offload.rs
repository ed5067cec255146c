//! Activations moved to host memory and back while the pipeline computes (PipeOffload, arXiv:2503.01328).
//!
//! Two ranks share a host link. Each has slots of one copy's length, alternately out and back, the odd rank one slot
//! later, so that one copies out while the other copies in. An activation goes out in the first free slot after its
//! forward and comes back in the last free slot that ends one input-gradient time before its input gradient; those
//! needed again within six slots stay. If no slot is left the offload is refused: the compute times never change.
//!
//! The authors' scheduler also joins the two ranks at copy starts and shortens copies while the neighbour is idle; that
//! is not modelled.

use super::error::ScheduleError;
use super::op::{Op, OpKind};
use super::orders::RankOrders;
use super::timeline::{OpSpan, Timeline};

/// What is moved.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OffloadSpec {
    /// The first chunks of every rank, this many, are offloaded.
    pub chunks: u32,
    /// Seconds one microbatch of a chunk takes over the link one way.
    pub copy_seconds: f64,
}

/// One activation's way to the host and back.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Copies {
    /// The rank.
    pub rank: usize,
    /// The forward whose activation moves.
    pub forward: Op,
    /// When it leaves.
    pub out: (f64, f64),
    /// When it returns.
    pub back: (f64, f64),
}

/// All copies of a step and what the ranks still hold.
#[derive(Debug, Clone, PartialEq)]
pub struct OffloadPlan {
    /// Every copy, by rank and forward.
    pub copies: Vec<Copies>,
    /// Per rank, the most microbatch-chunks held at once.
    pub peak_activations: Vec<u32>,
}

/// Slots an activation must be away for at least, from the end of `F` to the start of `I`.
const LEAST_SLOTS: f64 = 6.0;

/// Finds slots for all copies of a recorded timeline.
///
/// # Errors
/// [`ScheduleError::Offload`] when a copy finds no slot: the link is too slow for so many chunks.
pub fn plan_offload(
    orders: &RankOrders,
    timeline: &Timeline,
    spec: OffloadSpec,
) -> Result<OffloadPlan, ScheduleError> {
    let mut plan = OffloadPlan { copies: Vec::new(), peak_activations: Vec::new() };
    for (rank, line) in timeline.ranks.iter().enumerate() {
        let lives = lives(orders, &line.spans);
        let copies = copies_of(orders, rank, &lives, spec)?;
        plan.peak_activations.push(peak(&lives, &copies));
        plan.copies.extend(copies);
    }
    Ok(plan)
}

/// From the forward of a microbatch-chunk to the end of its backward.
struct Life {
    forward: OpSpan,
    gradient: OpSpan,
    end: f64,
}

fn lives(orders: &RankOrders, spans: &[OpSpan]) -> Vec<Life> {
    let units = (orders.microbatches() * orders.slices()) as usize;
    let at = |op: Op| usize::from(op.stage) * units + op.microbatch as usize;
    let mut gradient: Vec<Option<OpSpan>> = vec![None; orders.placement().len() * units];
    let mut end = vec![0.0; gradient.len()];
    for span in spans {
        match span.op.kind {
            OpKind::I => gradient[at(span.op)] = Some(*span),
            OpKind::B => (gradient[at(span.op)], end[at(span.op)]) = (Some(*span), span.end),
            OpKind::W => end[at(span.op)] = span.end,
            OpKind::F | OpKind::S | OpKind::T => {}
        }
    }
    let forwards = spans.iter().filter(|span| span.op.kind == OpKind::F);
    forwards
        .filter_map(|&forward| {
            let index = at(forward.op);
            Some(Life { forward, gradient: gradient[index]?, end: end[index] })
        })
        .collect()
}

fn copies_of(
    orders: &RankOrders,
    rank: usize,
    lives: &[Life],
    spec: OffloadSpec,
) -> Result<Vec<Copies>, ScheduleError> {
    let own = |stage: u16| usize::from(orders.placement()[usize::from(stage)]) == rank;
    let chunk = |stage: u16| (0..stage).filter(|&earlier| own(earlier)).count() as u32;
    let away = LEAST_SLOTS * spec.copy_seconds;
    let moved = |life: &&Life| {
        chunk(life.forward.op.stage) < spec.chunks && life.gradient.start - life.forward.end > away
    };
    let moved: Vec<&Life> = lives.iter().filter(moved).collect();
    let refused = |life: &Life, copy: &str| ScheduleError::Offload {
        schedule: "offload".into(),
        copy: format!("{copy} of {}", life.forward.op),
        rank,
    };
    let slots = Slots { length: spec.copy_seconds, parity: rank as i64 % 2 };
    let mut out = Vec::with_capacity(moved.len());
    let mut next = i64::MIN;
    for life in &moved {
        let slot = slots.first_from(life.forward.end, 0).max(next);
        next = slot + 2;
        out.push(slots.span(slot));
    }
    let mut back = vec![(0.0, 0.0); moved.len()];
    let mut order: Vec<usize> = (0..moved.len()).collect();
    order.sort_by(|&a, &b| moved[b].gradient.start.total_cmp(&moved[a].gradient.start).then(b.cmp(&a)));
    let mut latest = i64::MAX;
    for index in order {
        let life = moved[index];
        let due = life.gradient.start - (life.gradient.end - life.gradient.start);
        let slot = slots.last_until(due, 1).min(latest);
        latest = slot - 2;
        back[index] = slots.span(slot);
        if back[index].0 < out[index].1 {
            return Err(refused(life, "the copy back"));
        }
    }
    let copies = moved.iter().zip(out.into_iter().zip(back));
    Ok(copies.map(|(life, (out, back))| Copies { rank, forward: life.forward.op, out, back }).collect())
}

/// Slots of one rank: even numbers (for an even rank) go out, odd ones come back.
struct Slots {
    length: f64,
    parity: i64,
}

impl Slots {
    /// The first slot of a direction (0 out, 1 back) that starts at `time` or later.
    fn first_from(&self, time: f64, direction: i64) -> i64 {
        let slot = (time / self.length - 1e-9).ceil() as i64;
        slot + (slot + direction + self.parity).rem_euclid(2)
    }

    /// The last slot of a direction that ends at `time` or earlier.
    fn last_until(&self, time: f64, direction: i64) -> i64 {
        let slot = (time / self.length + 1e-9).floor() as i64 - 1;
        slot - (slot + direction + self.parity).rem_euclid(2)
    }

    fn span(&self, slot: i64) -> (f64, f64) {
        (slot as f64 * self.length, (slot + 1) as f64 * self.length)
    }
}

/// Held from `F` to the end of the copy out, and from the start of the copy back to the end of the backward.
fn peak(lives: &[Life], copies: &[Copies]) -> u32 {
    let mut changes: Vec<(f64, i32)> = Vec::with_capacity(4 * lives.len());
    for life in lives {
        changes.extend([(life.forward.start, 1), (life.end, -1)]);
    }
    for copy in copies {
        changes.extend([(copy.out.1, -1), (copy.back.0, 1)]);
    }
    changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let mut held = 0;
    let peak = changes.into_iter().map(|(_, change)| {
        held += change;
        held
    });
    peak.max().unwrap_or(0).max(0) as u32
}
