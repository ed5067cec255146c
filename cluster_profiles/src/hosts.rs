//! The hosts of a cluster by name: which leaf switch and NVLink domain each belongs to, and what remains of a profile
//! when hosts come or go.

use crate::cluster::{Cluster, NodeGroup};
use crate::error::ProfileError;
use crate::faults::nearest;
use crate::links::HostSet;
use std::collections::{BTreeMap, BTreeSet};

/// Name of the switch above all leaf switches.
pub(crate) const SPINE: &str = "spine";
/// Name of the leaf switch of hosts that no `[[leaves]]` names.
const OTHER_LEAF: &str = "leaf-other";

/// A host and where it hangs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub name: String,
    /// Index of the group of nodes.
    pub group: usize,
    /// Index into [`Layout::leaves`].
    pub leaf: usize,
    /// Index into [`Layout::domains`].
    pub domain: usize,
}

/// Every host in rank order, with the names of switches and domains.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    pub hosts: Vec<Place>,
    pub leaves: Vec<String>,
    pub domains: Vec<String>,
}

impl Layout {
    pub(crate) fn of(cluster: &Cluster) -> Self {
        let mut names = cluster.host_names().into_iter();
        let (leaf_of, domain_of) = (index(&cluster.leaves), index(&cluster.domains));
        let (mut leaves, mut domains) = (Names::default(), Names::default());
        let mut hosts = Vec::new();
        for (group, nodes) in cluster.groups.iter().enumerate() {
            let per_domain = (nodes.node.domain / nodes.node.gpus.max(1)).max(1) as usize;
            let first_domain = domains.list.len();
            let count = if nodes.hosts.is_empty() { nodes.nodes as usize } else { nodes.hosts.len() };
            for (i, name) in names.by_ref().take(count).enumerate() {
                let leaf = match (&leaf_of, cluster.nodes_per_leaf) {
                    (Some(sets), _) => sets.get(name.as_str()).copied().unwrap_or(OTHER_LEAF).to_owned(),
                    (None, Some(size)) => format!("leaf{}", hosts.len() / size.max(1) as usize),
                    (None, None) => "leaf0".to_owned(),
                };
                let domain = match &domain_of {
                    Some(sets) => {
                        sets.get(name.as_str()).map_or_else(|| format!("domain-{name}"), |d| (*d).into())
                    }
                    None => format!("domain{}", first_domain + i / per_domain),
                };
                let (leaf, domain) = (leaves.position(leaf), domains.position(domain));
                hosts.push(Place { name, group, leaf, domain });
            }
        }
        Self { hosts, leaves: leaves.list, domains: domains.list }
    }

    /// Whether there is a link of these two ends: a host and its leaf or domain, a leaf and the spine, two hosts.
    pub(crate) fn joins(&self, a: &str, b: &str) -> bool {
        let host = |name: &str| self.hosts.iter().find(|host| host.name == name);
        let switch =
            |host: &Place, name: &str| self.leaves[host.leaf] == name || self.domains[host.domain] == name;
        let is_leaf = |name: &str| self.leaves.iter().any(|leaf| leaf == name);
        match (host(a), host(b)) {
            (Some(a), Some(b)) => a.name != b.name,
            (Some(host), None) => switch(host, b),
            (None, Some(host)) => switch(host, a),
            (None, None) => (a == SPINE && is_leaf(b)) || (b == SPINE && is_leaf(a)),
        }
    }

    /// Every name a link may end at.
    pub(crate) fn names(&self) -> BTreeSet<&str> {
        let hosts = self.hosts.iter().map(|host| host.name.as_str());
        let switches = self.leaves.iter().chain(&self.domains).map(String::as_str);
        hosts.chain(switches).chain([SPINE]).collect()
    }

    fn sets(&self, names: &[String], of: impl Fn(&Place) -> usize) -> Vec<HostSet> {
        let mut sets: Vec<HostSet> =
            names.iter().map(|name| HostSet { name: name.clone(), hosts: Vec::new() }).collect();
        for host in &self.hosts {
            sets[of(host)].hosts.push(host.name.clone());
        }
        sets
    }
}

/// Name of the set of each host; nothing where there are no sets.
fn index(sets: &[HostSet]) -> Option<BTreeMap<&str, &str>> {
    let pairs = sets.iter().flat_map(|set| set.hosts.iter().map(|host| (host.as_str(), set.name.as_str())));
    (!sets.is_empty()).then(|| pairs.collect())
}

/// Names in order of appearance.
#[derive(Debug, Default)]
struct Names {
    list: Vec<String>,
    index: BTreeMap<String, usize>,
}

impl Names {
    /// Index of `name`, which is appended if new.
    fn position(&mut self, name: String) -> usize {
        let list = &mut self.list;
        *self.index.entry(name).or_insert_with_key(|name| {
            list.push(name.clone());
            list.len() - 1
        })
    }
}

impl Cluster {
    /// Names of the hosts, in rank order.
    #[must_use]
    pub fn host_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for group in &self.groups {
            let first = names.len();
            if group.hosts.is_empty() {
                names.extend((0..group.nodes as usize).map(|i| format!("node{}", first + i)));
            } else {
                names.extend(group.hosts.iter().cloned());
            }
        }
        names
    }

    /// The cluster without some hosts, as after a failure: every other host keeps its name, switch and domain.
    ///
    /// # Errors
    /// [`ProfileError::UnknownHost`] with the nearest names, [`ProfileError::Size`] if no host is left.
    pub fn without(&self, lost: &[String]) -> Result<Self, ProfileError> {
        let names = self.host_names();
        let known: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        if let Some(unknown) = lost.iter().find(|name| !known.contains(name.as_str())) {
            return Err(self.unknown_host(unknown, &names));
        }
        let mut cluster = self.with_everything_named(names);
        let lost: BTreeSet<&String> = lost.iter().collect();
        for group in &mut cluster.groups {
            group.hosts.retain(|host| !lost.contains(host));
            group.nodes = group.hosts.len() as u32;
        }
        cluster.groups.retain(|group| group.nodes > 0);
        if cluster.groups.is_empty() {
            let reason = "every host is lost".to_owned();
            return Err(ProfileError::Size { cluster: cluster.name, gpus: 0, reason });
        }
        cluster.forget_gone_hosts();
        Ok(cluster)
    }

    /// The cluster of these hosts in this order: ranks fill the first, then the second, and so on. Every host keeps its
    /// name, switch, domain and links; hosts that are not named are left out.
    ///
    /// # Errors
    /// [`ProfileError::UnknownHost`], or [`ProfileError::Size`] if there is no host or one is named twice.
    pub fn arranged(&self, hosts: &[String]) -> Result<Self, ProfileError> {
        let refuse = |reason: String| ProfileError::Size { cluster: self.name.clone(), gpus: 0, reason };
        let names = self.host_names();
        let mut cluster = self.with_everything_named(names.clone());
        let group_of: BTreeMap<String, usize> = cluster
            .groups
            .iter()
            .enumerate()
            .flat_map(|(index, group)| group.hosts.iter().map(move |host| (host.clone(), index)))
            .collect();
        let mut groups: Vec<NodeGroup> = Vec::new();
        let (mut last, mut seen) = (None, BTreeSet::new());
        for host in hosts {
            let Some(&index) = group_of.get(host) else { return Err(self.unknown_host(host, &names)) };
            if !seen.insert(host) {
                return Err(refuse(format!("host `{host}` is named twice")));
            }
            match groups.last_mut().filter(|_| last == Some(index)) {
                Some(group) => {
                    group.hosts.push(host.clone());
                    group.nodes += 1;
                }
                None => groups.push(NodeGroup {
                    nodes: 1,
                    hosts: vec![host.clone()],
                    ..cluster.groups[index].clone()
                }),
            }
            last = Some(index);
        }
        if groups.is_empty() {
            return Err(refuse("no host is named".to_owned()));
        }
        cluster.groups = groups;
        cluster.forget_gone_hosts();
        Ok(cluster)
    }

    fn unknown_host(&self, name: &str, known: &[String]) -> ProfileError {
        ProfileError::UnknownHost {
            cluster: self.name.clone(),
            name: name.to_owned(),
            nearest: nearest(name, known.iter().map(String::as_str)),
        }
    }

    /// The same with the names, leaf switches and NVLink domains written down that follow from counting.
    fn with_everything_named(&self, names: Vec<String>) -> Self {
        let mut cluster = self.clone();
        let layout = Layout::of(self);
        if self.nodes_per_leaf.is_some() || !self.leaves.is_empty() {
            cluster.leaves = layout.sets(&layout.leaves, |host| host.leaf);
        }
        let counted_domains = !self.links.is_empty() || !self.domains.is_empty();
        if counted_domains || self.groups.iter().any(|g| g.node.domain > g.node.gpus) {
            cluster.domains = layout.sets(&layout.domains, |host| host.domain);
        }
        let mut names = names.into_iter();
        for group in &mut cluster.groups {
            group.hosts = names.by_ref().take(group.nodes as usize).collect();
        }
        cluster
    }

    /// Fits the names to the number of nodes: cuts those at the end, names those that came, and forgets what is said
    /// of hosts that are gone.
    pub(crate) fn fit_hosts(&mut self) {
        let mut taken: BTreeSet<String> = self.groups.iter().flat_map(|g| g.hosts.iter().cloned()).collect();
        for group in self.groups.iter_mut().filter(|group| !group.hosts.is_empty()) {
            group.hosts.truncate(group.nodes as usize);
            let fresh = (0..).map(|i| format!("added{i}")).filter(|name| !taken.contains(name));
            let fresh: Vec<String> = fresh.take(group.nodes as usize - group.hosts.len()).collect();
            taken.extend(fresh.iter().cloned());
            group.hosts.extend(fresh);
        }
        self.forget_gone_hosts();
    }

    /// Drops host sets, links and matrix entries that name what is no longer there.
    fn forget_gone_hosts(&mut self) {
        if self.leaves.is_empty() && self.domains.is_empty() && self.links.is_empty() && self.matrix.is_none()
        {
            return;
        }
        let hosts: BTreeSet<String> = self.host_names().into_iter().collect();
        for sets in [&mut self.leaves, &mut self.domains] {
            sets.iter_mut().for_each(|set| set.hosts.retain(|host| hosts.contains(host)));
            sets.retain(|set| !set.hosts.is_empty());
        }
        let layout = Layout::of(self);
        let names = layout.names();
        self.links.retain(|link| link.between.iter().all(|end| names.contains(end.as_str())));
        self.matrix = self.matrix.take().map(|matrix| matrix.only(|host| hosts.contains(host)));
    }
}
