//! Splits for several chunks per rank: as equal as the blocks allow, with fewer blocks on the first and last stage.
//!
//! With several chunks the loads of a rank's stages add up, and a split has hundreds of stages, so that the search stays
//! with the splits that runtimes and people use: all middle stages alike up to one block, the ends shorter by what
//! embedding, head and memory ask for, and the stages with one block more in one contiguous stretch. All of them are looked
//! at.

use crate::units::Units;
use std::ops::Range;

/// The ends of every stage, in units.
pub type Ends = Vec<usize>;

/// How much shorter than the largest stage the ends may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slack {
    /// Blocks the first stage may have less.
    pub first: usize,
    /// Blocks the last stage may have less.
    pub last: usize,
}

/// All balanced splits of a model into `stages` stages on `ranks` ranks that leave no middle stage empty, without repetition,
/// the most even first.
#[must_use]
pub fn balanced(units: &Units, stages: usize, ranks: usize, slack: Slack) -> Vec<Ends> {
    let blocks = units.len() - units.leading() - units.trailing();
    let mut counts: Vec<Vec<usize>> = vec![even(blocks, stages)];
    let most = blocks.div_ceil(stages);
    for first in (most.saturating_sub(slack.first)..=most).rev() {
        for last in (most.saturating_sub(slack.last)..=most).rev() {
            counts.extend(with_ends(blocks, stages, ranks, first, last));
        }
    }
    let mut seen: Vec<Vec<usize>> = Vec::with_capacity(counts.len());
    let middle = |counts: &[usize]| {
        counts.get(1..stages - 1).is_none_or(|middle| middle.iter().all(|&count| count > 0))
    };
    for count in counts.into_iter().filter(|counts| middle(counts)) {
        if !seen.contains(&count) {
            seen.push(count);
        }
    }
    seen.iter().map(|counts| ends(units, counts)).collect()
}

/// Blocks that every middle stage of a balanced split has at least.
#[must_use]
pub fn least_middle(blocks: usize, stages: usize) -> usize {
    if stages < 3 {
        return 0;
    }
    blocks.saturating_sub(2 * blocks.div_ceil(stages)) / (stages - 2)
}

/// The one split with equal blocks on every stage, the first stages taking what is left over.
#[must_use]
pub fn even_ends(units: &Units, stages: usize) -> Ends {
    let blocks = units.len() - units.leading() - units.trailing();
    ends(units, &even(blocks, stages))
}

/// As equal as possible, the first stages taking what is left over.
fn even(blocks: usize, stages: usize) -> Vec<usize> {
    (0..stages).map(|stage| blocks / stages + usize::from(stage < blocks % stages)).collect()
}

/// Middle stages alike up to one block. The larger ones stand together; the stretch begins so that the ranks that have one more
/// than the others are those after the first, those before the last, those from the first on, or those at the end.
fn with_ends(blocks: usize, stages: usize, ranks: usize, first: usize, last: usize) -> Vec<Vec<usize>> {
    let middle = stages.saturating_sub(2);
    let Some(rest) = blocks.checked_sub(first + last).filter(|_| stages > 2) else { return Vec::new() };
    let (least, larger) = (rest / middle, rest % middle);
    if larger == 0 {
        return vec![counts(stages, first, last, least, 0..0)];
    }
    let beyond = larger % ranks;
    let mut starts = vec![1, ranks - beyond, ranks, stages - 1 - larger];
    starts.retain(|&start| start >= 1 && start + larger < stages);
    starts.sort_unstable();
    starts.dedup();
    starts.iter().map(|&start| counts(stages, first, last, least, start..start + larger)).collect()
}

fn counts(stages: usize, first: usize, last: usize, least: usize, larger: Range<usize>) -> Vec<usize> {
    (0..stages)
        .map(|stage| match stage {
            0 => first,
            _ if stage + 1 == stages => last,
            _ => least + usize::from(larger.contains(&stage)),
        })
        .collect()
}

/// Units that stages with so many blocks end before: what leads goes to the first stage, what trails to the last.
fn ends(units: &Units, counts: &[usize]) -> Ends {
    let mut end = units.leading();
    let mut ends: Ends = counts
        .iter()
        .map(|count| {
            end += count;
            end
        })
        .collect();
    if let Some(last) = ends.last_mut() {
        *last = units.len();
    }
    ends
}
