//! What an operation that has run leaves behind: messages, memory, streams, ranks that can go on.

use super::Engine;
use super::state::Input;
use crate::schedule::costs::{Hop, Sends};
use crate::schedule::op::{Op, OpKind};
use crate::schedule::timeline::OpSpan;

impl Engine<'_> {
    /// Memory, messages and streams of an operation that has run.
    #[inline]
    pub(super) fn complete(&mut self, rank: usize, op: Op, start: f64, end: f64) {
        if self.recording {
            self.ranks[rank].totals.spans.push(OpSpan { op, start, end });
        }
        match op.kind {
            OpKind::F => self.complete_forward(rank, op, end),
            OpKind::I => {
                self.ranks[rank].live_bytes -= self.stages[usize::from(op.stage)].freed_by_input_grad;
                self.send_gradient(rank, op, end);
            }
            OpKind::B => {
                self.send_gradient(rank, op, end);
                self.release(rank, op, end, 0.0);
            }
            OpKind::W => {
                let freed = self.stages[usize::from(op.stage)].freed_by_input_grad;
                self.release(rank, op, end, freed);
            }
            OpKind::S => {
                self.ranks[rank].hold_bytes(self.costs.vocabulary.held_bytes);
                let barrier = self.costs.vocabulary.barrier;
                if self.gates.finish_s(op.microbatch, end, barrier) {
                    self.wake_all(Input::AllS { microbatch: op.microbatch });
                }
            }
            OpKind::T => {
                self.ranks[rank].live_bytes -= self.costs.vocabulary.held_bytes;
                if self.gates.finish_t(op.microbatch, end, self.costs.vocabulary.barrier) {
                    self.wake_all(Input::AllT { microbatch: op.microbatch });
                }
            }
        }
    }

    #[inline]
    fn complete_forward(&mut self, rank: usize, op: Op, end: f64) {
        let stage = usize::from(op.stage);
        let table = &mut self.stages[stage];
        table.forwards_left -= 1;
        let (bytes, depth, first, next) =
            (table.bytes, table.depth, table.previous_rank.is_none(), table.next_rank);
        if !first {
            table.activations.take(op.microbatch);
        }
        let state = &mut self.ranks[rank];
        state.live += 1;
        state.totals.peak_activations = state.totals.peak_activations.max(state.live);
        state.hold_bytes(bytes);
        match next {
            Some(next) => {
                let arrival = self.send(rank, next, depth, end);
                self.stages[stage + 1].activations.put(op.microbatch, arrival);
                self.wake(next, Input::Activation { stage: op.stage + 1, microbatch: op.microbatch });
            }
            None => {
                if self.gates.finish_output(op.microbatch, end + self.costs.vocabulary.broadcast) {
                    self.wake_all(Input::Output { microbatch: op.microbatch });
                }
            }
        }
    }

    #[inline]
    fn send_gradient(&mut self, rank: usize, op: Op, end: f64) {
        let stage = usize::from(op.stage);
        let table = &mut self.stages[stage];
        if table.next_rank.is_some() {
            table.gradients.take(op.microbatch);
        }
        if let Some(previous) = table.previous_rank {
            let arrival = self.send(rank, previous, self.stages[stage].depth - 1, end);
            self.stages[stage - 1].gradients.put(op.microbatch, arrival);
            self.wake(previous, Input::Gradient { stage: op.stage - 1, microbatch: op.microbatch });
        }
    }

    /// Arrival of a message over hop `depth`.
    #[inline]
    fn send(&mut self, from: usize, to: usize, depth: usize, end: f64) -> f64 {
        if from == to || self.costs.hops.is_empty() {
            return end;
        }
        let Hop { latency, transfer } = self.costs.hops[depth];
        let sent = match self.links.get_mut(from * self.ranks.len() + to) {
            Some(link) => {
                *link = link.max(end) + transfer;
                *link
            }
            None => end,
        };
        let arrival = sent + latency;
        if self.costs.sends == Sends::Blocking {
            let state = &mut self.ranks[from];
            state.free = state.free.max(arrival);
        }
        arrival
    }

    /// Frees an activation; after a stage's last backward its gradients are reduced on the rank's stream.
    #[inline]
    fn release(&mut self, rank: usize, op: Op, end: f64, freed_before: f64) {
        let table = &mut self.stages[usize::from(op.stage)];
        table.backwards_left -= 1;
        let state = &mut self.ranks[rank];
        state.live -= 1;
        state.live_bytes -= table.bytes - freed_before;
        if table.backwards_left == 0 && table.gradient_sync > 0.0 {
            state.stream_free = state.stream_free.max(end) + table.gradient_sync;
        }
    }

    #[inline]
    fn wake(&mut self, rank: usize, input: Input) {
        let state = &mut self.ranks[rank];
        if state.waits_for == Some(input) {
            state.waits_for = None;
            self.runnable.push(rank);
        }
    }

    pub(super) fn wake_all(&mut self, input: Input) {
        (0..self.ranks.len()).for_each(|rank| self.wake(rank, input));
    }
}
