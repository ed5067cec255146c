//! A mesh with what its ranks may take, by kind of GPU.

use super::super::kinds::{Run, hosts_of};
use super::super::part::Part;
use super::super::shares::least_maximum;
use super::super::split::Found;
use super::costs::Trial;
use super::{MOST_SEQUENCES, most_weight};
use crate::mesh::{Mesh, Pipeline, Sharding};
use crate::splits::stage_map;
use crate::times::run_of;
use cluster_profiles::Bytes;
use cost_models::memory::kind_peak;
use cost_models::schedule::Placement;
use cost_models::shares::KindShare;
use cost_models::sites::Sites;
use cost_models::{ParallelConfig, StageMap};
use std::sync::Arc;

/// Sequences up to which it is not asked before how many fit.
const FEW: u64 = 8;

/// GPUs of one name.
pub(super) struct Kind {
    pub(super) gpu: String,
    /// A kind of the part that has these GPUs.
    pub(super) index: usize,
    pub(super) gpus: u64,
    /// What a GPU may hold.
    pub(super) limit: Bytes,
}

/// What was found so far.
pub(super) struct Best {
    pub(super) cutoff: f64,
    pub(super) found: Found,
    pub(super) pipeline: Option<Pipeline>,
}

impl Best {
    /// Nothing yet; only values below the cutoff matter.
    pub(super) fn below(cutoff: f64) -> Self {
        Self { cutoff, found: Found::default(), pipeline: None }
    }
}

/// A mesh with what its ranks may take.
pub(super) struct Grid<'g, 'a> {
    pub(super) part: &'g Part<'a>,
    pub(super) mesh: &'g Mesh,
    pub(super) kinds: Vec<Kind>,
    /// Ranks of every kind.
    pub(super) ranks: Vec<u64>,
    /// Numbers of microbatches.
    pub(super) counts: Vec<u64>,
    /// The most sequences that a rank of every kind may take.
    pub(super) most: Vec<u64>,
}

impl<'g, 'a> Grid<'g, 'a> {
    pub(super) fn new(part: &'g Part<'a>, mesh: &'g Mesh) -> Self {
        let kinds = part.gpu_kinds();
        let size = u64::from(mesh.tp) * u64::from(mesh.cp);
        let ranks: Vec<u64> = kinds.iter().map(|kind| kind.gpus / size).collect();
        let counts = part.microbatch_counts(mesh);
        let total = counts.first().map_or(0, |count| part.space.facts().global_batch / count);
        let others = |own: u64| u64::from(mesh.dp) - own;
        let most =
            ranks.iter().map(|own| (total.saturating_sub(others(*own)) / own).min(MOST_SEQUENCES)).collect();
        let mut grid = Self { part, mesh, kinds, ranks, counts, most };
        if grid.most.iter().any(|most| *most > FEW) {
            grid.most = (0..grid.kinds.len()).map(|kind| grid.most_that_fit(kind)).collect();
        }
        grid
    }

    pub(super) fn share(&self, kind: usize, size: u64) -> KindShare {
        let ranks = u32::try_from(self.ranks[kind]).unwrap_or(u32::MAX);
        KindShare { gpu: self.kinds[kind].gpu.clone(), ranks, micro_batch_size: size, state: 1 }
    }

    /// Something for every kind and size, in their order.
    pub(super) fn table<T>(&self, of: impl Fn(&Kind, u64) -> T) -> Vec<Vec<T>> {
        let kinds = self.kinds.iter().zip(&self.most);
        kinds.map(|(kind, most)| (1..=*most).map(|size| of(kind, size)).collect()).collect()
    }

    pub(super) fn total(&self, count: u64) -> u64 {
        self.part.space.facts().global_batch / count
    }

    /// Every number of microbatches with the least seconds that all take, from those of a microbatch, as far as below the cutoff.
    pub(super) fn least(&self, seconds: &[Vec<f64>], cutoff: f64) -> Vec<(u64, f64)> {
        let of = |&count: &u64| {
            let least = least_maximum(&self.ranks, seconds, self.total(count), cutoff / count as f64)?;
            Some((count, least.0 * count as f64))
        };
        self.counts.iter().filter_map(of).collect()
    }

    pub(super) fn stages(&self, parallel: &ParallelConfig) -> StageMap {
        stage_map(self.part.units, parallel, Placement::Loop, &vec![self.part.units.len()])
    }

    /// Whether so many sequences fit a rank of a kind, with what its layout's shares say of its state.
    pub(super) fn fits(&self, parallel: &ParallelConfig, stages: &StageMap, kind: usize, size: u64) -> bool {
        let run = run_of(self.part.problem, parallel, stages);
        let reserve = &self.part.problem.runtime.memory.reserve;
        let state = parallel.shares.get(kind).map_or(1, |share| share.state);
        let peak = kind_peak(&run, &KindShare { state, ..self.share(kind, size) });
        peak.is_ok_and(|peak| reserve.reserved_bytes(peak.allocated()) <= self.kinds[kind].limit.get())
    }

    /// Shares that leave a kind as little state as any.
    fn least_state(&self, kind: usize) -> Vec<KindShare> {
        let most = most_weight(self.kinds.len());
        let weight = |own: usize| if own == kind { 1 } else { most };
        let uneven = self.part.problem.runtime.uneven_shards;
        let shares = (0..self.kinds.len()).map(|own| KindShare { state: weight(own), ..self.share(own, 1) });
        if uneven { shares.collect() } else { Vec::new() }
    }

    /// The most sequences that fit a rank of a kind with any sharding and recompute, 0 if none does.
    fn most_that_fit(&self, kind: usize) -> u64 {
        let part = self.part;
        let (zeros, recomputes) = (part.space.engine().zero_stages.iter(), part.space.recomputes());
        // More replicas of the state hold more of it.
        let shardings = zeros.map(|&zero_stage| Sharding { zero_stage, ..Sharding::NONE });
        let layouts = shardings.flat_map(|sharding| {
            let parallel = ParallelConfig { shares: self.least_state(kind), ..self.mesh.sharded(sharding) };
            recomputes.iter().map(move |&recompute| ParallelConfig { recompute, ..parallel.clone() })
        });
        let mut fit = 0;
        for parallel in layouts {
            let stages = self.stages(&parallel);
            let mut over = self.most[kind] + 1;
            if fit + 1 >= over || !self.fits(&parallel, &stages, kind, fit + 1) {
                continue;
            }
            fit += 1;
            while fit + 1 < over {
                let middle = fit + (over - fit) / 2;
                if self.fits(&parallel, &stages, kind, middle) { fit = middle } else { over = middle }
            }
        }
        fit
    }

    /// The sites of a layout on every kind; none if hosts cannot reach each other.
    fn sites(&self, parallel: &ParallelConfig) -> Option<(Vec<usize>, Vec<Arc<Sites>>)> {
        let part = self.part;
        let runs: Vec<Run> =
            part.kinds.iter().enumerate().map(|(kind, own)| Run { kind, gpus: own.gpus }).collect();
        let hosts = hosts_of(part.kinds, &runs)?;
        let row: Vec<Option<usize>> = hosts.iter().copied().map(Some).collect();
        let sites = part.network.sites(&row, parallel, part.network.best());
        let on = |kind: &Kind| sites.on_kind(part.problem.cluster, &kind.gpu).map(Arc::new);
        let sites = self.kinds.iter().map(on).collect::<Option<Vec<Arc<Sites>>>>()?;
        Some((hosts, sites))
    }

    /// Tries numbers of microbatches by rising bound on their works with a sharding, for every way to weight its state.
    pub(super) fn judge(&self, pipeline: &Pipeline, sharding: Sharding, work: &Work, best: &mut Best) {
        let parallel = self.mesh.with(pipeline, sharding);
        if !self.part.allows_unequal(&parallel) {
            return;
        }
        let Some((hosts, sites)) = self.sites(&parallel) else { return };
        let weighted = |weights: &Vec<u32>| {
            let share = |(kind, &state): (usize, &u32)| KindShare { state, ..self.share(kind, 1) };
            ParallelConfig { shares: weights.iter().enumerate().map(share).collect(), ..parallel.clone() }
        };
        let trial = Trial { grid: self, pipeline, sites: &sites, hosts: &hosts };
        let weightings = self.part.weightings(self.kinds.len(), sharding);
        let Some((even, uneven)) = weightings.split_first() else { return };
        let even = weighted(even);
        trial.of(&even, work, best);
        if !uneven.is_empty() {
            let work = trial.unlimited(&even, work, best.cutoff);
            uneven.iter().for_each(|weights| trial.of(&weighted(weights), &work, best));
        }
    }

    /// A layout with these sizes, and its stages.
    pub(super) fn layout(
        &self,
        parallel: &ParallelConfig,
        count: u64,
        sizes: &[u64],
    ) -> (ParallelConfig, StageMap) {
        let own = parallel.shares.iter().zip(sizes);
        let shares = own.map(|(share, &size)| KindShare { micro_batch_size: size, ..share.clone() });
        let sized = ParallelConfig { num_microbatches: count, ..parallel.clone() };
        let parallel = sized.with_shares(shares.collect());
        let stages = self.stages(&parallel);
        (parallel, stages)
    }

    /// The sizes that take least, of those that may be chosen. The same size for all with even state is left to the layouts with
    /// one micro batch, unless those are excluded: then all other sizes have another one on some kind.
    pub(super) fn chosen(
        &self,
        seconds: &[Vec<f64>],
        total: u64,
        room: f64,
        uneven: bool,
    ) -> Option<(f64, Vec<u64>)> {
        let (part, ranks) = (self.part, &self.ranks);
        let may_equal = part.may_differ(false, uneven);
        if !part.may_differ(true, uneven) {
            return (uneven && may_equal).then(|| self.equal(seconds, total, room))?;
        }
        let (slowest, sizes) = least_maximum(ranks, seconds, total, room)?;
        let size = sizes[0];
        if sizes.iter().any(|own| *own != size) || (uneven && may_equal) {
            return Some((slowest, sizes));
        }
        if may_equal {
            return None;
        }
        let without = |kind: usize| {
            let mut seconds = seconds.to_vec();
            seconds[kind][size as usize - 1] = f64::INFINITY;
            least_maximum(ranks, &seconds, total, room)
        };
        (0..ranks.len()).filter_map(without).reduce(|a, b| if b.0 < a.0 { b } else { a })
    }

    /// The same size for all.
    fn equal(&self, seconds: &[Vec<f64>], total: u64, room: f64) -> Option<(f64, Vec<u64>)> {
        let dp = u64::from(self.mesh.dp);
        let size = total.is_multiple_of(dp).then(|| total / dp)?;
        let of_kind = |own: &Vec<f64>| own.get(size as usize - 1).copied().unwrap_or(f64::INFINITY);
        let slowest = seconds.iter().map(of_kind).fold(f64::NEG_INFINITY, f64::max);
        (slowest < room).then(|| (slowest, vec![size; self.ranks.len()]))
    }
}

/// Works that bound what is looked at with a sharding.
pub(super) struct Work {
    /// Seconds of a microbatch by kind and size.
    pub(super) seconds: Vec<Vec<f64>>,
    /// Numbers of microbatches by rising seconds of all of them.
    pub(super) counts: Vec<(u64, f64)>,
    /// Seconds outside the microbatches, at least; those of the optimizer and the engine if none.
    pub(super) outside: Option<f64>,
}
