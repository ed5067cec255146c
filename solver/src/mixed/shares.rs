//! How many sequences every kind of GPU takes of a microbatch: the integers whose slowest kind is fastest.
//!
//! ```text
//! minimise over integers b_k >= 1   max over k of t_k(b_k)      subject to   sum over k of n_k b_k = B
//! ```
//!
//! `n` ranks of a kind, `t` the seconds its ranks take with `b` sequences each (infinite where those do not fit), `B` sequences
//! of all. A maximum is built up kind by kind: with `R_k(s)` the least maximum of the kinds from `k` on that take `s` sequences
//! together,
//!
//! ```text
//! R_k(s) = min over b of max(t_k(b), R_(k+1)(s - n_k b))
//! ```
//!
//! since what the kinds behind take best does not depend on how those in front came to leave them `s` (Bellman). So the answer
//! is exact for any `t`, whether it rises, is convex, or has steps where a kernel fills its waves; only the numbers of sequences
//! that any answer below the cutoff can have are looked at.

use std::ops::RangeInclusive;

/// Sequences of a rank of every kind that an answer below a cutoff may have: `seconds[k][b - 1]` is at most what kind `k` takes
/// with `b`. None if there is no such answer.
pub fn bands(
    ranks: &[u64],
    seconds: &[Vec<f64>],
    total: u64,
    cutoff: f64,
) -> Option<Vec<RangeInclusive<u64>>> {
    let most = |own: &Vec<f64>| own.iter().rposition(|time| *time < cutoff).map(|last| last as u64 + 1);
    let most = seconds.iter().map(most).collect::<Option<Vec<u64>>>()?;
    let least_of_all: u64 = ranks.iter().sum();
    let most_of_all: u64 = ranks.iter().zip(&most).map(|(ranks, most)| ranks * most).sum();
    if total < least_of_all || total > most_of_all {
        return None;
    }
    let band = |(ranks, most): (&u64, &u64)| {
        let others = most_of_all - ranks * most;
        let least = total.saturating_sub(others).div_ceil(*ranks).max(1);
        let most = (*most).min((total - (least_of_all - ranks)) / ranks);
        (least <= most).then_some(least..=most)
    };
    ranks.iter().zip(&most).map(band).collect()
}

/// The least maximum below a cutoff, and the sequences of a rank of every kind; of equal ones the fewest on the first kinds.
/// `seconds[k][b - 1]` is what a rank of kind `k` takes with `b`, of which there are `ranks[k]`.
pub fn least_maximum(
    ranks: &[u64],
    seconds: &[Vec<f64>],
    total: u64,
    cutoff: f64,
) -> Option<(f64, Vec<u64>)> {
    let bands = bands(ranks, seconds, total, cutoff)?;
    let unit = ranks.iter().copied().fold(0, gcd).max(1);
    let least: u64 = ranks.iter().zip(&bands).map(|(ranks, band)| ranks * band.start()).sum();
    let width = (total.checked_sub(least)?.is_multiple_of(unit)).then(|| (total - least) / unit)? as usize;
    let steps: Vec<usize> = ranks.iter().map(|ranks| (ranks / unit) as usize).collect();
    // What kinds take above their least, in units; the row of a kind is that of all from it on.
    let mut rows = vec![vec![f64::INFINITY; width + 1]; ranks.len() + 1];
    rows[ranks.len()][0] = f64::NEG_INFINITY;
    for kind in (0..ranks.len()).rev() {
        for above in 0..=width {
            rows[kind][above] = options(&bands[kind], &seconds[kind], &rows[kind + 1], steps[kind], above)
                .fold(f64::INFINITY, |best, (_, value)| best.min(value));
        }
    }
    let best = rows[0][width];
    if best >= cutoff {
        return None;
    }
    let mut above = width;
    let mut chosen = Vec::with_capacity(ranks.len());
    for kind in 0..ranks.len() {
        let mut own = options(&bands[kind], &seconds[kind], &rows[kind + 1], steps[kind], above);
        let (extra, _) = own.find(|(_, value)| *value <= best)?;
        chosen.push(bands[kind].start() + extra as u64);
        above -= extra * steps[kind];
    }
    Some((best, chosen))
}

/// The sequences that a rank of a kind may take above its least where `above` are left, each with the maximum it leads to.
fn options<'s>(
    band: &'s RangeInclusive<u64>,
    seconds: &'s [f64],
    rest: &'s [f64],
    step: usize,
    above: usize,
) -> impl Iterator<Item = (usize, f64)> + 's {
    let (first, last) = (*band.start(), *band.end());
    let most = ((last - first) as usize).min(above / step);
    let first = first as usize - 1;
    (0..=most).map(move |extra| (extra, seconds[first + extra].max(rest[above - extra * step])))
}

/// The greatest common divisor.
pub const fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(state: &mut u64, high: u64) -> u64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % high
    }

    /// Every way to share, one after the other.
    fn brute(ranks: &[u64], seconds: &[Vec<f64>], total: u64) -> f64 {
        let Some((first, others)) = ranks.split_first() else {
            return if total == 0 { f64::NEG_INFINITY } else { f64::INFINITY };
        };
        let of = |(index, time): (usize, &f64)| {
            let taken = first * (index as u64 + 1);
            if taken > total { f64::INFINITY } else { time.max(brute(others, &seconds[1..], total - taken)) }
        };
        seconds[0].iter().enumerate().map(of).fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn no_way_to_share_is_better() {
        let mut state = 5;
        let mut found = 0;
        for case in 0..2000 {
            let kinds = 1 + random(&mut state, 4) as usize;
            let ranks: Vec<u64> = (0..kinds).map(|_| 1 + random(&mut state, 6)).collect();
            let time = |state: &mut u64| match random(state, 8) {
                0 => f64::INFINITY,
                _ => 1.0 + random(state, 1000) as f64,
            };
            let seconds: Vec<Vec<f64>> = ranks
                .iter()
                .map(|_| (0..1 + random(&mut state, 7)).map(|_| time(&mut state)).collect())
                .collect();
            let total = random(&mut state, 60);
            let best = brute(&ranks, &seconds, total);
            let answer = least_maximum(&ranks, &seconds, total, f64::INFINITY);
            assert_eq!(answer.as_ref().map_or(f64::INFINITY, |(value, _)| *value), best, "case {case}");
            let Some((value, chosen)) = answer else { continue };
            found += 1;
            let sum: u64 = ranks.iter().zip(&chosen).map(|(ranks, own)| ranks * own).sum();
            let slowest =
                seconds.iter().zip(&chosen).map(|(own, b)| own[*b as usize - 1]).fold(0.0, f64::max);
            assert_eq!((sum, slowest), (total, value), "case {case}");
            assert!(least_maximum(&ranks, &seconds, total, value).is_none(), "a cutoff is exclusive");
        }
        assert!(found > 400, "only {found}");
    }
}
