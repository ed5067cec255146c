//! What is wrong with a study, found before its first point.

use super::{FIGURES, MOST_POINTS, Study};
use crate::study::axis::Axis;
use crate::study::draft::Draft;
use crate::study::filter::Filter;
use crate::study::value::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Keys of a batch size.
const BATCHES: [&str; 2] = ["global_batch", "batch_tokens"];
/// The key that failures start from.
const MTBF: &str = "failures.mtbf_gpu";

/// Keys set twice, keys that exclude each other, conditions on keys that nothing sets.
pub(super) fn contradictions(
    base: &BTreeMap<String, Value>,
    axes: &[Axis],
    skip: &[Filter],
    faults: &mut Vec<String>,
) {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for key in axes.iter().flat_map(|axis| &axis.keys) {
        if !seen.insert(key) {
            faults.push(format!("two axes set `{key}`"));
        }
        if base.contains_key(key) {
            faults.push(format!("`{key}` is set in [base] and along an axis: remove one"));
        }
    }
    let all: BTreeSet<&str> = seen.into_iter().chain(base.keys().map(String::as_str)).collect();
    for [one, other] in [
        ["gpus", "dollars_per_hour"],
        ["global_batch", "batch_tokens"],
        ["runtime", "launcher"],
        ["cluster.nics", "cluster.inter.bandwidth"],
    ] {
        if all.contains(one) && all.contains(other) {
            faults.push(format!("`{one}` and `{other}` exclude each other"));
        }
    }
    for (index, filter) in skip.iter().enumerate() {
        for key in filter.keys().filter(|key| !all.contains(key)) {
            faults.push(format!("skip[{}] looks at `{key}`, which nothing sets", index + 1));
        }
    }
}

/// Questions that get no answer for want of a key, or that ask for what there is not.
pub(super) fn unanswered(study: &Study, faults: &mut Vec<String>) {
    for (name, limit) in [("deadline", study.limits.deadline_seconds), ("dollars", study.limits.dollars)] {
        if limit.is_some() && !study.has("tokens") {
            faults.push(format!("constraints: {name} is of a whole training: set tokens"));
        }
    }
    if study.batch_schedule.is_some() && !study.axis_keys().iter().any(|key| BATCHES.contains(key)) {
        faults.push(format!("batch_schedule needs an axis of batches: {}", BATCHES.join(" or ")));
    }
    if let Some(x) = study.chart.x.as_deref().filter(|x| !study.axis_keys().contains(x)) {
        faults.push(format!("chart: x is `{x}`, expected a key that varies along an axis"));
    }
    if let Some(y) = study.chart.y.as_deref().filter(|y| !FIGURES.contains(y)) {
        faults.push(format!("chart: y is `{y}`, expected {}", FIGURES.join(", ")));
    }
    let keys = study.base.keys().map(String::as_str).chain(study.axis_keys());
    let failures: Vec<&str> = keys.filter(|key| key.starts_with("failures.")).collect();
    if !failures.is_empty() && !study.has(MTBF) {
        faults.push(format!("{} says nothing without {MTBF}", failures.join(", ")));
    }
}

impl Study {
    /// What only shows when values are used: unknown models, clusters, launchers; sizes that are missing; an empty grid.
    pub(super) fn deep_faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let size = self.grid_size();
        if size > MOST_POINTS {
            return vec![format!("the grid has {size} points, at most {MOST_POINTS} are planned")];
        }
        if self.points().next().is_none() {
            return vec![
                "every point of the grid is left out by `skip`: nothing is to be planned".to_owned(),
            ];
        }
        for key in ["model", "cluster"] {
            if !self.has(key) {
                faults.push(format!("{key} is not set: set it in [base] or along an axis"));
            }
        }
        for (what, keys) in [("seq_len", &["seq_len"][..]), ("global_batch", &BATCHES)] {
            if !keys.iter().any(|key| self.has(key)) {
                faults.push(format!("{what} is not set: set it in [base] or along an axis"));
            }
        }
        if faults.is_empty() {
            faults.extend(self.value_faults());
        }
        faults
    }

    fn has(&self, key: &str) -> bool {
        self.base.contains_key(key) || self.axis_keys().contains(&key)
    }

    /// Tries every value of every axis once, on the first point.
    fn value_faults(&self) -> Vec<String> {
        let mut faults = BTreeSet::new();
        let mut stride = self.grid_size();
        faults.extend(self.names_faults(0));
        for axis in &self.axes {
            stride /= axis.steps.len() as u64;
            for step in 0..axis.steps.len() as u64 {
                faults.extend(self.names_faults(step * stride));
            }
        }
        faults.into_iter().take(20).collect()
    }

    /// What is wrong with a point, sizes that do not fill nodes apart: those are rows of the result.
    fn names_faults(&self, index: u64) -> Option<String> {
        let draft = match self.draft(index) {
            Ok(draft) => draft,
            Err(fault) => return Some(fault),
        };
        let whole = Draft { gpus: None, dollars_per_hour: None, ..draft };
        whole.ready(&self.library, self.objective).err()
    }
}
