//! The cluster of a row: a catalogue GPU in nodes as the row states them, blanks filled by rules that are recorded.

use super::fields::Fault;
use super::row::RunRow;
use cluster_profiles::{Bytes, BytesPerSecond, Cluster, Gpu, MeasuredCollectives, ProfileError, catalog};
use cost_models::Assumption;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The catalogue, read once.
#[derive(Debug)]
pub struct Hardware {
    gpus: BTreeMap<String, Gpu>,
    clusters: Vec<Cluster>,
}

static CATALOGUE: LazyLock<Result<Hardware, ProfileError>> = LazyLock::new(Hardware::read);

/// Records that `what` was inferred.
pub fn assumed(what: impl Into<String>) -> Assumption {
    Assumption { what: what.into(), basis: "assumed".to_owned() }
}

impl Hardware {
    /// The catalogue.
    ///
    /// # Errors
    /// [`ProfileError`] if a profile of the catalogue is broken.
    pub fn catalogue() -> Result<&'static Self, ProfileError> {
        CATALOGUE.as_ref().map_err(Clone::clone)
    }

    /// Every cluster, and every GPU under its name and its aliases.
    fn read() -> Result<Self, ProfileError> {
        let mut gpus = BTreeMap::new();
        for name in catalog::gpu_names() {
            let gpu = catalog::gpu(&name)?;
            for alias in gpu.aliases.iter().chain([&gpu.name]) {
                gpus.insert(alias.clone(), gpu.clone());
            }
        }
        let clusters =
            catalog::cluster_names().iter().map(|name| catalog::cluster(name)).collect::<Result<_, _>>()?;
        Ok(Self { gpus, clusters })
    }

    /// The GPU kind called `name`.
    ///
    /// # Errors
    /// That there is none.
    pub fn gpu(&self, name: &str) -> Result<&Gpu, String> {
        let canonical = name.trim().to_ascii_lowercase().replace(['_', ' '], "-");
        self.gpus.get(&canonical).ok_or_else(|| match catalog::gpu(name) {
            Err(error) => message(&error),
            Ok(gpu) => format!("is {}, which is not listed", gpu.name),
        })
    }

    /// The catalogue cluster of a GPU kind whose network is the one `interconnect` speaks of, if there is one.
    ///
    /// # Errors
    /// That the catalogue has no node to start from.
    pub fn cluster_of(&self, gpu: &Gpu, interconnect: &str) -> Result<Cluster, String> {
        let none = || format!("no node of {} in the catalogue", gpu.name);
        self.template(gpu, interconnect, &mut Vec::new()).ok_or_else(none)
    }

    /// The cluster a row ran on, with exactly its GPUs.
    ///
    /// # Errors
    /// A fault if the GPU is unknown.
    pub fn cluster(&self, row: &RunRow, assumptions: &mut Vec<Assumption>) -> Result<Cluster, Fault> {
        let gpu = self.gpu(&row.gpu).map_err(|message| Fault::new(row.line, "gpu", &row.gpu, message))?;
        let mut cluster = self.template(gpu, &row.interconnect, assumptions).ok_or_else(|| {
            Fault::new(row.line, "gpu", &row.gpu, "has no node in the catalogue to start from")
        })?;
        shape(&mut cluster, row, assumptions);
        set_network(&mut cluster, row, assumptions);
        set_memory(&mut cluster, row, assumptions);
        cluster.measured = startup_test(&row.notes);
        cluster
            .resized(row.n_gpus)
            .map_err(|error| Fault::new(row.line, "n_gpus", &row.n_gpus.to_string(), error.to_string()))
    }

    /// A catalogue cluster of this GPU, with the row's network if there is one; else of the nearest sibling.
    fn template(&self, gpu: &Gpu, interconnect: &str, assumptions: &mut Vec<Assumption>) -> Option<Cluster> {
        let kind = network_kind(interconnect);
        let own = self.clusters.iter().filter(|c| c.is_homogeneous() && c.gpu().name == gpu.name);
        let same_network = own.clone().find(|c| c.main().node.inter.kind == kind);
        if let Some(cluster) = same_network.or_else(|| own.clone().next()) {
            return Some(cluster.clone());
        }
        let sibling = sibling(gpu);
        let mut cluster = self.clusters.iter().find(|c| c.name == sibling)?.clone();
        assumptions.push(assumed(format!("node of {} as in {sibling}", gpu.title)));
        cluster.groups[0].gpu = gpu.clone();
        if gpu.compute_capability.is_some_and(|capability| capability < 80) {
            cluster.groups[0].node.intra.bandwidth = BytesPerSecond(150e9);
        }
        Some(cluster)
    }
}

fn message(error: &ProfileError) -> String {
    let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
    format!("is unknown: {error}{hint}")
}

/// The catalogue's name of the network an interconnect's description speaks of.
fn network_kind(interconnect: &str) -> &'static str {
    let said = |word: &str| interconnect.contains(word);
    match () {
        () if said("EFA") => "efa",
        () if said("RoCE") || said("TCPX") || said("Ethernet") => "ethernet",
        () => "infiniband",
    }
}

/// The cluster whose node a GPU without one is put in: the one of its generation.
fn sibling(gpu: &Gpu) -> &'static str {
    match (gpu.vendor.as_str(), gpu.compute_capability) {
        ("nvidia", Some(100..)) => "dgx-b200",
        ("nvidia", Some(90..)) => "dgx-h100",
        ("nvidia", _) => "dgx-a100",
        _ => "mi300x-8x",
    }
}

/// GPUs per node and the NVLink domain.
fn shape(cluster: &mut Cluster, row: &RunRow, assumptions: &mut Vec<Assumption>) {
    let node = &mut cluster.groups[0].node;
    if row.gpus_per_node.is_none() {
        assumptions.push(assumed(format!("{} GPUs per node", node.gpus)));
    }
    let mut gpus = row.gpus_per_node.unwrap_or(node.gpus);
    if row.n_gpus > u64::from(gpus) && !row.n_gpus.is_multiple_of(u64::from(gpus)) {
        gpus = greatest_divisor(row.n_gpus, gpus);
        assumptions
            .push(assumed(format!("{gpus} GPUs used per node, since {} do not fill nodes", row.n_gpus)));
    }
    let domain = row.nvlink_domain.unwrap_or(if node.domain == node.gpus { gpus } else { node.domain });
    if row.nvlink_domain.is_none() {
        assumptions.push(assumed(format!("{domain} GPUs per NVLink domain")));
    }
    node.gpus = gpus;
    node.nics = gpus.min(node.nics.max(1));
    node.domain = domain;
}

/// The greatest common divisor: the most GPUs per node, up to `high`, that divide `n`.
fn greatest_divisor(n: u64, high: u32) -> u32 {
    (1..=high).rev().find(|&d| n.is_multiple_of(u64::from(d))).unwrap_or(1)
}

/// The rate between nodes: stated, or 25 GB/s per GPU up to Ampere's generation and 50 GB/s after it.
fn set_network(cluster: &mut Cluster, row: &RunRow, assumptions: &mut Vec<Assumption>) {
    let gpu = cluster.gpu();
    let older = gpu.vendor == "nvidia" && gpu.compute_capability.is_none_or(|capability| capability < 90);
    let rate = row.nic_gbytes_per_second.unwrap_or(if older { 25.0 } else { 50.0 });
    let inter = &mut cluster.groups[0].node.inter;
    if row.nic_gbytes_per_second.is_none() {
        let what = format!("{rate} GB/s per GPU between nodes, as is usual for {}", row.gpu);
        assumptions.push(assumed(what));
    }
    inter.bandwidth = BytesPerSecond(rate * 1e9);
    network_kind(&row.interconnect).clone_into(&mut inter.kind);
    inter.source =
        if row.interconnect.is_empty() { "not stated".to_owned() } else { row.interconnect.clone() };
}

/// The stated memory where it clearly names another part than the catalogue's.
fn set_memory(cluster: &mut Cluster, row: &RunRow, assumptions: &mut Vec<Assumption>) {
    let Some(stated) = row.gpu_memory_gb else { return };
    let gpu = &mut cluster.groups[0].gpu;
    if (stated / gpu.memory.as_gib() - 1.0).abs() > 0.15 {
        assumptions.push(assumed(format!("{stated} GiB of memory, as the row says, not the catalogue's")));
        gpu.memory = Bytes::gib(stated);
    }
}

/// nanotron's start-up test: `AR/AG/RS GB/s world=425.34/241.26/241.67`, bus bandwidth over all GPUs.
fn startup_test(notes: &str) -> Option<MeasuredCollectives> {
    let figures = notes.split_once("AR/AG/RS GB/s world=")?.1.split(';').next()?;
    let rates: Vec<f64> = figures.trim().split('/').map_while(|rate| rate.parse().ok()).collect();
    let [all_reduce, all_gather, reduce_scatter] = rates[..] else { return None };
    let rate = |gigabytes: f64| (1e-3..1e5).contains(&gigabytes).then_some(BytesPerSecond(gigabytes * 1e9));
    Some(MeasuredCollectives {
        all_reduce: rate(all_reduce)?,
        all_gather: rate(all_gather)?,
        reduce_scatter: rate(reduce_scatter)?,
        source: "start-up test of the run itself".to_owned(),
    })
}
