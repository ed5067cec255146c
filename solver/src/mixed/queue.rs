//! What may be looked at next, and until when.

use super::part::Layout;
use crate::mesh::Mesh;
use crate::observer::Observer;
use std::cmp::Ordering;
use std::time::{Duration, Instant};

/// When to stop.
pub struct Limits<'a> {
    /// Watches and cancels.
    pub observer: &'a dyn Observer,
    /// The clock's limit.
    pub deadline: Option<Instant>,
    /// Values from here on do not matter.
    pub cutoff: f64,
}

impl Limits<'_> {
    /// Whether to answer now.
    pub fn reached(&self) -> bool {
        self.observer.cancelled() || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// What is left of the time.
    pub fn left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }
}

/// What may be looked at next.
#[derive(Debug, Clone, Copy)]
pub enum Item {
    /// The only kind of a part, alone.
    Alone,
    /// The layouts of a mesh.
    Mesh(Mesh),
    /// The splits of a layout.
    Layout(Layout),
}

/// An item of a part, and a value that it cannot beat.
pub struct Node {
    /// The value.
    pub bound: f64,
    /// Among equal ones the first comes first.
    pub order: u64,
    /// Index of the part.
    pub part: usize,
    /// The item.
    pub item: Item,
}

impl Ord for Node {
    fn cmp(&self, other: &Self) -> Ordering {
        other.bound.total_cmp(&self.bound).then(other.order.cmp(&self.order))
    }
}

impl PartialOrd for Node {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Node {}
