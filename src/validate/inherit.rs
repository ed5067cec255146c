//! Flags a release does not state again.
//!
//! Megatron-Bridge prints its table anew in every release; the flags behind a row (CUDA graphs, expert overlap,
//! recompute, offload) come from configuration files that not every release has. A row without them takes those of the
//! same model, GPU, layout and precision in the nearest earlier release.

use super::engine::{cuda_graph, is_bridge, offloaded_layers};
use super::release::release;
use super::row::RunRow;
use cluster_profiles::Precision;
use cost_models::Recompute;
use cost_models::runtime::CudaGraph;
use std::collections::BTreeMap;

/// Flags taken from an earlier release.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Inherited {
    /// Id of the row they come from.
    pub from: Option<String>,
    /// What is captured in CUDA graphs.
    pub cuda_graph: Option<CudaGraph>,
    /// Expert dispatch behind another microbatch.
    pub expert_overlap: bool,
    /// What is recomputed.
    pub recompute: Option<Recompute>,
    /// Layers whose activations go to the host.
    pub offloaded_layers: u32,
}

type Key<'a> = (&'a str, &'a str, u64, Option<Precision>, [Option<u64>; 7]);

/// What every row inherits, in the order of the rows.
#[must_use]
pub fn inherited(rows: &[RunRow]) -> Vec<Inherited> {
    let mut stated: BTreeMap<Key, Vec<&RunRow>> = BTreeMap::new();
    for row in rows.iter().filter(|row| is_bridge(row) && states_flags(row)) {
        stated.entry(key(row)).or_default().push(row);
    }
    rows.iter().map(|row| find(&stated, row).map(Inherited::from_row).unwrap_or_default()).collect()
}

fn find<'a>(stated: &BTreeMap<Key, Vec<&'a RunRow>>, row: &RunRow) -> Option<&'a RunRow> {
    if !is_bridge(row) || states_flags(row) {
        return None;
    }
    let own = release(&row.framework)?;
    let earlier = stated.get(&key(row))?.iter().copied();
    earlier
        .filter(|other| release(&other.framework) < Some(own))
        .max_by_key(|other| release(&other.framework))
}

fn states_flags(row: &RunRow) -> bool {
    row.notes.contains("from config")
}

fn key(row: &RunRow) -> Key<'_> {
    let degree = |d: Option<u32>| d.map(u64::from);
    let layout =
        [degree(row.tp), degree(row.pp), degree(row.vpp), degree(row.cp), degree(row.ep), degree(row.dp)];
    let [tp, pp, vpp, cp, ep, dp] = layout;
    (&row.model, &row.gpu, row.seq_len, row.precision, [tp, pp, vpp, cp, ep, dp, row.micro_batch_size])
}

impl Inherited {
    fn from_row(row: &RunRow) -> Self {
        Self {
            from: Some(row.id.clone()),
            cuda_graph: cuda_graph(&row.notes),
            expert_overlap: row.notes.contains("moe_a2a_overlap"),
            recompute: row.recompute,
            offloaded_layers: offloaded_layers(&row.offload),
        }
    }
}
