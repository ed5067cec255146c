//! The points of a study in units of work: points that differ only in what the search does not look at share one search.

use super::file::Study;
use solver::Objective;

/// Keys that never change which layout is best.
const NEVER: [&str; 2] = ["tokens", "failures."];
/// Keys that change it only where money or energy is the objective.
const MONEY: [&str; 2] = ["cluster.dollars_per_gpu_hour", "gpu.power_watts"];

/// How the grid splits into units.
#[derive(Debug)]
pub struct Units<'a> {
    study: &'a Study,
    /// Stride in the grid and number of steps of the axes that units differ in, outermost first.
    outer: Vec<(u64, u64)>,
    /// The same of the axes within a unit.
    inner: Vec<(u64, u64)>,
}

impl<'a> Units<'a> {
    /// The units of a study.
    #[must_use]
    pub fn new(study: &'a Study) -> Self {
        let priced =
            study.axis_keys().contains(&"dollars_per_hour") || study.base.contains_key("dollars_per_hour");
        let money_matters = priced || study.objective != Objective::StepTime;
        let idle = |key: &String| {
            NEVER.iter().any(|own| key.starts_with(own)) || (!money_matters && MONEY.contains(&key.as_str()))
        };
        let mut stride = study.grid_size();
        let (mut outer, mut inner) = (Vec::new(), Vec::new());
        for axis in &study.axes {
            let steps = axis.steps.len() as u64;
            stride /= steps;
            if axis.keys.iter().all(idle) { inner.push((stride, steps)) } else { outer.push((stride, steps)) }
        }
        Self { study, outer, inner }
    }

    /// Number of units.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.outer.iter().map(|(_, steps)| steps).product()
    }

    /// The points of a unit that are planned.
    #[must_use]
    pub fn points(&self, unit: u64) -> Vec<u64> {
        let start = combined(&self.outer, unit);
        let count: u64 = self.inner.iter().map(|(_, steps)| steps).product();
        let points = (0..count).map(|number| start + combined(&self.inner, number));
        points.filter(|point| self.study.skip.is_empty() || !self.study.is_skipped(*point)).collect()
    }

    /// Whether a point is the first of those that share its search.
    #[must_use]
    pub fn is_first(&self, point: u64) -> bool {
        self.inner.iter().all(|(stride, steps)| (point / stride).is_multiple_of(*steps))
    }

    /// Units of a shard, counted from 1.
    pub fn of_shard(&self, [number, shards]: [u64; 2]) -> impl Iterator<Item = u64> + use<> {
        (number - 1..self.count()).step_by(shards as usize)
    }
}

/// Index of combination `number` of some axes, the last fastest.
fn combined(axes: &[(u64, u64)], mut number: u64) -> u64 {
    let mut index = 0;
    for (stride, steps) in axes.iter().rev() {
        index += number % steps * stride;
        number /= steps;
    }
    index
}
