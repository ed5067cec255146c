//! Several chunks per rank: what no balanced split beats, and whether one may fit.

use crate::bound::{Layout, keep};
use crate::bytes::held_of_chunk;
use crate::families::least_middle;
use crate::times::Mode;
use cost_models::Recompute;
use cost_models::schedule::{LeastStages, ScheduleKind};

impl Layout<'_> {
    /// Whether some split may fit. Never false if one does.
    #[must_use]
    pub fn some_split_may_fit(&self) -> bool {
        if self.mesh.pp == 1 {
            return self.may_fit(&(0..self.times.len()), self.in_flight(0));
        }
        if self.is_chain() {
            return self.reaches_end(&self.all_in_flight(), self.microbatches(), f64::INFINITY);
        }
        let mode = Mode::of(self.pipeline.recompute);
        let (most, least) = (self.in_flight(0), self.in_flight(self.ranks() - 1));
        self.bytes.average_may_fit(f64::from(self.mesh.pp), mode, least)
            && self.bytes.blocks_may_fit(self.least_blocks(), mode, most)
            && self.ends_may_fit(mode)
    }

    /// Whether the ranks of an interleaved order may hold what they have of the middle of a balanced split, and of its ends: the
    /// first, the last, and one between them, which are all alike.
    fn ends_may_fit(&self, mode: Mode) -> bool {
        let orders = [ScheduleKind::Interleaved, ScheduleKind::Combined];
        let (p, vpp) = (self.ranks(), self.pipeline.vpp);
        if p < 2 || vpp < 2 || !orders.contains(&self.pipeline.schedule.kind) {
            return true;
        }
        let blocks = least_middle(self.body, p * vpp as usize) as f64;
        let (first, last) = (self.times.leading(), self.times.leading() + self.body);
        let (state, saved) = self.bytes.leanest(mode);
        let (_, kept) = self.bytes.leanest(Mode::Keep);
        // Blocks of a stage that are repeated, where they are counted: others are kept.
        let again = match self.pipeline.recompute {
            Recompute::Full { layers: Some(layers) } => blocks.min(f64::from(layers)),
            _ => blocks,
        };
        let saved = again * saved + (blocks - again) * kept;
        let may_fit = |rank: usize| {
            let held = |chunk: u32| held_of_chunk(self.mesh, vpp, rank as u32, chunk);
            let bytes = |chunk: u32| match chunk {
                0 if rank == 0 => self.bytes.held(&(0..first), mode, held(0)),
                _ if rank + 1 == p && chunk + 1 == vpp => {
                    self.bytes.held(&(last..self.times.len()), mode, held(chunk))
                }
                _ => blocks * state + held(chunk) * saved,
            };
            // Chunks between the second and the last are held alike.
            let inner = if vpp > 2 { f64::from(vpp - 2) * bytes(1) } else { 0.0 };
            self.bytes.bytes_may_fit((bytes(0) + inner + bytes(vpp - 1)) * (1.0 - 1e-12))
        };
        may_fit(0) && may_fit(1) && may_fit(p - 1)
    }

    /// Blocks of a rank with several chunks at least: all but its first or last chunk have the smallest share.
    fn least_blocks(&self) -> usize {
        let chunks = self.pipeline.vpp as usize;
        (chunks - 1) * least_middle(self.body, self.ranks() * chunks)
    }

    /// Several chunks: the largest load is no less than the average, nor than that of a rank with its share of one kind of unit;
    /// the middle stages in front of a rank are all but equal.
    pub(crate) fn loop_bound(&self) -> f64 {
        let load = self.average_load();
        let whole = 0..self.times.len();
        if !self.has_whole_loop() {
            return load;
        }
        let recompute = self.repeated();
        let load = load + self.microbatches() * self.repeated_by_count() / f64::from(self.mesh.pp);
        let largest = self.times.granular_load(self.mesh.pp, recompute) * self.microbatches();
        // A split may leave two stages empty, which send nothing.
        let stages = f64::from(self.mesh.pp) * f64::from(self.pipeline.vpp);
        let hops = 2.0 * (stages - 3.0).max(0.0) * self.times.least_hop();
        let round_trip = self.times.forward(&whole) + self.times.stage(&whole, keep(recompute))[1] + hops;
        let ordered = self.order.map_or(0.0, |order| order.least_bound(&self.least_stages()));
        load.max(largest).max(round_trip).max(ordered)
    }

    /// What the stages of a balanced split into several chunks take at least.
    fn least_stages(&self) -> LeastStages {
        let recompute = self.repeated();
        let whole = 0..self.times.len();
        let stages = self.ranks() * self.pipeline.vpp as usize;
        let mode = Mode::of(keep(recompute));
        let blocks = least_middle(self.body, stages);
        let [forward, backward] = self.times.least_block(mode).map(|time| blocks as f64 * time);
        let again = match recompute {
            Recompute::Full { layers: Some(layers) } => {
                blocks.min(layers as usize) as f64 * self.times.least_repeat()
            }
            _ => 0.0,
        };
        let trailing = self.times.leading() + self.body..whole.end;
        let [head, input, weight] = self.times.stage(&trailing, keep(recompute));
        LeastStages {
            forward: self.times.forward(&whole),
            work: self.times.whole(recompute) + again * stages.saturating_sub(2) as f64,
            middle: [forward, backward + again],
            last: [head, input + weight],
            hop: if blocks > 0 { self.times.least_hop() } else { 0.0 },
        }
    }

    /// What a counted number of recomputed layers adds to all stages of a balanced split, at least: every middle stage repeats
    /// so many of its blocks, or all it has.
    fn repeated_by_count(&self) -> f64 {
        let Recompute::Full { layers: Some(layers) } = self.repeated() else { return 0.0 };
        let stages = self.ranks() * self.pipeline.vpp as usize;
        let again = least_middle(self.body, stages).min(layers as usize) * stages.saturating_sub(2);
        again as f64 * self.times.least_repeat()
    }
}
