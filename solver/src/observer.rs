//! How a caller watches and stops a search.

use std::time::{Duration, Instant};

/// Where a search stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Layouts simulated so far.
    pub simulated: u64,
    /// Layouts whose bound is still below the best.
    pub open: u64,
    /// The best objective so far, in its own unit.
    pub best: Option<f64>,
    /// No layout has a better objective than this.
    pub bound: f64,
}

/// Watches a search, and may stop it.
pub trait Observer: Sync {
    /// Called now and then.
    fn progress(&self, _progress: Progress) {}

    /// Whether to stop and answer with the best so far.
    fn cancelled(&self) -> bool {
        false
    }
}

/// Who may stop a search, and when the clock does.
#[derive(Clone, Copy)]
pub struct Patience<'a> {
    /// Watches and cancels.
    pub observer: &'a dyn Observer,
    /// The clock's limit.
    pub deadline: Option<Instant>,
}

impl Patience<'_> {
    /// Whether to stop.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.observer.cancelled() || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// What is left of the time.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// The same observer with a share of the time that is left.
    #[must_use]
    pub fn share(&self, share: f64) -> Self {
        let deadline = self.left().map(|left| Instant::now() + left.mul_f64(share));
        Self { deadline, ..*self }
    }
}

/// Watches nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Observer for Silent {}
