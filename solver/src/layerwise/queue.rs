//! Entries of a best-first queue: the smallest bound first, of equal ones the earliest.

use crate::by_order::compare_by_order;
use std::cmp::Ordering;

/// Something with a bound.
#[derive(Debug, Clone, Copy)]
pub struct Entry<T> {
    /// Nothing in it is smaller.
    pub bound: f64,
    /// When it was made.
    pub order: u64,
    /// What it is.
    pub item: T,
}

impl Ord for Entry<u32> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.bound.total_cmp(&self.bound).then(other.order.cmp(&self.order))
    }
}

compare_by_order!(Entry<u32>);
