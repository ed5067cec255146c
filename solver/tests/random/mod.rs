//! A linear congruential generator: the same problems on every run.

/// Its state, which is its seed at first.
pub struct Random(pub u64);

impl Random {
    /// A number below `high`; 0 where that is 0.
    pub fn below(&mut self, high: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % high.max(1)
    }
}
