//! Times that no split of a layout beats, from running sums alone.

use crate::bytes::{UnitBytes, least_in_flight};
use crate::mesh::{Mesh, Pipeline};
use crate::times::{Mode, UnitTimes};
use cost_models::Recompute;
use cost_models::schedule::{Interleaving, Placement, ScheduleKind, Vocabulary, round_trips};
use std::ops::Range;

/// A layout without stages: what bounds look at.
#[derive(Debug, Clone, Copy)]
pub struct Layout<'a> {
    /// Degrees.
    pub mesh: &'a Mesh,
    /// What runs on them.
    pub pipeline: &'a Pipeline,
    /// Times of every unit.
    pub times: &'a UnitTimes,
    /// Bytes of every unit.
    pub bytes: &'a UnitBytes,
    /// Units that are dealt out over stages.
    pub body: usize,
    /// The order of 1F1B and its interleaved forms.
    pub order: Option<Interleaving>,
    /// Whether memory is as if all layers were repeated where they are counted, so that a bound holds for more of them too.
    pub lean: bool,
}

/// Halvings of the interval in which the least feasible bound is searched: to 1e-3 of it.
const HALVINGS: u32 = 10;

impl Layout<'_> {
    /// What every unit surely repeats.
    #[must_use]
    pub const fn repeated(&self) -> Recompute {
        if self.pipeline.per_stage { Recompute::None } else { self.pipeline.recompute }
    }

    pub(crate) fn microbatches(&self) -> f64 {
        self.mesh.num_microbatches as f64
    }

    pub(crate) fn ranks(&self) -> usize {
        self.mesh.pp as usize
    }

    /// Seconds of all work of a step, averaged over the ranks, if every unit repeats what it must.
    #[must_use]
    pub fn average_load(&self) -> f64 {
        self.microbatches() * self.times.whole(self.repeated()) / f64::from(self.mesh.pp)
    }

    /// Whether one stage per rank is placed in order, with the whole head on the last: the shape of the chain bound.
    #[must_use]
    pub fn is_chain(&self) -> bool {
        self.pipeline.vpp == 1 && self.has_whole_loop()
    }

    /// Whether the next step's first forwards may start before this step has ended on all ranks, so that a step takes as long
    /// as its slowest rank (optimizer post-validation, arXiv 2401.10241, section 4).
    #[must_use]
    pub fn is_staggered(&self) -> bool {
        self.pipeline.schedule.kind.definition().staggered
    }

    pub(crate) fn has_whole_loop(&self) -> bool {
        let definition = self.pipeline.schedule.kind.definition();
        !self.is_staggered()
            && definition.placement == Placement::Loop
            && self.pipeline.schedule.vocabulary == Vocabulary::Whole
    }

    /// Seconds of a hop, of which a rank's work has one in front and one behind. A rank may do weight gradients of a split
    /// backward while the last gradient travels, so that only the one in front counts.
    #[must_use]
    pub fn hop(&self) -> f64 {
        let hop = self.times.least_hop();
        if self.splits_backward() { 0.5 * hop } else { hop }
    }

    /// Whether the backward is split into input and weight gradients.
    #[must_use]
    pub fn splits_backward(&self) -> bool {
        self.pipeline.schedule.kind.definition().splits_backward
    }

    /// Microbatches in flight on a rank, at least.
    #[must_use]
    pub fn in_flight(&self, rank: usize) -> f64 {
        if self.mesh.pp == 1 {
            return 1.0;
        }
        least_in_flight(self.pipeline.schedule, self.mesh, self.pipeline.vpp, rank as u32, self.body)
    }

    /// Whether some units may be what a rank holds of which `in_flight` microbatches are kept.
    #[must_use]
    pub fn may_fit(&self, units: &Range<usize>, in_flight: f64) -> bool {
        let recompute = self.pipeline.recompute;
        match recompute {
            Recompute::Full { .. } if self.lean => self.bytes.may_fit(units, Mode::Full, in_flight),
            Recompute::Full { layers: Some(layers) } => {
                let again = self.times.recomputed(units, Some(layers));
                self.bytes.may_fit_in_part(units, &again, in_flight)
            }
            Recompute::Offload { layers } => {
                self.bytes.may_fit_without(units, &self.times.recomputed(units, Some(layers)), in_flight)
            }
            _ => self.bytes.may_fit(units, Mode::of(recompute), in_flight),
        }
    }

    /// [`Self::in_flight`] of every rank.
    #[must_use]
    pub fn all_in_flight(&self) -> Vec<f64> {
        (0..self.ranks()).map(|rank| self.in_flight(rank)).collect()
    }

    /// Seconds of the pipeline that no split beats; none if no split fits.
    #[must_use]
    pub fn pipeline_bound(&self) -> Option<f64> {
        self.pipeline_bound_up_to(f64::INFINITY)
    }

    /// The same, looked for up to `limit` only: infinite where every split is found to take longer.
    #[must_use]
    pub fn pipeline_bound_up_to(&self, limit: f64) -> Option<f64> {
        if self.mesh.pp > 1 && self.is_chain() {
            return self.chain_bound(limit);
        }
        let whole = 0..self.times.len();
        let alone = || self.microbatches() * self.times.work(&whole, self.repeated());
        self.some_split_may_fit().then(|| if self.mesh.pp == 1 { alone() } else { self.loop_bound() })
    }

    /// Whether some split may end within `seconds`, as far as the chain of its stages tells, if nothing were repeated and memory
    /// were as if all was.
    #[must_use]
    pub fn may_end_within(&self, seconds: f64) -> bool {
        let lean =
            Pipeline { recompute: Recompute::Full { layers: None }, per_stage: true, ..*self.pipeline };
        let free = Layout { pipeline: &lean, ..*self };
        !free.is_chain() || free.reaches_end(&free.all_in_flight(), free.microbatches(), seconds)
    }

    /// One stage per rank: the least of the chain's bound over all splits; in 1F1B also that of its round trips.
    fn chain_bound(&self, limit: f64) -> Option<f64> {
        let whole = self.least_chain(self.microbatches(), limit)?;
        if self.pipeline.schedule.kind != ScheduleKind::OneFOneB || whole > limit {
            return Some(whole);
        }
        let (p, m) = (u64::from(self.mesh.pp), self.mesh.num_microbatches);
        let hops = 2.0 * (p - 1) as f64 * self.times.least_hop();
        let trip = self.times.whole(keep(self.repeated())) + hops;
        let rounds = round_trips(p, m, trip, |_| 0.0);
        let last = |last| self.least_chain(last, limit - rounds).unwrap_or(0.0);
        Some(whole.max(round_trips(p, m, trip, last)))
    }

    /// The least T for which every rank can take its share, found by halving; infinite if that is above the limit. Taking as
    /// many units as T and memory allow is never worse for the ranks behind: they begin later by less than what they are spared.
    fn least_chain(&self, microbatches: f64, limit: f64) -> Option<f64> {
        let in_flight = self.all_in_flight();
        let reaches_end = |step: f64| self.reaches_end(&in_flight, microbatches, step);
        let mut low = microbatches * self.times.whole(self.repeated()) / f64::from(self.mesh.pp);
        if limit.is_finite() && (limit < low || !reaches_end(limit)) {
            return reaches_end(f64::INFINITY).then_some(f64::INFINITY);
        }
        if reaches_end(low) {
            return Some(low);
        }
        let mut high = low;
        loop {
            high *= 1.25;
            if reaches_end(high) {
                break;
            }
            if high > 64.0 * low.max(f64::MIN_POSITIVE) {
                return reaches_end(f64::INFINITY).then_some(low);
            }
        }
        for _ in 0..HALVINGS {
            let middle = 0.5 * (low + high);
            if reaches_end(middle) { high = middle } else { low = middle }
        }
        Some(low)
    }

    /// Whether ranks that take as many units as a step of `step` seconds allows reach the last one.
    pub(crate) fn reaches_end(&self, in_flight: &[f64], microbatches: f64, step: f64) -> bool {
        let (ranks, units) = (self.ranks(), self.times.len());
        if units < ranks {
            return false;
        }
        let hop = 2.0 * self.hop();
        let (mut start, mut size) = (0, units.div_ceil(ranks));
        for (rank, &held) in in_flight.iter().enumerate() {
            let before = self.lead_before(start) + hop * rank as f64;
            let most = units - (ranks - 1 - rank);
            let fits = |end: usize| {
                let range = start..end;
                before + microbatches * self.times.work(&range, self.repeated()) <= step
                    && self.may_fit(&range, held)
            };
            let end = last_where(start, most, start + size, fits);
            size = end.saturating_sub(start);
            if end <= start {
                return false;
            }
            start = end;
        }
        start == units
    }

    fn lead_before(&self, unit: usize) -> f64 {
        let [forward, input, weight] = self.times.stage(&(0..unit), keep(self.repeated()));
        if self.splits_backward() { forward } else { forward + input + weight }
    }
}

/// A counted number of recomputed layers adds to every stage, not to every unit.
pub(crate) const fn keep(recompute: Recompute) -> Recompute {
    match recompute {
        Recompute::Full { layers: Some(_) } => Recompute::None,
        other => other,
    }
}

/// The largest value above `low`, up to `high`, for which a test holds that holds up to some value; `low` if for none.
/// Looks near `guess` first.
fn last_where(mut low: usize, mut high: usize, guess: usize, holds: impl Fn(usize) -> bool) -> usize {
    let mut step = 1;
    let mut probe = guess;
    while low < probe && probe <= high {
        if holds(probe) {
            low = probe;
            probe += step;
        } else {
            high = probe - 1;
            probe = probe.saturating_sub(step);
        }
        step *= 2;
    }
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if holds(middle) { low = middle } else { high = middle - 1 }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::last_where;

    #[test]
    fn the_last_value_that_holds_is_found() {
        for (limit, guess) in (0..12).flat_map(|limit| (0..12).map(move |guess| (limit, guess))) {
            assert_eq!(last_where(2, 9, guess, |value| value <= limit), limit.clamp(2, 9));
        }
    }
}
