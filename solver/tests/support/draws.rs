//! What is drawn beside numbers.

use super::random::Random;

impl Random {
    /// An index below `high`.
    pub fn index(&mut self, high: usize) -> usize {
        self.below(high as u64) as usize
    }

    /// A number in 0..1.
    pub fn unit(&mut self) -> f64 {
        self.below(1 << 31) as f64 / f64::from(1u32 << 31)
    }

    /// One of these.
    pub fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }

    /// So many of these, none twice.
    pub fn distinct<T: Copy>(&mut self, choices: &[T], count: usize) -> Vec<T> {
        let mut left = choices.to_vec();
        (0..count).map(|_| left.remove(self.index(left.len()))).collect()
    }
}
