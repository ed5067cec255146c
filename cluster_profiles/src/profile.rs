//! Cluster profiles: from TOML and back.

use crate::catalog;
use crate::cluster::{Cluster, Link, NodeGroup, NodeShape};
use crate::error::ProfileError;
use crate::faults::nearest;
use crate::gpu::Gpu;
use crate::hosts::{Layout, SPINE};
use crate::layers::{MeasuredLayer, MeasuredOptimizer};
use crate::links::{HostMatrix, HostSet, LinkOverride};
use crate::measured::{MeasuredCollective, MeasuredCollectives};
use crate::quantity;
use crate::read::{self, Section};
use crate::write::{Toml, quoted};
use std::collections::BTreeSet;

/// Most hosts whose names are checked against those that links and sets use.
const MOST_NAMED: u64 = 1 << 20;

/// Gives the text of a file that a profile names (`gpu = "./mygpu.toml"`), or says why not.
pub type Loader<'l> = &'l dyn Fn(&str) -> Result<String, String>;

impl Cluster {
    /// Reads a profile. A group's `gpu` is a catalogue name, a path that `load` reads, or a table of its own.
    ///
    /// # Errors
    /// [`ProfileError`] naming every wrong field, with line and column.
    pub fn from_toml(origin: &str, text: &str, load: Loader) -> Result<Self, ProfileError> {
        read::read(origin, text, |section| Self::read(section, load))
    }

    /// Writes the profile; reading it gives an equal cluster, to the bit. GPUs of the catalogue are named, others are
    /// written out.
    ///
    /// # Errors
    /// [`ProfileError::Faults`] where a figure is one that a profile may not hold.
    pub fn to_toml(&self) -> Result<String, ProfileError> {
        let mut toml = Toml::default();
        self.write(&mut toml);
        let text = toml.finish();
        Self::from_toml(&self.name, &text, &|path| Err(format!("`{path}` is not read here"))).map(|_| text)
    }

    fn read(section: &Section, load: Loader) -> Self {
        let cluster = Self {
            name: section.text("name"),
            aliases: section.texts("aliases"),
            title: section.text("title"),
            source: section.optional_text("source"),
            oversubscription: section.optional_number("oversubscription", 1.0..=1024.0).unwrap_or(1.0),
            nodes_per_leaf: section.optional_count("nodes_per_leaf", 1..=1 << 21),
            groups: section.sections("groups", |group| NodeGroup::read(group, load)),
            leaves: section.sections("leaves", HostSet::read),
            domains: section.sections("domains", HostSet::read),
            links: section.sections("links", LinkOverride::read),
            matrix: section.optional_section("matrix", HostMatrix::read),
            measured: section.optional_section("measured", MeasuredCollectives::read),
            collectives: section.sections("collectives", MeasuredCollective::read),
            layers: section.sections("layers", MeasuredLayer::read),
            optimizers: section.sections("optimizers", MeasuredOptimizer::read),
        };
        if cluster.groups.is_empty() {
            section.fault("groups", "is empty: a cluster needs at least one group of nodes");
        }
        cluster.check_hosts(section);
        cluster
    }

    /// Names that do not belong together.
    fn check_hosts(&self, section: &Section) {
        if self.oversubscription > 1.0 && self.nodes_per_leaf.is_none() && self.leaves.is_empty() {
            section
                .fault("oversubscription", "needs nodes_per_leaf or [[leaves]]: which nodes share a switch?");
        }
        let named = self.groups.iter().any(|group| !group.hosts.is_empty());
        let used = !(self.leaves.is_empty() && self.domains.is_empty() && self.links.is_empty());
        if !(named || used || self.matrix.is_some()) {
            return;
        }
        if self.node_count() > MOST_NAMED {
            section.fault("groups", &format!("have too many nodes to name them: at most {MOST_NAMED}"));
            return;
        }
        let layout = Layout::of(self);
        let mut hosts = BTreeSet::new();
        for host in &layout.hosts {
            if !hosts.insert(host.name.as_str()) {
                section.fault("groups", &format!("name the host `{}` twice", host.name));
            }
        }
        for switch in layout.leaves.iter().chain(&layout.domains).map(String::as_str).chain([SPINE]) {
            if hosts.contains(switch) {
                section.fault("groups", &format!("name a host `{switch}` like a switch or domain"));
            }
        }
        self.check_sets(section, &hosts);
        let ends = layout.names();
        for end in self.links.iter().flat_map(|link| &link.between) {
            check_name(section, "links", end, &ends);
        }
        for link in &self.links {
            let [a, b] = &link.between;
            let known = [a, b].iter().all(|end| ends.contains(end.as_str()));
            if known && !layout.joins(a, b) {
                let what = format!(
                    "name `{a}` and `{b}`, which no link joins: a host is joined to its own leaf and its own domain, a leaf \
                     to `{SPINE}`, and two hosts stand for the whole way between them"
                );
                section.fault("links", &what);
            }
        }
        for host in self.matrix.iter().flat_map(|matrix| &matrix.hosts) {
            check_name(section, "matrix", host, &hosts);
        }
    }

    fn check_sets(&self, section: &Section, hosts: &BTreeSet<&str>) {
        for (key, sets) in [("leaves", &self.leaves), ("domains", &self.domains)] {
            let (mut members, mut names) = (BTreeSet::new(), BTreeSet::new());
            for set in sets {
                if !names.insert(&set.name) {
                    section.fault(key, &format!("use the name `{}` twice", set.name));
                }
                for host in &set.hosts {
                    check_name(section, key, host, hosts);
                    if !members.insert(host) {
                        section.fault(key, &format!("hold the host `{host}` twice"));
                    }
                }
            }
        }
    }

    fn write(&self, toml: &mut Toml) {
        toml.text("name", &self.name);
        toml.texts("aliases", &self.aliases);
        toml.text("title", &self.title);
        toml.optional_text("source", self.source.as_ref());
        if self.oversubscription != 1.0 {
            toml.number("oversubscription", self.oversubscription);
        }
        toml.optional_number("nodes_per_leaf", self.nodes_per_leaf.map(f64::from));
        self.groups.iter().for_each(|group| group.write(toml));
        self.leaves.iter().for_each(|set| set.write(toml, "leaves"));
        self.domains.iter().for_each(|set| set.write(toml, "domains"));
        self.links.iter().for_each(|link| link.write(toml));
        if let Some(matrix) = &self.matrix {
            matrix.write(toml);
        }
        if let Some(measured) = &self.measured {
            measured.write(toml);
        }
        self.collectives.iter().for_each(|measured| measured.write(toml));
        self.layers.iter().for_each(|layer| layer.write(toml));
        self.optimizers.iter().for_each(|optimizer| optimizer.write(toml));
    }
}

fn check_name(section: &Section, key: &str, name: &str, known: &BTreeSet<&str>) {
    if !name.is_empty() && !known.contains(name) {
        let near = nearest(name, known.iter().copied());
        let hint = near.first().map(|near| format!(", did you mean `{near}`?")).unwrap_or_default();
        let name: String = name.chars().take(60).collect();
        section.fault(key, &format!("name `{name}`, which the profile does not have{hint}"));
    }
}

impl NodeGroup {
    fn read(section: &Section, load: Loader) -> Self {
        let (nodes, sound) = section.sound(|s| s.count("nodes", 1..=1 << 21));
        let group = Self {
            gpu: read_gpu(section, load).unwrap_or_else(|| section.placeholder(Gpu::read)),
            nodes,
            hosts: section.texts("hosts"),
            dollars_per_gpu_hour: section.optional_number("dollars_per_gpu_hour", 0.0..=1e6),
            price_source: section.optional_text("price_source"),
            node: section.section("node", NodeShape::read),
        };
        if sound && !group.hosts.is_empty() && group.hosts.len() != nodes as usize {
            section.fault("hosts", &format!("has {} names for {} nodes", group.hosts.len(), nodes));
        }
        if group.dollars_per_gpu_hour.is_some() && group.price_source.is_none() {
            section.fault("dollars_per_gpu_hour", "needs a price_source");
        }
        group
    }

    fn write(&self, toml: &mut Toml) {
        toml.table("[groups]");
        let listed = catalog::gpu(&self.gpu.name).is_ok_and(|gpu| gpu == self.gpu);
        if listed {
            toml.text("gpu", &self.gpu.name);
        }
        toml.number("nodes", self.nodes.into());
        toml.texts("hosts", &self.hosts);
        toml.optional_number("dollars_per_gpu_hour", self.dollars_per_gpu_hour);
        toml.optional_text("price_source", self.price_source.as_ref());
        toml.table("groups.node");
        self.node.write(toml);
        if !listed {
            toml.table("groups.gpu");
            self.gpu.write(toml, "groups.gpu.");
        }
    }
}

/// The GPU of a group: a name of the catalogue, a path, or a table.
fn read_gpu(section: &Section, load: Loader) -> Option<Gpu> {
    if section.has_table("gpu") {
        return Some(section.section("gpu", Gpu::read));
    }
    section.parsed("gpu", |name| match name.contains('/') || name.ends_with(".toml") {
        true => load(name).and_then(|text| Gpu::from_toml(name, &text).map_err(|error| error.to_string())),
        false => catalog::gpu(name).map_err(|error| match error.hint() {
            Some(hint) => format!("{error}: {hint}"),
            None => error.to_string(),
        }),
    })
}

impl NodeShape {
    fn read(section: &Section) -> Self {
        let node = Self {
            gpus: section.count("gpus", 1..=1024),
            domain: section.count("domain", 1..=1 << 16),
            nics: section.count("nics", 1..=1024),
            intra: section.section("intra", Link::read),
            inter: section.section("inter", Link::read),
            host: section.section("host", Link::read),
            memory: section.has("memory").then(|| section.bytes("memory", 1e9..=1e15)),
        };
        if !node.domain.is_multiple_of(node.gpus) && !node.gpus.is_multiple_of(node.domain) {
            section
                .fault("domain", &format!("is {}: no whole number of {}-GPU nodes", node.domain, node.gpus));
        }
        node
    }

    fn write(&self, toml: &mut Toml) {
        toml.number("gpus", self.gpus.into());
        toml.number("domain", self.domain.into());
        toml.number("nics", self.nics.into());
        for (key, link) in [("intra", &self.intra), ("inter", &self.inter), ("host", &self.host)] {
            link.write(toml, key);
        }
        if let Some(memory) = self.memory {
            toml.bytes("memory", memory);
        }
    }
}

impl Link {
    fn read(section: &Section) -> Self {
        Self {
            kind: section.text("kind"),
            latency: section.seconds("latency", 0.0..=1.0),
            bandwidth: section.bytes_per_second("bandwidth", 1e6..=1e15),
            source: section.text("source"),
        }
    }

    fn write(&self, toml: &mut Toml, key: &str) {
        let (latency, bandwidth) =
            (quantity::write_seconds(self.latency), quantity::write_bytes_per_second(self.bandwidth));
        let (kind, source) = (quoted(&self.kind), quoted(&self.source));
        toml.raw(
            key,
            &format!(
                "{{ kind = {kind}, latency = \"{latency}\", bandwidth = \"{bandwidth}\", source = {source} }}"
            ),
        );
    }
}
