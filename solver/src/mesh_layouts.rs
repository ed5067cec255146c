//! What may run on a mesh: pipelines and shardings, each of the one with each of the other.
//!
//! No rule and no constraint looks at both: a rule is about degrees and one of schedule, chunks and recompute, or about
//! degrees and one of sharding and the order of the ranks. So a pipeline that is legal with one legal sharding is with all.

use crate::mesh::{Mesh, Pipeline, Sharding, set_schedule};
use crate::space::{Pruned, SearchSpace};
use cost_models::{ParallelConfig, RankOrder};

/// The layouts of a mesh that keep every rule: every pipeline with every sharding.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MeshLayouts {
    /// Schedule, chunks and recompute.
    pub pipelines: Vec<Pipeline>,
    /// Where the state lives, and the order of the ranks.
    pub shardings: Vec<Sharding>,
}

/// Shardings by what a pipeline that keeps the rules made known of them.
struct Known {
    legal: Vec<Sharding>,
    /// Layouts of each pipeline that a rule excludes.
    excluded: Vec<(&'static str, u64)>,
}

impl SearchSpace<'_> {
    /// The legal layouts of a mesh; the others are counted in `pruned`.
    #[must_use]
    pub fn layouts(&self, mesh: &Mesh, pruned: &mut Pruned) -> MeshLayouts {
        let mut scratch = ParallelConfig::default();
        mesh.write(&mut scratch);
        let mut shardings = self.shardings(mesh);
        let barred = self.take_barred(&mut shardings, &mut scratch);
        let (mut pipelines, mut known) = (Vec::new(), None::<Known>);
        let mut tally = Tally::default();
        for schedule in self.schedules_for(mesh) {
            set_schedule(&mut scratch, &schedule.to_string());
            for vpp in self.chunk_counts(schedule, mesh) {
                let shape_fault = self.shape_fault(schedule, mesh, vpp);
                for (recompute, per_stage) in self.choices(mesh, vpp) {
                    let pipeline = Pipeline { schedule, vpp, recompute, per_stage };
                    pipeline.write(&mut scratch);
                    tally.add(barred);
                    if let Some(rule) = shape_fault {
                        tally.add(Some((rule, shardings.len() as u64)));
                        continue;
                    }
                    if known.is_none() {
                        let found = self.known_of(mesh, &shardings, &mut scratch);
                        if found.legal.is_empty() {
                            found.excluded.into_iter().for_each(|excluded| tally.add(Some(excluded)));
                            continue;
                        }
                        known = Some(found);
                    }
                    let Some(Known { legal, excluded }) = &known else { continue };
                    legal[0].write(mesh, &mut scratch);
                    if let Some(rule) = self.fault(&scratch) {
                        tally.add(Some((rule, shardings.len() as u64)));
                        continue;
                    }
                    excluded.iter().for_each(|excluded| tally.add(Some(*excluded)));
                    pipelines.push(pipeline);
                }
            }
        }
        tally.write(pruned);
        MeshLayouts { pipelines, shardings: known.map(|known| known.legal).unwrap_or_default() }
    }

    /// The shardings that are legal with the pipeline of a layout, and what excludes the others.
    fn known_of(&self, mesh: &Mesh, shardings: &[Sharding], scratch: &mut ParallelConfig) -> Known {
        let (mut legal, mut tally) = (Vec::with_capacity(shardings.len()), Tally::default());
        for sharding in shardings {
            sharding.write(mesh, scratch);
            match self.fault(scratch) {
                Some(rule) => tally.add(Some((rule, 1))),
                None => legal.push(*sharding),
            }
        }
        Known { legal, excluded: tally.0 }
    }

    /// Takes out the shardings in an order that no layout of the mesh may have: the rule, and how many.
    fn take_barred(
        &self,
        shardings: &mut Vec<Sharding>,
        scratch: &mut ParallelConfig,
    ) -> Option<(&'static str, u64)> {
        let before = shardings.len();
        let mut barred = None;
        shardings.retain(|sharding| {
            scratch.rank_order = sharding.rank_order;
            let broken = (!sharding.rank_order.is_default())
                .then(|| self.engine.broken_by_order(&self.facts, scratch))
                .flatten();
            barred = broken.or(barred);
            broken.is_none()
        });
        scratch.rank_order = RankOrder::default();
        barred.map(|rule| (rule, (before - shardings.len()) as u64))
    }
}

/// Layouts by the rule that excludes them.
#[derive(Default)]
struct Tally(Vec<(&'static str, u64)>);

impl Tally {
    fn add(&mut self, excluded: Option<(&'static str, u64)>) {
        let Some((rule, layouts)) = excluded else { return };
        match self.0.iter_mut().find(|(known, _)| *known == rule) {
            Some((_, sum)) => *sum += layouts,
            None => self.0.push((rule, layouts)),
        }
    }

    fn write(self, pruned: &mut Pruned) {
        for (rule, layouts) in self.0.into_iter().filter(|(_, layouts)| *layouts > 0) {
            *pruned.entry(rule.to_owned()).or_default() += layouts;
        }
    }
}
