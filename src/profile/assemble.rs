//! From what imports found to a cluster profile.

use super::base::{infer_base, known_gpu, mark_catalogue};
use super::curves::{self, CurveReport};
use super::findings::{Findings, LinkPlace, MeasuredRun, Origin};
use super::layers;
use super::links::{take_fabric, take_links, take_sets, take_shape};
use super::survey::survey;
use crate::error::AppError;
use cluster_profiles::{Cluster, catalog};
use cost_models::comm::Fabric;
use cost_models::runtime::{DEFAULT, Runtime};
use serde::Serialize;

/// A profile made of measurements, and what a person should know of it.
#[derive(Debug, Clone, Serialize)]
pub struct Imported {
    /// The profile.
    pub cluster: Cluster,
    /// What its nodes and holes were filled from.
    pub base: String,
    /// Every fitted curve with its residuals.
    pub curves: Vec<CurveReport>,
    /// Slow, dead and odd links, in words.
    pub anomalies: Vec<String>,
    /// Measured training runs.
    pub runs: Vec<MeasuredRun>,
    /// What contradicts.
    pub contradictions: Vec<String>,
    /// What was not measured and comes from the catalogue.
    pub holes: Vec<String>,
    /// What could not be used or inferred.
    pub notes: Vec<String>,
}

/// Makes a profile. `base` gives what was not measured; found by the GPU's name if none.
///
/// # Errors
/// The GPU is in no catalogue cluster and no base is given, or a figure is one that no profile may hold.
pub fn assemble(found: Findings, base: Option<Cluster>, name: &str) -> Result<Imported, AppError> {
    let mut found = found;
    let mut cluster = match base {
        Some(cluster) => cluster,
        None => infer_base(&mut found)?,
    };
    let base_name = cluster.name.clone();
    if catalog::cluster(&base_name).is_ok() {
        mark_catalogue(&mut cluster, &base_name);
    }
    cluster.name = name.to_owned();
    cluster.aliases = Vec::new();
    cluster.title = format!("{name}, measured; the rest from {base_name}");
    take_gpu(&mut cluster, &mut found);
    take_hosts(&mut cluster, &mut found);
    take_fabric(&mut cluster, &mut found);
    take_links(&mut cluster, &mut found);
    take_sets(&mut cluster, &mut found);
    take_shape(&mut cluster, &mut found);
    let links: Vec<_> = std::mem::take(&mut found.links);
    cluster.links.extend(links);
    let mut anomalies = std::mem::take(&mut found.anomalies);
    anomalies.extend(survey(&mut cluster, &mut found));
    let curves = curves::take(&mut cluster, &mut found);
    layers::take(&mut cluster, &mut found);
    let holes = holes(&cluster, &curves);
    cluster.source = Some(source_line(&found, cluster.source.as_deref()));
    // Written and read once: what is returned is what the file will hold.
    cluster.to_toml()?;
    Ok(Imported {
        cluster,
        base: base_name,
        curves,
        anomalies,
        runs: found.runs,
        contradictions: found.contradictions,
        holes,
        notes: found.notes,
    })
}

fn source_line(found: &Findings, before: Option<&str>) -> String {
    let mut files: Vec<String> = found.files.clone();
    files.dedup();
    let files = files.join(", ");
    match before {
        Some(before) if before.starts_with("imported from ") => format!("{before}, {files}"),
        _ => format!("imported from {files}"),
    }
}

fn take_gpu(cluster: &mut Cluster, found: &mut Findings) {
    if let Some(gpu) = &found.gpu {
        cluster.groups.iter_mut().for_each(|group| group.gpu = gpu.clone());
        return;
    }
    let base = cluster.gpu().clone();
    for host in found.hosts.clone() {
        let Some(name) = host.gpu else { continue };
        if known_gpu(&name).is_none_or(|gpu| gpu.name != base.name) {
            let text = format!("{} has `{name}` ({}), the base has {}", host.name, host.origin, base.title);
            if !found.contradictions.contains(&text) {
                found.contradictions.push(text);
            }
        }
    }
}

/// Names and number of the nodes.
fn take_hosts(cluster: &mut Cluster, found: &mut Findings) {
    if found.hosts.is_empty() {
        found.note("the files name no hosts: the number of nodes is the base's");
        return;
    }
    let per_node = cluster.main().node.gpus;
    let most = found.hosts.iter().map(|host| host.gpus).max().unwrap_or(0);
    let known = cluster.host_names();
    let mut names: Vec<String> = if cluster.main().hosts.is_empty() { Vec::new() } else { known };
    let fresh: Vec<String> =
        found.hosts.iter().map(|h| h.name.clone()).filter(|name| !names.contains(name)).collect();
    names.extend(fresh);
    let odd: Vec<String> = found
        .hosts
        .iter()
        .filter(|host| host.gpus > 0 && host.gpus != most)
        .map(|host| {
            format!("{} shows {} GPUs where others show {most} ({})", host.name, host.gpus, host.origin)
        })
        .collect();
    found.contradictions.extend(odd);
    if cluster.is_homogeneous() {
        let group = &mut cluster.groups[0];
        if most > per_node {
            found
                .contradictions
                .push(format!("hosts have {most} GPUs, the base's nodes {per_node}: {most} it is"));
            group.node.domain = group.node.domain / per_node * most;
            group.node.gpus = most;
        } else if most > 0 && most < per_node {
            found.note(format!("{most} of the {per_node} GPUs of a node were measured"));
        }
        group.nodes = names.len() as u32;
        group.hosts = names;
        if !cluster.leaves.is_empty() || cluster.nodes_per_leaf.is_some() {
            found.note("switches of the base are kept only where they name the same hosts");
        }
    }
}

/// What plans may ask for and nobody measured.
fn holes(cluster: &Cluster, curves: &[CurveReport]) -> Vec<String> {
    use cluster_profiles::Collective;
    let node = &cluster.main().node;
    let mut holes = Vec::new();
    let shapes = [("inside a domain", true), ("across domains", false)];
    for (where_, local) in shapes {
        if !local && cluster.gpu_count() <= u64::from(node.domain) {
            continue;
        }
        let missing: Vec<&str> = Collective::ALL
            .into_iter()
            .filter(|op| !cluster.collectives.iter().any(|c| c.op == *op && c.shape().is_local() == local))
            .map(Collective::name)
            .collect();
        if !missing.is_empty() {
            let level =
                if missing.len() < Collective::ALL.len() { " at the level of those measured" } else { "" };
            holes.push(format!("{} {where_}: the catalogue's curves{level}", missing.join(", ")));
        }
    }
    for ((_, what), link) in LinkPlace::ALL.into_iter().zip([&node.intra, &node.inter, &node.host]) {
        if !link.source.starts_with("measured: ") {
            holes.push(format!("{what}: {}", link.source));
        }
    }
    if !curves.is_empty() {
        holes.push(format!(
            "groups of other shapes than those listed: the model at the level of the listed{}",
            errors(cluster)
        ));
    }
    if cluster.layers.is_empty() {
        holes.push("layer times: kernel curves of the GPU".to_owned());
    }
    holes
}

/// How well the curves speak for each other: what neighbours of theirs may be off by.
fn errors(cluster: &Cluster) -> String {
    let Ok(runtime) = Runtime::named(DEFAULT) else { return String::new() };
    let fabric = Fabric::new(cluster, &runtime.shared);
    let error = |(place, local)| {
        let error = fabric.level_error(local)?;
        Some(format!("{:.0} % {place}", 100.0 * error))
    };
    let errors: Vec<String> =
        [("inside a domain", true), ("across domains", false)].into_iter().filter_map(error).collect();
    if errors.is_empty() {
        return String::new();
    }
    format!(" (left out in turn, these are predicted within {})", errors.join(", "))
}

/// Where the first and last lines of several origins are.
#[must_use]
pub fn joined(origins: &[Origin]) -> String {
    let mut texts: Vec<String> = origins.iter().map(ToString::to_string).collect();
    texts.dedup();
    let more = texts.len().saturating_sub(4);
    texts.truncate(4);
    let tail = if more > 0 { format!("; and {more} files more") } else { String::new() };
    texts.join("; ") + &tail
}
