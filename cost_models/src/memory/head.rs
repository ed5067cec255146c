//! Logits and loss: what the last stage needs for one microbatch.
//!
//! N = T V / t logits on a rank.

use super::context::MemoryContext;
use crate::schedule::Vocabulary;

impl MemoryContext<'_> {
    /// Bytes of head and loss at their peak, for one microbatch. `weight_gradient` says whether the head's 16-bit weight
    /// gradient is made here (and not in a buffer that exists anyway).
    #[must_use]
    pub fn head_bytes(&self, weight_gradient: bool) -> f64 {
        let logits = self.logits() / self.loss_chunks();
        let matrix = if weight_gradient { 2.0 * self.hidden * self.local_vocab() } else { 0.0 };
        let backward = self.element() * logits + matrix + self.gathered_residual();
        let peak = (self.bytes_per_logit() * logits).max(backward);
        let norm = 2.0 * self.residual();
        let buffered = self.traits().workspace.gather_buffer;
        let gathered = if self.sp > 1.0 && !buffered { self.gathered_residual() } else { 0.0 };
        peak + norm + gathered + self.deferred()
    }

    /// Pieces of the sequence that head and loss take one after the other.
    fn loss_chunks(&self) -> f64 {
        let chunked = self.traits().loss.chunked.as_ref();
        let chunked = chunked.filter(|loss| self.runtime.release.is_some_and(|r| r >= loss.from));
        chunked.map_or(1.0, |loss| f64::from(loss.chunks.max(1)))
    }

    /// Bytes per logit of the loss this release computes.
    fn bytes_per_logit(&self) -> f64 {
        let loss = &self.traits().loss;
        let compiled = loss.compiled.as_ref().filter(|compiled| {
            self.runtime.facts.compiled == Some(true)
                && self.runtime.release.is_some_and(|r| r >= compiled.from)
        });
        compiled.map_or(loss.bytes_per_logit, |compiled| compiled.bytes_per_logit)
    }

    /// Whether the loss writes its gradient over the logits.
    fn loss_in_place(&self) -> bool {
        self.bytes_per_logit() <= 2.0
    }

    /// Logits kept for multi-token prediction, per depth: 2 bytes with an in-place loss, else the fp32 softmax too.
    #[must_use]
    pub fn mtp_logit_bytes(&self) -> f64 {
        self.logits() * if self.loss_in_place() { 2.0 } else { 4.0 }
    }

    /// Vocabulary passes (arXiv 2411.05288): a rank's share of the logits, the broadcast input, and with one barrier the input's
    /// partial gradient.
    pub(super) fn vocabulary_pass_bytes(&self, passes: Vocabulary) -> f64 {
        let logits = self.logits() / f64::from(self.parallel.pp);
        let tensors = if passes == Vocabulary::OneBarrier { 2.0 } else { 1.0 };
        self.traits().pipeline.vocabulary_pass_bytes * logits + tensors * self.residual()
    }

    /// Logits of a microbatch on a rank, N.
    fn logits(&self) -> f64 {
        let shards = if self.traits().loss.gathered_logits { 1.0 } else { self.tp };
        self.tokens * self.local_vocab() * self.tp / shards
    }

    /// Padded vocabulary entries on a rank, V / t.
    pub(super) fn local_vocab(&self) -> f64 {
        self.shards.padded_vocab(self.model) / self.tp
    }

    /// Dense 16-bit gradient of the embedding.
    #[must_use]
    pub fn embedding_gradient_bytes(&self) -> f64 {
        2.0 * self.hidden * self.local_vocab()
    }

    /// Deferred weight gradients keep logit gradients and inputs of earlier microbatches.
    fn deferred(&self) -> f64 {
        let deferred = f64::from(self.traits().loss.deferred_weight_gradients);
        deferred * (self.element() * self.logits() + self.gathered_residual())
    }
}
