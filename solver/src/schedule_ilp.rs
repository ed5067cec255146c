//! The optimal order of a small pipeline as an integer program: an oracle for schedules.
//!
//! Every operation o of a rank has a start s(o); F, I and W of one stage run in the order of their microbatches, which
//! loses nothing, since microbatches are alike. With d its duration, H a horizon, c a hop and one binary per pair of a
//! rank's operations whose order is open, the program minimises T subject to
//!
//! ```text
//! T >= s(o) + d(o)
//! s(F, stage + 1) >= s(F, stage) + d + c      s(I, stage) >= s(I, stage + 1) + d + c      (c between ranks only)
//! s(I) >= s(F) + d(F)  on the last stage      s(W) >= s(I) + d(I)
//! s(b) >= s(a) + d(a) - H (1 - x(a, b))       s(a) >= s(b) + d(b) - H x(a, b)
//! 1 + sum over F' != F of x(F', F) - sum over W of x(W, F) <= cap      for every F of a rank
//! ```
//!
//! The last line is the memory limit: the microbatch-stages that a rank holds when F starts.

use crate::highs::{Incumbent, Mip, MipError, MipOptions, MipStatus};
use cost_models::schedule::{Op, OpCosts, OpKind, OrderParts, RankOrders, Vocabulary};
use good_lp::{Constraint, Expression, ProblemVariables, Variable, constraint, variable};
use std::collections::BTreeMap;

/// A pipeline to be ordered: one pipeline with a split backward, whole sequences and a whole output layer.
#[derive(Debug, Clone)]
pub struct Pipeline<'a> {
    /// Times of every stage, and hops.
    pub costs: &'a OpCosts,
    /// Rank of every stage.
    pub placement: &'a [u16],
    /// Microbatches.
    pub microbatches: u32,
    /// Most microbatch-stages a rank may hold.
    pub cap: Option<u32>,
    /// A makespan that some order reaches: the tighter, the faster the proof.
    pub horizon: f64,
}

/// What the program found.
#[derive(Debug, Clone)]
pub struct Optimum {
    /// The best order; none if no order keeps the cap within the horizon.
    pub orders: Option<RankOrders>,
    /// Proved: no order takes less.
    pub bound: Option<f64>,
    /// Whether the order is proved optimal.
    pub proved: bool,
}

/// The optimal order.
///
/// # Errors
/// [`MipError`] if HiGHS fails or a time is not finite.
pub fn optimal_order(pipeline: &Pipeline, options: &MipOptions) -> Result<Optimum, MipError> {
    let mut program = Program::new(pipeline);
    program.chains();
    program.rank_orders();
    let Program { variables, step, constraints, starts, .. } = program;
    let solution = Mip::minimise(variables, step).with_all(constraints).solve(options)?;
    let orders = solution.incumbent.as_ref().and_then(|found| orders_of(pipeline, &starts, found));
    Ok(Optimum { orders, bound: solution.bound, proved: solution.status == MipStatus::Optimal })
}

/// Position of an operation: stage, kind, microbatch.
type Key = (usize, OpKind, u32);

const KINDS: [OpKind; 3] = [OpKind::F, OpKind::I, OpKind::W];

struct Program<'a> {
    pipeline: &'a Pipeline<'a>,
    variables: ProblemVariables,
    step: Variable,
    starts: BTreeMap<Key, Variable>,
    constraints: Vec<Constraint>,
}

impl<'a> Program<'a> {
    fn new(pipeline: &'a Pipeline<'a>) -> Self {
        let mut variables = ProblemVariables::new();
        let step = variables.add(variable().min(0.0).max(pipeline.horizon));
        let mut starts = BTreeMap::new();
        for stage in 0..pipeline.placement.len() {
            for kind in KINDS {
                for microbatch in 0..pipeline.microbatches {
                    let start = variables.add(variable().min(0.0).max(pipeline.horizon));
                    starts.insert((stage, kind, microbatch), start);
                }
            }
        }
        Self { pipeline, variables, step, starts, constraints: Vec::new() }
    }

    fn seconds(&self, key: Key) -> f64 {
        self.pipeline.costs.stages[key.0].seconds(key.1)
    }

    /// `after` starts when `before` has ended and travelled.
    fn precede(&mut self, before: Key, after: Key, hop: f64) {
        let wait = self.seconds(before) + hop;
        let (before, after) = (self.starts[&before], self.starts[&after]);
        self.constraints.push(constraint!(after - before >= wait));
    }

    /// What waits for what, and the end of the step.
    fn chains(&mut self) {
        let stages = self.pipeline.placement.len();
        let hop = |stage: usize| {
            let apart = self.pipeline.placement[stage] != self.pipeline.placement[stage + 1];
            if apart { self.pipeline.costs.hop_seconds(stage) } else { 0.0 }
        };
        let hops: Vec<f64> = (0..stages.saturating_sub(1)).map(hop).collect();
        for microbatch in 0..self.pipeline.microbatches {
            for (stage, &hop) in hops.iter().enumerate() {
                let forward = |stage| (stage, OpKind::F, microbatch);
                let gradient = |stage| (stage, OpKind::I, microbatch);
                self.precede(forward(stage), forward(stage + 1), hop);
                self.precede(gradient(stage + 1), gradient(stage), hop);
            }
            for stage in 0..stages {
                let [forward, gradient, weight] = KINDS.map(|kind| (stage, kind, microbatch));
                self.precede(forward, gradient, 0.0);
                self.precede(gradient, weight, 0.0);
                let end = self.starts[&weight] + self.seconds(weight);
                let step = self.step;
                self.constraints.push(constraint!(step >= end));
            }
        }
    }

    /// A rank does one thing at a time, and holds no more than the cap.
    fn rank_orders(&mut self) {
        let ranks = self.pipeline.placement.iter().copied().max().map_or(0, |rank| rank + 1);
        for rank in 0..ranks {
            let own: Vec<Key> = self.starts.keys().copied().filter(|key| self.rank_of(key) == rank).collect();
            let mut before: BTreeMap<(Key, Key), Expression> = BTreeMap::new();
            for (at, &a) in own.iter().enumerate() {
                for &b in &own[at + 1..] {
                    let first = self.order(a, b);
                    before.insert((b, a), 1.0 - first.clone());
                    before.insert((a, b), first);
                }
            }
            self.cap(&own, &before);
        }
    }

    fn rank_of(&self, key: &Key) -> u16 {
        self.pipeline.placement[key.0]
    }

    /// 1 where `a` comes before `b`, which is known or a new binary.
    fn order(&mut self, a: Key, b: Key) -> Expression {
        match known_order(a, b) {
            Some(true) => {
                self.precede(a, b, 0.0);
                Expression::from(1.0)
            }
            Some(false) => {
                self.precede(b, a, 0.0);
                Expression::from(0.0)
            }
            None => {
                let first = self.variables.add(variable().binary());
                let horizon = self.pipeline.horizon;
                let (a_seconds, b_seconds) = (self.seconds(a), self.seconds(b));
                let (a, b) = (self.starts[&a], self.starts[&b]);
                self.constraints.push(constraint!(b - a - horizon * first >= a_seconds - horizon));
                self.constraints.push(constraint!(a - b + horizon * first >= b_seconds));
                first.into()
            }
        }
    }

    fn cap(&mut self, own: &[Key], before: &BTreeMap<(Key, Key), Expression>) {
        let Some(cap) = self.pipeline.cap else { return };
        for &forward in own.iter().filter(|key| key.1 == OpKind::F) {
            let sum = |kind: OpKind| -> Expression {
                let others = own.iter().filter(|key| key.1 == kind && **key != forward);
                others.filter_map(|&key| before.get(&(key, forward)).cloned()).sum()
            };
            let held = sum(OpKind::F) - sum(OpKind::W) + 1.0;
            self.constraints.push(constraint!(held <= f64::from(cap)));
        }
    }
}

/// The order of two operations of a rank where it is given: those of one stage whose microbatches or chain say so.
fn known_order(a: Key, b: Key) -> Option<bool> {
    if a.0 != b.0 {
        return None;
    }
    match (a.1.cmp(&b.1), a.2.cmp(&b.2)) {
        (std::cmp::Ordering::Equal, microbatches) => Some(microbatches.is_lt()),
        // An earlier kind of the same or an earlier microbatch comes first.
        (std::cmp::Ordering::Less, microbatches) => microbatches.is_le().then_some(true),
        (std::cmp::Ordering::Greater, microbatches) => microbatches.is_ge().then_some(false),
    }
}

/// Every rank's operations by their starts; operations that take no time keep the order of their kinds.
fn orders_of(pipeline: &Pipeline, starts: &BTreeMap<Key, Variable>, found: &Incumbent) -> Option<RankOrders> {
    let ranks = pipeline.placement.iter().copied().max()? + 1;
    let order = |rank: u16| {
        let own = starts.iter().filter(|(key, _)| pipeline.placement[key.0] == rank);
        let mut timed: Vec<(f64, OpKind, Op)> = own
            .map(|(&(stage, kind, microbatch), &start)| {
                let middle = found.value(start) + 0.5 * pipeline.costs.stages[stage].seconds(kind);
                (middle, kind, Op::new(kind, stage as u32, microbatch))
            })
            .collect();
        timed.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        timed.into_iter().map(|(_, _, op)| op).collect()
    };
    let parts = OrderParts {
        ranks: ranks.into(),
        stages: pipeline.placement.len() as u32,
        microbatches: pipeline.microbatches,
        slices: 1,
        vocabulary: Vocabulary::Whole,
        placement: pipeline.placement.to_vec(),
        orders: (0..ranks).map(order).collect(),
    };
    RankOrders::new(parts).ok()
}
