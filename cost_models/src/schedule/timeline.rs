//! What a simulated step looked like.

use super::op::{Op, OpKind};

/// Start and end of one operation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OpSpan {
    /// The operation.
    pub op: Op,
    /// Its start.
    pub start: f64,
    /// Its end.
    pub end: f64,
}

/// What one rank did.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RankTimeline {
    /// Seconds spent in operations.
    pub busy: f64,
    /// Start of the first operation.
    pub first_start: f64,
    /// End of the last operation.
    pub last_end: f64,
    /// When its operations are done and its gradients reduced.
    pub gradients_ready: f64,
    /// Most microbatch-stages (slices, with slices) held at once.
    pub peak_activations: u32,
    /// Most activation bytes held at once.
    pub peak_activation_bytes: f64,
    /// Every operation, if recorded.
    pub spans: Vec<OpSpan>,
}

/// A simulated step, in the unit of the costs.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    /// End of the step: every operation, gradient reduction and optimizer step is done.
    pub makespan: f64,
    /// Seconds of the optimizer step within it.
    pub optimizer: f64,
    /// Per rank.
    pub ranks: Vec<RankTimeline>,
}

impl Timeline {
    /// Per rank, idle seconds of the whole step.
    pub fn bubbles(&self) -> Vec<f64> {
        self.ranks.iter().map(|rank| self.makespan - rank.busy).collect()
    }

    /// Per rank, idle seconds between its own first and last operation: the zero-bubble papers' bubble.
    pub fn span_bubbles(&self) -> Vec<f64> {
        self.ranks.iter().map(|rank| rank.last_end - rank.first_start - rank.busy).collect()
    }

    /// Makespan less the busiest rank: what the reference formulas call the makespan bubble.
    pub fn makespan_bubble(&self) -> f64 {
        self.makespan - self.ranks.iter().map(|rank| rank.busy).fold(0.0, f64::max)
    }

    /// The largest of [`Timeline::span_bubbles`].
    pub fn span_bubble(&self) -> f64 {
        self.span_bubbles().into_iter().fold(0.0, f64::max)
    }

    /// Step time where the next step's first operations may start before this step has ended everywhere (optimizer
    /// post-validation): the longest span of a rank, then the optimizer.
    pub fn staggered_step(&self) -> f64 {
        let span = self.ranks.iter().map(|rank| rank.last_end - rank.first_start).fold(0.0, f64::max);
        span + self.optimizer
    }

    /// Idle share of ranks x makespan.
    pub fn bubble_fraction(&self) -> f64 {
        let total = self.makespan * self.ranks.len() as f64;
        if total > 0.0 { self.bubbles().iter().sum::<f64>() / total } else { 0.0 }
    }

    /// Per rank, the most microbatch-stages held at once.
    pub fn peak_activations(&self) -> Vec<u32> {
        self.ranks.iter().map(|rank| rank.peak_activations).collect()
    }

    /// The most microbatch-stages held at once on any rank.
    pub fn worst_peak(&self) -> u32 {
        self.ranks.iter().map(|rank| rank.peak_activations).max().unwrap_or(0)
    }

    /// Changes of the number of bytes held on a rank, in time order, from recorded spans: `(time, bytes from then on)`.
    /// `bytes` gives what one microbatch of a stage holds.
    pub fn held_over_time(&self, rank: usize, bytes: impl Fn(Op) -> f64) -> Vec<(f64, f64)> {
        let mut changes: Vec<(f64, f64)> = Vec::new();
        for span in self.ranks.get(rank).map_or(&[][..], |rank| &rank.spans) {
            match span.op.kind {
                OpKind::F => changes.push((span.start, bytes(span.op))),
                OpKind::B | OpKind::W => changes.push((span.end, -bytes(span.op))),
                OpKind::I | OpKind::S | OpKind::T => {}
            }
        }
        changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let mut held = 0.0;
        changes
            .into_iter()
            .map(|(time, change)| {
                (time, {
                    held += change;
                    held
                })
            })
            .collect()
    }
}
