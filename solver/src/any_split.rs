//! Several chunks per rank: seconds that no contiguous split beats, whether it is balanced or not.

use crate::bound::Layout;
use crate::bytes::held_of_chunk;
use crate::times::Mode;
use cost_models::Recompute;
use cost_models::schedule::ScheduleKind;

impl Layout<'_> {
    /// Several chunks: seconds that no contiguous split beats, balanced or not; none if no split fits.
    #[must_use]
    pub fn any_split_bound(&self) -> Option<f64> {
        let mode = Mode::of(self.pipeline.recompute);
        if !self.bytes.average_may_fit(f64::from(self.mesh.pp), mode, 1.0) {
            return None;
        }
        let repeated = self.surely_repeated();
        let fullest = self.microbatches() * self.fullest_load()?;
        let load = fullest.max(self.microbatches() * self.times.whole(repeated) / f64::from(self.mesh.pp));
        if !self.has_whole_loop() {
            return Some(load);
        }
        let whole = 0..self.times.len();
        let largest = self.times.granular_load(self.mesh.pp, repeated) * self.microbatches();
        let round_trip = self.times.forward(&whole) + self.times.stage(&whole, repeated)[1];
        Some(load.max(largest).max(round_trip))
    }

    /// Work of a microbatch on the fullest rank of any split into several chunks, at least; none if all ranks together have no
    /// room for all blocks.
    fn fullest_load(&self) -> Option<f64> {
        let mode = Mode::of(self.surely_repeated()) as usize;
        let all: f64 = self.times.dealt_kinds().map(|(_, count, work)| f64::from(count) * work[mode]).sum();
        let rooms: Vec<Room> = (0..self.ranks()).map(|rank| self.room_of(rank)).collect();
        let fits = |load: f64| rooms.iter().map(|room| room.most(load)).sum::<f64>() >= all * (1.0 - 1e-12);
        let mut low = all / f64::from(self.mesh.pp);
        if fits(low) {
            return Some(low);
        }
        let mut high = low;
        while !fits(high) {
            if high > all * 64.0 {
                return None;
            }
            high *= 2.0;
        }
        for _ in 0..HALVINGS {
            let middle = 0.5 * (low + high);
            if fits(middle) { high = middle } else { low = middle }
        }
        Some(low)
    }

    /// The room of a rank, by the blocks that need least of it, each held as often as the rank holds its last chunk.
    fn room_of(&self, rank: usize) -> Room {
        let vpp = self.pipeline.vpp;
        let held = match self.pipeline.schedule.kind {
            // Of no chunk fewer than of the last.
            ScheduleKind::Interleaved | ScheduleKind::Combined => {
                held_of_chunk(self.mesh, vpp, rank as u32, vpp - 1)
            }
            _ => 1.0,
        };
        let lean = Mode::of(self.pipeline.recompute);
        let kept = Mode::of(self.surely_repeated());
        let least = |mode: Mode| {
            let kinds = self.times.dealt_kinds();
            let needs = kinds.map(|(kind, _, work)| {
                self.bytes.of_kind(kind, mode, held) / work[kept as usize].max(f64::MIN_POSITIVE)
            });
            needs.fold(f64::INFINITY, f64::min)
        };
        let kinds = self.times.dealt_kinds();
        let repeated =
            kinds.map(|(_, _, work)| work[lean as usize] / work[kept as usize].max(f64::MIN_POSITIVE) - 1.0);
        Room {
            bytes: self.bytes.room(),
            kept: least(kept),
            lean: least(lean).min(least(kept)),
            repeated: repeated.fold(f64::INFINITY, f64::min).max(0.0),
        }
    }

    /// What every unit repeats however many layers are counted.
    pub(crate) const fn surely_repeated(&self) -> Recompute {
        match self.repeated() {
            Recompute::Full { .. } => Recompute::None,
            other => other,
        }
    }
}

/// Halvings of the interval in which the least load is searched.
const HALVINGS: u32 = 20;

/// What a rank has room for, per second of blocks (their work without what is repeated by choice).
struct Room {
    /// Bytes.
    bytes: f64,
    /// Bytes that a second of blocks needs.
    kept: f64,
    /// The same of blocks that are repeated.
    lean: f64,
    /// Seconds that repeating adds.
    repeated: f64,
}

impl Room {
    /// Seconds of blocks that fit a rank which works for `load` seconds: as many as may be are kept, the others repeated.
    fn most(&self, load: f64) -> f64 {
        if load * self.kept <= self.bytes {
            return load;
        }
        let again = (load * self.kept - self.bytes) / ((1.0 + self.repeated) * self.kept - self.lean);
        if again * (1.0 + self.repeated) <= load {
            load - again * self.repeated
        } else {
            (self.bytes / self.lean).min(load)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Room;

    #[test]
    fn a_rank_holds_as_much_as_any_mix_of_kept_and_repeated_blocks_does() {
        for (kept, lean, repeated) in [(4.0, 1.0, 0.3), (4.0, 3.9, 0.3), (2.0, 2.0, 0.0), (5.0, 0.5, 1.0)] {
            let room = Room { bytes: 10.0, kept, lean, repeated };
            for load in [1.0, 2.0, 3.0, 5.0, 9.0, 30.0] {
                let steps = 4000;
                let mixes = (0..=steps).map(|step| load * f64::from(step) / f64::from(steps)).map(|again| {
                    let time = (load - again * (1.0 + repeated)).max(0.0);
                    let bytes = ((10.0 - again * lean) / kept).max(0.0);
                    if again * lean > 10.0 || again * (1.0 + repeated) > load {
                        0.0
                    } else {
                        again + time.min(bytes)
                    }
                });
                let best = mixes.fold(0.0, f64::max);
                let most = room.most(load);
                assert!(most >= best - 1e-9, "{kept} {lean} {repeated} {load}: {most} {best}");
                assert!(
                    most <= best + 2.0 * load / f64::from(steps) + 1e-9 || most == (10.0 / lean).min(load)
                );
            }
        }
    }
}
