//! Bounds that use the order in which 1F1B and interleaved 1F1B run: exact for equal stages, hops included.
//!
//! A rank's first backward waits for the first microbatch to come through all stages and back to it; its last forward
//! is followed by the last microbatch's way to the end and back through all stages. In between the rank does the rest of its
//! work:
//!
//! ```text
//! T >= ( way to the first backward of rank r )
//!    + ( work of rank r between its first backward and its last forward )
//!    + ( way from its last forward to the end )
//! ```
//!
//! In the second form the rank does all its other work from its first backward on, and its last backward is followed by the
//! last microbatch's way back through the stages in front of it: tighter for the first ranks of several chunks, which run more
//! forwards ahead than microbatches are on their way.
//!
//! With stage time w, hop c, p ranks, v chunks and m microbatches this is m v w + (p - 1) w + 2 (v p - 1) c for equal
//! stages on the last rank: the step itself.

use super::{OpCosts, ScheduleKind, ScheduleShape, StageCosts};

/// Sizes of an interleaved order: ranks, chunks, microbatches, and how many of these form a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interleaving {
    /// Pipeline ranks.
    pub ranks: usize,
    /// Chunks per rank.
    pub chunks: usize,
    /// Microbatches.
    pub microbatches: usize,
    /// Microbatches of a group, at least as many as ranks: all groups are whole. Without chunks there are none.
    pub group: usize,
}

impl Interleaving {
    /// The order of a schedule of a shape; none for schedules in other orders, and where the last group is not whole.
    #[must_use]
    pub fn of(kind: ScheduleKind, shape: &ScheduleShape) -> Option<Self> {
        let known = [ScheduleKind::OneFOneB, ScheduleKind::Interleaved, ScheduleKind::Combined];
        let (ranks, microbatches) = (shape.ranks, shape.microbatches);
        let chunks =
            if kind == ScheduleKind::OneFOneB { Some(1) } else { shape.chunks }.filter(|&v| v > 0)?;
        if !known.contains(&kind) {
            return None;
        }
        let group = shape.group_rule.group(ranks, microbatches, shape.group_size);
        let whole = chunks == 1 || (group > 0 && microbatches.is_multiple_of(group));
        let [ranks, chunks, microbatches, group] =
            [ranks, chunks, microbatches, group].map(|size| size as usize);
        whole.then_some(Self { ranks, chunks, microbatches, group })
    }

    /// No step with these costs in this order is shorter, nor one whose steady backwards and forwards are combined: that is
    /// the same order, but for pairs that start and end together. A pair saves what its stages say; the first microbatch's
    /// way to the end and the last one's way back are never in pairs.
    #[must_use]
    pub fn bound(&self, costs: &OpCosts) -> f64 {
        let sum = |part: fn(&StageCosts) -> f64| costs.stages.iter().map(part).sum::<f64>();
        let hops: f64 = (0..costs.stages.len().saturating_sub(1)).map(|stage| costs.hop_seconds(stage)).sum();
        let way_there = sum(|stage| stage.forward) + hops;
        let round_trip = way_there + sum(|stage| stage.backward) + hops;
        let last_chunk = (self.chunks - 1) * self.ranks;
        // What lies behind the rank's last stage: there and back, and back alone.
        let (mut detour, mut way_back) = (0.0, 0.0);
        // The way back from the rank's first stage.
        let before = |rank: usize| costs.stages[rank].backward + costs.hop_seconds(rank);
        let mut way_out: f64 = (0..self.ranks - 1).map(before).sum();
        let mut bound = 0.0_f64;
        for rank in (0..self.ranks).rev() {
            let work = self.work(costs, rank);
            if let Some(steady) = work.steady {
                bound = bound.max(round_trip + detour + steady);
            }
            bound = bound.max(way_there + way_back + work.left + way_out);
            let stage = last_chunk + rank;
            if stage > 0 {
                detour += paired_work(&costs.stages[stage]) + 2.0 * costs.hop_seconds(stage - 1);
                way_back += paired_backward(&costs.stages[stage]) + costs.hop_seconds(stage - 1);
            }
            way_out -= if rank > 0 { before(rank - 1) } else { 0.0 };
        }
        bound
    }

    /// [`Self::bound`] of any stages that take no less than these, several on every rank: the second form, averaged over the
    /// ranks, of which at least one takes no less than their average.
    #[must_use]
    pub fn least_bound(&self, least: &LeastStages) -> f64 {
        let (p, m) = (self.ranks, self.microbatches as f64);
        let stages = p * self.chunks;
        if stages < 3 || p < 2 || self.chunks < 2 {
            return 0.0;
        }
        let [forward, backward] = least.middle;
        let way_there = least.forward + (stages - 3) as f64 * least.hop;
        // Stages behind all ranks' last stages but the last one of all, and in front of their first stages but the first one.
        let between = ((p - 1) * (p - 2) / 2) as f64;
        let ways_back = (p - 1) as f64 * (least.last[1] + least.hop) + between * (backward + least.hop);
        let ways_out = between * (backward + least.hop);
        // Forwards that run ahead of the first backward, at most: what is beyond the least may be where most do.
        let ahead: usize = (0..p).map(|rank| self.ahead(rank)).sum();
        let (first, last) = (self.share(self.ahead(0), 0), self.share(self.ahead(p - 1), self.chunks - 1));
        let beyond = (least.forward - (stages - 2) as f64 * forward - least.last[0]).max(0.0);
        let ran_ahead =
            (ahead - first - last) as f64 * forward + last as f64 * least.last[0] + first as f64 * beyond;
        way_there + (ways_back + ways_out + m * least.work - ran_ahead) / p as f64
    }

    /// Forwards that a rank runs before its first backward, at most all.
    fn ahead(&self, rank: usize) -> usize {
        let (p, v, m) = (self.ranks, self.chunks, self.microbatches);
        let warmup = if v == 1 { p - 1 - rank } else { 2 * (p - 1 - rank) + (v - 1) * self.whole_group() };
        (warmup + 1).min(m * v)
    }

    fn whole_group(&self) -> usize {
        if self.chunks == 1 { self.microbatches } else { self.group.min(self.microbatches) }
    }

    /// How many of the first `before` forwards (or the last `before` backwards) of a rank are of a chunk.
    fn share(&self, before: usize, chunk: usize) -> usize {
        let group = self.whole_group();
        let round = group * self.chunks;
        (before / round * group + (before % round).saturating_sub(chunk * group).min(group))
            .min(self.microbatches)
    }

    /// What a rank has still to do when its first backward starts.
    fn work(&self, costs: &OpCosts, rank: usize) -> RankWork {
        let (p, v, m) = (self.ranks, self.chunks, self.microbatches);
        let before = self.ahead(rank);
        let (mut steady, mut left) = (0.0, 0.0);
        for chunk in 0..v {
            let stage = &costs.stages[chunk * p + rank];
            let ahead = self.share(before, chunk);
            let after = (m - ahead) as f64 * paired_work(stage);
            steady += after;
            left += after + ahead as f64 * paired_backward(stage);
        }
        RankWork { steady: (before < m * v).then_some(steady), left }
    }
}

/// What stages take at least.
#[derive(Debug, Clone, Copy)]
pub struct LeastStages {
    /// Forward of all stages.
    pub forward: f64,
    /// Forward and backward of all stages.
    pub work: f64,
    /// Forward and backward of every stage but the first and the last.
    pub middle: [f64; 2],
    /// Forward and backward of the last stage.
    pub last: [f64; 2],
    /// A hop between stages, but for those after the first and the last but one.
    pub hop: f64,
}

/// Work of a rank from its first backward on.
struct RankWork {
    /// Up to its last forward; none if there is no forward after the first backward.
    steady: Option<f64>,
    /// Up to its last backward.
    left: f64,
}

/// Forward and backward of a stage in a combined pair, or one after the other where there is none.
fn paired_work(stage: &StageCosts) -> f64 {
    (stage.forward + stage.backward - stage.pair_saving - stage.backward_pair_saving).max(0.0)
}

/// Backward of a stage in a combined pair, or alone.
fn paired_backward(stage: &StageCosts) -> f64 {
    (stage.backward - stage.backward_pair_saving).max(0.0)
}

/// 1F1B holds p microbatches on rank 0, so that every p-th forward there waits for a microbatch's whole way there and back. All
/// but the last rounds cost that at least; the last p or more microbatches cost what `chain` says of them.
#[must_use]
pub fn round_trips(ranks: u64, microbatches: u64, round_trip: f64, chain: impl Fn(f64) -> f64) -> f64 {
    let rounds = microbatches / ranks;
    if rounds < 2 {
        return 0.0;
    }
    let last = ranks + microbatches % ranks;
    (rounds - 1) as f64 * round_trip + chain(last as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{GroupRule, generate, simulate};

    fn simulated(
        order: &Interleaving,
        combined: bool,
        costs: &OpCosts,
    ) -> Result<f64, Box<dyn std::error::Error>> {
        let shape = ScheduleShape::new(order.ranks as u32, order.microbatches as u32)
            .with_chunks(order.chunks as u32);
        let torch = order.group != order.ranks;
        let group_rule = if torch { GroupRule::Torch } else { GroupRule::Megatron };
        let shape = ScheduleShape { group_rule, ..shape };
        let kind = match (order.chunks, combined) {
            (1, _) => ScheduleKind::OneFOneB,
            (_, false) => ScheduleKind::Interleaved,
            _ => ScheduleKind::Combined,
        };
        Ok(simulate(&generate(kind, &shape)?, costs)?.makespan)
    }

    /// Stages as a bound that does not know which is which sees them.
    fn least_of(costs: &OpCosts) -> LeastStages {
        let paired = |stage: &StageCosts| {
            let backward = paired_backward(stage);
            [paired_work(stage) - backward, backward]
        };
        let stages: Vec<[f64; 2]> = costs.stages.iter().map(paired).collect();
        let middle = stages.get(1..stages.len() - 1).unwrap_or_default().iter().copied();
        LeastStages {
            forward: stages.iter().map(|stage| stage[0]).sum(),
            work: stages.iter().map(|stage| stage[0] + stage[1]).sum(),
            middle: middle.reduce(|a, b| [a[0].min(b[0]), a[1].min(b[1])]).unwrap_or_default(),
            last: stages[stages.len() - 1],
            hop: costs.hop_seconds(0),
        }
    }

    #[test]
    fn equal_stages_take_exactly_the_bound() -> Result<(), Box<dyn std::error::Error>> {
        for (ranks, chunks, microbatches) in [(2, 2, 4), (4, 2, 8), (4, 3, 12), (8, 2, 16), (5, 4, 20)] {
            let order = Interleaving { ranks, chunks, microbatches, group: ranks };
            let costs = OpCosts::uniform((ranks * chunks) as u32, 2.0, 3.0, 1.0).with_latency(0.25);
            let (bound, time) = (order.bound(&costs), simulated(&order, false, &costs)?);
            assert!((bound - time).abs() < 1e-9, "{order:?}: {bound} {time}");
        }
        Ok(())
    }

    #[test]
    fn uneven_stages_take_no_less() -> Result<(), Box<dyn std::error::Error>> {
        let mut state = 7u64;
        let mut random = move |high: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % high
        };
        for _ in 0..400 {
            let ranks = 2 + random(5) as usize;
            let chunks = 1 + random(4) as usize;
            let rest = if chunks == 1 { random(3) as usize } else { 0 };
            let groups = 1 + random(4) as usize;
            // Equal groups of more than the ranks are torch's, as long as there are fewer of them than ranks.
            let combined = chunks > 1 && random(2) == 1;
            let group = if chunks > 1 && groups < ranks { ranks + random(2) as usize } else { ranks };
            let order = Interleaving { ranks, chunks, microbatches: group * groups + rest, group };
            let mut costs =
                OpCosts::uniform((ranks * chunks) as u32, 1.0, 1.0, 0.0).with_latency(random(3) as f64);
            for stage in &mut costs.stages {
                stage.forward = 1.0 + random(9) as f64;
                stage.backward = 1.0 + random(9) as f64;
                if combined {
                    stage.pair_saving = stage.forward.min(random(4) as f64);
                    stage.backward_pair_saving = stage.backward.min(random(4) as f64);
                }
            }
            let (bound, time) = (order.bound(&costs), simulated(&order, combined, &costs)?);
            assert!(bound <= time * (1.0 + 1e-12), "{order:?}: {bound} {time}");
            let least = order.least_bound(&least_of(&costs));
            assert!(least <= bound * (1.0 + 1e-12), "{order:?}: {least} {bound}");
        }
        Ok(())
    }
}
