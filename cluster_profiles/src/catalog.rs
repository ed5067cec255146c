//! The GPUs and clusters that come with meshwright: every TOML file of `gpus/` and `clusters/`, embedded.

use crate::cluster::{Cluster, MeasuredCollectives, NodeGroup, NodeShape};
use crate::error::ProfileError;
use crate::gpu::Gpu;
use include_dir::{Dir, include_dir};
use serde::Deserialize;

static GPUS: Dir = include_dir!("$CARGO_MANIFEST_DIR/gpus");
static CLUSTERS: Dir = include_dir!("$CARGO_MANIFEST_DIR/clusters");

/// A cluster profile as a file writes it: groups name their GPU kind.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClusterFile {
    name: String,
    #[serde(default)]
    aliases: Vec<String>,
    title: String,
    #[serde(default = "one")]
    oversubscription: f64,
    #[serde(default)]
    nodes_per_leaf: Option<u32>,
    #[serde(default)]
    measured: Option<MeasuredCollectives>,
    groups: Vec<GroupFile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupFile {
    /// A catalogue name.
    gpu: String,
    nodes: u32,
    node: NodeShape,
    #[serde(default)]
    dollars_per_gpu_hour: Option<f64>,
    #[serde(default)]
    price_source: Option<String>,
}

const fn one() -> f64 {
    1.0
}

/// The GPU kind called `name` (or one of its aliases).
///
/// # Errors
/// [`ProfileError::Unknown`] with the nearest names.
pub fn gpu(name: &str) -> Result<Gpu, ProfileError> {
    let wanted = canonical(name);
    for (stem, text) in files(&GPUS) {
        let gpu = Gpu::from_toml(&format!("gpus/{stem}.toml"), text)?;
        if gpu.name == wanted || gpu.aliases.contains(&wanted) {
            return Ok(gpu);
        }
    }
    Err(unknown("GPU", name, gpu_names()))
}

/// The cluster called `name`, at its catalogue size.
///
/// # Errors
/// [`ProfileError::Unknown`] with the nearest names.
pub fn cluster(name: &str) -> Result<Cluster, ProfileError> {
    let wanted = canonical(name);
    for (stem, text) in files(&CLUSTERS) {
        let cluster = cluster_from_toml(&format!("clusters/{stem}.toml"), text)?;
        if cluster.name == wanted || cluster.aliases.contains(&wanted) {
            return Ok(cluster);
        }
    }
    Err(unknown("cluster", name, cluster_names()))
}

/// The spelling of catalogue names: lower case, words joined by `-`.
fn canonical(name: &str) -> String {
    name.trim().to_ascii_lowercase().replace(['_', ' '], "-")
}

/// Reads a cluster profile; its groups name GPU kinds of the catalogue.
///
/// # Errors
/// [`ProfileError`] naming the field, with line and column where the text itself is wrong.
pub fn cluster_from_toml(origin: &str, text: &str) -> Result<Cluster, ProfileError> {
    let file: ClusterFile = toml::from_str(text)
        .map_err(|error| ProfileError::Syntax { origin: origin.to_owned(), message: error.to_string() })?;
    let faults = file.faults();
    if !faults.is_empty() {
        return Err(ProfileError::Faults { origin: origin.to_owned(), faults });
    }
    let groups = file
        .groups
        .into_iter()
        .map(|group| {
            Ok(NodeGroup {
                gpu: gpu(&group.gpu)?,
                nodes: group.nodes,
                node: group.node,
                dollars_per_gpu_hour: group.dollars_per_gpu_hour,
                price_source: group.price_source,
            })
        })
        .collect::<Result<Vec<_>, ProfileError>>()?;
    Ok(Cluster {
        name: file.name,
        aliases: file.aliases,
        title: file.title,
        groups,
        oversubscription: file.oversubscription,
        nodes_per_leaf: file.nodes_per_leaf,
        measured: file.measured,
    })
}

impl ClusterFile {
    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.groups.is_empty() {
            faults.push("groups is empty: a cluster needs at least one group of nodes".to_owned());
        }
        if !(1.0..=1024.0).contains(&self.oversubscription) {
            faults
                .push(format!("oversubscription is {}, expected between 1 and 1024", self.oversubscription));
        }
        for (index, group) in self.groups.iter().enumerate() {
            group.push_faults(index, &mut faults);
        }
        faults
    }
}

impl GroupFile {
    fn push_faults(&self, index: usize, faults: &mut Vec<String>) {
        let node = &self.node;
        let counts = [
            ("nodes", self.nodes, 1 << 21),
            ("node.gpus", node.gpus, 1024),
            ("node.domain", node.domain, 1 << 16),
            ("node.nics", node.nics, 1024),
        ];
        for (field, value, high) in counts {
            if value == 0 || value > high {
                faults.push(format!("groups[{index}].{field} is {value}, expected 1 to {high}"));
            }
        }
        for (field, link) in [("intra", &node.intra), ("inter", &node.inter), ("host", &node.host)] {
            if link.bandwidth.get() < 1e6 {
                faults.push(format!(
                    "groups[{index}].node.{field}.bandwidth is {} bytes per second, expected at least 1 MB/s",
                    link.bandwidth.get()
                ));
            }
            if link.latency.get() > 1.0 {
                faults.push(format!(
                    "groups[{index}].node.{field}.latency is {} s, expected at most 1 s",
                    link.latency.get()
                ));
            }
        }
        if self.dollars_per_gpu_hour.is_some_and(|price| !(0.0..1e6).contains(&price)) {
            faults.push(format!("groups[{index}].dollars_per_gpu_hour is not a price"));
        }
    }
}

/// Every GPU kind's name, sorted.
#[must_use]
pub fn gpu_names() -> Vec<String> {
    files(&GPUS).map(|(stem, _)| stem.to_owned()).collect()
}

/// Every cluster's name, sorted.
#[must_use]
pub fn cluster_names() -> Vec<String> {
    files(&CLUSTERS).map(|(stem, _)| stem.to_owned()).collect()
}

/// The TOML files of an embedded folder, sorted by name.
fn files(dir: &'static Dir) -> impl Iterator<Item = (&'static str, &'static str)> {
    let mut files: Vec<(&str, &str)> = dir
        .files()
        .filter_map(|file| Some((file.path().file_stem()?.to_str()?, file.contents_utf8()?)))
        .collect();
    files.sort_unstable();
    files.into_iter()
}

fn unknown(kind: &'static str, name: &str, names: Vec<String>) -> ProfileError {
    let wanted = canonical(name);
    let mut ranked: Vec<(usize, String)> =
        names.into_iter().map(|n| (strsim::levenshtein(&wanted, &n), n)).collect();
    ranked.sort();
    let nearest = ranked.into_iter().filter(|(d, _)| *d <= 4).take(3).map(|(_, n)| n).collect();
    ProfileError::Unknown { kind, name: name.to_owned(), nearest }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn every_embedded_file_parses_under_its_own_name() -> Result<(), ProfileError> {
        for name in gpu_names() {
            assert_eq!(gpu(&name)?.name, name);
        }
        for name in cluster_names() {
            assert_eq!(cluster(&name)?.name, name);
        }
        Ok(())
    }

    #[test]
    fn names_and_aliases_are_unique_and_canonical() -> Result<(), ProfileError> {
        let gpus = gpu_names().iter().map(|n| gpu(n)).collect::<Result<Vec<_>, _>>()?;
        let clusters = cluster_names().iter().map(|n| cluster(n)).collect::<Result<Vec<_>, _>>()?;
        let kinds = [
            gpus.into_iter().flat_map(|g| [vec![g.name], g.aliases].concat()).collect::<Vec<_>>(),
            clusters.into_iter().flat_map(|c| [vec![c.name], c.aliases].concat()).collect(),
        ];
        for names in kinds {
            let mut seen = BTreeMap::new();
            for name in names {
                assert_eq!(canonical(&name), name);
                *seen.entry(name).or_insert(0) += 1;
            }
            assert!(seen.values().all(|count| *count == 1), "{seen:?}");
        }
        Ok(())
    }

    #[test]
    fn kernel_file_names_find_their_gpu() -> Result<(), ProfileError> {
        for (name, expected) in [
            ("h100_sxm", "h100-sxm-80gb"),
            ("a100_sxm", "a100-sxm-80gb"),
            ("h200_sxm", "h200"),
            ("b200_sxm", "b200"),
            ("b300_sxm", "b300"),
            ("gb200", "gb200"),
            ("gb300", "gb300"),
            ("l40s", "l40s"),
            ("rtx_pro_6000_server", "rtx-pro-6000"),
            ("NVIDIA H100 80GB HBM3", "h100-sxm-80gb"),
        ] {
            assert_eq!(gpu(name)?.name, expected);
        }
        assert_eq!(cluster("8x4090")?.name, "rtx4090-8x-pcie");
        Ok(())
    }
}
