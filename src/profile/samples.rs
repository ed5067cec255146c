//! Many samples of one quantity in bounded memory.

use cluster_profiles::fit::median;

/// Samples that are kept; of more, every second, fourth, ... stays.
const KEPT: usize = 1024;

/// Samples of one quantity, evenly thinned where there are many.
#[derive(Debug, Clone, Default)]
pub struct Samples {
    values: Vec<f64>,
    every: usize,
    count: usize,
}

impl Samples {
    /// Adds one.
    pub fn push(&mut self, value: f64) {
        let every = self.every.max(1);
        if self.count.is_multiple_of(every) {
            self.values.push(value);
        }
        self.count += 1;
        if self.values.len() >= KEPT {
            let mut keep = false;
            self.values.retain(|_| {
                keep = !keep;
                keep
            });
            self.every = every * 2;
        }
    }

    /// How many there were.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Those that are kept.
    #[must_use]
    pub fn kept(&self) -> &[f64] {
        &self.values
    }

    /// The median of those kept.
    #[must_use]
    pub fn median(&self) -> Option<f64> {
        median(&self.values)
    }

    /// Median distance from the median, relative to it.
    #[must_use]
    pub fn spread(&self) -> Option<f64> {
        let middle = self.median().filter(|m| *m > 0.0)?;
        let distances: Vec<f64> = self.values.iter().map(|value| (value / middle - 1.0).abs()).collect();
        median(&distances)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_many_stays_the_median() {
        let mut samples = Samples::default();
        (0..1_000_000).for_each(|i| samples.push(f64::from(i % 1001)));
        assert_eq!(samples.count(), 1_000_000);
        assert!(samples.values.len() < KEPT);
        assert!((samples.median().unwrap() - 500.0).abs() < 50.0);
    }
}
