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
//! With stage time w, hop c, p ranks, v chunks and m microbatches this is m v w + (p - 1) w + 2 (v p - 1) c for equal
//! stages on the last rank: the step itself.

use cost_models::schedule::{OpCosts, StageCosts};

/// Sizes of an interleaved order: ranks, chunks, microbatches, and how many of these form a group.
#[derive(Debug, Clone, Copy)]
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
    /// No step with these costs in this order is shorter, nor one whose steady backwards and forwards are combined: that is
    /// the same order, but for pairs that start and end together. A pair saves what its stages say; the first microbatch's
    /// way to the end and the last one's way back are never in pairs.
    #[must_use]
    pub fn bound(&self, costs: &OpCosts) -> f64 {
        let whole: f64 = costs.stages.iter().map(|stage| stage.forward + stage.backward).sum();
        let hops: f64 = (0..costs.stages.len().saturating_sub(1)).map(|stage| costs.hop_seconds(stage)).sum();
        let round_trip = whole + 2.0 * hops;
        let last_chunk = (self.chunks - 1) * self.ranks;
        // What lies behind the rank's last stage.
        let mut detour = 0.0;
        let mut bound = 0.0_f64;
        for rank in (0..self.ranks).rev() {
            if let Some(steady) = self.steady_work(costs, rank) {
                bound = bound.max(round_trip + detour + steady);
            }
            let stage = last_chunk + rank;
            if stage > 0 {
                detour += paired_work(&costs.stages[stage]) + 2.0 * costs.hop_seconds(stage - 1);
            }
        }
        bound
    }

    /// Work between the first backward and the last forward of a rank, both included; none if it does no backward before
    /// its last forward.
    fn steady_work(&self, costs: &OpCosts, rank: usize) -> Option<f64> {
        let (p, v, m) = (self.ranks, self.chunks, self.microbatches);
        let group = if v == 1 { m } else { self.group.min(m) };
        let warmup = if v == 1 { p - 1 - rank } else { 2 * (p - 1 - rank) + (v - 1) * group };
        let before = warmup + 1;
        if before >= m * v {
            return None;
        }
        // How many of the first `before` forwards (or the last `before` backwards) are of a chunk.
        let (whole, rest) = (before / (group * v) * group, before % (group * v));
        let share = |chunk: usize| whole + rest.saturating_sub(chunk * group).min(group);
        let work = |chunk: usize| {
            m.saturating_sub(share(chunk)) as f64 * paired_work(&costs.stages[chunk * p + rank])
        };
        Some((0..v).map(work).sum())
    }
}

/// Forward and backward of a stage in a combined pair, or one after the other where there is none.
fn paired_work(stage: &StageCosts) -> f64 {
    (stage.forward + stage.backward - stage.pair_saving - stage.backward_pair_saving).max(0.0)
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
    use cost_models::schedule::{GroupRule, ScheduleKind, ScheduleShape, generate, simulate};

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
        }
        Ok(())
    }
}
