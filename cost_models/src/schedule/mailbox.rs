//! Messages on their way to one stage.

const EMPTY: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Slot {
    microbatch: u32,
    arrival: f64,
}

/// Arrival times by microbatch. A ring indexed by the low bits of the microbatch that doubles when two live
/// messages collide: its size follows the spread of microbatches in flight, and every access is one comparison.
pub(super) struct Mailbox {
    slots: Vec<Slot>,
}

impl Mailbox {
    pub(super) fn new() -> Mailbox {
        Mailbox { slots: vec![Slot { microbatch: EMPTY, arrival: 0.0 }; 4] }
    }

    fn at(&self, microbatch: u32) -> usize {
        microbatch as usize & (self.slots.len() - 1)
    }

    /// Arrival of the message for `microbatch`, if it was sent and not taken.
    #[inline]
    pub(super) fn peek(&self, microbatch: u32) -> Option<f64> {
        let slot = self.slots[self.at(microbatch)];
        (slot.microbatch == microbatch).then_some(slot.arrival)
    }

    /// Forgets the message for `microbatch`, which must have been seen by [`Mailbox::peek`].
    #[inline]
    pub(super) fn take(&mut self, microbatch: u32) {
        let at = self.at(microbatch);
        self.slots[at].microbatch = EMPTY;
    }

    #[inline]
    pub(super) fn put(&mut self, microbatch: u32, arrival: f64) {
        while self.slots[self.at(microbatch)].microbatch != EMPTY {
            self.grow();
        }
        let at = self.at(microbatch);
        self.slots[at] = Slot { microbatch, arrival };
    }

    /// Live messages with different low bits keep different low bits in a ring twice as long.
    fn grow(&mut self) {
        let doubled = vec![Slot { microbatch: EMPTY, arrival: 0.0 }; self.slots.len() * 2];
        let old = std::mem::replace(&mut self.slots, doubled);
        for slot in old.into_iter().filter(|slot| slot.microbatch != EMPTY) {
            let at = self.at(slot.microbatch);
            self.slots[at] = slot;
        }
    }
}
