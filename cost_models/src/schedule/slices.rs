//! Lengths of sequence slices (TeraPipe, arXiv:2102.07988, section 3.3).

/// Slice lengths that minimise sum(t) + (p - 1) max(t), the forward time of one sequence over p ranks, where
/// `seconds(start, length)` is the time of a slice of `length` granules that begins after `start` of them.
///
/// For every slice time that could be the longest, the fewest seconds in all are found by dynamic programming over the
/// end of the last slice; the best of them is the optimum. O(granules^4) at worst, so at most [`MOST_GRANULES`] granules
/// are taken.
///
/// Returns `None` for no granules or ranks, more than [`MOST_GRANULES`] granules, or times that are negative or not
/// finite.
pub fn slice_lengths(
    granules: usize,
    ranks: u32,
    seconds: impl Fn(usize, usize) -> f64,
) -> Option<Vec<usize>> {
    if granules == 0 || granules > MOST_GRANULES || ranks == 0 {
        return None;
    }
    let table: Vec<Vec<f64>> = (0..granules)
        .map(|start| (1..=granules - start).map(|length| seconds(start, length)).collect())
        .collect();
    let mut longest: Vec<f64> = table.iter().flatten().copied().collect();
    if longest.iter().any(|time| !time.is_finite() || *time < 0.0) {
        return None;
    }
    longest.sort_by(f64::total_cmp);
    longest.dedup();
    let mut best: Option<(f64, Vec<usize>)> = None;
    for limit in longest {
        let floor = f64::from(ranks - 1) * limit;
        if best.as_ref().is_some_and(|(total, _)| floor >= *total) {
            break;
        }
        let found = fewest_seconds(&table, limit).map(|(sum, lengths)| (sum + floor, lengths));
        best = match (best, found) {
            (Some(best), Some(found)) if found.0 < best.0 => Some(found),
            (best, found) => best.or(found),
        };
    }
    best.map(|(_, lengths)| lengths)
}

/// The most granules [`slice_lengths`] takes.
pub const MOST_GRANULES: usize = 64;

/// The partition with the smallest sum among those without a slice longer than `limit`.
fn fewest_seconds(table: &[Vec<f64>], limit: f64) -> Option<(f64, Vec<usize>)> {
    let granules = table.len();
    let mut sums = vec![f64::INFINITY; granules + 1];
    let mut last = vec![0; granules + 1];
    sums[0] = 0.0;
    for end in 1..=granules {
        for start in 0..end {
            let time = table[start][end - start - 1];
            if time <= limit && sums[start] + time < sums[end] {
                (sums[end], last[end]) = (sums[start] + time, end - start);
            }
        }
    }
    let mut lengths = Vec::new();
    let mut end = granules;
    while end > 0 {
        if last[end] == 0 {
            return None;
        }
        lengths.push(last[end]);
        end -= last[end];
    }
    lengths.reverse();
    Some((sums[granules], lengths))
}
