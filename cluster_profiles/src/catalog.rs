//! The GPUs and clusters that come with meshwright: every TOML file of `gpus/` and `clusters/`, embedded.

use crate::cluster::Cluster;
use crate::error::ProfileError;
use crate::faults::nearest;
use crate::gpu::Gpu;
use include_dir::{Dir, include_dir};
use std::sync::LazyLock;

static GPU_FILES: Dir = include_dir!("$CARGO_MANIFEST_DIR/gpus");
static CLUSTER_FILES: Dir = include_dir!("$CARGO_MANIFEST_DIR/clusters");

/// Every GPU kind of the catalogue, by name.
static GPUS: LazyLock<Result<Vec<Gpu>, ProfileError>> = LazyLock::new(|| {
    files(&GPU_FILES).map(|(stem, text)| Gpu::from_toml(&format!("gpus/{stem}.toml"), text)).collect()
});

/// Every cluster of the catalogue, by name.
static CLUSTERS: LazyLock<Result<Vec<Cluster>, ProfileError>> = LazyLock::new(|| {
    files(&CLUSTER_FILES)
        .map(|(stem, text)| cluster_from_toml(&format!("clusters/{stem}.toml"), text))
        .collect()
});

/// Every GPU kind, sorted by name.
///
/// # Errors
/// [`ProfileError`] if an embedded file is wrong, which the tests exclude.
pub fn gpus() -> Result<&'static [Gpu], ProfileError> {
    GPUS.as_deref().map_err(Clone::clone)
}

/// Every cluster, sorted by name, at its catalogue size.
///
/// # Errors
/// [`ProfileError`] if an embedded file is wrong, which the tests exclude.
pub fn clusters() -> Result<&'static [Cluster], ProfileError> {
    CLUSTERS.as_deref().map_err(Clone::clone)
}

/// The GPU kind called `name` (or one of its aliases).
///
/// # Errors
/// [`ProfileError::Unknown`] with the nearest names.
pub fn gpu(name: &str) -> Result<Gpu, ProfileError> {
    let wanted = canonical(name);
    let all = gpus()?;
    let found = all.iter().find(|gpu| gpu.name == wanted || gpu.aliases.contains(&wanted));
    found
        .cloned()
        .ok_or_else(|| unknown("GPU", name, all.iter().flat_map(|gpu| gpu.aliases.iter().chain([&gpu.name]))))
}

/// The cluster called `name` (or one of its aliases), at its catalogue size.
///
/// # Errors
/// [`ProfileError::Unknown`] with the nearest names.
pub fn cluster(name: &str) -> Result<Cluster, ProfileError> {
    let wanted = canonical(name);
    let all = clusters()?;
    let found = all.iter().find(|cluster| cluster.name == wanted || cluster.aliases.contains(&wanted));
    found.cloned().ok_or_else(|| {
        unknown("cluster", name, all.iter().flat_map(|cluster| cluster.aliases.iter().chain([&cluster.name])))
    })
}

/// The spelling of catalogue names: lower case, words joined by `-`.
fn canonical(name: &str) -> String {
    name.trim().to_ascii_lowercase().replace(['_', ' '], "-")
}

/// Reads a cluster profile; its groups name GPU kinds of the catalogue or hold a GPU of their own.
/// [`Cluster::from_toml`] also follows paths.
///
/// # Errors
/// [`ProfileError`] naming the field, with line and column.
pub fn cluster_from_toml(origin: &str, text: &str) -> Result<Cluster, ProfileError> {
    Cluster::from_toml(origin, text, &|path| Err(format!("`{path}` is a path, and files are not read here")))
}

/// Every GPU kind's name, sorted.
#[must_use]
pub fn gpu_names() -> Vec<String> {
    files(&GPU_FILES).map(|(stem, _)| stem.to_owned()).collect()
}

/// Every cluster's name, sorted.
#[must_use]
pub fn cluster_names() -> Vec<String> {
    files(&CLUSTER_FILES).map(|(stem, _)| stem.to_owned()).collect()
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

fn unknown<'n>(kind: &'static str, name: &str, names: impl Iterator<Item = &'n String>) -> ProfileError {
    let nearest = nearest(&canonical(name), names.map(String::as_str));
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
