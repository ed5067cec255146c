//! The splits of a layout where they are a finite list: the engine's own, or all balanced ones.

use crate::families::{Balanced, Ends, Slack, balanced_splits, even_ends};
use crate::gauge::Gauge;
use crate::judge::Judge;
use crate::leaf::{Leaf, LeafResult, good_enough};
use crate::units::Units;
use cost_models::rules::StageFreedom;
use cost_models::stages::default_stages;
use std::ops::Range;

/// What is known of all splits that an engine runs of a layout.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FamilyBound {
    /// The value that no split that fits beats; none if that is not below the cutoff.
    pub least: Option<f64>,
    /// Whether a split that does not fit may be below that, or below the cutoff where there is none; false unless asked for.
    pub lacks_memory: bool,
}

/// A split that an engine runs.
enum FamilySplit {
    /// By the ends of its stages.
    Given(Ends),
    /// By their blocks.
    Balanced(Balanced),
}

impl FamilySplit {
    const fn balanced(&self) -> Option<&Balanced> {
        match self {
            Self::Given(_) => None,
            Self::Balanced(split) => Some(split),
        }
    }

    fn write(&self, units: &Units, ends: &mut Ends) {
        match self {
            Self::Given(given) => ends.clone_from(given),
            Self::Balanced(split) => split.write(units, ends),
        }
    }
}

impl Leaf<'_, '_> {
    /// What no split of the family beats, and if the caller `asks` whether one that does not fit might. Splits whose fullest rank
    /// alone is above the least value so far are not looked at any closer: the others come by rising load.
    #[must_use]
    pub fn family_bound(&self, cutoff: f64, asks: bool) -> FamilyBound {
        let mut least = cutoff;
        let mut gauge = Gauge::new(self, self.stages());
        let mut ends = Ends::with_capacity(self.stages());
        let value = |seconds: f64| self.value_bound(seconds + self.tables.outside());
        let mut load_of = |split: &FamilySplit| {
            split.balanced().and_then(|blocks| gauge.load_by_blocks(blocks)).unwrap_or_else(|| {
                split.write(self.units, &mut ends);
                gauge.load(&ends)
            })
        };
        let mut splits: Vec<(f64, FamilySplit)> =
            self.family().into_iter().map(|split| (load_of(&split), split)).collect();
        splits.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut too_large: Vec<&FamilySplit> = Vec::new();
        for (load, split) in &splits {
            if value(*load) >= least {
                break;
            }
            split.write(self.units, &mut ends);
            if gauge.may_fit(&ends) {
                let bound = gauge.bound_until(&ends, |seconds| value(seconds) >= least);
                least = least.min(value(bound));
            } else {
                too_large.push(split);
            }
        }
        // Few need to know, and each split is bounded for it.
        let mut is_less = |split: &FamilySplit| {
            split.write(self.units, &mut ends);
            value(gauge.bound_until(&ends, |seconds| value(seconds) >= least)) < least
        };
        let lacks_memory = asks && too_large.into_iter().any(&mut is_less);
        FamilyBound { least: (least < cutoff).then_some(least), lacks_memory }
    }

    /// Whether a split of the family with a value below `cutoff` does not fit.
    #[must_use]
    pub fn lacks_memory(&self, cutoff: f64) -> bool {
        let mut gauge = Gauge::new(self, self.stages());
        let mut ends = Ends::with_capacity(self.stages());
        let below = |seconds: f64| self.value_bound(seconds + self.tables.outside()) < cutoff;
        self.family().iter().any(|split| {
            let load = split.balanced().and_then(|blocks| gauge.load_by_blocks(blocks));
            if load.is_some_and(|load| !below(load)) {
                return false;
            }
            split.write(self.units, &mut ends);
            !gauge.may_fit(&ends) && below(gauge.load(&ends)) && below(gauge.bound(&ends))
        })
    }

    /// Whether a split that may be below `cutoff` does not fit, or one that fits costs more the more it holds.
    #[must_use]
    pub fn memory_matters(&self, result: &LeafResult, cutoff: f64) -> bool {
        result.too_large > 0 || result.is_squeezed || self.problem.is_near_edge() || self.lacks_memory(cutoff)
    }

    /// A finite list of splits. Of those whose bound reaches the cutoff it only matters whether any fits.
    pub(crate) fn try_family(&self, judge: &mut Judge, best: f64) {
        let mut gauge = Gauge::new(self, self.stages());
        let value = |seconds: f64| self.value_bound(seconds + self.tables.outside());
        let hopeless = |seconds: f64| value(seconds) >= judge.cutoff;
        let mut list: Vec<(f64, f64, Ends)> = Vec::new();
        let mut any_fits = false;
        let mut ends = Ends::new();
        for split in self.family() {
            let load = split.balanced().and_then(|blocks| gauge.load_by_blocks(blocks));
            if load.is_some_and(hopeless) && any_fits {
                continue;
            }
            split.write(self.units, &mut ends);
            let seconds = gauge.bound_until(&ends, hopeless);
            if (hopeless(seconds) && any_fits) || !gauge.may_fit(&ends) {
                continue;
            }
            any_fits = true;
            if !hopeless(seconds) {
                list.push((value(seconds), seconds, ends.clone()));
            }
        }
        judge.result.too_large += u64::from(!any_fits);
        list.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (tried, (bound, seconds, ends)) in list.into_iter().enumerate() {
            if bound >= judge.cutoff || (bound >= best && good_enough(judge, tried)) {
                break;
            }
            judge.try_split(&ends, seconds);
        }
    }

    pub(crate) fn stages(&self) -> usize {
        (self.layout.mesh.pp * self.layout.pipeline.vpp) as usize
    }

    fn family(&self) -> Vec<FamilySplit> {
        let stages = self.stages();
        if stages == 1 {
            return vec![FamilySplit::Given(vec![self.units.len()])];
        }
        match self.freedom {
            StageFreedom::Own => self.own_split().into_iter().map(FamilySplit::Given).collect(),
            StageFreedom::Listed => {
                let splits = balanced_splits(self.units, stages, self.layout.ranks(), self.slack());
                splits.into_iter().map(FamilySplit::Balanced).collect()
            }
        }
    }

    /// The split the engine makes by itself.
    fn own_split(&self) -> Option<Ends> {
        let stages = self.layout.mesh.pp * self.layout.pipeline.vpp;
        if self.problem.model.blocks().next().is_none() {
            return Some(even_ends(self.units, stages as usize));
        }
        let policy = self.problem.runtime.memory.pipeline.split;
        let parallel = self.parallel(self.tables.shardings.first()?.sharding);
        let map = default_stages(self.problem.model, &parallel, policy, self.placement()).ok()?;
        self.units.ends_of(&map)
    }

    /// What embedding and head are worth in blocks, and one more.
    fn slack(&self) -> Slack {
        let times = self.layout.times;
        let recompute = self.layout.repeated();
        let count = self.units.len();
        let (first, last) = (self.units.leading(), count - self.units.trailing());
        let block = times.work(&(first..last), recompute) / (last - first).max(1) as f64;
        let worth = |units: Range<usize>| {
            (times.work(&units, recompute) / block.max(f64::MIN_POSITIVE)).ceil() as usize + 1
        };
        Slack { first: worth(0..first).min(2), last: worth(last..count).min(6) }
    }
}
