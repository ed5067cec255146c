//! Divisors.

/// Divisors of a number in rising order.
#[must_use]
pub fn divisors(number: u64) -> Vec<u64> {
    let root = number.isqrt();
    let low: Vec<u64> = (1..=root).filter(|divisor| number.is_multiple_of(*divisor)).collect();
    let high = low.iter().rev().map(|divisor| number / divisor).filter(|divisor| *divisor > root);
    low.iter().copied().chain(high).collect()
}

/// Micro batches that divide a data-parallel rank's share of the batch; none if the ranks do not divide it.
pub(crate) fn divisors_of_share(global_batch: u64, dp: u64) -> Vec<u64> {
    if global_batch.is_multiple_of(dp) { divisors(global_batch / dp) } else { Vec::new() }
}
