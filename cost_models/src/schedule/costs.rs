//! How long the operations of a schedule take, and how many bytes they hold.

use super::error::SimulateError;
use super::op::OpKind;

/// Seconds (or any other unit, used throughout) of the operations of one stage for one microbatch; with sequence
/// slices, for one slice of average length.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StageCosts {
    /// `F`.
    pub forward: f64,
    /// `I`, with the recomputation that precedes it.
    pub input_grad: f64,
    /// `W`.
    pub weight_grad: f64,
    /// `B`, the fused backward; usually `input_grad + weight_grad`.
    pub backward: f64,
    /// What a combined pair with this stage's forward saves of its two operations one after the other.
    pub pair_saving: f64,
    /// The same with this stage's backward. Neither operation ends before its own time is over.
    pub backward_pair_saving: f64,
    /// Bytes one microbatch of this stage holds from the start of `F` to the end of `B` or `W`.
    pub activation_bytes: f64,
    /// The part of `activation_bytes` that a split backward gives back already at the end of `I`.
    pub freed_by_input_grad_bytes: f64,
    /// Gathering the stage's parameters before its first forward; one stream a rank, from the start of the step.
    pub parameter_gather: f64,
    /// Reducing the stage's gradients after its last backward; the same stream.
    pub gradient_sync: f64,
}

impl StageCosts {
    /// A stage with these times, holding one byte a microbatch; its fused backward takes `input_grad + weight_grad`.
    pub fn of_times(forward: f64, input_grad: f64, weight_grad: f64) -> StageCosts {
        StageCosts {
            forward,
            input_grad,
            weight_grad,
            backward: input_grad + weight_grad,
            activation_bytes: 1.0,
            ..StageCosts::default()
        }
    }

    /// Seconds of one operation; vocabulary passes have their own costs and count 0 here.
    pub fn seconds(&self, kind: OpKind) -> f64 {
        match kind {
            OpKind::F => self.forward,
            OpKind::I => self.input_grad,
            OpKind::W => self.weight_grad,
            OpKind::B => self.backward,
            OpKind::S | OpKind::T => 0.0,
        }
    }

    /// The shortest the two gradients can take, fused or split.
    pub fn shortest_backward(&self) -> f64 {
        self.backward.min(self.input_grad + self.weight_grad)
    }

    fn values(&self) -> [(&'static str, f64); 10] {
        [
            ("forward", self.forward),
            ("input_grad", self.input_grad),
            ("weight_grad", self.weight_grad),
            ("backward", self.backward),
            ("pair_saving", self.pair_saving),
            ("backward_pair_saving", self.backward_pair_saving),
            ("activation_bytes", self.activation_bytes),
            ("freed_by_input_grad_bytes", self.freed_by_input_grad_bytes),
            ("parameter_gather", self.parameter_gather),
            ("gradient_sync", self.gradient_sync),
        ]
    }
}

/// A message between two neighbouring stages on different ranks, forward activations as well as gradients.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Hop {
    /// Seconds from the end of the operation to the arrival, messages not disturbing each other.
    pub latency: f64,
    /// Seconds the message occupies the link from its rank to the other; messages of the same link queue.
    pub transfer: f64,
}

/// Whether a rank computes while its messages travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sends {
    /// It goes on at once.
    #[default]
    Overlapped,
    /// It goes on when the message has arrived, as Megatron's non-interleaved 1F1B does.
    Blocking,
}

/// Times of the split output layer.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct VocabularyCosts {
    /// `S` on every rank.
    pub s: f64,
    /// `T` on every rank.
    pub t: f64,
    /// From the end of the last stage's `F` until every rank has its output.
    pub broadcast: f64,
    /// From the last rank's `S` or `T` until every rank has the reduced values.
    pub barrier: f64,
    /// Bytes kept from `S` to `T` on every rank.
    pub held_bytes: f64,
}

/// Costs of a whole pipeline.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OpCosts {
    /// One entry per stage of a pipeline, in the order of the model.
    pub stages: Vec<StageCosts>,
    /// Hop `k` joins stages `k` and `k + 1`; empty where hops are free. Only hops between ranks cost.
    pub hops: Vec<Hop>,
    /// How a rank sends.
    pub sends: Sends,
    /// Relative cost of each slice of a sequence (mean 1 keeps the total); empty for equal slices.
    pub slice_scale: Vec<f64>,
    /// Output layer passes, used by schedules that have them.
    pub vocabulary: VocabularyCosts,
    /// Seconds of the optimizer step, which starts when every rank has its gradients (global norm, overflow check).
    pub optimizer: f64,
}

impl OpCosts {
    /// The same times for each of `stages` stages, free hops.
    pub fn uniform(stages: u32, forward: f64, input_grad: f64, weight_grad: f64) -> OpCosts {
        let stage = StageCosts::of_times(forward, input_grad, weight_grad);
        OpCosts { stages: vec![stage; stages as usize], ..OpCosts::default() }
    }

    /// The same costs with `latency` on every hop between ranks.
    pub fn with_latency(mut self, latency: f64) -> OpCosts {
        let hops = self.stages.len().saturating_sub(1);
        self.hops = vec![Hop { latency, transfer: 0.0 }; hops];
        self
    }

    /// The costs of one of `slices` equal slices of every sequence: times, bytes and messages in proportion. A hop's
    /// latency stays, and so does what happens once a step.
    pub fn of_slices(&self, slices: u32) -> OpCosts {
        let share = 1.0 / f64::from(slices.max(1));
        let stage = |stage: &StageCosts| StageCosts {
            forward: stage.forward * share,
            input_grad: stage.input_grad * share,
            weight_grad: stage.weight_grad * share,
            backward: stage.backward * share,
            pair_saving: stage.pair_saving * share,
            backward_pair_saving: stage.backward_pair_saving * share,
            activation_bytes: stage.activation_bytes * share,
            freed_by_input_grad_bytes: stage.freed_by_input_grad_bytes * share,
            ..*stage
        };
        OpCosts {
            stages: self.stages.iter().map(stage).collect(),
            hops: self.hops.iter().map(|hop| Hop { transfer: hop.transfer * share, ..*hop }).collect(),
            ..self.clone()
        }
    }

    /// Seconds a message between stages `depth` and `depth + 1` takes when it has the link for itself.
    pub fn hop_seconds(&self, depth: usize) -> f64 {
        self.hops.get(depth).map_or(0.0, |hop| hop.latency + hop.transfer)
    }

    /// Whether all numbers are usable for pipelines of `stages` stages and `slices` slices.
    ///
    /// # Errors
    /// The first list of wrong length, or the first value that is negative or not finite.
    pub fn check(&self, stages: u32, slices: u32) -> Result<(), SimulateError> {
        let stages = stages as usize;
        length("stages", self.stages.len(), stages)?;
        if !self.hops.is_empty() {
            length("hops", self.hops.len(), stages - 1)?;
        }
        if !self.slice_scale.is_empty() {
            length("slice_scale", self.slice_scale.len(), slices as usize)?;
        }
        for (index, stage) in self.stages.iter().enumerate() {
            stage.values().into_iter().try_for_each(|(field, value)| usable(field, index, value))?;
        }
        for (index, hop) in self.hops.iter().enumerate() {
            usable("hop latency", index, hop.latency)?;
            usable("hop transfer", index, hop.transfer)?;
        }
        for (index, &scale) in self.slice_scale.iter().enumerate() {
            usable("slice_scale", index, scale)?;
        }
        let v = self.vocabulary;
        for (field, value) in [
            ("vocabulary s", v.s),
            ("vocabulary t", v.t),
            ("vocabulary broadcast", v.broadcast),
            ("vocabulary barrier", v.barrier),
            ("vocabulary held_bytes", v.held_bytes),
            ("optimizer", self.optimizer),
        ] {
            usable(field, 0, value)?;
        }
        Ok(())
    }
}

fn length(field: &'static str, found: usize, expected: usize) -> Result<(), SimulateError> {
    if found == expected { Ok(()) } else { Err(SimulateError::CostLength { field, found, expected }) }
}

/// The largest number accepted: sums of [`MAX_OPS`](super::MAX_OPS) of them stay finite and precise enough.
const LARGEST: f64 = 1e18;

fn usable(field: &'static str, index: usize, value: f64) -> Result<(), SimulateError> {
    if (0.0..=LARGEST).contains(&value) {
        Ok(())
    } else {
        Err(SimulateError::CostValue { field, index, value })
    }
}
