//! Trade-offs: points that nothing beats in both of two measures, of which less is better.

use serde::Serialize;

/// Seconds for a billion tokens against something else.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TradeOff {
    /// What is trained.
    pub job: String,
    /// The other measure.
    pub against: String,
    /// Seconds for a billion tokens, the other measure, the point; by rising time.
    pub points: Vec<(f64, f64, u64)>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use solver::pareto::unbeaten;

    proptest! {
        #[test]
        fn the_front_is_what_brute_force_finds(values in prop::collection::vec((0u32..20, 0u32..20), 0..40)) {
            let points: Vec<(f64, f64, u64)> =
                values.iter().enumerate().map(|(at, (a, b))| (f64::from(*a), f64::from(*b), at as u64)).collect();
            let beaten = |one: &(f64, f64, u64)| points.iter().any(|other| {
                let equal = other.0 == one.0 && other.1 == one.1;
                other.0 <= one.0 && other.1 <= one.1 && (!equal || other.2 < one.2)
            });
            let mut forced: Vec<(f64, f64, u64)> = points.iter().copied().filter(|point| !beaten(point)).collect();
            forced.sort_by(|a, b| a.0.total_cmp(&b.0));
            prop_assert_eq!(unbeaten(points), forced);
        }
    }
}
