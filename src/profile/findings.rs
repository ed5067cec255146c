//! What imports find, before it becomes a profile.

use super::samples::Samples;
use cluster_profiles::{
    Bytes, BytesPerSecond, Collective, Gpu, HostSet, LinkOverride, MeasuredLayer, MeasuredOptimizer, Seconds,
};
use serde::Serialize;
use std::collections::BTreeMap;

/// Runs of one file that are kept apart.
const MOST_RUNS: u32 = 16;

/// Where something was read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Origin {
    /// Name of the tool.
    pub tool: String,
    /// Name of the file.
    pub file: String,
    /// First and last line, from 1.
    pub lines: Option<(u64, u64)>,
    /// Date as the file has it.
    pub date: Option<String>,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.tool, self.file)?;
        if let Some((first, last)) = self.lines {
            if first == last { write!(f, ", line {first}")? } else { write!(f, ", lines {first}-{last}")? }
        }
        match &self.date {
            Some(date) => write!(f, ", of {date}"),
            None => write!(f, ", no date in the file"),
        }
    }
}

/// A group that a collective was measured on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    /// The operation.
    pub op: Collective,
    /// Members.
    pub ranks: u32,
    /// Members on one host; none where the file does not say.
    pub per_host: Option<u32>,
}

/// Times by size from one file.
#[derive(Debug, Clone, Default)]
pub struct Curve {
    /// Where they come from.
    pub origin: Origin,
    /// Number of the run in its file, where it tells them apart.
    pub run: u32,
    /// Seconds by bytes of the full tensor.
    pub times: BTreeMap<u64, Samples>,
}

/// A host and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostFacts {
    /// Its name.
    pub name: String,
    /// GPUs seen on it.
    pub gpus: u32,
    /// Name of its GPU as the driver gives it.
    pub gpu: Option<String>,
    /// Where it was read.
    pub origin: Origin,
}

/// A rate measured from one host to another.
#[derive(Debug, Clone, PartialEq)]
pub struct Pair {
    /// Sender.
    pub from: String,
    /// Receiver.
    pub to: String,
    /// Network interface, where it was measured on one alone.
    pub rail: Option<u32>,
    /// Rate; zero where nothing passes.
    pub bandwidth: BytesPerSecond,
    /// Time of the smallest message.
    pub latency: Option<Seconds>,
}

/// A fact about links, with its source.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkFact {
    /// `nvlink`, `pcie`, `infiniband` and so on.
    pub kind: Option<String>,
    /// Rate per GPU per direction.
    pub bandwidth: Option<BytesPerSecond>,
    /// Time of the smallest message.
    pub latency: Option<Seconds>,
    /// Whether the rate is that of one network interface.
    pub per_nic: bool,
    /// Whether the rate is what the hardware should have, and not measured.
    pub nominal: bool,
    /// Where it was read.
    pub origin: Origin,
}

/// Which link of a node a fact is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkPlace {
    /// Inside the domain.
    Intra,
    /// Between domains.
    Inter,
    /// To the host's memory.
    Host,
}

impl LinkPlace {
    /// All of them and what they are called.
    pub const ALL: [(Self, &'static str); 3] = [
        (Self::Intra, "link inside the domain"),
        (Self::Inter, "link between domains"),
        (Self::Host, "link to the host"),
    ];
}

/// A training run that was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MeasuredRun {
    /// Where it was read.
    pub source: String,
    /// Steps that count; the first ones are left out.
    pub steps: usize,
    /// Median duration of a step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_time_seconds: Option<f64>,
    /// Median distance from it, relative.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
    /// Tokens per second and GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_second_per_gpu: Option<f64>,
    /// Model FLOP/s per GPU as the engine counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flops_per_second_per_gpu: Option<f64>,
    /// Largest memory allocated on a rank.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_allocated_bytes: Option<f64>,
    /// Largest memory reserved on a rank.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_reserved_bytes: Option<f64>,
}

/// NVLinks as a topology shows them; none between any GPUs where the counts are 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fabric {
    /// Fewest from a GPU to one of its neighbours.
    pub pair: u32,
    /// Fewest of a GPU to all of its neighbours together.
    pub all: u32,
    /// Where it was read.
    pub origin: Origin,
}

/// Everything found so far.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    /// Curves by group, one per file.
    pub curves: BTreeMap<Group, Vec<Curve>>,
    /// Hosts in order of appearance.
    pub hosts: Vec<HostFacts>,
    /// Rates between hosts.
    pub pairs: Vec<Pair>,
    /// Where the pairs come from.
    pub pair_origins: Vec<Origin>,
    /// Hosts by leaf switch.
    pub leaves: Vec<HostSet>,
    /// Hosts by NVLink domain.
    pub domains: Vec<HostSet>,
    /// Links that differ.
    pub links: Vec<LinkOverride>,
    /// Facts about the links of a node.
    pub link_facts: Vec<(LinkPlace, LinkFact)>,
    /// NVLinks of the GPUs of a node.
    pub fabric: Option<Fabric>,
    /// Network interfaces of a node, with where it was read.
    pub nics: Vec<(u32, Origin)>,
    /// GPUs of a node, with where it was read.
    pub node_gpus: Vec<(u32, Origin)>,
    /// GPUs that NVLink joins, where that is not the whole node.
    pub domain: Option<(u32, Origin)>,
    /// Downlink over uplink capacity of the leaf switches.
    pub oversubscription: Option<(f64, Origin)>,
    /// Bus bandwidth of collectives on large messages of unknown size.
    pub rates: Vec<(Group, BytesPerSecond, Origin)>,
    /// Odd links, in words.
    pub anomalies: Vec<String>,
    /// A GPU made of measurements, where the catalogue has none.
    pub gpu: Option<Gpu>,
    /// Measured layers.
    pub layers: Vec<MeasuredLayer>,
    /// Measured optimizer steps.
    pub optimizers: Vec<MeasuredOptimizer>,
    /// Measured runs.
    pub runs: Vec<MeasuredRun>,
    /// Names of the files read.
    pub files: Vec<String>,
    /// What was seen and could not be used, or not be inferred.
    pub notes: Vec<String>,
    /// What contradicts.
    pub contradictions: Vec<String>,
}

impl Findings {
    /// Notes a host, or one more GPU of it.
    pub fn host(&mut self, name: &str, gpus: u32, gpu: Option<&str>, origin: &Origin) {
        let known = self.hosts.iter().position(|host| host.name == name);
        let host = match known {
            Some(index) => &mut self.hosts[index],
            None => {
                self.hosts.push(HostFacts {
                    name: name.to_owned(),
                    origin: origin.clone(),
                    ..Default::default()
                });
                let last = self.hosts.len() - 1;
                &mut self.hosts[last]
            }
        };
        if let (Some(old), Some(new)) = (&host.gpu, gpu)
            && old != new
        {
            let first = &host.origin;
            self.contradictions.push(format!("{name} has {old} ({first}) and {new} ({origin})"));
        }
        host.gpus = host.gpus.max(gpus);
        if host.gpu.is_none() {
            host.gpu = gpu.map(str::to_owned);
        }
    }

    /// Notes something once.
    pub fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    /// Notes a contradiction once.
    pub fn contradict(&mut self, text: String) {
        if !self.contradictions.contains(&text) {
            self.contradictions.push(text);
        }
    }

    /// A time of `size` bytes for `group`, in the curve of `origin`'s file.
    pub fn time(&mut self, group: Group, origin: &Origin, size: u64, seconds: f64) {
        self.time_of_run(group, origin, 0, size, seconds);
    }

    /// The same in the curve of one run in the file; runs beyond `MOST_RUNS` share one.
    pub fn time_of_run(&mut self, group: Group, origin: &Origin, run: u32, size: u64, seconds: f64) {
        let run = run.min(MOST_RUNS);
        let curves = self.curves.entry(group).or_default();
        let same = |c: &Curve| c.run == run && c.origin.file == origin.file && c.origin.tool == origin.tool;
        let position = curves.iter().position(same);
        let curve = match position {
            Some(index) => &mut curves[index],
            None => {
                curves.push(Curve { origin: origin.clone(), run, times: BTreeMap::new() });
                let last = curves.len() - 1;
                &mut curves[last]
            }
        };
        if let (Some((first, last)), Some((new_first, new_last))) = (curve.origin.lines, origin.lines) {
            curve.origin.lines = Some((first.min(new_first), last.max(new_last)));
        }
        curve.times.entry(size).or_default().push(seconds);
    }

    /// Whether nothing at all was found.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.curves.is_empty()
            && self.hosts.is_empty()
            && self.pairs.is_empty()
            && self.leaves.is_empty()
            && self.domains.is_empty()
            && self.links.is_empty()
            && self.link_facts.is_empty()
            && self.nics.is_empty()
            && self.node_gpus.is_empty()
            && self.rates.is_empty()
            && self.gpu.is_none()
            && self.layers.is_empty()
            && self.optimizers.is_empty()
            && self.runs.is_empty()
    }
}

impl Curve {
    /// Median time of every size, ascending.
    #[must_use]
    pub fn points(&self) -> Vec<(Bytes, Seconds)> {
        let point = |(size, samples): (&u64, &Samples)| {
            samples.median().map(|time| (Bytes(*size as f64), Seconds(time)))
        };
        self.times.iter().filter_map(point).collect()
    }
}
