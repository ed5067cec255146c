//! From what imports found to a cluster profile.

use super::curves::{self, CurveReport};
use super::findings::{Findings, LinkPlace, MeasuredRun, Origin};
use super::pairs;
use crate::error::AppError;
use cluster_profiles::{
    BytesPerSecond, Cluster, Gpu, GroupShape, Link, NodeGroup, NodeShape, Seconds, catalog,
};
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
    take_links(&mut cluster, &found);
    take_sets(&mut cluster, &mut found);
    take_shape(&mut cluster, &mut found);
    let links: Vec<_> = std::mem::take(&mut found.links);
    cluster.links.extend(links);
    let mut anomalies = std::mem::take(&mut found.anomalies);
    anomalies.extend(pairs::survey(&mut cluster, &mut found));
    let curves = curves::take(&mut cluster, &mut found);
    take_layers(&mut cluster, &found);
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

/// The catalogue cluster with the GPU that was found, nodes of the size that was found first.
fn infer_base(found: &mut Findings) -> Result<Cluster, AppError> {
    if let Some(gpu) = found.gpu.clone() {
        return Ok(bare(gpu, found));
    }
    let hint = "name a cluster with the same GPUs and links: --base dgx-h100 (`meshwright catalog clusters` lists them)";
    let Some((gpu_name, host)) = found.hosts.iter().find_map(|h| Some((h.gpu.clone()?, h.name.clone())))
    else {
        return Err(AppError::Other {
            message: "the files do not say which GPU it is".to_owned(),
            hint: Some(hint.to_owned()),
        });
    };
    let unknown = |message: String| AppError::Other { message, hint: Some(hint.to_owned()) };
    let gpu = known_gpu(&gpu_name)
        .ok_or_else(|| unknown(format!("{host} has `{gpu_name}`, which the catalogue does not know")))?;
    let gpus = found.hosts.iter().map(|host| host.gpus).max().unwrap_or(1);
    let clusters = catalog::clusters()?;
    let with_gpu = || clusters.iter().filter(|c| c.gpu().name == gpu.name);
    let same_size = with_gpu().find(|c| c.main().node.gpus == gpus && c.name.starts_with("dgx"));
    let base =
        same_size.or_else(|| with_gpu().find(|c| c.main().node.gpus >= gpus)).or_else(|| with_gpu().next());
    let base =
        base.ok_or_else(|| unknown(format!("the catalogue has no cluster of `{}`", gpu.name)))?.clone();
    found.note(format!(
        "which cluster it is was inferred from the GPU's name: {}; another: --base CLUSTER",
        base.name
    ));
    Ok(base)
}

/// The catalogue's GPU for the name a driver prints: `NVIDIA A100-SXM4-80GB`, `AMD Instinct MI300X OAM`.
#[must_use]
pub fn known_gpu(name: &str) -> Option<Gpu> {
    let words = name.replace(['-', '_'], " ").to_lowercase();
    let maker = ["nvidia", "amd", "instinct", "geforce", "tesla", "oam", "hbm3", "hbm3e", "graphics"];
    let rest: Vec<&str> = words.split_whitespace().filter(|word| !maker.contains(word)).collect();
    let joined = rest.join("-");
    let plain = joined.replace("sxm4", "sxm").replace("sxm5", "sxm").replace("sxm6", "sxm");
    let candidates = [
        name.to_owned(),
        joined.clone(),
        plain.clone(),
        plain.replace("-sxm", ""),
        rest.first()?.to_string(),
    ];
    candidates.iter().find_map(|candidate| catalog::gpu(candidate).ok())
}

/// A cluster of one GPU kind that no catalogue has, with placeholders for links that the measurements replace.
fn bare(gpu: Gpu, found: &Findings) -> Cluster {
    let hosts: Vec<String> = found.hosts.iter().map(|host| host.name.clone()).collect();
    let gpus = found.hosts.iter().map(|host| host.gpus).max().unwrap_or(1).max(1);
    let link = |kind: &str| Link {
        kind: kind.to_owned(),
        latency: Seconds::micros(50.0),
        bandwidth: BytesPerSecond(1e9),
        source: "assumed: not measured".to_owned(),
    };
    let node = NodeShape {
        gpus,
        domain: gpus,
        intra: link("host memory"),
        inter: link("ethernet"),
        nics: 1,
        host: link("host memory"),
    };
    Cluster {
        name: "measured".to_owned(),
        aliases: Vec::new(),
        title: String::new(),
        groups: vec![NodeGroup {
            gpu,
            nodes: hosts.len().max(1) as u32,
            hosts,
            node,
            dollars_per_gpu_hour: None,
            price_source: None,
        }],
        oversubscription: 1.0,
        nodes_per_leaf: None,
        source: None,
        leaves: Vec::new(),
        domains: Vec::new(),
        links: Vec::new(),
        matrix: None,
        measured: None,
        collectives: Vec::new(),
        layers: Vec::new(),
        optimizers: Vec::new(),
    }
}

/// Every source of a catalogue figure says so.
fn mark_catalogue(cluster: &mut Cluster, name: &str) {
    for group in &mut cluster.groups {
        let node = &mut group.node;
        for link in [&mut node.intra, &mut node.inter, &mut node.host] {
            if !link.source.starts_with("catalogue ") && !link.source.starts_with("measured: ") {
                link.source = format!("catalogue {name}: {}", link.source);
            }
        }
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

/// Size of nodes and domains, where a topology shows it.
fn take_shape(cluster: &mut Cluster, found: &mut Findings) {
    for (gpus, origin) in found.node_gpus.clone() {
        let node = &mut cluster.groups[0].node;
        if node.gpus != gpus && gpus > 0 {
            found
                .contradictions
                .push(format!("{origin}: {gpus} GPUs a node, the base has {}: {gpus} it is", node.gpus));
            node.domain = (node.domain / node.gpus.max(1)).max(1) * gpus;
            node.gpus = gpus;
        }
    }
    if let Some((domain, _)) = &found.domain {
        let node = &mut cluster.groups[0].node;
        if node.gpus.is_multiple_of(*domain) {
            node.domain = *domain;
        }
    }
    if let Some((ratio, _)) = &found.oversubscription
        && !cluster.leaves.is_empty()
    {
        cluster.oversubscription = ratio.clamp(1.0, 1024.0);
    }
}

/// NVLinks of a GPU and the rate of one in bytes per second per direction, by the GPU's name (NVIDIA's datasheets).
fn nvlinks(gpu: &str) -> Option<(u32, f64)> {
    let kinds: [(&[&str], (u32, f64)); 4] = [
        (&["V100"], (6, 25e9)),
        (&["A100", "A800"], (12, 25e9)),
        (&["H100", "H200", "H800", "H20", "GH200"], (18, 25e9)),
        (&["B200", "B300", "GB200", "GB300"], (18, 50e9)),
    ];
    let model = gpu.split('-').next().unwrap_or_default().to_uppercase();
    kinds.into_iter().find(|(names, _)| names.contains(&model.as_str())).map(|(_, links)| links)
}

/// The link inside the domain as a topology shows it: its kind is known, its rate is nominal and never measured.
fn take_fabric(cluster: &mut Cluster, found: &mut Findings) {
    let Some(fabric) = found.fabric.clone() else { return };
    let mut changed = false;
    for group in &mut cluster.groups {
        let (host, link) = (group.node.host.clone(), &mut group.node.intra);
        let before = link.bandwidth.get();
        let kind = if fabric.pair > 0 { "nvlink" } else { "pcie" };
        if link.kind == kind && (link.source.starts_with("measured: ") || kind == "pcie") {
            continue;
        }
        let (rate, text) = match nvlinks(&group.gpu.name) {
            _ if kind == "pcie" => {
                let known = if host.kind == "pcie" { host.bandwidth.get() } else { 32e9 };
                (known, "no NVLink; PCIe at the rate to the host".to_owned())
            }
            Some((most, rate)) => {
                // Links to all neighbours together cannot be more than the GPU has: then a switch shares them.
                let links = if fabric.all <= most { fabric.all } else { fabric.pair };
                (f64::from(links) * rate, format!("{links} NVLinks of {:.0} GB/s a GPU", rate / 1e9))
            }
            None => (before, format!("{} NVLinks to a neighbour; rate of the base", fabric.pair)),
        };
        link.kind = kind.to_owned();
        link.bandwidth = BytesPerSecond(rate);
        link.source = format!("assumed, not measured: {text} ({}); latency as before", fabric.origin);
        changed |= (rate / before - 1.0).abs() > 0.25;
    }
    if changed {
        let all = cluster.collectives.len();
        cluster.collectives.retain(|curve| curve.per_domain < curve.ranks);
        if cluster.collectives.len() < all {
            found.note("collective curves of the base inside the domain belong to another link: left out");
        }
    }
}

/// Rates and latencies of the tiers, where they were measured; nominal ones only where nothing better is known.
fn take_links(cluster: &mut Cluster, found: &Findings) {
    for group in &mut cluster.groups {
        if let Some((nics, _)) = found.nics.last() {
            group.node.nics = (*nics).max(1);
        }
        let nics_per_gpu = f64::from(group.node.nics) / f64::from(group.node.gpus.max(1));
        for (place, fact) in &found.link_facts {
            let link = match place {
                LinkPlace::Intra => &mut group.node.intra,
                LinkPlace::Inter => &mut group.node.inter,
                LinkPlace::Host => &mut group.node.host,
            };
            if let Some(kind) = &fact.kind {
                link.kind.clone_from(kind);
            }
            let share = if fact.per_nic { nics_per_gpu } else { 1.0 };
            link.bandwidth = fact.bandwidth.map_or(link.bandwidth, |rate| rate * share);
            link.latency = fact.latency.unwrap_or(link.latency);
            let part = match (fact.bandwidth, fact.latency) {
                (Some(_), None) => "; latency as before",
                (None, Some(_)) => "; bandwidth as before",
                (None, None) => "; rate and latency as before",
                _ => "",
            };
            link.source = format!("measured: {}{part}", fact.origin);
        }
    }
}

/// Leaf switches and domains, restricted to hosts that the cluster has.
fn take_sets(cluster: &mut Cluster, found: &mut Findings) {
    let hosts = cluster.host_names();
    let mut unknown = Vec::new();
    for (sets, target) in [(&found.leaves, &mut cluster.leaves), (&found.domains, &mut cluster.domains)] {
        if sets.is_empty() {
            target.retain(|set| set.hosts.iter().all(|host| hosts.contains(host)));
            continue;
        }
        let mut kept = sets.clone();
        for set in &mut kept {
            unknown.extend(set.hosts.iter().filter(|host| !hosts.contains(host)).cloned());
            set.hosts.retain(|host| hosts.contains(host));
        }
        kept.retain(|set| !set.hosts.is_empty());
        *target = kept;
    }
    cluster.links.retain(|link| found.hosts.is_empty() || link.between.iter().all(|end| hosts.contains(end)));
    if !unknown.is_empty() {
        found.note(format!("{} hosts of the switches were in no measurement", unknown.len()));
    }
}

fn take_layers(cluster: &mut Cluster, found: &Findings) {
    let same = |a: &cluster_profiles::MeasuredLayer, b: &cluster_profiles::MeasuredLayer| {
        let key = |l: &cluster_profiles::MeasuredLayer| {
            (l.kind, l.hidden, l.heads, l.kv_heads, l.ffn, l.vocab, l.seq_len, l.micro_batch, l.tp, l.cp)
        };
        key(a) == key(b) && a.precision == b.precision
    };
    for layer in &found.layers {
        cluster.layers.retain(|old| !same(old, layer));
        cluster.layers.push(layer.clone());
    }
    for optimizer in &found.optimizers {
        cluster.optimizers.retain(|old| old.name != optimizer.name);
        cluster.optimizers.push(optimizer.clone());
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
            .filter(|op| {
                !cluster.collectives.iter().any(|c| {
                    let shape = GroupShape {
                        ranks: c.ranks,
                        per_domain: c.per_domain,
                        domains: c.ranks.div_ceil(c.per_domain),
                    };
                    c.op == *op && shape.is_local() == local
                })
            })
            .map(Collective::name)
            .collect();
        if !missing.is_empty() {
            holes.push(format!("{} {where_}: the catalogue's curves", missing.join(", ")));
        }
    }
    for (what, link) in [
        ("link inside the domain", &node.intra),
        ("link between domains", &node.inter),
        ("link to the host", &node.host),
    ] {
        if !link.source.starts_with("measured: ") {
            holes.push(format!("{what}: {}", link.source));
        }
    }
    if !curves.is_empty() {
        holes.push("groups of other shapes than those listed: the model between the links' rates".to_owned());
    }
    if cluster.layers.is_empty() {
        holes.push("layer times: kernel curves of the GPU".to_owned());
    }
    holes
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

#[cfg(test)]
mod tests {
    use super::known_gpu;

    #[test]
    fn names_of_drivers_are_known() {
        for (name, gpu) in [
            ("NVIDIA H100 80GB HBM3", "h100-sxm-80gb"),
            ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
            ("NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"),
            ("NVIDIA H200", "h200"),
            ("NVIDIA B200", "b200"),
            ("NVIDIA L40S", "l40s"),
            ("Tesla V100-SXM2-32GB", "v100-sxm2-32gb"),
            ("NVIDIA GeForce RTX 4090", "rtx-4090"),
            ("AMD Instinct MI300X", "mi300x"),
            ("AMD Instinct MI300X OAM", "mi300x"),
        ] {
            assert_eq!(known_gpu(name).map(|gpu| gpu.name).as_deref(), Some(gpu), "{name}");
        }
        assert!(known_gpu("AMD EPYC 7763").is_none() && known_gpu("").is_none());
    }
}
