//! Seconds and values that a split of a layout does not beat.

use crate::families::Ends;
use crate::gauge::Gauge;
use crate::leaf::Leaf;
use crate::outside::{RankShare, distinct, outside_of};
use crate::partition::{Chain, StageTimes};
use crate::splits::ranges;
use cluster_profiles::Seconds;
use cost_models::schedule::{OpCosts, round_trips};
use cost_models::{ParallelConfig, Recompute};

impl Leaf<'_, '_> {
    /// The objective of a step of at least so many seconds.
    #[must_use]
    pub fn value_bound(&self, step: f64) -> f64 {
        let load = self.layout.average_load();
        self.problem.objective.bound(self.problem.cluster, Seconds(step), Seconds(load))
    }

    /// Seconds of the pipeline that no schedule of a split beats.
    #[must_use]
    pub fn split_bound(&self, ends: &Ends) -> f64 {
        Gauge::new(self, ends.len()).bound(ends)
    }

    /// Round trips of 1F1B, the last of which ends as its chain of stages does.
    pub(crate) fn trips_bound(&self, costs: &OpCosts) -> f64 {
        let chain = Chain { microbatches: 0.0, ..self.chain() };
        let stages: Vec<StageTimes> = costs
            .stages
            .iter()
            .map(|stage| {
                let work = stage.forward + stage.backward;
                StageTimes { work, lead: work }
            })
            .collect();
        let work: f64 = stages.iter().map(|stage| stage.work).sum();
        let hops: f64 = (0..stages.len() - 1).map(|stage| costs.hop_seconds(stage)).sum();
        let mesh = self.layout.mesh;
        round_trips(mesh.pp.into(), mesh.num_microbatches, work + 2.0 * hops, |last| {
            Chain { microbatches: last, ..chain }.bound(&stages)
        })
    }

    /// Seconds outside the pipeline of a split whose ranks have these shares.
    #[must_use]
    pub fn outside_of(&self, shares: &[RankShare], parallel: &ParallelConfig) -> f64 {
        outside_of(self.problem, parallel, shares)
    }

    /// What the ranks of a split bring to the part of a step outside the pipeline, the same only once.
    #[must_use]
    pub fn shares(&self, ends: &Ends) -> Vec<RankShare> {
        let mesh = self.layout.mesh;
        let placement = self.placement_of(ends);
        // How much a stage repeats or waits, and so how much traffic hides behind it, is not known where it chooses or moves modules.
        let waits = matches!(self.layout.pipeline.recompute, Recompute::Modules(_));
        let times = (!self.layout.pipeline.per_stage && !waits).then_some((0.0, 0.0));
        let mut ranks = vec![RankShare { times, ..RankShare::default() }; mesh.pp as usize];
        for (range, rank) in ranges(ends).zip(placement) {
            let share = &mut ranks[usize::from(rank)];
            share.parameters += self.layout.times.parameters(&range);
            let [forward, input, weight] = self.layout.times.stage(&range, self.layout.repeated());
            share.times = share.times.map(|(f, b)| (f + forward, b + input + weight));
        }
        distinct(ranks)
    }
}
