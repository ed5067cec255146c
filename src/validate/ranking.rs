//! Ranking: whether the layouts of one job come out in the measured order.
//!
//! A group is one job: same source, model, GPU, number of GPUs, sequence length, precision, runtime and kernel. A layout
//! that was measured more than once counts with its median. Times are per sequence, since some groups vary the batch.

use super::metrics::{kendall_tau, median, regret};
use super::row::RunRow;
use super::score::Scored;
use std::collections::BTreeMap;

/// Distinct layouts that make a group worth ranking.
pub const LAYOUTS: usize = 5;

/// How one group was ranked.
#[derive(Debug, Clone, PartialEq)]
pub struct RankedGroup {
    /// Its source.
    pub source_key: String,
    /// Its GPU kind.
    pub gpu: String,
    /// Distinct layouts.
    pub layouts: usize,
    /// Kendall's tau; none where all layouts tie.
    pub tau: Option<f64>,
    /// Regret of the layout predicted fastest.
    pub regret: f64,
}

type GroupKey<'a> = (&'a str, &'a str, &'a str, u64, u64, String, &'a str, &'a str);
type LayoutKey = Vec<String>;

/// Ranks every group among `runs`, in the order of their keys.
#[must_use]
pub fn ranked_groups(runs: &[Scored]) -> Vec<RankedGroup> {
    let mut groups: BTreeMap<GroupKey, BTreeMap<LayoutKey, Vec<(f64, f64)>>> = BTreeMap::new();
    for run in runs {
        if let Some(times) = run.seconds_per_sequence() {
            let layouts = groups.entry(group_key(&run.case.row)).or_default();
            layouts.entry(layout_key(&run.case.row)).or_default().push(times);
        }
    }
    groups
        .into_iter()
        .filter(|(_, layouts)| layouts.len() >= LAYOUTS)
        .filter_map(|(key, layouts)| ranked(&key, &layouts))
        .collect()
}

fn ranked(key: &GroupKey, layouts: &BTreeMap<LayoutKey, Vec<(f64, f64)>>) -> Option<RankedGroup> {
    let times = layouts.values().map(|repeats| middle(repeats)).collect::<Option<Vec<_>>>()?;
    Some(RankedGroup {
        source_key: key.0.to_owned(),
        gpu: key.2.to_owned(),
        layouts: times.len(),
        tau: kendall_tau(&times),
        regret: regret(&times)?,
    })
}

fn middle(repeats: &[(f64, f64)]) -> Option<(f64, f64)> {
    let (measured, predicted): (Vec<f64>, Vec<f64>) = repeats.iter().copied().unzip();
    Some((median(&measured)?, median(&predicted)?))
}

fn group_key(row: &RunRow) -> GroupKey<'_> {
    let precision = row.precision.map(|p| p.to_string()).unwrap_or_default();
    let (gpus, seq_len) = (row.n_gpus, row.seq_len);
    (&row.source_key, &row.model, &row.gpu, gpus, seq_len, precision, &row.runtime, &row.kernel)
}

fn layout_key(row: &RunRow) -> LayoutKey {
    let degrees = [row.tp, row.pp, row.vpp, row.cp, row.ep, row.etp, row.dp];
    let mut key: Vec<String> = degrees.iter().map(|degree| format!("{degree:?}")).collect();
    key.push(format!("{:?} {:?} {:?}", row.zero_stage, row.sequence_parallel, row.micro_batch_size));
    key.push(format!("{:?} {}", row.recompute, row.recompute_detail));
    key.push(row.schedule.clone());
    key
}
