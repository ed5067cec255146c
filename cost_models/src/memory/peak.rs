//! The peak of one pipeline rank, term by term.

use crate::estimate::RankMemory;
use crate::runtime::ReserveTraits;
use crate::sharding::StateBytes;
use cluster_profiles::Bytes;

/// Every term of one pipeline rank's memory, in bytes. The peak is the largest of three moments: a microbatch's forward or
/// backward with all others in flight, the end of the last backward, the optimizer step.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RankPeak {
    /// Pipeline rank.
    pub rank: u32,
    /// Parameters, gradients, optimizer state.
    pub state: StateBytes,
    /// Library workspaces and persistent buffers.
    pub workspace: f64,
    /// Weight gradients shared by equal shapes.
    pub shared_gradients: f64,
    /// Gathered parameters and full gradients of fully sharded layers.
    pub gathered: f64,
    /// Saved activations of all microbatches in flight.
    pub saved: f64,
    /// Pipeline boundary tensors.
    pub boundary: f64,
    /// The attention mask.
    pub mask: f64,
    /// Logits and loss of one microbatch.
    pub head: f64,
    /// Working set of the largest layer.
    pub transient: f64,
    /// Dense 16-bit gradient of the embedding at the end of a microbatch's backward.
    pub embedding_gradient: f64,
    /// What a microbatch has released by then: saved bytes of the chunk with the embedding.
    pub released: f64,
    /// Saved activations in the memory of the host: not a part of the peak.
    pub in_host: f64,
}

impl RankPeak {
    /// What is allocated between two steps: Megatron's `mem-allocated-bytes`. Copies of the optimizer step live until
    /// the gradients are cleared.
    #[must_use]
    pub fn allocated_after_step(&self) -> f64 {
        self.workspace + self.state.resident().get() + self.state.step.get()
    }

    /// Peak of what is allocated.
    #[must_use]
    pub fn allocated(&self) -> f64 {
        self.during_microbatch().max(self.end_of_backward()).max(self.step())
    }

    /// Saved activations of all microbatches in flight: the peak less the value at the start of the iteration, without what
    /// one layer needs on top.
    #[must_use]
    pub const fn activations(&self) -> f64 {
        self.saved
    }

    /// All that is neither state nor workspace, at its peak.
    #[must_use]
    pub fn working_set(&self) -> f64 {
        self.saved + self.boundary + self.mask + self.head.max(self.layer_peak())
    }

    /// What one layer needs on top of the saved activations: its own working set, or the embedding's gradient less what its
    /// microbatch has released.
    fn layer_peak(&self) -> f64 {
        self.transient.max(self.embedding_gradient - self.released)
    }

    fn persistent(&self) -> f64 {
        self.workspace + self.state.resident().get() + self.shared_gradients
    }

    fn during_microbatch(&self) -> f64 {
        self.persistent() + self.gathered + self.working_set()
    }

    fn end_of_backward(&self) -> f64 {
        self.persistent() + self.gathered + self.state.late.get() + self.embedding_gradient
    }

    fn step(&self) -> f64 {
        self.persistent() + self.state.step.get()
    }

    /// The terms of a report; they add up to the peak, which includes the reserve.
    #[must_use]
    pub fn report(&self, reserve: &ReserveTraits) -> RankMemory {
        let allocated = self.allocated();
        let reserved = reserve.reserved_bytes(allocated);
        let mut memory = RankMemory {
            rank: self.rank,
            peak_bytes: Bytes(reserved),
            static_bytes: self.state.resident(),
            allocated_bytes: Bytes(allocated),
            parameters_bytes: self.state.parameters,
            gradients_bytes: self.state.gradients,
            optimizer_bytes: self.state.optimizer,
            workspace_bytes: Bytes(self.workspace + self.shared_gradients),
            reserve_bytes: Bytes(reserved - allocated),
            host_bytes: Bytes(self.in_host),
            ..RankMemory::default()
        };
        self.add_moment(&mut memory);
        memory
    }

    /// Adds the terms of the moment that is the peak.
    fn add_moment(&self, memory: &mut RankMemory) {
        let (microbatch, backward, step) = (self.during_microbatch(), self.end_of_backward(), self.step());
        if step > microbatch && step > backward {
            memory.optimizer_bytes += self.state.step;
            return;
        }
        memory.communication_bytes = Bytes(self.gathered);
        if backward > microbatch {
            memory.gradients_bytes += self.state.late + Bytes(self.embedding_gradient);
            return;
        }
        memory.communication_bytes += Bytes(self.boundary);
        memory.activations_bytes = Bytes(self.saved + self.mask);
        if self.head >= self.layer_peak() {
            memory.logits_bytes = Bytes(self.head);
        } else {
            memory.workspace_bytes += Bytes(self.layer_peak());
        }
    }
}

/// 5 GiB of the 79.1 GiB of an 80 GB device.
const MARGIN_SHARE: f64 = 5.0 / 79.1;

impl ReserveTraits {
    /// What the framework reserves for `allocated` bytes.
    #[must_use]
    pub fn reserved_bytes(&self, allocated: f64) -> f64 {
        self.ratio * allocated + self.bytes
    }

    /// What the device shows as used (nvidia-smi) for `reserved` bytes.
    #[must_use]
    pub fn device_bytes(&self, reserved: f64) -> f64 {
        reserved + self.context_bytes
    }

    /// The most a plan may reserve on a device of `capacity` bytes by default: the margin is that of an 80 GB device,
    /// and as large a share of a smaller one.
    #[must_use]
    pub fn default_limit(&self, capacity: f64) -> f64 {
        (capacity - self.margin_bytes.min(capacity * MARGIN_SHARE)).max(0.0)
    }

    /// Standard deviations between an estimate and the point at which the allocator has to free and retry
    /// (`capacity` less the context): runs within one or two slow down many times (published: 225 to 33 TFLOP/s at 79.7
    /// of 80 GB).
    #[must_use]
    pub fn headroom_deviations(&self, reserved: f64, capacity: f64) -> f64 {
        let free = capacity - self.device_bytes(reserved);
        free / (self.scatter * reserved).max(1.0)
    }
}
