//! Seconds of the ranks on every kind of GPU with a sharding, and the layouts that are tried with them.

use super::super::shares::{bands, least_maximum};
use super::super::split::Choice;
use super::grid::{Best, Grid, Work};
use crate::mesh::Pipeline;
use crate::term::Field;
use crate::times::run_of;
use cost_models::rules::Axis;
use cost_models::sites::Sites;
use cost_models::step::{data_parallel::exposed, optimizer_time, stages_on};
use cost_models::{ParallelConfig, StageMap};
use std::sync::Arc;

/// What is tried of a sharding.
pub(super) struct Trial<'t, 'g, 'a> {
    pub(super) grid: &'t Grid<'g, 'a>,
    pub(super) pipeline: &'t Pipeline,
    /// The sites on every kind.
    pub(super) sites: &'t [Arc<Sites>],
    /// The hosts in rank order.
    pub(super) hosts: &'t [usize],
}

impl Trial<'_, '_, '_> {
    /// Tries numbers of microbatches with a way to weight the state.
    pub(super) fn of(&self, parallel: &ParallelConfig, work: &Work, best: &mut Best) {
        let (grid, part) = (self.grid, self.grid.part);
        let Some(mut costs) = Costs::new(grid, parallel, self.sites, &work.seconds) else { return };
        let outside = work.outside.unwrap_or(costs.after);
        for &(count, bound) in &work.counts {
            if part.value(bound + outside) >= best.cutoff {
                return;
            }
            let room = part.step_of(best.cutoff) - costs.after;
            let Some(seconds) = costs.seconds(count, room) else { continue };
            best.found.simulated += 1;
            let chosen = grid.chosen(&seconds, grid.total(count), room, parallel.has_uneven_state());
            let Some((slowest, sizes)) = chosen else { continue };
            let value = part.value(slowest + costs.after);
            if value < best.cutoff {
                best.cutoff = value;
                best.pipeline = Some(*self.pipeline);
                let (parallel, stages) = grid.layout(parallel, count, &sizes);
                best.found.best = Some(Choice { value, parallel, stages, hosts: self.hosts.to_vec() });
            }
        }
    }

    /// What bounds every uneven way: the seconds of the even one where memory is no limit, without the optimizer.
    pub(super) fn unlimited(&self, even: &ParallelConfig, work: &Work, cutoff: f64) -> Work {
        let grid = self.grid;
        let mut counts = Vec::new();
        if let Some(costs) = Costs::new(grid, even, self.sites, &work.seconds) {
            let mut costs = Costs { limited: false, ..costs };
            let room = grid.part.step_of(cutoff) - grid.part.problem.runtime.time.step.get();
            let mut least = |count: u64| {
                let seconds = costs.seconds(count, room)?;
                least_maximum(&grid.ranks, &seconds, grid.total(count), room)
            };
            counts = work.counts.iter().filter_map(|&(count, _)| Some((count, least(count)?.0))).collect();
            counts.sort_by(|a: &(u64, f64), b| a.1.total_cmp(&b.1));
        }
        Work { seconds: work.seconds.clone(), counts, outside: None }
    }
}

/// What the ranks of every kind take with a sharding and a way to weight its state, as far as it was asked.
struct Costs<'c, 'g, 'a> {
    grid: &'c Grid<'g, 'a>,
    parallel: &'c ParallelConfig,
    stages: StageMap,
    sites: &'c [Arc<Sites>],
    /// Works of a microbatch, which are less.
    work: &'c [Vec<f64>],
    /// Whether what does not fit counts.
    limited: bool,
    /// Seconds of a microbatch, and what is exposed after all of them; infinite where it does not fit.
    known: Vec<Vec<Option<[f64; 2]>>>,
    /// Seconds of the optimizer and of what a step takes whatever the layout.
    after: f64,
}

impl<'c, 'g, 'a> Costs<'c, 'g, 'a> {
    fn new(
        grid: &'c Grid<'g, 'a>,
        parallel: &'c ParallelConfig,
        sites: &'c [Arc<Sites>],
        work: &'c [Vec<f64>],
    ) -> Option<Self> {
        let stages = grid.stages(parallel);
        let known = grid.most.iter().map(|most| vec![None; *most as usize]).collect();
        let mut costs = Self { grid, parallel, stages, sites, work, limited: true, known, after: 0.0 };
        let run = run_of(grid.part.problem, parallel, &costs.stages);
        let first = stages_on(&run, parallel.shares.first()?, Arc::clone(sites.first()?)).ok()?;
        costs.after = (optimizer_time(&run, &first.stages) + grid.part.problem.runtime.time.step).get();
        Some(costs)
    }

    fn of(&mut self, kind: usize, size: u64) -> [f64; 2] {
        let place = size as usize - 1;
        if let Some(known) = self.known[kind][place] {
            return known;
        }
        let cost = self.estimated(kind, size).unwrap_or([f64::INFINITY; 2]);
        self.known[kind][place] = Some(cost);
        cost
    }

    fn estimated(&self, kind: usize, size: u64) -> Option<[f64; 2]> {
        let constraints = &self.grid.part.problem.constraints;
        let allowed = constraints.allows_number(Field::Axis(Axis::MicroBatch), size);
        if !allowed || (self.limited && !self.grid.fits(self.parallel, &self.stages, kind, size)) {
            return None;
        }
        let run = run_of(self.grid.part.problem, self.parallel, &self.stages);
        let own = stages_on(&run, &self.grid.share(kind, size), Arc::clone(&self.sites[kind])).ok()?;
        Some([own.stages.rank_total(0).get(), exposed(&run, &own.stages).get()])
    }

    /// Seconds of so many microbatches for every kind and size that may matter below a cutoff; none if no answer is below.
    fn seconds(&mut self, count: u64, cutoff: f64) -> Option<Vec<Vec<f64>>> {
        let (grid, microbatches) = (self.grid, count as f64);
        let bands = bands(&grid.ranks, self.work, grid.total(count), cutoff / microbatches)?;
        let mut seconds: Vec<Vec<f64>> =
            grid.most.iter().map(|most| vec![f64::INFINITY; *most as usize]).collect();
        for (kind, band) in bands.into_iter().enumerate() {
            for size in band {
                let place = size as usize - 1;
                if self.work[kind][place] * microbatches < cutoff {
                    let [microbatch, after] = self.of(kind, size);
                    seconds[kind][place] = microbatch * microbatches + after;
                }
            }
        }
        Some(seconds)
    }
}
