//! What a profile starts from: the catalogue cluster with the GPU that was found, or one of measurements alone.

use super::findings::Findings;
use crate::error::AppError;
use cluster_profiles::{BytesPerSecond, Cluster, Gpu, Link, NodeGroup, NodeShape, Seconds, catalog};

/// The catalogue cluster with the GPU that was found, nodes of the size that was found first.
pub(super) fn infer_base(found: &mut Findings) -> Result<Cluster, AppError> {
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
pub(super) fn known_gpu(name: &str) -> Option<Gpu> {
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
        memory: None,
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
pub(super) fn mark_catalogue(cluster: &mut Cluster, name: &str) {
    for group in &mut cluster.groups {
        let node = &mut group.node;
        for link in [&mut node.intra, &mut node.inter, &mut node.host] {
            if !link.source.starts_with("catalogue ") && !link.source.starts_with("measured: ") {
                link.source = format!("catalogue {name}: {}", link.source);
            }
        }
    }
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
