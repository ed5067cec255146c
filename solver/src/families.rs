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

/// A balanced split by its blocks: the middle stages have `least` each, those of one stretch one more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Balanced {
    /// Stages.
    pub(crate) stages: usize,
    /// Blocks of the first stage.
    pub(crate) first: usize,
    /// Blocks of the last stage.
    pub(crate) last: usize,
    /// Blocks of the other stages.
    pub(crate) least: usize,
    /// The stages with one block more.
    pub(crate) larger: Range<usize>,
}

impl Balanced {
    /// As equal as possible, the first stages taking what is left over.
    fn even(blocks: usize, stages: usize) -> Self {
        let (least, more) = (blocks / stages, blocks % stages);
        let first = least + usize::from(more > 0);
        let (least, larger) = match more {
            0 | 1 => (least, 0..0),
            _ if more + 1 == stages => (least + 1, 0..0),
            _ => (least, 1..more),
        };
        let last = if stages == 1 { first } else { blocks / stages };
        Self { stages, first, last, least, larger }
    }

    /// Whether no stage but the first and the last is empty.
    const fn fills_middle(&self) -> bool {
        self.stages < 3 || self.least > 0
    }

    /// Blocks of a stage.
    fn blocks(&self, stage: usize) -> usize {
        match stage {
            0 => self.first,
            _ if stage + 1 == self.stages => self.last,
            _ => self.least + usize::from(self.larger.contains(&stage)),
        }
    }

    /// Writes the units that the stages end before: what leads goes to the first stage, what trails to the last.
    pub(crate) fn write(&self, units: &Units, ends: &mut Ends) {
        let mut end = units.leading();
        ends.clear();
        ends.extend((0..self.stages).map(|stage| {
            end += self.blocks(stage);
            end
        }));
        if let Some(last) = ends.last_mut() {
            *last = units.len();
        }
    }

    fn ends(&self, units: &Units) -> Ends {
        let mut ends = Ends::with_capacity(self.stages);
        self.write(units, &mut ends);
        ends
    }
}

/// All balanced splits of a model into `stages` stages on `ranks` ranks that leave no middle stage empty, without repetition,
/// the most even first.
#[must_use]
pub fn balanced(units: &Units, stages: usize, ranks: usize, slack: Slack) -> Vec<Ends> {
    balanced_splits(units, stages, ranks, slack).iter().map(|split| split.ends(units)).collect()
}

/// The same by their blocks.
pub(crate) fn balanced_splits(units: &Units, stages: usize, ranks: usize, slack: Slack) -> Vec<Balanced> {
    let blocks = units.len() - units.leading() - units.trailing();
    let even = Balanced::even(blocks, stages);
    let most = blocks.div_ceil(stages);
    let mut splits = vec![even.clone()];
    for first in (most.saturating_sub(slack.first)..=most).rev() {
        for last in (most.saturating_sub(slack.last)..=most).rev() {
            splits.extend(with_ends(blocks, stages, ranks, first, last).filter(|split| *split != even));
        }
    }
    splits.retain(Balanced::fills_middle);
    splits
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
    Balanced::even(units.len() - units.leading() - units.trailing(), stages).ends(units)
}

/// Middle stages alike up to one block. The larger ones stand together; the stretch begins so that the ranks that have one more
/// than the others are those after the first, those before the last, those from the first on, or those at the end.
fn with_ends(
    blocks: usize,
    stages: usize,
    ranks: usize,
    first: usize,
    last: usize,
) -> impl Iterator<Item = Balanced> {
    let middle = stages.saturating_sub(2);
    let rest = blocks.checked_sub(first + last).filter(|_| stages > 2);
    let starts = rest.map_or([0; 4], |rest| starts(stages, ranks, rest % middle));
    let split = move |start: usize, rest: usize| {
        let (least, larger) = (rest / middle, rest % middle);
        let larger = if larger == 0 { 0..0 } else { start..start + larger };
        Balanced { stages, first, last, least, larger }
    };
    let repeated = move |index: usize| index > 0 && starts[index] == starts[index - 1];
    let kept = (0..4).filter(move |&index| starts[index] > 0 && !repeated(index));
    kept.filter_map(move |index| rest.map(|rest| split(starts[index], rest)))
}

/// Where a stretch of larger stages may begin, in rising order; 0 stands for nowhere.
fn starts(stages: usize, ranks: usize, larger: usize) -> [usize; 4] {
    if larger == 0 {
        return [1, 0, 0, 0];
    }
    let mut starts = [1, ranks - larger % ranks, ranks, stages - 1 - larger];
    for start in &mut starts {
        if *start + larger >= stages {
            *start = 0;
        }
    }
    starts.sort_unstable();
    starts
}

#[cfg(test)]
mod tests {
    use super::{Balanced, starts};

    #[test]
    fn even_splits_differ_by_one_block_at_most() {
        for (blocks, stages) in (0..40).flat_map(|blocks| (1..12).map(move |stages| (blocks, stages))) {
            let split = Balanced::even(blocks, stages);
            let counts: Vec<usize> = (0..stages).map(|stage| split.blocks(stage)).collect();
            let expected: Vec<usize> =
                (0..stages).map(|stage| blocks / stages + usize::from(stage < blocks % stages)).collect();
            assert_eq!(counts, expected, "{blocks} {stages}");
        }
    }

    #[test]
    fn stretches_begin_in_the_middle_and_end_there() {
        for (stages, ranks) in [(4, 2), (12, 4), (12, 3), (16, 8)] {
            for larger in 1..stages - 2 {
                let found = starts(stages, ranks, larger);
                assert!(found.contains(&1), "{stages} {larger}: {found:?}");
                assert!(found.iter().all(|start| start + larger < stages), "{stages} {larger}: {found:?}");
            }
        }
    }
}
