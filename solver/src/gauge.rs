//! Bounds of many splits of one layout: what does not depend on the split is looked up once, and a split needs no memory of
//! its own.

use crate::bytes::held_of_chunk;
use crate::families::{Balanced, Ends};
use crate::leaf::Leaf;
use crate::splits::ranges;
use crate::times::Mode;
use cost_models::Recompute;
use cost_models::schedule::{
    BoundInput, Hop, Interleaving, OpCosts, Placement, ScheduleKind, StageCosts as OpTimes, Vocabulary, bound,
};
use std::ops::Range;

/// Room for rounding where sums are taken in another order than elsewhere.
const ROUNDING: f64 = 1e-10;

/// Bounds splits of a layout into so many stages.
pub(crate) struct Gauge<'l, 'a, 'p> {
    leaf: &'l Leaf<'a, 'p>,
    /// Rank of every stage.
    ranks: Vec<u16>,
    /// Microbatches that the rank of every stage holds of it after the warm-up.
    held: Vec<f64>,
    /// The order of 1F1B and its interleaved forms.
    order: Option<Interleaving>,
    /// Whether a rank's stages are p apart.
    looped: bool,
    /// Whether the work of a stage is a matter of how many blocks it has.
    by_blocks: bool,
    /// A sum for every rank.
    sums: Vec<f64>,
    costs: OpCosts,
    /// Times of a stage by its blocks, where they are all that matters.
    known: Vec<Option<OpTimes>>,
}

impl<'l, 'a, 'p> Gauge<'l, 'a, 'p> {
    /// A gauge for splits into `stages` stages.
    pub(crate) fn new(leaf: &'l Leaf<'a, 'p>, stages: usize) -> Self {
        let definition = leaf.layout.pipeline.schedule.kind.definition();
        let ranks = definition.placement.ranks_of_stages(leaf.layout.mesh.pp, stages as u32);
        let looped = definition.placement == Placement::Loop;
        let many = stages > 2 && leaf.layout.ranks() > 1;
        let whole = leaf.layout.pipeline.schedule.vocabulary == Vocabulary::Whole;
        Self {
            leaf,
            held: held(leaf, &ranks[..stages]),
            order: leaf.layout.order,
            looped,
            by_blocks: looped && many && whole && has_equal_blocks(leaf),
            sums: vec![0.0; leaf.layout.ranks()],
            costs: OpCosts::default(),
            known: Vec::new(),
            ranks,
        }
    }

    /// Work of the fullest rank of a split, at least.
    pub(crate) fn load(&mut self, ends: &Ends) -> f64 {
        match self.leaf.layout.pipeline.schedule.vocabulary {
            Vocabulary::Whole => self.largest_load(ends),
            _ => self.leaf.layout.average_load(),
        }
    }

    /// The same of a balanced split by what stages of so many blocks take; none where there is more to it.
    ///
    /// Every rank has as many middle stages as the others but for the first and the last stage, and of the stretch of larger
    /// ones its share, rounded up or down. The last block, which may take longer, counts as the others where the last stage
    /// has none.
    pub(crate) fn load_by_blocks(&self, split: &Balanced) -> Option<f64> {
        if !self.by_blocks {
            return None;
        }
        let (leaf, p) = (self.leaf, self.sums.len());
        let (start, count) = (leaf.units.leading(), leaf.units.len());
        let work = |units: Range<usize>| leaf.layout.times.work(&units, leaf.layout.repeated());
        let chunks = split.stages / p;
        let least = work(start..start + split.least);
        let more = if split.larger.is_empty() { 0.0 } else { work(start..start + split.least + 1) - least };
        let (all, beyond) = (split.larger.len() / p, split.larger.len() % p);
        let has_one_more = |rank: usize| (rank + p - split.larger.start % p) % p < beyond;
        let load = |middle: usize, one_more: bool, end: f64| {
            middle as f64 * least + (all + usize::from(one_more)) as f64 * more + end
        };
        let first = load(chunks - 1, has_one_more(0), work(0..start + split.first));
        let last_units = count - leaf.units.trailing() - split.last..count;
        let last = load(chunks - 1, has_one_more(p - 1), work(last_units));
        // The first three ranks of the stretch, one of which is neither the first nor the last rank if there are as many.
        let stretch = (split.larger.start..split.larger.start + beyond.min(3)).map(|stage| stage % p);
        let inner = |rank: usize| rank > 0 && rank + 1 < p;
        let middle = if p > 2 { load(chunks, stretch.into_iter().any(inner), 0.0) } else { 0.0 };
        Some(leaf.layout.microbatches() * first.max(last).max(middle) * (1.0 - ROUNDING))
    }

    /// Whether the ranks of a split may fit: no rank's true peak is below its state and what it holds after the warm-up.
    pub(crate) fn may_fit(&mut self, ends: &Ends) -> bool {
        let layout = &self.leaf.layout;
        if self.looped {
            let ranks = layout.ranks();
            let bytes =
                |rank: usize| (rank..ends.len()).step_by(ranks).map(|stage| self.bytes(ends, stage)).sum();
            return (0..ranks).all(|rank| layout.bytes.bytes_may_fit(bytes(rank)));
        }
        let mut sums = vec![0.0; layout.ranks()];
        for stage in 0..ends.len() {
            sums[usize::from(self.ranks[stage])] += self.bytes(ends, stage);
        }
        sums.iter().all(|sum| layout.bytes.bytes_may_fit(*sum))
    }

    /// State of a stage and what its rank holds of it.
    fn bytes(&self, ends: &Ends, stage: usize) -> f64 {
        let layout = &self.leaf.layout;
        let units = stage.checked_sub(1).map_or(0, |before| ends[before])..ends[stage];
        let recompute = layout.pipeline.recompute;
        let again = match recompute {
            Recompute::Full { layers } => layout.times.recomputed(&units, layers),
            _ => units.clone(),
        };
        let (state, mut saved) = layout.bytes.stage(&units, &again, Mode::of(recompute));
        if let Recompute::Offload { layers } = recompute {
            let moved = layout.times.recomputed(&units, Some(layers));
            saved -= layout.bytes.stage(&moved, &moved, Mode::Keep).1;
        }
        state + self.held[stage] * saved
    }

    /// Seconds of the pipeline that no schedule of a split beats.
    pub(crate) fn bound(&mut self, ends: &Ends) -> f64 {
        self.bound_until(ends, |_| false)
    }

    /// The same, or less that is `enough`.
    pub(crate) fn bound_until(&mut self, ends: &Ends, enough: impl Fn(f64) -> bool) -> f64 {
        self.bound_with(ends, None, enough)
    }

    /// The same where it is known what every stage recomputes, if that is not what the pipeline says.
    pub(crate) fn bound_with(
        &mut self,
        ends: &Ends,
        chosen: Option<&[Recompute]>,
        enough: impl Fn(f64) -> bool,
    ) -> f64 {
        let leaf = self.leaf;
        let (mesh, pipeline) = (leaf.layout.mesh, leaf.layout.pipeline);
        if pipeline.schedule.vocabulary != Vocabulary::Whole {
            return leaf.layout.average_load();
        }
        if mesh.pp == 1 || leaf.layout.is_staggered() {
            return self.largest_load(ends);
        }
        self.cost(ends, chosen);
        let ordered = self.order.map_or(0.0, |order| order.bound(&self.costs));
        if enough(ordered) {
            return ordered;
        }
        let definition = pipeline.schedule.kind.definition();
        let input = BoundInput {
            ranks: mesh.pp,
            stages: ends.len() as u32,
            placement: &self.ranks,
            microbatches: u32::try_from(mesh.num_microbatches).unwrap_or(u32::MAX),
            slices: 1,
            splits_backward: definition.splits_backward,
            combines: definition.combines,
            vocabulary: Vocabulary::Whole,
        };
        let chain = pipeline.schedule.kind == ScheduleKind::OneFOneB;
        let trips = if chain { leaf.trips_bound(&self.costs) } else { 0.0 };
        bound(&input, &self.costs).max(ordered).max(trips)
    }

    /// Work of the fullest rank.
    fn largest_load(&mut self, ends: &Ends) -> f64 {
        let layout = &self.leaf.layout;
        let recompute = layout.repeated();
        self.sums.fill(0.0);
        for (range, &rank) in ranges(ends).zip(&self.ranks) {
            self.sums[usize::from(rank)] += layout.times.work(&range, recompute);
        }
        layout.microbatches() * self.sums.iter().copied().fold(0.0, f64::max)
    }

    /// Times and hops of a split; an empty stage sends nothing of its own.
    fn cost(&mut self, ends: &Ends, chosen: Option<&[Recompute]>) {
        let leaf = self.leaf;
        let times = leaf.layout.times;
        let repeated = leaf.layout.repeated();
        let body = leaf.units.leading()..(leaf.units.len() - leaf.units.trailing()).saturating_sub(1);
        let known = &mut self.known;
        let mut op_times = |(stage, range): (usize, Range<usize>)| {
            if let Some(chosen) = chosen {
                return times.op_times(&range, chosen[stage]);
            }
            if !self.by_blocks || range.start < body.start || range.end > body.end {
                return times.op_times(&range, repeated);
            }
            let blocks = range.len();
            if known.len() <= blocks {
                known.resize(blocks + 1, None);
            }
            *known[blocks].get_or_insert_with(|| times.op_times(&range, repeated))
        };
        let latency = |range: Range<usize>| if range.is_empty() { 0.0 } else { times.hop_after(range.end) };
        self.costs.stages.clear();
        self.costs.stages.extend(ranges(ends).enumerate().map(&mut op_times));
        self.costs.hops.clear();
        let sending = ranges(ends).take(ends.len() - 1);
        self.costs.hops.extend(sending.map(|range| Hop { latency: latency(range), transfer: 0.0 }));
    }
}

/// Whether all blocks take as long, but for the last, which may take longer.
fn has_equal_blocks(leaf: &Leaf) -> bool {
    let (first, last) = (leaf.units.leading(), leaf.units.len() - leaf.units.trailing());
    let work = |unit: usize, recompute| leaf.layout.times.work(&(unit..unit + 1), recompute);
    let longer = |recompute| work(last - 1, recompute) >= work(first, recompute) * (1.0 - ROUNDING);
    let recomputes = [leaf.layout.repeated(), Recompute::None, Recompute::Full { layers: None }];
    leaf.units.has_equal_body() && first < last && recomputes.into_iter().all(longer)
}

/// Microbatches that the rank of every stage holds of it after the warm-up.
fn held(leaf: &Leaf, ranks: &[u16]) -> Vec<f64> {
    let (mesh, pipeline) = (leaf.layout.mesh, leaf.layout.pipeline);
    if !matches!(pipeline.schedule.kind, ScheduleKind::Interleaved | ScheduleKind::Combined) {
        let of_rank = leaf.layout.all_in_flight();
        return ranks.iter().map(|&rank| of_rank[usize::from(rank)]).collect();
    }
    // A rank's stages are p apart.
    let chunk = |stage: usize| (stage / leaf.layout.ranks()) as u32;
    let stages = ranks.iter().enumerate();
    stages.map(|(stage, &rank)| held_of_chunk(mesh, pipeline.vpp, u32::from(rank), chunk(stage))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expand::Tree;
    use crate::families::{Slack, balanced_splits};
    use crate::mesh::Pipeline;
    use crate::problem::Problem;
    use crate::solve::space_of;
    use crate::space::Pruned;
    use crate::tables::Tables;
    use crate::units::Units;
    use cluster_profiles::Precision;
    use cost_models::{Optimizer, Runtime, Workload};

    /// What blocks alone say of the fullest rank is its work, whatever the split.
    #[test]
    fn the_load_by_blocks_is_the_load() -> Result<(), Box<dyn std::error::Error>> {
        let cluster = cluster_profiles::catalog::cluster("dgx-h100")?.resized(32)?;
        let workload = Workload {
            global_batch: 64,
            seq_len: 4096,
            precision: Precision::Bf16,
            optimizer: Optimizer::Adamw,
            gradient_dtype: None,
            expert_imbalance: 1.0,
        };
        let runtime = Runtime::named("megatron-core")?;
        let mut compared = 0;
        for name in ["llama-3.1-8b", "gpt-3-13b", "deepseek-v2-lite"] {
            let model = cost_models::model::catalog::get(name)?;
            let problem = Problem::new(&model, &cluster, &workload, &runtime);
            let units = Units::new(&model);
            let space = space_of(&problem);
            let tree = Tree { problem: &problem, units: &units, space: &space };
            for mesh in space.meshes().list.iter().filter(|mesh| mesh.pp > 1).step_by(5) {
                let layouts = space.layouts(mesh, &mut Pruned::new());
                let shardings = &layouts.shardings;
                for pipeline in layouts.pipelines {
                    let tables =
                        Tables::new(&problem, &units, mesh, shardings, pipeline.schedule, f64::INFINITY);
                    let tables = tables.ok_or("no tables")?;
                    for layers in [None, Some(1), Some(3)] {
                        let recompute = match pipeline.recompute {
                            Recompute::Full { .. } => Recompute::Full { layers },
                            other => other,
                        };
                        let pipeline = Pipeline { recompute, ..pipeline };
                        compared += compare(&tree, &pipeline, &tables);
                    }
                }
            }
        }
        assert!(compared > 10_000, "only {compared} splits");
        Ok(())
    }

    fn compare(tree: &Tree, pipeline: &Pipeline, tables: &Tables) -> usize {
        let leaf = tree.leaf(pipeline, tables);
        let (stages, ranks) = ((tables.mesh.pp * pipeline.vpp) as usize, tables.mesh.pp as usize);
        let mut gauge = Gauge::new(&leaf, stages);
        let (mut ends, mut compared) = (Ends::new(), 0);
        for split in balanced_splits(tree.units, stages, ranks, Slack { first: 2, last: 3 }) {
            split.write(tree.units, &mut ends);
            let (quick, load) = (gauge.load_by_blocks(&split), gauge.load(&ends));
            let Some(quick) = quick else { continue };
            // The last block is on the last stage, unless that has none.
            let near = split.last == 0 || (quick - load).abs() <= load * 1e-9;
            assert!(near && quick <= load, "{quick} {load} {pipeline:?} {split:?}");
            compared += 1;
        }
        compared
    }
}
