//! What may be looked at next, and until when.

use super::part::Layout;
use crate::by_order::compare_by_order;
use crate::mesh::Mesh;
use crate::observer::Patience;
use std::cmp::Ordering;

/// When to stop.
pub struct Limits<'a> {
    /// Who may stop it, and the clock.
    pub patience: Patience<'a>,
    /// Values from here on do not matter.
    pub cutoff: f64,
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
    /// The layouts of a mesh with micro batches of different sizes.
    Unequal(Mesh),
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

compare_by_order!(Node);
