//! A cluster: groups of equal nodes, the links inside a node and those that leave it.

use crate::error::ProfileError;
use crate::gpu::Gpu;
use crate::layers::{MeasuredLayer, MeasuredOptimizer};
use crate::links::{HostMatrix, HostSet, LinkOverride};
use crate::measured::{Collective, MeasuredCollective, MeasuredCollectives};
use crate::units::{Bytes, BytesPerSecond, Seconds};
use serde::{Deserialize, Serialize};

/// A link tier, per GPU and direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// `nvlink`, `pcie`, `infiniband`, `ethernet`, `efa`, `xgmi`, `slingshot`, `hccs`.
    pub kind: String,
    /// Time of the smallest message.
    pub latency: Seconds,
    /// Nominal rate per GPU per direction.
    pub bandwidth: BytesPerSecond,
    /// Datasheet, page or import the figures come from.
    pub source: String,
}

/// What one node looks like.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeShape {
    /// GPUs in a node (a host).
    pub gpus: u32,
    /// GPUs that reach each other over `intra` without leaving the domain; more than `gpus` where racks share NVLink.
    pub domain: u32,
    /// The link inside the domain.
    pub intra: Link,
    /// The link between domains, per GPU.
    pub inter: Link,
    /// Network interfaces of a node.
    pub nics: u32,
    /// Host link of a GPU (offload traffic), per direction.
    pub host: Link,
    /// Memory of the host, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
}

/// Equal nodes with GPUs of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeGroup {
    /// The GPU kind.
    pub gpu: Gpu,
    /// Number of nodes.
    pub nodes: u32,
    /// Names of the nodes, in rank order; empty for `node0`, `node1`, ... counted through the cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// The node.
    pub node: NodeShape,
    /// Price of one GPU for an hour, in US dollars, where public.
    pub dollars_per_gpu_hour: Option<f64>,
    /// Source of the price.
    pub price_source: Option<String>,
}

/// A cluster. Groups are listed in rank order; most clusters have one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cluster {
    /// Catalogue name or the name a profile gives itself.
    pub name: String,
    /// Other names it goes by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// One line for people.
    pub title: String,
    /// The nodes.
    pub groups: Vec<NodeGroup>,
    /// Downlink over uplink capacity of the leaf switches: 1 for a full fat tree.
    pub oversubscription: f64,
    /// Nodes below one leaf switch, where it matters (`oversubscription` above 1).
    pub nodes_per_leaf: Option<u32>,
    /// Where the profile as a whole comes from, for an imported one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Hosts by leaf switch, where it is known; takes the place of `nodes_per_leaf`. Hosts not named share one more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leaves: Vec<HostSet>,
    /// Hosts by NVLink domain, where domains span hosts and are not all full. Hosts not named stand alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<HostSet>,
    /// Links that differ from their tier.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkOverride>,
    /// Bandwidth between every two hosts, where it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matrix: Option<HostMatrix>,
    /// Bandwidth over the whole cluster, where it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<MeasuredCollectives>,
    /// Collectives measured on groups of given shapes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub collectives: Vec<MeasuredCollective>,
    /// Layers measured on its GPUs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<MeasuredLayer>,
    /// Optimizer steps measured on its GPUs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub optimizers: Vec<MeasuredOptimizer>,
}

/// How a communication group of `ranks`, `stride` apart, lies on the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GroupShape {
    /// Members.
    pub ranks: u32,
    /// Members that share one NVLink domain.
    pub per_domain: u32,
    /// Domains touched.
    pub domains: u32,
}

impl GroupShape {
    /// A group of `ranks` members, `stride` global ranks apart, on domains of `domain` GPUs each.
    #[must_use]
    pub fn within(domain: u32, ranks: u32, stride: u32) -> Self {
        let per_domain = (domain / stride.max(1)).clamp(1, ranks.max(1));
        Self { ranks, per_domain, domains: ranks.div_ceil(per_domain) }
    }

    /// Two ranks that send to each other, inside a domain or across two.
    #[must_use]
    pub const fn neighbours(local: bool) -> Self {
        let per_domain = if local { 2 } else { 1 };
        Self { ranks: 2, per_domain, domains: 2 / per_domain }
    }

    /// Whether the group never leaves an NVLink domain.
    #[must_use]
    pub const fn is_local(self) -> bool {
        self.domains <= 1
    }
}

impl Cluster {
    /// GPUs of all groups.
    #[must_use]
    pub fn gpu_count(&self) -> u64 {
        self.groups.iter().map(|g| u64::from(g.nodes) * u64::from(g.node.gpus)).sum()
    }

    /// Nodes of all groups.
    #[must_use]
    pub fn node_count(&self) -> u64 {
        self.groups.iter().map(|g| u64::from(g.nodes)).sum()
    }

    /// Whether every node has the same GPUs and links.
    #[must_use]
    pub fn is_homogeneous(&self) -> bool {
        self.groups.len() == 1
    }

    /// Whether it makes no difference which host takes which place: equal nodes, and nothing known of single links.
    #[must_use]
    pub fn is_even(&self) -> bool {
        let oversubscribed = self.oversubscription > 1.0 && self.leaves.len() > 1;
        self.is_homogeneous() && self.links.is_empty() && self.matrix.is_none() && !oversubscribed
    }

    /// The first group: the whole cluster when homogeneous.
    #[must_use]
    pub fn main(&self) -> &NodeGroup {
        &self.groups[0]
    }

    /// The GPU kind of the first group.
    #[must_use]
    pub fn gpu(&self) -> &Gpu {
        &self.main().gpu
    }

    /// The same cluster with `gpus` GPUs: nodes of the last group are added or cut. Fewer GPUs than one node has give
    /// one smaller node.
    ///
    /// # Errors
    /// [`ProfileError::Size`] if `gpus` is zero, absurd, or no multiple of the node size.
    pub fn resized(&self, gpus: u64) -> Result<Self, ProfileError> {
        let refuse =
            |reason: &str| ProfileError::Size { cluster: self.name.clone(), gpus, reason: reason.to_owned() };
        if gpus == 0 || gpus > 1 << 24 {
            return Err(refuse("expected between 1 and 16,777,216"));
        }
        if !self.is_homogeneous() {
            return self.resized_mixed(gpus);
        }
        let mut cluster = self.clone();
        let group = &mut cluster.groups[0];
        let per_node = u64::from(group.node.gpus);
        if gpus < per_node {
            group.node.domain = group.node.domain.min(gpus as u32);
            group.node.gpus = gpus as u32;
            group.nodes = 1;
            cluster.fit_hosts();
            return Ok(cluster);
        }
        if !gpus.is_multiple_of(per_node) {
            return Err(refuse(&format!("its nodes have {per_node} GPUs each")));
        }
        group.nodes = (gpus / per_node) as u32;
        cluster.fit_hosts();
        Ok(cluster)
    }

    fn resized_mixed(&self, gpus: u64) -> Result<Self, ProfileError> {
        let mut cluster = self.clone();
        let mut left = gpus;
        for group in &mut cluster.groups {
            let per_node = u64::from(group.node.gpus);
            let nodes = (left / per_node).min(u64::from(group.nodes));
            group.nodes = nodes as u32;
            left -= nodes * per_node;
        }
        cluster.groups.retain(|g| g.nodes > 0);
        cluster.fit_hosts();
        if left == 0 && !cluster.groups.is_empty() {
            return Ok(cluster);
        }
        Err(ProfileError::Size {
            cluster: self.name.clone(),
            gpus,
            reason: format!("a mixed cluster is only cut to whole nodes; it has {} GPUs", self.gpu_count()),
        })
    }

    /// GPUs of the smallest NVLink domain of the first group: no group of ranks may count on more.
    #[must_use]
    pub fn smallest_domain(&self) -> u32 {
        let node = &self.main().node;
        let named = self.domains.iter().map(|set| set.hosts.len() as u32 * node.gpus).min();
        named.map_or(node.domain, |gpus| gpus.min(node.domain)).max(1)
    }

    /// The measurement of a collective on a group of this shape, where there is one.
    #[must_use]
    pub fn measured_collective(&self, op: Collective, shape: GroupShape) -> Option<&MeasuredCollective> {
        self.collectives.iter().find(|measured| measured.fits(op, shape))
    }

    /// How a group of `ranks` members, `stride` global ranks apart, lies on the domains of the first group.
    #[must_use]
    pub fn group_shape(&self, ranks: u32, stride: u32) -> GroupShape {
        GroupShape::within(self.smallest_domain(), ranks, stride)
    }
}

#[cfg(test)]
mod tests {
    use crate::catalog;

    #[test]
    fn a_strided_group_leaves_the_node() -> Result<(), crate::ProfileError> {
        let cluster = catalog::cluster("dgx-h100")?.resized(64)?;
        assert!(cluster.group_shape(8, 1).is_local());
        let strided = cluster.group_shape(8, 4);
        assert_eq!((strided.per_domain, strided.domains), (2, 4));
        let spread = cluster.group_shape(8, 8);
        assert_eq!((spread.per_domain, spread.domains), (1, 8));
        Ok(())
    }

    #[test]
    fn sizes_that_do_not_fill_nodes_are_refused() -> Result<(), crate::ProfileError> {
        let cluster = catalog::cluster("dgx-h100")?;
        assert!(cluster.resized(0).is_err());
        assert!(cluster.resized(12).is_err());
        assert_eq!(cluster.resized(4)?.gpu_count(), 4);
        assert_eq!(cluster.resized(1024)?.node_count(), 128);
        Ok(())
    }
}
