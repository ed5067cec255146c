//! Work of a microbatch through every kind of layer, for all meshes of a space: the table that meshes are bounded with.

use crate::expand::Tree;
use crate::mesh::Mesh;
use crate::times::works;
use cost_models::ParallelConfig;
use cost_models::layer_cost::Memo;
use rayon::prelude::*;

/// Sets of meshes costed between two looks at the clock.
const CHUNK: usize = 128;

/// Number of equal units and seconds of one, for every kind of unit.
type Works = Vec<(u32, f64)>;

/// The table.
pub(crate) struct LayerWorks {
    keys: Vec<LayerKey>,
    works: Vec<Works>,
}

impl LayerWorks {
    /// The table of some meshes; none if it is `stopped` first.
    pub(crate) fn new(tree: &Tree, meshes: &[Mesh], stopped: impl Fn() -> bool) -> Option<Self> {
        let mut keys: Vec<LayerKey> = meshes.iter().map(LayerKey::of).collect();
        keys.sort_unstable();
        keys.dedup();
        let mut works = Vec::with_capacity(keys.len());
        let alike: Vec<&[LayerKey]> = keys.chunk_by(|a, b| a.shared == b.shared).collect();
        for chunk in alike.chunks(CHUNK) {
            if stopped() {
                return None;
            }
            let more: Vec<Vec<Works>> = chunk.par_iter().map(|group| works_of(tree, group)).collect();
            works.extend(more.into_iter().flatten());
        }
        Some(Self { keys, works })
    }

    /// The works of a mesh; nothing for one that is not in the table.
    pub(crate) fn of(&self, mesh: &Mesh) -> &[(u32, f64)] {
        let index = self.keys.binary_search(&LayerKey::of(mesh)).ok();
        index.and_then(|index| self.works.get(index)).map_or(&[], Vec::as_slice)
    }
}

/// Works under keys that differ in their experts only.
fn works_of(tree: &Tree, keys: &[LayerKey]) -> Vec<Works> {
    let memo = Memo::default();
    let work = |key: &LayerKey| {
        let mut parallel = key.parallel();
        if let Some(schedule) = tree.space.combining() {
            parallel.schedule = schedule.to_string();
        }
        works(tree.problem, tree.units, &parallel, &memo)
    };
    keys.iter().map(work).collect()
}

/// What the cost of a layer depends on: first what all layers do, then what experts do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct LayerKey {
    /// tp, cp, sequence parallelism, micro batch, whether there is a pipeline.
    shared: (u32, u32, bool, u64, bool),
    /// ep, etp.
    experts: (u32, u32),
}

impl LayerKey {
    const fn of(mesh: &Mesh) -> Self {
        Self {
            shared: (mesh.tp, mesh.cp, mesh.sequence_parallel, mesh.micro_batch_size, mesh.pp > 1),
            experts: (mesh.ep, mesh.etp),
        }
    }

    fn parallel(&self) -> ParallelConfig {
        let (tp, cp, sequence_parallel, micro_batch_size, pipelined) = self.shared;
        let (ep, etp) = self.experts;
        let pp = if pipelined { 2 } else { 1 };
        ParallelConfig {
            tp,
            cp,
            pp,
            ep,
            etp,
            sequence_parallel,
            micro_batch_size,
            zero_stage: 0,
            ..ParallelConfig::default()
        }
    }
}
