//! Which rank holds which stage.

/// The shape in which a pipeline runs over its ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Placement {
    /// Stage `s` on rank `s mod p`.
    Loop,
    /// Down the ranks and back up: two stages a rank, the first and the last stage share rank 0.
    V,
    /// Down and up repeatedly (Hanayo): an even number of stages a rank.
    Wave,
    /// Two pipelines in opposite directions over the same ranks, each with its own copy of the weights; the stages
    /// of each are placed as a loop.
    Bidirectional,
    /// Two V-shaped pipelines in opposite directions (BitPipe).
    BidirectionalV,
}

impl Placement {
    /// How many pipelines, and so copies of the weights, there are.
    pub fn pipelines(self) -> u32 {
        match self {
            Placement::Bidirectional | Placement::BidirectionalV => 2,
            Placement::Loop | Placement::V | Placement::Wave => 1,
        }
    }

    /// The rank of every stage for `ranks` ranks and `stages` stages of one pipeline; with two pipelines the stages of
    /// the second follow those of the first.
    pub fn ranks_of_stages(self, ranks: u32, stages: u32) -> Vec<u16> {
        (0..stages * self.pipelines()).map(|stage| to_rank(self.rank_of(stage, ranks, stages))).collect()
    }

    fn rank_of(self, stage: u32, ranks: u32, stages: u32) -> u32 {
        match self {
            Placement::Loop => stage % ranks,
            Placement::V | Placement::Wave => fold(stage, ranks),
            Placement::Bidirectional if stage < stages => stage % ranks,
            Placement::Bidirectional => ranks - 1 - (stage - stages) % ranks,
            Placement::BidirectionalV if stage < stages => fold(stage, ranks),
            Placement::BidirectionalV => ranks - 1 - fold(stage - stages, ranks),
        }
    }
}

/// Position on a path that walks down and up the ranks.
fn fold(stage: u32, ranks: u32) -> u32 {
    let position = stage % (2 * ranks);
    if position < ranks { position } else { 2 * ranks - 1 - position }
}

fn to_rank(rank: u32) -> u16 {
    u16::try_from(rank).unwrap_or(u16::MAX)
}
