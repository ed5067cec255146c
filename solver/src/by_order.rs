//! Entries of a best-first queue, which are equal when their order says so.

/// Makes types with an `Ord` of their own comparable by it.
macro_rules! compare_by_order {
    ($entry:ty) => {
        impl PartialOrd for $entry {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                Some(self.cmp(other))
            }
        }

        impl PartialEq for $entry {
            fn eq(&self, other: &Self) -> bool {
                self.cmp(other).is_eq()
            }
        }

        impl Eq for $entry {}
    };
}

pub(crate) use compare_by_order;
