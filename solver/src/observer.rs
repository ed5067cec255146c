//! How a caller watches and stops a search.

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

/// Watches nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Observer for Silent {}
