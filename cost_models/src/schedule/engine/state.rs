//! What a running simulation knows of stages and ranks.

use crate::schedule::costs::OpCosts;
use crate::schedule::mailbox::Mailbox;
use crate::schedule::orders::RankOrders;
use crate::schedule::timeline::RankTimeline;

/// What a rank can wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::schedule) enum Input {
    /// The activations of the previous stage for this stage.
    Activation { stage: u16, microbatch: u32 },
    /// The gradient of the next stage for this stage.
    Gradient { stage: u16, microbatch: u32 },
    /// The last stage's forward, on every rank.
    Output { microbatch: u32 },
    /// All ranks' `S`.
    AllS { microbatch: u32 },
    /// All ranks' `T`.
    AllT { microbatch: u32 },
}

/// What a stage's operations look up: no arithmetic on stage numbers in the loop.
pub(super) struct StageTable {
    pub(super) seconds: [f64; 4],
    /// Of its forward, of its backward.
    pub(super) pair_saving: [f64; 2],
    pub(super) bytes: f64,
    pub(super) freed_by_input_grad: f64,
    pub(super) parameter_gather: f64,
    pub(super) gradient_sync: f64,
    pub(super) depth: usize,
    pub(super) previous_rank: Option<usize>,
    pub(super) next_rank: Option<usize>,
    pub(super) forwards_left: u32,
    pub(super) backwards_left: u32,
    pub(super) activations: Mailbox,
    pub(super) gradients: Mailbox,
}

#[derive(Default)]
pub(in crate::schedule) struct RankState {
    pub(in crate::schedule) position: usize,
    pub(in crate::schedule) waits_for: Option<Input>,
    pub(super) free: f64,
    pub(super) stream_free: f64,
    pub(super) started: bool,
    pub(super) live: u32,
    pub(super) live_bytes: f64,
    pub(super) totals: RankTimeline,
}

impl RankState {
    #[inline]
    pub(super) fn open(&mut self, start: f64, end: f64) {
        if !self.started {
            self.started = true;
            self.totals.first_start = start;
        }
        self.totals.busy += end - start;
        self.totals.last_end = end;
        self.free = end;
    }

    #[inline]
    pub(super) fn hold_bytes(&mut self, bytes: f64) {
        self.live_bytes += bytes;
        self.totals.peak_activation_bytes = self.totals.peak_activation_bytes.max(self.live_bytes);
    }

    pub(super) fn finish(mut self) -> RankTimeline {
        self.totals.gradients_ready = self.totals.last_end.max(self.stream_free);
        self.totals
    }
}

impl StageTable {
    pub(super) fn new(orders: &RankOrders, costs: &OpCosts, stage: usize) -> StageTable {
        let depth = stage % orders.stages() as usize;
        let rank_of = |stage: usize| usize::from(orders.placement()[stage]);
        let units = orders.microbatches() * orders.slices();
        let cost = &costs.stages[depth];
        StageTable {
            seconds: [cost.forward, cost.input_grad, cost.weight_grad, cost.backward],
            pair_saving: [cost.pair_saving, cost.backward_pair_saving],
            bytes: cost.activation_bytes,
            freed_by_input_grad: cost.freed_by_input_grad_bytes.min(cost.activation_bytes),
            parameter_gather: cost.parameter_gather,
            gradient_sync: cost.gradient_sync,
            depth,
            previous_rank: (depth > 0).then(|| rank_of(stage - 1)),
            next_rank: (depth + 1 < orders.stages() as usize).then(|| rank_of(stage + 1)),
            forwards_left: units,
            backwards_left: units,
            activations: Mailbox::new(),
            gradients: Mailbox::new(),
        }
    }
}
